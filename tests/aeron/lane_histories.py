"""Random histories of a lane's attempts at a cluster that loses leaders and messages: seed in, log out.

The cluster is a list of entries, of which a part is committed. A driver plans batch after batch, is killed
and plans again; its tasks' attempts are killed, paused and given up while they go on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cluster.aeron.lane_index import LaneAlias, LaneIndex, search_begin
from cluster.aeron.lane_writer import LaneWriter
from cluster.aeron.session_entries import EntryKind, SessionEntry
from cluster.errors import BatchRegistered, ClientClosed, TimedOut
from cluster.protocol.enums import Offer
from cluster.protocol.lane import REGISTRATION, Lane

ENTRY_LENGTH = 64
TERM_LENGTH = 16 * ENTRY_LENGTH
SESSION_TIMEOUT = 30  # turns
TURNS_MAX = 30_000
APPLICATION = "orders / eu|2"


class RandomCluster:
    """Its leader takes what sessions send, or loses it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[SessionEntry] = []
        self.committed = 0
        self.term = 0
        self.now = 0
        self.is_calm = False
        self.sessions: dict[int, RandomSession] = {}
        self._begin_term()

    def append(self, kind: EntryKind, **fields: Any) -> None:
        position = len(self.log) * ENTRY_LENGTH
        self.log.append(SessionEntry(kind, position, position + ENTRY_LENGTH, self.term, **fields))

    def _begin_term(self) -> None:
        self.append(EntryKind.TERM, leader_member_id=self.term % 3)

    def open_ids(self) -> set[int]:
        opened = {entry.session_id for entry in self.log if entry.entry_type is EntryKind.OPEN}
        closed = {entry.session_id for entry in self.log if entry.entry_type is EntryKind.CLOSE}
        return {id_ for id_ in opened - closed if id_ is not None}

    def connect(self, alias: str) -> RandomSession:
        fate = 1.0 if self.is_calm else self.rng.random()
        if fate < 0.03:
            raise TimedOut("no leader")
        session = self.admit(alias)
        if fate < 0.06:
            session.is_kept_alive = False
            raise TimedOut("the answer was lost")
        return session

    def admit(self, alias: str) -> RandomSession:
        ids = [entry.session_id or 0 for entry in self.log if entry.entry_type is EntryKind.OPEN]
        session = RandomSession(self, max(ids, default=0) + 1, self.term)
        self.sessions[session.session_id] = session
        channel = f"aeron:udp?endpoint=me:1|alias={alias}"
        self.append(EntryKind.OPEN, session_id=session.session_id, response_channel=channel)
        return session

    def turn(self) -> None:
        self.now += 1
        rng = self.rng
        if not self.is_calm and rng.random() < 0.01:
            del self.log[rng.randint(self.committed, len(self.log)) :]
            self.term += rng.randint(1, 2)
            self._begin_term()
            for session in self.sessions.values():
                session.sent_ns = self.now
        is_open = self.open_ids()
        for session_id, session in sorted(self.sessions.items()):
            if session_id in is_open:
                session.turn()
            elif session.is_kept_alive and rng.random() < 0.2:
                session.is_closed = True
        self.committed = rng.randint(self.committed, len(self.log))

    def indexed(self, begin: int, end: int) -> LaneIndex:
        index = LaneIndex(begin, end)
        for entry in self.log[begin // ENTRY_LENGTH : end // ENTRY_LENGTH]:
            if entry.entry_type is EntryKind.OPEN:
                index.on_open(entry.position, entry.response_channel or "")
        index.forget_registered()
        return index

    def planned(self) -> LaneIndex:
        """What a driver knows of the log when it plans."""
        end = self.committed * ENTRY_LENGTH
        return self.indexed(max(end - end % TERM_LENGTH, 0), end)

    def entries(self, begin: int) -> Iterator[SessionEntry | None]:
        at = begin // ENTRY_LENGTH
        while True:
            if at < self.committed:
                yield self.log[at]
                at += 1
            else:
                yield None


class RandomSession:
    """What it sends arrives in order, unless a connection broke, which nobody tells it."""

    def __init__(self, cluster: RandomCluster, session_id: int, term: int) -> None:
        self.session_id = session_id
        self.leadership_term_id = term
        self.is_closed = False
        self.is_kept_alive = True
        self.sent_ns = cluster.now
        self._cluster = cluster
        self._ingress: list[tuple[int, bytes | None]] = []

    def offer(self, payload: bytes, leadership_term_id: int) -> int:
        if self.is_closed:
            return Offer.CLOSED
        if leadership_term_id != self.leadership_term_id or len(self._ingress) > 8:
            return Offer.NOT_CONNECTED
        self._ingress.append((self.leadership_term_id, payload))
        return 1

    def follow_leader(self, leadership_term_id: int, member_id: int) -> None:
        self.leadership_term_id = max(self.leadership_term_id, leadership_term_id)

    def close(self) -> None:
        if not self.is_closed and self._cluster.rng.random() < 0.7:
            self._ingress.append((self.leadership_term_id, None))
        self.is_closed = True
        self.is_kept_alive = False

    def turn(self) -> None:
        """The leader, who has the session, takes what has arrived of it."""
        cluster, rng = self._cluster, self._cluster.rng
        if self.is_kept_alive:
            self.sent_ns = cluster.now
            if self.leadership_term_id < cluster.term and rng.random() < 0.2:
                self.leadership_term_id = cluster.term
        if not cluster.is_calm and self._ingress and rng.random() < 0.02:
            del self._ingress[: rng.randint(1, 4)]
        for _ in range(rng.randint(0, min(4, len(self._ingress)))):
            term, payload = self._ingress.pop(0)
            if term != cluster.term:
                continue
            if payload is None:
                cluster.append(EntryKind.CLOSE, session_id=self.session_id)
                return
            cluster.append(EntryKind.MESSAGE, session_id=self.session_id, payload=payload)
        if cluster.now - self.sent_ns > SESSION_TIMEOUT:
            cluster.append(EntryKind.CLOSE, session_id=self.session_id)


@dataclass
class Attempt:
    """Of a task: a writer and the rows that it has yet to be given."""

    cluster: RandomCluster
    lane: Lane
    index: LaneIndex
    rows: list[bytes]
    number: int
    writer: LaneWriter | None = None
    given: int = 0
    is_paused: bool = False
    is_over: bool = False
    is_done: bool = False
    begun: int = 0

    def turn(self) -> None:
        """Ends with ``is_done`` when all rows are in the log."""
        try:
            self._turn()
        except BatchRegistered:
            self.is_over = self.is_done = True
        except (ClientClosed, TimedOut):
            self.end()

    def _turn(self) -> None:
        cluster = self.cluster
        if self.writer is None:
            begin = search_begin(self.lane, self.index, cluster.indexed, 0, TERM_LENGTH)
            alias = LaneAlias(self.lane, f"a{self.number}")
            self.writer = LaneWriter(
                alias, cluster.connect, cluster.entries(begin), lambda: cluster.now * 400_000_000
            )
        while self.given < len(self.rows) and self.writer.unsettled < 6:
            self.writer.give(self.rows[self.given])
            self.given += 1
        self.writer.do_work()
        if self.given == len(self.rows) and self.writer.unsettled == 0:
            assert self.writer.extra_rows == 0
            self.is_done = True
            self.end()

    def end(self) -> None:
        self.is_over = True
        if self.writer is not None:
            self.writer.close()

    def kill(self) -> None:
        """Its process is gone; the cluster is told nothing."""
        self.is_over = True
        if self.writer is not None and (session := self.writer._session) is not None:
            session.is_kept_alive = False  # type: ignore[attr-defined]


@dataclass
class History:
    """Batches of two partitions, each until its driver sees it through."""

    seed: int
    batches: int = 3
    rng: random.Random = field(init=False)
    attempts: list[Attempt] = field(default_factory=list)  # also those that nobody waits for
    kills: int = 0
    late: list[str] = field(default_factory=list)  # registrations of drivers that are no more

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.cluster = RandomCluster(self.rng)
        self.rows = {
            Lane(APPLICATION, partition, batch): [
                b"%d" % self.rng.randint(0, 12) for _ in range(self.rng.randint(0, 25))
            ]
            for batch in range(self.batches)
            for partition in range(2)
        }

    def run(self) -> None:
        for batch in range(self.batches):
            while not self._run_batch(batch):
                self.kills += 1
        self.cluster.is_calm = True
        for attempt in self.attempts:
            attempt.is_paused = False
        self._turn_until(lambda: all(attempt.is_over for attempt in self.attempts))
        self._turn_until(lambda: self.cluster.committed == len(self.cluster.log))

    def _turn_until(self, is_reached: Callable[[], bool]) -> None:
        while not is_reached():
            self._turn()

    def _turn(self) -> None:
        assert self.cluster.now < TURNS_MAX, f"seed {self.seed}: it does not end"
        self.cluster.turn()
        if self.late and self.rng.random() < 0.01:
            self.cluster.admit(self.late.pop())
        for attempt in self.attempts:
            if not attempt.is_over and not attempt.is_paused and self.rng.random() < 0.7:
                attempt.turn()

    def _run_batch(self, batch: int) -> bool:
        """One driver; False when it was killed, and left its tasks behind or not."""
        index = self.cluster.planned()
        lanes = [lane for lane in self.rows if lane.batch == batch]
        current: dict[Lane, Attempt] = {}
        while True:
            for lane in lanes:
                now = current.get(lane)
                if now is None or (now.is_over and not now.is_done) or self._is_given_up(now):
                    current[lane] = self._attempt(lane, index)
            self._turn()
            if not self.cluster.is_calm and self.rng.random() < 0.003:
                self._leave_behind(current)
                return False
            if all(attempt.is_done for attempt in current.values()):
                break
        if self.rng.random() < 0.2:
            self._leave_behind(current)
            self.late += [self._registration(batch, index).text] * self.rng.randint(0, 2)
            return False
        return self._register(batch, index)

    def _is_given_up(self, attempt: Attempt) -> bool:
        if attempt.is_done or self.rng.random() > 0.01:
            return False
        self.kills += 1
        if self.rng.random() < 0.5:
            attempt.kill()
        else:
            attempt.is_paused = self.rng.random() < 0.5
        return True

    def _leave_behind(self, current: dict[Lane, Attempt]) -> None:
        for attempt in current.values():
            if self.rng.random() < 0.5:
                attempt.kill()

    def _attempt(self, lane: Lane, index: LaneIndex) -> Attempt:
        for attempt in self.attempts:
            attempt.is_paused &= self.rng.random() < 0.8
        rows = list(self.rows[lane])
        if self.rng.random() < 0.3:
            self.rng.shuffle(rows)
        attempt = Attempt(self.cluster, lane, index, rows, len(self.attempts))
        self.attempts.append(attempt)
        return attempt

    def _registration(self, batch: int, index: LaneIndex) -> LaneAlias:
        return LaneAlias(Lane(APPLICATION, REGISTRATION, batch), f"r{self.cluster.now}", index.end)

    def _register(self, batch: int, index: LaneIndex) -> bool:
        alias = self._registration(batch, index)
        while True:
            try:
                session = self.cluster.connect(alias.text)
            except TimedOut:
                return False
            session.close()
            for _ in range(SESSION_TIMEOUT):
                self._turn()
                committed = self.cluster.log[: self.cluster.committed]
                if any(alias.text in (entry.response_channel or "") for entry in committed):
                    return True

    def messages(self) -> dict[Lane, Counter[bytes]]:
        """Of each lane's batch, as the log has them in the end."""
        lane_of: dict[int, Lane] = {}
        found: dict[Lane, Counter[bytes]] = {lane: Counter() for lane in self.rows}
        for entry in self.cluster.log:
            if entry.entry_type is EntryKind.OPEN:
                alias = LaneAlias.of(entry.response_channel or "")
                assert alias is not None
                lane_of[entry.session_id or 0] = alias.lane
            elif entry.entry_type is EntryKind.MESSAGE:
                found[lane_of[entry.session_id or 0]][entry.payload or b""] += 1
        return found
