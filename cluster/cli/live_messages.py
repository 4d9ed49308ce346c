"""The messages that the page of ``cluster live`` moves, out of what members write into their logs.

All of them while a member writes messages (``log_level = "debug"``, or SIGUSR1), else the votes of elections.
"""

import re
from collections.abc import Sequence
from typing import Any

from cluster.cli.events import Event

MovedMessage = dict[str, Any]  # "from", "to", "text" of the last of its kind, and "count" of them

_VOTE = re.compile(r"voted for (member \d+) in (term \d+)")


def moved_messages(events: Sequence[Event]) -> list[MovedMessage]:
    """Those of one kind between the same two as one. A service and a client are those of a member."""
    writers = {_writer(event) for event in events if event.level == "debug"}
    found: dict[tuple[str, str, str], MovedMessage] = {}
    for event in events:
        if (message := _message_of(event, writers)) is not None:
            sender, receiver, text = message
            kind = sender, receiver, text.partition(" ")[0]
            count = 1 + found[kind]["count"] if kind in found else 1
            found[kind] = {"from": sender, "to": receiver, "text": text, "count": count}
    return list(found.values())


def _writer(event: Event) -> str:
    return f"member {event.member}"


def _message_of(event: Event, writers: set[str]) -> tuple[str, str, str] | None:
    """Sender, receiver and text; of what both ends have written that of the sender."""
    fields, writer = event.fields, _writer(event)
    text = str(fields.get("event"))
    if event.level == "debug":
        ends = [str(fields[end]) for end in ("from", "to") if end in fields]
        if len(ends) < 2 or (ends[0] != writer and ends[0] in writers):
            return None
        sender, receiver = (end if end.startswith("member ") else f"{end} of {writer}" for end in ends)
        return sender, receiver, text
    if writer not in writers and (vote := _VOTE.search(text)):
        return writer, vote[1], f"Vote in {vote[2]}"
    return None
