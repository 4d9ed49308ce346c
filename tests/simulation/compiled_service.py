"""The chain of ``service.py`` in compiled code: the same text for each message, the same CRC of it."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
from numba import njit

from cluster import NO_ANSWER, NOT_TAKEN
from tests.simulation.service import ChainService

# The state, in words. What is applied in compiled code is told later, in pairs of position and chain.
CHAIN, ECHOED, SERVICE_ID, UNTOLD, PAIRS_AT = range(5)
PAIRS = 256
NOTHING, ECHO = b".e"
QUOTE, BACKSLASH, FIRST_PRINTED, LAST_PRINTED = 0x27, 0x5C, 0x20, 0x7E
_TABLE = np.array([crc32(bytes([byte])) ^ crc32(b"\0") for byte in range(256)], np.int64)
_BEGIN, _AFTER_POSITION, _AFTER_NUMBER, _AFTER_TIMESTAMP, _END = (
    np.frombuffer(text, np.uint8) for text in (b"message ", b" (", b", ", b", b'", b"')")
)


@njit
def _with_bytes(crc, text):  # type: ignore[no-untyped-def]
    for byte in text:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc


@njit
def _with_number(crc, number):  # type: ignore[no-untyped-def]
    digits = 1
    while number // digits >= 10:
        digits *= 10
    while digits > 0:
        crc = (crc >> 8) ^ _TABLE[(crc ^ (48 + number // digits % 10)) & 0xFF]
        digits //= 10
    return crc


@njit
def _is_plain(payload):  # type: ignore[no-untyped-def]
    """Whether Python shows it as it is, between quotes."""
    for byte in payload:
        if byte < FIRST_PRINTED or byte > LAST_PRINTED or byte in (QUOTE, BACKSLASH):
            return False
    return True


class CompiledChainService(ChainService):
    """Compiled code takes plain text that asks for nothing or for an echo, Python all else."""

    max_answer_length = 1024

    def __init__(self, service_id: int, on_applied: Any) -> None:
        self.state = np.zeros(PAIRS_AT + 2 * PAIRS, np.int64)
        self.state[SERVICE_ID] = service_id
        super().__init__(service_id, on_applied)

    @property
    def chain(self) -> int:
        return int(self.state[CHAIN])

    @chain.setter
    def chain(self, chain: int) -> None:
        self.state[CHAIN] = chain

    @property
    def echoed(self) -> int:
        return int(self.state[ECHOED])

    @echoed.setter
    def echoed(self, echoed: int) -> None:
        self.state[ECHOED] = echoed

    def tell_applied(self) -> None:
        pairs = self.state[PAIRS_AT:].reshape(PAIRS, 2)[: self.state[UNTOLD]].tolist()
        self.state[UNTOLD] = 0
        for position, chain in pairs:
            self._on_applied(self._service_id, position, chain)

    def _add(self, position: int, kind: bytes, *details: object) -> None:
        self.tell_applied()
        super()._add(position, kind, *details)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        self.tell_applied()
        super().on_take_snapshot(snapshot_publication)

    @staticmethod
    @njit(boundscheck=True, cache=True)  # all that is compiled into it is in this file
    def on_session_message_compiled(
        state: np.ndarray,
        session_id: int,
        timestamp: int,
        position: int,
        payload: np.ndarray,
        answer: np.ndarray,
    ) -> int:
        untold = state[UNTOLD]
        if session_id <= 0 or untold == PAIRS or payload.size == 0 or payload.size > answer.size:
            return NOT_TAKEN
        if not (payload[0] == NOTHING or payload[0] == ECHO) or not _is_plain(payload):
            return NOT_TAKEN
        crc = _with_bytes(state[CHAIN] ^ 0xFFFF_FFFF, _BEGIN)
        crc = _with_bytes(_with_number(crc, position), _AFTER_POSITION)
        crc = _with_bytes(_with_number(crc, session_id), _AFTER_NUMBER)
        crc = _with_bytes(_with_number(crc, timestamp), _AFTER_TIMESTAMP)
        state[CHAIN] = _with_bytes(_with_bytes(crc, payload), _END) ^ 0xFFFF_FFFF
        state[PAIRS_AT + 2 * untold] = position
        state[PAIRS_AT + 2 * untold + 1] = state[CHAIN]
        state[UNTOLD] = untold + 1
        if payload[0] == NOTHING:
            return NO_ANSWER
        state[ECHOED] += 1
        answer[0] = 48 + state[SERVICE_ID]
        answer[1 : payload.size] = payload[1:]
        return payload.size
