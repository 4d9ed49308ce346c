"""What the log says of sessions: blocks of it as entries, without the messages of other sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from cluster.log.columns import log_to_record_batch


class EntryKind(StrEnum):
    """The types of entries that say something of sessions."""

    OPEN = "SESSION_OPEN"
    MESSAGE = "SESSION_MESSAGE"
    CLOSE = "SESSION_CLOSE"
    TERM = "NEW_LEADERSHIP_TERM"


COLUMNS = (
    "entryType",
    "position",
    "endPosition",
    "leadershipTermId",
    "clusterSessionId",
    "responseChannel",
    "payload",
    "leaderMemberId",
)


class SessionEntry(NamedTuple):
    """An entry; what its type does not have is None."""

    entry_type: str
    position: int  # where its first frame begins
    end_position: int  # after it
    leadership_term_id: int
    session_id: int | None = None
    response_channel: str | None = None
    payload: bytes | None = None
    leader_member_id: int | None = None


class SessionEntries:
    """Opens and closes of all sessions, begins of terms, and the messages of sessions that are wanted."""

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        """``is_wanted`` is asked with the response channel of each session."""
        self._is_wanted = is_wanted
        self._session_ids: list[int] = []  # of those that are wanted; none closes for long

    def of_block(self, position: int, block: np.ndarray) -> Iterator[SessionEntry]:
        """Those of a block of whole messages that begins at ``position``. Raises LogDamaged."""
        import pyarrow as pa
        import pyarrow.compute as pc

        offset = 0
        while offset < len(block):
            decoded = log_to_record_batch(
                block,
                offset,
                len(block),
                position + offset,
                columns=COLUMNS,
                entry_types=tuple(EntryKind),
            )
            batch = decoded.record_batch
            opens = batch.filter(pc.equal(batch.column("entryType"), EntryKind.OPEN.value))
            for session_id, channel in zip(
                opens.column("clusterSessionId").to_pylist(), opens.column("responseChannel").to_pylist()
            ):
                if self._is_wanted(channel):
                    self._session_ids.append(session_id)
            is_rare = pc.not_equal(batch.column("entryType"), EntryKind.MESSAGE.value)
            is_ours = pc.is_in(batch.column("clusterSessionId"), pa.array(self._session_ids, pa.int64()))
            wanted = batch.filter(pc.or_(is_rare, is_ours))
            yield from map(SessionEntry, *(column.to_pylist() for column in wanted.columns))
            assert decoded.next_position > position + offset, "a block has whole messages"
            offset = decoded.next_position - position
