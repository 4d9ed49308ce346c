"""What the log of a running Aeron Cluster says of lanes, for who plans a batch and for who writes it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from cluster.aeron.aeron_log import AeronLog
from cluster.aeron.lane_index import LaneAlias, LaneIndex, search_begin
from cluster.aeron.session_entries import EntryKind, SessionEntries, SessionEntry
from cluster.protocol.lane import Lane
from cluster.transport.committed_log import AS_COMMITTED


def planned_index(log: AeronLog) -> LaneIndex:
    """The lanes in the last term of a log that was just opened; the same replay says where it ends."""
    index: LaneIndex | None = None
    for position, block in log.blocks_to_end():
        index = index or LaneIndex(position, position)
        _add_opens(index, position, block)
        index.end = position + block.size
    if index is None:
        end = log.commit_position()
        return LaneIndex(end, end)
    index.forget_registered()
    return index


def indexed(log: AeronLog, begin: int, end: int) -> LaneIndex:
    """The lanes that were opened from ``begin`` to ``end``. Raises LogPurged, TimedOut, MediaDriverError."""
    index = LaneIndex(begin, end)
    for position, block in log.blocks(begin, end, AS_COMMITTED):
        _add_opens(index, position, block)
    index.forget_registered()
    return index


def _add_opens(index: LaneIndex, position: int, block: np.ndarray) -> None:
    for entry in SessionEntries(lambda _: False).of_block(position, block):
        if entry.entry_type == EntryKind.OPEN:
            assert entry.response_channel is not None
            index.on_open(entry.position, entry.response_channel)


def begin_of(log: AeronLog, lane: Lane, index: LaneIndex, search_max: int | None = None) -> int:
    """No session of the lane's batch was opened before. Raises as ``search_begin`` and ``indexed``.

    Where the application need not be known, no more than ``search_max`` bytes before the end are searched.
    """
    start = log.await_start()
    if search_max is not None and not lane.is_known:
        earliest = max(index.end - search_max, 0)
        start = max(start, earliest - earliest % log.term_length)  # where a frame begins
    return search_begin(lane, index, partial(indexed, log), start, log.term_length)


def lane_entries(log: AeronLog, lane: Lane, begin: int) -> Iterator[SessionEntry | None]:
    """The committed log from ``begin`` on, without end, and without the messages of other lanes' sessions.

    None whenever nothing more has come.
    """

    def is_of_lane(response_channel: str) -> bool:
        alias = LaneAlias.of(response_channel)
        return alias is not None and alias.lane == lane

    sessions = SessionEntries(is_of_lane)
    for block in log.follow(begin):
        if block is None:
            yield None
        else:
            yield from sessions.of_block(*block)
