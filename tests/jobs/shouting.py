"""A function for ``python -m jobs.respond``: every message that is not shouted yet comes back louder."""

from __future__ import annotations


def answers(entries):
    text = entries.payload.cast("string")
    said = entries.where((entries.entryType == "SESSION_MESSAGE") & ~text.endswith("!"))
    return said.selectExpr("concat(upper(cast(payload AS STRING)), '!') AS payload")
