"""I-22: what the committed log says of lanes, read by names and by the rows' own words alone."""

from __future__ import annotations

from typing import NamedTuple

from cluster.protocol.lane import Lane, LanePrincipal
from tests.simulation.violation import require

APPLICATION = "lanes"  # the one that writes; others only open lanes, and have old ones forgotten


class Rows(NamedTuple):
    """What a partition of a batch may have: ``count`` rows, others from number ``other_from`` on."""

    count: int
    other_from: int

    def words(self, batch: int) -> list[bytes]:
        """Of each row what is the same whoever sends it: ``<batch>.<row>``, and ``.other``."""
        return [f"{batch}.{row}{'.other' * (row >= self.other_from)}".encode() for row in range(self.count)]


class LoggedLane:
    """One lane: the words of the rows of its batch that are in; who holds it, or -1.

    When it was opened last: cluster time, and how many lives of members had begun by then.
    """

    def __init__(self) -> None:
        self.batch = -1
        self.opened_at = self.opened_in = 0
        self.words: list[bytes] = []
        self.holder_id = -1
        self.is_compared = True  # False: rows were purged before a task could compare them with its own

    @property
    def rows(self) -> int:
        return len(self.words)


class LoggedLanes:
    """All of one log. ``planned`` has, by batch and partition, the rows that it was to have once or twice."""

    def __init__(self) -> None:
        self.planned: dict[int, list[list[Rows]]] = {}
        self.registered = -1
        self.rows_at_open: dict[int, int] = {}  # by session
        self.lives = 0  # of members, so many have begun
        self.forgotten: set[str] = set()  # applications that were, in any place of the log
        self._lanes: dict[int, LoggedLane] = {}  # by partition, of the application that writes
        self._others: dict[str, LoggedLane] = {}  # of each other application its only one
        self._sessions: dict[int, Lane] = {}

    def has(self, session_id: int) -> bool:
        """Whether the session writes, or wrote, a lane."""
        return session_id in self._sessions

    def rows(self, partition: int, batch: int) -> int:
        """How many rows of the batch are in the lane."""
        state = self._lanes.get(partition)
        return state.rows if state is not None and state.batch == batch else 0

    def on_open(
        self,
        session_id: int,
        encoded_principal: bytes,
        timestamp: int,
        position: int,
        lasted: float,
        life: int,
    ) -> None:
        """``lasted``: no more than so much time can have passed since the world began, in its unit.

        ``life``: the number of the leader's. It has seen no jump from before it.
        """
        named = LanePrincipal.decode(encoded_principal)
        lane = named.lane
        if lane is None:
            return
        self._sessions[session_id] = lane
        where = f"session {session_id}, batch {lane.batch} of lane {lane}, opened at {position}"
        self._forget(lane.application, timestamp - named.retention, lasted > named.retention, life, where)
        if lane.application == APPLICATION:
            require(lane.batch > self.registered, "I-22", f"{where}: batch {self.registered} is registered")
            state = self._lanes.setdefault(lane.partition, LoggedLane())
        else:
            state = self._others.setdefault(lane.application, LoggedLane())
        state.opened_at, state.opened_in = timestamp, self.lives
        require(state.holder_id < 0, "I-22", f"{where}: session {state.holder_id} has the lane")
        require(lane.batch >= state.batch, "I-22", f"{where}: the lane is at batch {state.batch}")
        if lane.is_registration:
            self._check_registration(lane, where)
        if lane.batch > state.batch:
            state.batch, state.words, state.is_compared = lane.batch, [], True
        state.holder_id = session_id
        self.rows_at_open[session_id] = state.rows

    def _forget(self, opening: str, since: int, is_due: bool, life: int, where: str) -> None:
        """Others without a session that opened no lane since then are forgotten: by no jump in that life."""
        of_others = {name: [state] for name, state in self._others.items()}
        for name, states in {APPLICATION: list(self._lanes.values()), **of_others}.items():
            last = max(states, key=lambda state: state.opened_at, default=None)
            is_held = any(state.holder_id >= 0 for state in states)
            if name == opening or last is None or is_held or last.opened_at >= since:
                continue
            is_right = is_due or life > last.opened_in
            require(is_right, "I-22", f"{where}: it has application {name} forgotten by a jump of time")
            self.forgotten.add(name)
            if name == APPLICATION:
                self._lanes.clear()
                self.registered = -1
            else:
                del self._others[name]

    def _check_registration(self, lane: Lane, where: str) -> None:
        """The batch is whole, in the partitions that it has and in no others; nobody can write more of it."""
        for partition, versions in enumerate(self.planned[lane.batch]):
            rows = self.rows(partition, lane.batch)
            expected = [version.count for version in versions] if partition < lane.partitions else [0]
            require(rows in expected, "I-22", f"{where}: {rows} rows in {partition}, expected {expected}")
        for state in self._lanes.values():
            require(state.holder_id < 0, "I-22", f"{where}: session {state.holder_id} may write more")
        self.registered = lane.batch

    def on_message(self, session_id: int, payload: bytes, end: int) -> None:
        lane = self._sessions.get(session_id)
        if lane is None:
            return
        require(lane.application == APPLICATION, "I-22", f"a row of lane {lane}, without any, ends at {end}")
        words = payload.split(b"|")[1]
        batch, row = map(int, words.split(b".")[:2])
        state = self._lanes[lane.partition]
        where = f"row {words.decode()} of lane {lane}, which ends at {end}"
        require(
            (batch, row) == (state.batch, state.rows),
            "I-22",
            f"{where}: expected row {state.rows} of batch {state.batch}",
        )
        state.words.append(words)
        versions = self.planned[batch][lane.partition]
        require(
            not state.is_compared or any(state.words == rows.words(batch)[: row + 1] for rows in versions),
            "I-22",
            f"{where}: those before it are of another batch {batch}, one that had other rows",
        )

    def on_close(self, session_id: int) -> None:
        lane = self._sessions.get(session_id)
        if lane is not None:
            is_others = lane.application != APPLICATION
            (self._others[lane.application] if is_others else self._lanes[lane.partition]).holder_id = -1

    # -- what clients are told, and what they do --

    def on_not_compared(self, lane: Lane) -> None:
        """A task goes on where the rows that are in are purged: it may be others that it continues."""
        state = self._lanes[lane.partition]
        if state.batch == lane.batch:
            state.is_compared = False

    def check_answer(self, session_id: int, rows: int) -> None:
        """A client was told that its session is open, and how many rows are in."""
        known = self.rows_at_open.get(session_id)
        require(
            known == rows,
            "I-22",
            f"session {session_id} is told of {rows} rows, in the log were {known} when it opened its lane",
        )

    def check_written(self, lane: Lane, rows: Rows) -> None:
        """A client was told that all its rows are committed."""
        if lane.batch <= self.registered or lane.application != APPLICATION:
            return
        logged = self.rows(lane.partition, lane.batch)
        where = f"{rows.count} rows of batch {lane.batch} of lane {lane} are acknowledged"
        require(logged >= rows.count, "I-22", f"{where}, {logged} are in the log")
        state = self._lanes.get(lane.partition)
        if state is not None and state.is_compared:
            expected = rows.words(lane.batch)
            require(state.words[: rows.count] == expected, "I-22", f"{where}, others are in the log")

    def check_refused(self, batch: int, partition: int, rows: Rows) -> Rows:
        """A task was told that others are in the log; returns those."""
        others = [version for version in self.planned[batch][partition] if version != rows]
        require(
            len(others) == 1, "I-22", f"rows of partition {partition} of batch {batch} are told to differ"
        )
        return others[0]

    def check_registered(self, batch: int) -> None:
        """A client was told that a batch is registered."""
        require(batch <= self.registered, "I-22", f"batch {batch} is told to be registered, and is not")
