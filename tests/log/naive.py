"""The kernels' slow twins: plain Python over bytes, one frame at a time, written from the format alone."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster.log.frames import LogParams
from cluster.log.session_table import DROPPED_EGRESS, MESSAGES, SessionTable
from cluster.protocol.frame import align, frame, frame_header, position_bits, term_id_at, term_offset_at

SBE_HEADER = struct.Struct("<HHHH")
SESSION_HEADER = struct.Struct("<HHHHqqq")
N64, N32 = -(2**63), -(2**31)


def session_message(
    payload: bytes,
    *,
    term: int = 3,
    session: int = 1,
    timestamp: int = 0,
    template: int = 1,
    schema: int = 111,
    version: int = 17,
    extra_block: bytes = b"",
) -> bytes:
    """An SBE-encoded session message; ``extra_block`` stands for the fields of a newer version."""
    block_length = 24 + len(extra_block)
    header = SESSION_HEADER.pack(block_length, template, schema, version, term, session, timestamp)
    return header + extra_block + payload


def keep_alive(*, term: int = 3, session: int = 1) -> bytes:
    return struct.pack("<HHHHqq", 16, 5, 111, 17, term, session)


def ingress_frame(message: bytes, stream: int = 101) -> bytes:
    return frame(message, session_id=77, stream_id=stream)


# -- appending --


def append(position: int, message: bytes, params: LogParams) -> bytes:
    """The frames that a message becomes at ``position``, with the padding before it."""
    max_payload = params.mtu - 32
    pieces = [message[i : i + max_payload] for i in range(0, len(message), max_payload)]
    needed = sum(align(32 + len(piece)) for piece in pieces)
    bits = position_bits(params.term_length)
    out = b""
    rest = params.term_length - term_offset_at(position, bits)
    if needed > rest:
        header = frame_header(
            rest,
            session_id=params.session_id,
            stream_id=params.stream_id,
            term_id=term_id_at(position, bits, params.initial_term_id),
            term_offset=term_offset_at(position, bits),
            frame_type=0,
        )
        out += header + bytes(rest - 32)
    for i, piece in enumerate(pieces):
        at = position + len(out)
        out += frame(
            piece,
            session_id=params.session_id,
            stream_id=params.stream_id,
            term_id=term_id_at(at, bits, params.initial_term_id),
            term_offset=term_offset_at(at, bits),
            flags=(0x80 if i == 0 else 0) | (0x40 if i == len(pieces) - 1 else 0),
        )
    return out


def log_of(messages: list[bytes], params: LogParams, position: int = 0) -> bytes:
    out = b""
    for message in messages:
        out += append(position + len(out), message, params)
    return out


# -- reading --


@dataclass
class Walk:
    """Messages as (begin, end, bytes), where the walk ended, and whether by a frame that cannot be."""

    messages: list[tuple[int, int, bytes]]
    stop: int
    is_damaged: bool


def walk(data: bytes, start: int, limit: int) -> Walk:
    """Aeron's fragment assembly: a builder that only a first fragment starts and only the next one feeds."""
    messages: list[tuple[int, int, bytes]] = []
    builder: bytes | None = None
    begin = offset = start
    while limit - offset >= 32:
        (length,) = struct.unpack_from("<i", data, offset)
        if length < 32:
            return Walk(messages, offset, True)
        end = offset + align(length)
        if end > limit:
            break
        flags, kind = data[offset + 5], struct.unpack_from("<H", data, offset + 6)[0]
        payload = data[offset + 32 : offset + length]
        if kind != 1:
            builder = None
        elif flags & 0x80:
            builder, begin = payload, offset
        elif builder is not None:
            builder += payload
        if builder is not None and flags & 0x40:
            messages.append((begin, end, builder))
            builder = None
        offset = end
    return Walk(messages, offset if builder is None else begin, False)


def scan(data: np.ndarray, offset: int, limit: int) -> int:
    """End of the last whole frame in ``data[offset:limit]``, or ``offset`` if none."""
    while limit - offset >= 32:
        length = int.from_bytes(bytes(data[offset : offset + 4]), "little", signed=True)
        if length < 32 or offset + align(length) > limit:
            break
        offset += align(length)
    return offset


def counts(table: SessionTable) -> dict[str, int]:
    """What append_ingress took and dropped, and frame_egress dropped."""
    names = ("messages", "keep_alives", "dropped_term", "dropped_session", "dropped_egress")
    return dict(zip(names, table.words[MESSAGES : DROPPED_EGRESS + 1].tolist(), strict=True))


def is_session_message(message: bytes) -> bool:
    _, template, schema, _ = SBE_HEADER.unpack_from(message)
    return (template, schema) == (1, 111)


def payload_of(message: bytes) -> bytes:
    return message[8 + SBE_HEADER.unpack_from(message)[0] :]


# -- ingress --


@dataclass
class Session:
    connection: int
    is_open: bool = True
    active_ns: int = 0
    appended: int = 0


@dataclass
class Leader:
    """One leader's ingress: what it appends, and what it knows of its sessions."""

    params: LogParams
    sessions: dict[int, Session]
    log: bytes = b""
    dropped_term: int = 0
    dropped_session: int = 0
    statuses: list[str] = field(default_factory=list)

    def take(self, data: bytes, connection: int, term: int, now: int, now_ns: int, position: int = 0) -> None:
        """Handle every frame of ``data``; what is not for the kernel becomes a word in ``statuses``."""
        offset = 0
        while offset < len(data):
            (length,) = struct.unpack_from("<i", data, offset)
            message = data[offset + 32 : offset + length]
            word = self._message(message, connection, term, now, now_ns, position)
            if word:
                self.statuses.append(word)
            offset += align(length)

    def _message(
        self, message: bytes, connection: int, term: int, now: int, now_ns: int, position: int
    ) -> str:
        block, template, schema, _ = SBE_HEADER.unpack_from(message)
        if schema != 111 or template not in (1, 5):
            return "other"
        message_term, session_id = struct.unpack_from("<qq", message, 8)
        session = self.sessions.get(session_id)
        if message_term != term:
            self.dropped_term += 1
            return ""
        if session is not None and session.is_open and session.connection == -1:
            return "unlinked"
        if session is None or not session.is_open or session.connection != connection:
            self.dropped_session += 1
            return ""
        if template == 1:
            stamped = SESSION_HEADER.pack(24, 1, 111, 17, term, session_id, now) + message[8 + block :]
            if len(stamped) > self.params.message_length_max:
                return "too long"
            self.log += append(position + len(self.log), stamped, self.params)
            session.appended += 1
        session.active_ns = now_ns
        return ""


# -- rows --

TEMPLATES = {
    1: "SESSION_MESSAGE",
    20: "TIMER",
    21: "SESSION_OPEN",
    22: "SESSION_CLOSE",
    23: "CLUSTER_ACTION",
    24: "NEW_LEADERSHIP_TERM",
}
REASONS: dict[int | None, str] = {0: "CLIENT_ACTION", 1: "SERVICE_ACTION", 2: "TIMEOUT"}
ACTIONS: dict[int | None, str] = {0: "SUSPEND", 1: "RESUME", 2: "SNAPSHOT"}
UNITS: dict[int | None, str] = {0: "MILLIS", 1: "MICROS", 2: "NANOS"}
COLUMNS = (
    *("position", "endPosition", "leadershipTermId", "entryType", "timestamp", "clusterTime"),
    *("clusterSessionId", "correlationId", "payload"),
    *("responseStreamId", "responseChannel", "encodedPrincipal", "closeReason", "action", "actionFlags"),
    *("termBaseLogPosition", "leaderMemberId", "logSessionId", "timeUnit", "appVersion"),
)


def _long(message: bytes, at: int) -> int | None:
    (value,) = struct.unpack_from("<q", message, at)
    return None if value == N64 else value


def _int(message: bytes, at: int, null: int = N32) -> int | None:
    (value,) = struct.unpack_from("<i", message, at)
    return None if value == null else value


def _var(message: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from("<I", message, at)
    return message[at + 4 : at + 4 + length], at + 4 + length


def row(begin: int, end: int, message: bytes, unit: int) -> dict[str, Any]:
    """Every column of an entry, and under ``unit`` the time unit from here on; timestamps in microseconds."""
    block, template, _, version = SBE_HEADER.unpack_from(message)
    kind = TEMPLATES[template]
    out: dict[str, Any] = dict.fromkeys(COLUMNS)
    out |= {"position": begin, "endPosition": end, "entryType": kind, "leadershipTermId": _long(message, 8)}
    time_at = 24
    if kind == "SESSION_MESSAGE":
        out |= {"clusterSessionId": _long(message, 16), "payload": payload_of(message)}
    elif kind == "TIMER":
        out["correlationId"] = _long(message, 16)
    elif kind == "SESSION_OPEN":
        time_at = 32
        channel, principal_at = _var(message, 8 + block)
        principal, _ = _var(message, principal_at)
        out |= {
            "correlationId": _long(message, 16),
            "clusterSessionId": _long(message, 24),
            "responseStreamId": _int(message, 40),
            "responseChannel": "".join(chr(c) if c < 0x80 else "?" for c in channel),
            "encodedPrincipal": principal,
        }
    elif kind == "SESSION_CLOSE":
        out |= {"clusterSessionId": _long(message, 16), "closeReason": REASONS.get(_int(message, 32))}
    elif kind == "CLUSTER_ACTION":
        out["action"] = ACTIONS.get(_int(message, 32))
        out["actionFlags"] = _int(message, 36) if version >= 11 and block >= 32 else None
    else:
        out |= {
            "termBaseLogPosition": _long(message, 32),
            "leaderMemberId": _int(message, 40),
            "logSessionId": _int(message, 44),
        }
        unit = 0
        if version >= 4 and block >= 48:
            out |= {"timeUnit": UNITS.get(_int(message, 48)), "appVersion": _int(message, 52, null=0)}
            unit = {1: 1, 2: 2}.get(_int(message, 48), 0)
    time = _long(message, time_at)
    out["clusterTime"] = time
    if time is not None:
        out["timestamp"] = (time * 1000, time, time // 1000)[unit]
        if not N64 < out["timestamp"] < 2**63:
            out["timestamp"] = None
    return out | {"unit": unit}


# -- checksums --


def crc(polynomial: int, data: bytes) -> int:
    """Bit by bit; as the i32 that frames hold."""
    value = 0xFFFF_FFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
    return struct.unpack("<i", struct.pack("<I", value ^ 0xFFFF_FFFF))[0]
