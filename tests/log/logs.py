"""Random logs, and arrays as the kernels like them."""

from __future__ import annotations

import random
import struct

import numpy as np
from numba import config

from cluster.log.frames import LogParams
from cluster.protocol.enums import CloseReason, ClusterAction, ClusterTimeUnit
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from tests.log.naive import session_message

PARAMS = LogParams(term_length=64 * 1024, mtu=1408, initial_term_id=0, session_id=0x11223344)
MTUS = (64, 96, 288, 1408, 65_504)


def seeds(count: int) -> range:
    """Seeds of a random test; a few are enough where the kernels run as plain Python, which is slow."""
    return range(count // 5) if config.DISABLE_JIT else range(count)


def array(data: bytes) -> np.ndarray:
    """Read-only, as received bytes may be."""
    return np.frombuffer(data, np.uint8)


def room(length: int) -> np.ndarray:
    """An output that shows every byte that a kernel left unwritten."""
    return np.full(length, 0xEE, np.uint8)


def params(rng: random.Random) -> LogParams:
    return LogParams(
        term_length=64 * 1024,
        mtu=rng.choice(MTUS),
        initial_term_id=rng.choice((0, 7, 2**31 - 2, -5)),
        session_id=rng.choice((1, -1, 0x11223344, -(2**31))),
    )


def payload(rng: random.Random, longest: int = 3000) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 31, 32, 33, 100, 1344, 1345, rng.randrange(longest + 1))))


def entry(rng: random.Random, kind: str | None = None) -> bytes:
    """One message of the log: usually a session's, sometimes any other, sometimes nobody's."""
    time = rng.choice((1_700_000_000_000, rng.randrange(2**60), -(2**63), -5))
    kind = kind or rng.choice(
        ("message",) * 8 + ("service", "newer", "timer", "open", "close", "action", "term", "unknown")
    )
    match kind:
        case "message":
            return session_message(payload(rng), session=rng.randrange(1, 9), timestamp=time)
        case "service":
            return session_message(payload(rng), session=rng.randrange(1, 9) - (1 << 63), timestamp=time)
        case "newer":
            return session_message(payload(rng), version=99, extra_block=rng.randbytes(8), timestamp=time)
        case "timer":
            return TimerEvent(3, rng.randrange(100), time).encode()
        case "open":
            channel = "aeron:udp?endpoint=host:" + "1" * rng.randrange(80)
            principal = rng.randbytes(rng.choice((0, 5, 4096)))
            return SessionOpenEvent(3, 42, rng.randrange(1, 9), time, 102, channel, principal).encode()
        case "close":
            return SessionCloseEvent(3, 1, time, rng.choice(list(CloseReason))).encode()
        case "action":
            return ClusterActionRequest(3, 0, time, rng.choice(list(ClusterAction)), 0).encode()
        case "term":
            unit = rng.choice((None, *ClusterTimeUnit))
            return NewLeadershipTermEvent(3, 96, time, 0, 1, -7, unit, rng.choice((0, 1))).encode()
        case "unknown":
            return struct.pack("<HHHH", 8, rng.choice((25, 1000, 1)), rng.choice((112, 9)), 17) + bytes(40)
    raise AssertionError(kind)


def garbled(rng: random.Random, data: bytes) -> bytes:
    """The same with some bytes changed, most of them where headers are."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = min(
            len(out) - 1, rng.randrange(len(out)) // 32 * 32 + rng.randrange(48 if rng.random() < 0.8 else 9)
        )
        out[at] = rng.choice((0, 1, 0xFF, 0x80, rng.randrange(256)))
    return bytes(out)
