"""Mistakes that lanes must not survive unseen: rows that are in twice, or missing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from cluster.consensus.lanes import LaneTable
from cluster.consensus.sessions import SessionManager
from cluster.log.frames import SBE_HEADER_LENGTH
from cluster.member.clients.ingress_adapter import IngressAdapter
from cluster.protocol.frame import HEADER_LENGTH, header_at
from cluster.protocol.session import SessionMessageHeader
from spark_connector.sink.known_rows import KnownRows
from tests.simulation.mistakes import Patch, Sought


def lane_rows_begin_again_with_each_session(patch: Patch) -> None:
    """As those of a session do."""
    on_close = LaneTable.on_close

    def forgetful(self: Any, session_id: int) -> None:
        state = self._by_session.get(session_id)
        on_close(self, session_id)
        if state is not None:
            state.rows = 0

    patch(LaneTable, "on_close", forgetful)


def lane_holder_is_not_closed(patch: Patch) -> None:
    """Who comes later writes beside it."""
    patch(SessionManager, "_displace_holders", lambda self, *_: True)


def lane_holder_is_closed_behind_the_open(patch: Patch) -> None:
    """The order that lets the old session write into the new one's count."""
    displace, append_open = SessionManager._displace_holders, LaneTable.append_open
    late: list[tuple[Any, ...]] = []

    def later(self: Any, *arguments: Any) -> bool:
        late.append((self, *arguments))
        return True

    def opened(self: Any, session_id: int, encoded_principal: bytes, *where: int) -> None:
        append_open(self, session_id, encoded_principal, *where)
        while late:
            displace(*late.pop())

    patch(SessionManager, "_displace_holders", later)
    patch(LaneTable, "append_open", opened)


def lanes_not_in_the_snapshot(patch: Patch) -> None:
    """Whoever starts from one has none of those before."""
    patch(LaneTable, "records", lambda self: iter(()))


def lane_opens_do_not_wait_for_the_last_one(patch: Patch) -> None:
    """Two opens of a lane in one commit: the holder that is not known yet is not closed."""
    patch(LaneTable, "is_undecided", lambda self, lane: False)


def registration_leaves_sessions_open(patch: Patch) -> None:
    """A task that nobody waits for goes on writing after the batch was acknowledged."""
    holder_ids = LaneTable.holder_ids
    patch(
        LaneTable,
        "holder_ids",
        lambda self, lane: [] if lane.is_registration else holder_ids(self, lane),
    )


def rows_that_are_in_are_not_compared(patch: Patch) -> None:
    """A batch that is run again continues one that had other rows."""
    patch(KnownRows, "_compare", lambda self, payloads: None)


def row_skipped_by_the_leader(patch: Patch) -> None:
    """A hole in what it takes of a session: row n + 1 of a lane where row n was dropped."""
    on_frames, calls = IngressAdapter.on_frames, count(1)

    def lossy(self: Any, connection_id: int, buffer: Any, start: int, end: int) -> int | None:
        sessions = self._replica.sessions.sessions.values()
        is_of_lane = any(s.lane is not None and s.connection_id == connection_id for s in sessions)
        header = header_at(buffer, start)
        message = bytes(buffer[start + HEADER_LENGTH : start + HEADER_LENGTH + SBE_HEADER_LENGTH])
        is_row = int.from_bytes(message[2:4], "little") == SessionMessageHeader.TEMPLATE_ID
        if is_of_lane and is_row and self._requests.publication is not None and next(calls) % 20 == 0:
            start += header.aligned_length
        return on_frames(self, connection_id, buffer, start, end) if start < end else None

    patch(IngressAdapter, "on_frames", lossy)


def lanes_are_forgotten_by_a_jump(patch: Patch) -> None:
    """A leader writes what it keeps, and not how far it has seen time jump."""
    patch(
        LaneTable,
        "retention",
        property(lambda self: self._context.cluster_duration(self._context.lane_retention_ns)),
    )


LANE_MISTAKES: dict[Callable[[Patch], None], Sought] = {
    lane_rows_begin_again_with_each_session: Sought(("I-22",)),
    lane_holder_is_not_closed: Sought(("I-22",)),
    lane_holder_is_closed_behind_the_open: Sought(("I-22",)),
    lane_opens_do_not_wait_for_the_last_one: Sought(("I-22",)),
    registration_leaves_sessions_open: Sought(("I-22",)),
    rows_that_are_in_are_not_compared: Sought(("I-22",)),
    lanes_are_forgotten_by_a_jump: Sought(("I-22",), ("clock jump",)),
    row_skipped_by_the_leader: Sought(("I-22", "I-7")),
}
