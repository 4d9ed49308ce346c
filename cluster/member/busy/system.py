"""The system calls of a busy turn, each as one routine over the tables."""

import platform

from cluster.log.calls import (
    CLOCK,
    ERROR_NUMBER,
    RECEIVE,
    SEND,
    SYNC,
    SYNC_DATA,
    SYNC_RANGE,
    WAIT,
    WRITE,
    address_of,
    call_0,
    call_1,
    call_2,
    call_3,
    call_4,
    i32_at,
)
from cluster.log.frames import wrap_i32
from cluster.log.kernel import routine
from cluster.log.memory import get_i32, get_i64, put_i64
from cluster.member.busy import words as at

MONOTONIC = 1
READABLE = 1  # EPOLLIN
# The kernel packs struct epoll_event on x86-64 alone.
IS_PACKED = platform.machine() == "x86_64"
EVENT_LENGTH, EVENT_DATA = (12, 4) if IS_PACKED else (16, 8)
INTERRUPTED_CALL, WOULD_BLOCK = 4, 11  # EINTR, EAGAIN
START_WRITING, WRITE_AND_WAIT = 2, 7  # of sync_file_range


@routine
def error_number(t):  # type: ignore[no-untyped-def]
    return i32_at(call_0(t.calls[ERROR_NUMBER]))


@routine
def read_clock(t):  # type: ignore[no-untyped-def]
    """Nanoseconds of the monotonic clock."""
    call_2(t.calls[CLOCK], MONOTONIC, address_of(t.scratch, at.TIME_AT))
    return get_i64(t.scratch, at.TIME_AT) * 1_000_000_000 + get_i64(t.scratch, at.TIME_AT + 8)


@routine
def wait(t, timeout_ms):  # type: ignore[no-untyped-def]
    """How many descriptors have events; below 0 when a signal came."""
    events = address_of(t.scratch, at.EVENTS_AT)
    return wrap_i32(call_4(t.calls[WAIT], t.words[at.EPOLL], events, at.READY_MAX, timeout_ms))


@routine
def event(t, index):  # type: ignore[no-untyped-def]
    """Mask and descriptor of what the last ``wait`` found."""
    place = at.EVENTS_AT + index * EVENT_LENGTH
    return get_i32(t.scratch, place), get_i32(t.scratch, place + EVENT_DATA)


@routine
def receive(t, descriptor, offset):  # type: ignore[no-untyped-def]
    """How many bytes came into ``received[offset:]``; 0 at the end of the stream, below 0 an error."""
    room = t.received.size - offset
    received = call_4(t.calls[RECEIVE], descriptor, address_of(t.received, offset), room, 0)
    if received < 0:
        return -error_number(t)
    return received


@routine
def send(t, descriptor, a, a_length, b, b_length):  # type: ignore[no-untyped-def]
    """Send two pieces, given by their addresses; returns the bytes taken, below 0 an error."""
    put_i64(t.scratch, at.PIECES_AT, a)
    put_i64(t.scratch, at.PIECES_AT + 8, a_length)
    put_i64(t.scratch, at.PIECES_AT + 16, b)
    put_i64(t.scratch, at.PIECES_AT + 24, b_length)
    taken = call_3(t.calls[SEND], descriptor, address_of(t.scratch, at.PIECES_AT), 2 if b_length > 0 else 1)
    if taken < 0:
        return -error_number(t)
    return taken


@routine
def fail(t):  # type: ignore[no-untyped-def]
    """A file failed: nothing more is trusted to it."""
    t.words[at.ERROR] = error_number(t)
    t.words[at.REASON] |= at.FAILED
    return False


@routine
def write_file(t, descriptor, address, length, offset):  # type: ignore[no-untyped-def]
    """Write all of it, or fail."""
    done = 0
    while done < length:
        written = call_4(t.calls[WRITE], descriptor, address + done, length - done, offset + done)
        if written <= 0:
            if written == 0 or error_number(t) != INTERRUPTED_CALL:
                return fail(t)
        else:
            done += written
    return True


@routine
def sync_file(t, descriptor, with_metadata):  # type: ignore[no-untyped-def]
    """Have the file on the device, or fail."""
    call = t.calls[SYNC] if with_metadata else t.calls[SYNC_DATA]
    while wrap_i32(call_1(call, descriptor)) < 0:
        if error_number(t) != INTERRUPTED_CALL:
            return fail(t)
    return True


@routine
def sync_range(t, descriptor, offset, length, flags):  # type: ignore[no-untyped-def]
    """Hand a range of the file to the device, or fail."""
    if wrap_i32(call_4(t.calls[SYNC_RANGE], descriptor, offset, length, flags)) < 0:
        return fail(t)
    return True
