"""Calls to a file by its descriptor, for routines: each returns 0, or the number of the error that it met."""

from cluster.log.calls import SYNC, SYNC_DATA, SYNC_RANGE, WRITE, call_at, error_number
from cluster.log.frames import wrap_i32
from cluster.log.kernel import routine

INTERRUPTED_CALL, INPUT_OUTPUT = 4, 5  # EINTR, EIO
START_WRITING, WRITE_AND_WAIT = 2, 7  # of sync_file_range


@routine
def write_file(calls, descriptor, address, length, offset):  # type: ignore[no-untyped-def]
    """Write all of it."""
    done = 0
    while done < length:
        written = call_at(calls[WRITE], descriptor, address + done, length - done, offset + done)
        if written > 0:
            done += written
        elif written == 0:
            return INPUT_OUTPUT
        else:
            error = error_number(calls)
            if error != INTERRUPTED_CALL:
                return error
    return 0


@routine
def sync_file(calls, descriptor, with_metadata):  # type: ignore[no-untyped-def]
    """Have the file on the device."""
    call = calls[SYNC] if with_metadata else calls[SYNC_DATA]
    while wrap_i32(call_at(call, descriptor)) < 0:
        error = error_number(calls)
        if error != INTERRUPTED_CALL:
            return error
    return 0


@routine
def sync_range(calls, descriptor, offset, length, flags):  # type: ignore[no-untyped-def]
    """Hand a range of the file to the device, where the C library has a call for it."""
    call = calls[SYNC_RANGE]
    if call != 0 and wrap_i32(call_at(call, descriptor, offset, length, flags)) < 0:
        return error_number(calls)
    return 0
