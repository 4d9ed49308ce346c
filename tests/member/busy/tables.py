"""Tables of a busy turn for tests that call a routine of it alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import types

from cluster.archive.recording_words import RECORDING_TABLES, RecordingTables
from cluster.member.busy import words


def plain(routine: Any) -> Any:
    """What a routine or kernel is as Python."""
    return getattr(routine, "py_func", routine)


def tables(**given: Any) -> SimpleNamespace:
    """For one that is called as Python: words, and what is given."""
    return SimpleNamespace(words=[0] * words.WORDS, **given)


def tables_of(**given: Any) -> words.Tables:
    """With these arrays; the others are there, and have no room."""
    nothing = dict(zip(words.Tables._fields, map(_nothing_of, words.TABLES.members)))
    return words.Tables(**nothing | given)


def _nothing_of(kind: Any) -> Any:
    if kind is RECORDING_TABLES:
        return RecordingTables(*map(_nothing_of, kind.members))
    return np.zeros(8, np.int64 if kind.dtype is types.int64 else np.uint8)
