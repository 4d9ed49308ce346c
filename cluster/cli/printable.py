"""Text of payloads as a terminal may get it: nothing moves its cursor or turns its lines around."""

from __future__ import annotations

import json


def printable(text: str) -> str:
    r"""The text; what is not printable (C0, DEL, C1, bidirectional controls) as JSON escapes, ``\u009b``."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
