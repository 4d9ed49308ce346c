"""The end of a recording, and a reader, in words that Python and compiled code share.

They are those of ``Recording.words`` and ``LogCursor.words``.
"""

from typing import NamedTuple

import numpy as np

from cluster.log.kernel import routine
from cluster.log.memory import BYTES_OUT, WORDS_OUT
from cluster.log.tables import tables_type

(
    APPEND_POSITION,
    SYNCED_POSITION,
    SEGMENT_BASE,  # position of the segment that is written
    WRITTEN_BACK,  # position: up to here the device has been asked to write
    UNPROVEN_CRC,  # of [synced position, append position)
    IS_SINGLE_FRAME,  # with a checksum, and all that is not synced
    SEGMENT,  # descriptor; -1: none is open
    SEGMENT_LENGTH,
    SYNC_LEVEL,
    CHECKSUM,  # in the frames, a polynomial; 0: none
    SYNC_NS,  # how long the last sync took, where there is a clock to call
) = range(11)
RECORDING_WORDS = 11

READ_POSITION, TAKEN_POSITION = range(2)
CURSOR_WORDS = 2


@routine
def advance(cursor, position):  # type: ignore[no-untyped-def]
    """What lies before ``position`` is taken, and no more: what was taken after it is read again."""
    cursor[READ_POSITION] = cursor[TAKEN_POSITION] = position


@routine
def end_chunk(cursor, taken, is_whole, limit):  # type: ignore[no-untyped-def]
    """All before ``taken`` is taken; where all up to ``limit`` was looked at, a message's begin is left."""
    cursor[READ_POSITION] = taken
    cursor[TAKEN_POSITION] = limit if is_whole else max(cursor[TAKEN_POSITION], taken)


class RecordingTables(NamedTuple):
    """What ``append_and_sync.py`` works on: the recording's own, from ``activate`` on."""

    words: np.ndarray
    proof: np.ndarray  # proof_slots.py
    calls: np.ndarray  # addresses, log/calls.py
    scratch: np.ndarray  # bytes: what is written to a file that has checksums, and slots of the proof file


ARRAYS = (WORDS_OUT, WORDS_OUT, WORDS_OUT, BYTES_OUT)
RECORDING_TABLES = tables_type(RecordingTables, ARRAYS)
