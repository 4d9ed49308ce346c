"""The system calls of a busy turn, each as one routine over the tables. A socket may have TLS on it."""

import platform

from cluster.log.calls import (
    RECEIVE,
    SEND,
    WAIT,
    address_of,
    call_at,
    error_number,
    read_monotonic,
)
from cluster.log.connection_table import IS_QUEUED, ROW_WORDS, STATE, TLS
from cluster.log.frames import wrap_i32
from cluster.log.kernel import routine
from cluster.log.memory import get_i32, put_i64
from cluster.member.busy import words as at
from cluster.member.busy.tls import drop_records, open_records, seal_records, sealed_records

READABLE = 1  # EPOLLIN
# The kernel packs struct epoll_event on x86-64 alone.
IS_PACKED = platform.machine() == "x86_64"
EVENT_LENGTH, EVENT_DATA = (12, 4) if IS_PACKED else (16, 8)
WOULD_BLOCK = 11  # EAGAIN


@routine
def read_clock(t):  # type: ignore[no-untyped-def]
    """Nanoseconds of the monotonic clock."""
    return read_monotonic(t.calls, t.scratch, at.TIME_AT)


@routine
def wait(t, timeout_ms):  # type: ignore[no-untyped-def]
    """How many descriptors have events; below 0 when a signal came."""
    events = address_of(t.scratch, at.EVENTS_AT)
    return wrap_i32(call_at(t.calls[WAIT], t.words[at.EPOLL], events, at.READY_MAX, timeout_ms))


@routine
def event(t, index):  # type: ignore[no-untyped-def]
    """Mask and descriptor of what the last ``wait`` found."""
    place = at.EVENTS_AT + index * EVENT_LENGTH
    return get_i32(t.scratch, place), get_i32(t.scratch, place + EVENT_DATA)


@routine
def receive(t, descriptor, offset):  # type: ignore[no-untyped-def]
    """How many bytes came into ``received[offset:]``; 0 at the end of the stream, below 0 an error."""
    tls = t.connections[descriptor * ROW_WORDS + TLS]
    room = t.received.size - offset
    place = address_of(t.received, offset)
    if tls != 0:
        place, room = address_of(t.sealed, 0), min(room, t.sealed.size)
    received = call_at(t.calls[RECEIVE], descriptor, place, room, 0)
    if received < 0:
        return -error_number(t.calls)
    if tls != 0 and received > 0:
        received = open_records(t, descriptor, tls, received, offset)
        return received if received > 0 else -WOULD_BLOCK
    return received


@routine
def send(t, descriptor, a, a_length, b, b_length):  # type: ignore[no-untyped-def]
    """Send two pieces, given by their addresses; returns the bytes taken, below 0 an error.

    Of what TLS takes some may be left, which Python sends: the connection is queued then.
    """
    tls = t.connections[descriptor * ROW_WORDS + TLS]
    if tls == 0:
        return _write(t, descriptor, a, a_length, b, b_length)
    taken = _seal(t, descriptor, tls, a, a_length)
    if taken == a_length:
        taken += _seal(t, descriptor, tls, b, b_length)
    if not _send_sealed(t, descriptor, tls):
        t.connections[descriptor * ROW_WORDS + STATE] |= IS_QUEUED
    return taken


@routine
def _seal(t, descriptor, tls, address, length):  # type: ignore[no-untyped-def]
    """Encrypt, no further than a piece that the socket does not take; less where the session has failed."""
    done = 0
    while done < length and (done == 0 or _send_sealed(t, descriptor, tls)):
        count = seal_records(t, tls, address + done, min(length - done, at.SEALED_BYTES))
        if count <= 0:
            break
        done += count
    return done


@routine
def _send_sealed(t, descriptor, tls):  # type: ignore[no-untyped-def]
    """Whether the socket takes all that is encrypted."""
    address, length = sealed_records(t, tls)
    taken = _write(t, descriptor, address, length, 0, 0) if length > 0 else 0
    drop_records(t, tls, taken)
    return taken == length


@routine
def _write(t, descriptor, a, a_length, b, b_length):  # type: ignore[no-untyped-def]
    put_i64(t.scratch, at.PIECES_AT, a)
    put_i64(t.scratch, at.PIECES_AT + 8, a_length)
    put_i64(t.scratch, at.PIECES_AT + 16, b)
    put_i64(t.scratch, at.PIECES_AT + 24, b_length)
    return call_at(t.calls[SEND], descriptor, address_of(t.scratch, at.PIECES_AT), 2 if b_length > 0 else 1)
