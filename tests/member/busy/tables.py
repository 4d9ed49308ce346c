"""Tables of a busy turn for tests that call a routine of it alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import types

from cluster.archive import recording_words as of_recording
from cluster.archive.recording_words import RECORDING_TABLES, RecordingTables
from cluster.log.connection_table import KIND, OWNER, ROW_WORDS
from cluster.member.busy import words


def tables(**given: Any) -> SimpleNamespace:
    """For one that is called as Python: words, and what is given."""
    return SimpleNamespace(words=[0] * words.WORDS, member_log=[0], replica=[0], **given)


def recorded(scratch_bytes: int = 0) -> SimpleNamespace:
    """The end of a recording."""
    words = [0] * of_recording.RECORDING_WORDS
    return SimpleNamespace(words=words, scratch=SimpleNamespace(size=scratch_bytes))


def connections(*rows: tuple[int, int]) -> np.ndarray:
    """Kind and owner, by descriptor."""
    words = np.zeros(len(rows) * ROW_WORDS, np.int64)
    for descriptor, (kind, owner) in enumerate(rows):
        words[descriptor * ROW_WORDS + KIND], words[descriptor * ROW_WORDS + OWNER] = kind, owner
    return words


def tables_of(**given: Any) -> words.Tables:
    """With these arrays; the others are there, and have no room."""
    nothing = dict(zip(words.Tables._fields, map(_nothing_of, words.TABLES.members)))
    return words.Tables(**nothing | given)


def _nothing_of(kind: Any) -> Any:
    if kind is RECORDING_TABLES:
        return RecordingTables(*map(_nothing_of, kind.members))
    return np.zeros(8, np.int64 if kind.dtype is types.int64 else np.uint8)
