"""From a difference of states back to what led there: a message, its way through the logs, the callbacks."""

from collections.abc import Sequence
from typing import NamedTuple

from cluster.testing.wire import Happening

# What a service is called with for an entry, by the entry's name.
_CALLBACKS = {
    "SessionMessageHeader": "onSessionMessage",
    "SessionOpenEvent": "onSessionOpen",
    "SessionCloseEvent": "onSessionClose",
    "TimerEvent": "onTimerEvent",
}


class LogEntry(NamedTuple):
    """One entry as stories show it; ``number`` counts those before it in the log that look the same."""

    text: str
    number: int


def led_to(entry: LogEntry, happenings: Sequence[Happening]) -> dict[int, str]:
    """A sentence for each happening, by its place, on the way of this entry into the services."""
    said: dict[int, str] = {}
    name = entry.text.partition(" ")[0]
    sent = [i for i, each in enumerate(happenings) if each.receiver and each.text == entry.text]
    first = sent[entry.number] if entry.number < len(sent) else 0
    if sent:
        said[first] = "After this message the states differ for the first time."
    logged: dict[str, list[int]] = {}  # by who gets it into the log, the leader's followers
    for i, each in enumerate(happenings):
        if each.text == f"Log: {entry.text}":
            logged.setdefault(each.receiver, []).append(i)
    for receiver, places in logged.items():
        place = places[min(entry.number, len(places) - 1)]
        said[place] = f"It is an entry of the log, which {receiver} gets from {happenings[place].sender}."
        first = first or place
    payload = entry.text.partition(" '")[2] if name == "SessionMessageHeader" else ""
    for i in range(first, len(happenings)):
        each = happenings[i]
        is_it = each.name == _CALLBACKS.get(name) and (not payload or each.text.endswith(f" '{payload}"))
        if is_it and each.sender not in (happenings[place].sender for place in said):
            said[i] = f"The {each.sender} processes it: from here on its state may be another one."
    return said
