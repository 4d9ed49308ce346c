"""One attempt to have the rows of a lane's batch in the log of a real Aeron Cluster, each once.

Only the log counts. What a leader has accepted may be in no log, and nobody says so.

    OPENING ── own open in the log ──▶ FENCED ── sessions before it closed ──▶ WRITING
       ▲──────────────── session lost, or it may have a gap ─────────────────────┘

1. The attempt reads the log from before the lane's first session on, and opens a session of its own.
2. The order of the opens in the log is the order of the attempts. One that sees an open of another attempt
   after its own first gives up. So an attempt that Spark has given up, and that still runs, stops by
   itself.
3. It waits until all sessions before its own are closed in the log: no more comes of them. The cluster closes
   the session of a client that has died after its session time-out.
4. The rows without the messages of the lane's sessions, equal ones paired, are what remains to be sent.
   That takes no order of the rows.
5. A row is settled when its message is in the log. In a new leadership term all others are sent again, for a
   leader takes no message of an earlier term. A message that is missing between others ends the session.

An attempt that neither stops nor closes its session makes later ones wait, and doubles nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from enum import Enum
from hashlib import blake2b

from cluster.aeron.aeron_cluster import AeronCluster
from cluster.aeron.lane_index import LaneAlias
from cluster.aeron.session_entries import EntryKind, SessionEntry
from cluster.errors import ClientClosed

STALLED_NS = 20_000_000_000  # without progress for so long: another session is opened
ENTRIES_MAX = 4096  # of the log, in one turn


class LaneState(Enum):
    """How far an attempt is, in words for people."""

    OPENING = "the open of its session is not in the log yet"
    FENCED = "the session of an earlier attempt is still open in the log"
    WRITING = "its rows are sent"


class LaneWriter:
    """Takes rows, and turns by ``do_work`` until ``unsettled`` is 0. Never waits, but for ``connect``."""

    def __init__(
        self,
        alias: LaneAlias,
        connect: Callable[[str], AeronCluster],
        entries: Iterator[SessionEntry | None],
        now_ns: Callable[[], int],
    ) -> None:
        """``connect`` opens a session of that alias.

        ``entries`` are the committed log's from before the lane's first session on, without end; None
        whenever nothing more has come.
        """
        self.state = LaneState.OPENING
        self.end_position = -1  # after the last message of the lane in the log
        self.extra_rows = 0  # messages of the lane in the log that are none of the rows so far
        self.steps = 0  # towards its end; another session in place of one that was left is none
        self.lane = alias.lane
        self._alias = alias
        self._connect = connect
        self._entries = entries
        self._now_ns = now_ns
        self._session: AeronCluster | None = None
        self._term = -1  # of the log, as far as it was read
        self._since_ns = now_ns()  # when the session has done something last
        self._is_known = False  # an open of this attempt is in the log
        self._lane_sessions: set[int] = set()
        self._open: dict[int, bool] = {}  # those of them that are open, in the log's order: whether ours
        self._extra: Counter[bytes] = Counter()  # digests of ``extra_rows``
        self._sent: deque[bytes] = deque()  # in the session's term
        self._unsent: deque[bytes] = deque()

    @property
    def unsettled(self) -> int:
        """Rows that are not in the log."""
        return len(self._sent) + len(self._unsent)

    @property
    def owes(self) -> bool:
        """Whether something is to come, of its session or of an earlier one."""
        return self.state is not LaneState.WRITING or self.unsettled > 0

    def give(self, payload: bytes) -> None:
        """One more of the task's rows."""
        digest = _digest(payload)
        if self._extra[digest]:
            self._extra[digest] -= 1
            self.extra_rows -= 1
        else:
            self._unsent.append(payload)

    def do_work(self) -> int:
        """One turn; returns how much was done.

        Raises ClientClosed when a later attempt has begun, and what ``connect`` and the log raise.
        """
        work_count = self._read()
        session = self._session
        if session is None:
            self._session = self._connect(self._alias.text)
            self._has_advanced()
            return work_count + 1
        now_ns = self._now_ns()
        if not self.owes:
            self._since_ns = now_ns
        is_stalled = self.owes and now_ns - self._since_ns > STALLED_NS
        if session.is_closed or (is_stalled and self.state is not LaneState.FENCED):
            self._leave()
        elif self.state is LaneState.FENCED and next(iter(self._open)) == session.session_id:
            self.state = LaneState.WRITING
            self._has_advanced()
        elif self.state is LaneState.WRITING:
            work_count += self._offer(session)
        return work_count

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()

    # ---- the log

    def _read(self) -> int:
        for count in range(ENTRIES_MAX):
            entry = next(self._entries)
            if entry is None:
                return count
            if not self._is_known:
                self.steps += 1
            if self.state is LaneState.OPENING:
                self._has_advanced()  # its open is still to come
            self._on_entry(entry)
        return ENTRIES_MAX

    def _on_entry(self, entry: SessionEntry) -> None:
        match entry.entry_type:
            case EntryKind.TERM:
                self._on_term(entry)
            case EntryKind.OPEN:
                self._on_open(entry)
            case EntryKind.MESSAGE if entry.session_id in self._lane_sessions:
                self._on_message(entry)
            case EntryKind.CLOSE if entry.session_id in self._open:
                is_of_this = self._open.pop(entry.session_id)
                self.steps += not is_of_this
                if self._is_own(entry):
                    self._leave()

    def _is_own(self, entry: SessionEntry) -> bool:
        return self._session is not None and entry.session_id == self._session.session_id

    def _on_term(self, entry: SessionEntry) -> None:
        """What the log has no message of by now, it gets none of: all of it is sent again."""
        self._term = entry.leadership_term_id
        self._recall()
        session = self._session
        if session is None:
            return
        if self.state is LaneState.OPENING and self._term > session.leadership_term_id:
            self._leave()  # its open was lost with the leader
        elif entry.leader_member_id is not None:
            session.follow_leader(self._term, entry.leader_member_id)

    def _on_open(self, entry: SessionEntry) -> None:
        assert entry.session_id is not None
        assert entry.response_channel is not None
        alias, lane = LaneAlias.of(entry.response_channel), self.lane
        if alias is None or alias.lane != lane:
            return
        is_of_this = alias.attempt == self._alias.attempt
        if self._is_known and not is_of_this:
            raise ClientClosed(
                f"another attempt has opened batch {lane.batch} of lane {lane}, at position {entry.position}"
            )
        self._is_known |= is_of_this
        self._lane_sessions.add(entry.session_id)
        self._open[entry.session_id] = is_of_this
        if self._is_own(entry):
            self._term = entry.leadership_term_id
            self.state = LaneState.FENCED

    def _on_message(self, entry: SessionEntry) -> None:
        """Pair it with a row. One of our session that is not next means that those before it are missing."""
        payload = entry.payload
        assert payload is not None
        self.end_position = entry.end_position
        self.steps += 1
        self._has_advanced()
        if self._sent and self._sent[0] == payload:
            self._sent.popleft()
        elif payload in self._sent:
            self._sent.remove(payload)
            if self._is_own(entry):
                self._leave()
        elif payload in self._unsent:
            self._unsent.remove(payload)
        else:
            self._extra[_digest(payload)] += 1
            self.extra_rows += 1

    # ---- the session

    def _offer(self, session: AeronCluster) -> int:
        count = 0
        while self._unsent and session.offer(self._unsent[0], self._term) > 0:
            self._sent.append(self._unsent.popleft())
            count += 1
        return count

    def _recall(self) -> None:
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()

    def _leave(self) -> None:
        """Go back to the beginning, with another session."""
        assert self._session is not None
        self._session.close()
        self._session = None
        self.state = LaneState.OPENING
        self._recall()
        self._has_advanced()

    def _has_advanced(self) -> None:
        self._since_ns = self._now_ns()


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=16).digest()
