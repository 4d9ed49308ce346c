"""Lanes in the log of a real Aeron Cluster: a lane's name is an alias in the response channel.

    aeron:udp?endpoint=10.0.0.1:40123|alias=lane:3:17:0:9f3c01ab:orders
                                            partition, batch, position, attempt, application

A SessionOpenEvent has that channel. So the log says of each session which lane and batch it was opened for,
and by which attempt. A session of partition REGISTRATION says that all of the batch is in the log.

**Where to look for a batch's sessions.** A registration has the commit position at which its batch was
planned. All sessions of later batches were opened after it: a batch is planned before it is written, and
written before the next one is planned. That is so of a registration that arrives late, or twice, too. So a
search begins there, at the last batch that the application has registered; where the log has none, at the
begin of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import quote, unquote

from cluster.errors import ApplicationUnknown, BatchRegistered, ConfigurationError
from cluster.protocol.lane import Lane, registered_text
from cluster.protocol.response_channel import parameter

_MARK = "lane"
ALIAS = "alias"


@dataclass(frozen=True, slots=True)
class LaneAlias:
    """``position``: of a registration, the commit position when its batch was planned; 0 else.

    ``attempt``: a word of letters and digits that no other attempt has.
    """

    lane: Lane
    attempt: str
    position: int = 0

    @property
    def text(self) -> str:
        lane = self.lane
        numbers = f"{lane.partition}:{lane.batch}:{self.position}"
        return f"{_MARK}:{numbers}:{self.attempt}:{quote(lane.application, safe='')}"

    @classmethod
    def of(cls, response_channel: str) -> Self | None:
        """The alias in a channel; None where none stands that could be one."""
        mark, *words = parameter(response_channel, ALIAS).split(":")
        if mark != _MARK or len(words) != 5:
            return None
        partition, batch, position, attempt, application = words
        try:
            lane = Lane(unquote(application, errors="strict"), int(partition), int(batch))
            return cls(lane, attempt, int(position))
        except (ConfigurationError, ValueError):
            return None


@dataclass
class LaneIndex:
    """What the log says of lanes from ``begin`` to ``end``; it is given each open in between, in order."""

    begin: int
    end: int
    _registered: dict[str, tuple[int, int]] = field(default_factory=dict)  # last batch, when it was planned
    _first: dict[tuple[str, int], int] = field(default_factory=dict)  # position of a batch's first session

    def on_open(self, position: int, response_channel: str) -> None:
        """A session was opened at ``position``."""
        alias = LaneAlias.of(response_channel)
        if alias is None:
            return
        application, batch = alias.lane.application, alias.lane.batch
        if not alias.lane.is_registration:
            self._first.setdefault((application, batch), position)
        elif batch > self._registered.get(application, (-1, 0))[0]:
            self._registered[application] = batch, alias.position

    def forget_registered(self) -> None:
        """Drop what no search asks for."""
        for application, batch in list(self._first):
            if batch <= self._registered.get(application, (-1, 0))[0]:
                del self._first[application, batch]

    def first_session(self, lane: Lane) -> int | None:
        """Where the first session of the lane's batch was opened, of whichever partition."""
        return self._first.get((lane.application, lane.batch))

    def planned_at(self, lane: Lane) -> int | None:
        """When the last registered batch of the lane's application was planned. Raises BatchRegistered."""
        batch, planned_at = self._registered.get(lane.application, (-1, None))
        if batch >= lane.batch:
            raise BatchRegistered(registered_text(lane, batch))
        return planned_at


def search_begin(
    lane: Lane, index: LaneIndex, read: Callable[[int, int], LaneIndex], start_position: int, term_length: int
) -> int:
    """No session of the lane's batch was opened before, and what is returned is at most ``index.end``.

    Before ``index.begin`` the log is ``read`` backwards, from term to term, twice as many each time, down to
    ``start_position`` if need be. Raises BatchRegistered, and ApplicationUnknown for a lane whose application
    is to be known and is not.
    """
    first, terms = index.end, 1
    while True:
        found = index.first_session(lane)
        first = first if found is None else found
        planned_at = index.planned_at(lane)
        if planned_at is not None:
            return first if planned_at >= index.begin else planned_at
        if index.begin <= start_position:
            break
        begin = index.begin - index.begin % term_length - terms * term_length
        index, terms = read(max(begin, start_position), index.begin), 2 * terms
    if lane.is_known:
        raise ApplicationUnknown(
            f"batch {lane.batch} of {lane.application} is not its first, and the log has none of it from "
            f"position {start_position} on"
        )
    return first
