"""Tables of a busy turn for tests that call a routine of it alone."""

from typing import Any

import numpy as np
from numba import types

from cluster.member.busy import words


def tables_of(**given: Any) -> words.Tables:
    """With these arrays; the others are there, and have no room."""
    nothing = {
        name: np.zeros(8, np.int64 if kind.dtype is types.int64 else np.uint8)
        for name, kind in zip(words.Tables._fields, words.TABLES.types)
    }
    return words.Tables(**nothing | given)
