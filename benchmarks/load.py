"""Numbered messages from public clients while a cluster is broken, and what the clients were promised.

A ``Load`` runs one ``ClusterClient`` in a thread. It sends at a steady rate, through whatever happens, notes
when the number of acknowledged messages grew, and takes a new session when the cluster has closed its own.
``check_logs`` then holds the members' logs against it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster import ClusterClient, LogReader
from cluster.errors import ClientClosed, ClusterError

BATCH_MAX = 64  # messages offered at once after a hold-up: enough to catch up, small beside the rate
WAIT_S = 0.002
AWAIT_S = 60.0


@dataclass
class Session:
    """One session's messages are ``name:1``, ``name:2``, ...: so many offered, so many acknowledged."""

    name: str
    session_id: int
    offered: int = 0
    acknowledged: int = 0
    why_closed: str = ""


@dataclass
class Load:
    """A context manager; the thread runs within. ``endpoints`` may be changed while it runs."""

    endpoints: str
    messages_per_s: float = 1_000
    payload_bytes: int = 100
    aeron_dir: str | None = None
    message_timeout_s: float = 2.0
    name: str = "load"
    within: Callable[[], object] = lambda: None  # called in the thread first, to enter a network
    sessions: list[Session] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)  # monotonic time of each growth
    acknowledged: int = 0  # messages, over all sessions
    error: BaseException | None = None
    _is_ending: bool = False
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ending = True
        assert self._thread is not None
        self._thread.join(AWAIT_S + 10)

    def finish(self) -> None:
        """Offer nothing more, and return when all that the open session offered is acknowledged."""
        self.__exit__(None, None, None)
        assert self._thread is not None and not self._thread.is_alive(), "the load does not end"
        if self.error is not None:
            raise self.error

    def await_progress(self, tell: Callable[[], str] = str, *, within_s: float = AWAIT_S) -> float:
        """Return when messages offered from now on are acknowledged, with the seconds that it took."""
        began = time.monotonic()
        goal = sum(session.offered for session in self.sessions) + 1
        lost = sum(s.offered - s.acknowledged for s in self.sessions[:-1])
        while self.acknowledged + lost < goal:
            lost = sum(s.offered - s.acknowledged for s in self.sessions[:-1])
            if self.error is not None:
                raise self.error
            if time.monotonic() - began > within_s:
                raise AssertionError(f"nothing is acknowledged for {within_s:g} s: {self.sessions}\n{tell()}")
            time.sleep(0.01)
        return time.monotonic() - began

    def await_seconds(self, seconds: float) -> None:
        """Let the load run for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.error is not None:
                raise self.error
            time.sleep(0.01)

    def longest_gap(self, since: float, until: float) -> float:
        """Seconds between two growths of what is acknowledged, the longest that touches [since, until)."""
        times = [t for t in self.acknowledged_at if t < until]
        gaps = [b - a for a, b in pairwise(times) if b >= since]
        return max(gaps, default=0.0)

    # -- the thread --

    def _run(self) -> None:
        try:
            self.within()
            while not self._is_ending:
                self._run_session()
        except BaseException as error:
            self.error = error

    def _run_session(self) -> None:
        try:
            client = ClusterClient.connect(
                self.endpoints, message_timeout_s=self.message_timeout_s, aeron_dir=self.aeron_dir
            )
        except ClusterError:
            return  # nobody leads now: asked again, until the test's patience is at its end
        session = Session(f"{self.name}-{len(self.sessions)}", client.cluster_session_id)
        self.sessions.append(session)
        with client:
            with suppress(ClientClosed):
                self._keep_sending(client, session)
            with suppress(ClusterError):
                client.await_committed(AWAIT_S)
            self._note(client, session)
            session.why_closed = client.why_closed if client.is_closed else ""

    def _keep_sending(self, client: ClusterClient, session: Session) -> None:
        began = time.monotonic()
        while not self._is_ending:
            due = int((time.monotonic() - began) * self.messages_per_s) - session.offered
            if due > 0:
                self._offer(client, session, min(due, BATCH_MAX))
            client.poll_egress()
            self._note(client, session)
            client.wait(WAIT_S)

    def _offer(self, client: ClusterClient, session: Session, count: int) -> None:
        payloads = [
            f"{session.name}:{session.offered + i}".encode().ljust(self.payload_bytes, b".")
            for i in range(1, count + 1)
        ]
        if client.offer_batch(payloads) > 0:
            session.offered += count

    def _note(self, client: ClusterClient, session: Session) -> None:
        grown = client.acknowledged - session.acknowledged
        if grown > 0:
            self.acknowledged_at.append(time.monotonic())
            session.acknowledged += grown
            self.acknowledged += grown


@dataclass(frozen=True)
class Kept:
    """What one log holds: a digest of its bytes, and the numbers of each session's messages in order."""

    end: int
    digest: str
    numbers: dict[int, list[int]]


@dataclass(frozen=True, slots=True)
class Count:
    """What became of the messages, by the worst of the logs."""

    acknowledged: int
    lost: int
    doubled: int


def read_log(reader: LogReader, end: int) -> Kept:
    """Read a log up to ``end``, with the closing checks of what a ``Load`` wrote."""
    digest = hashlib.sha256()
    for _, block in reader.blocks(None, end):
        digest.update(block)
    numbers: dict[int, list[int]] = defaultdict(list)
    columns = ("clusterSessionId", "payload")
    for batch in reader.batches(None, end, columns=columns, entry_types=("SESSION_MESSAGE",)):
        rows = batch.to_pydict()
        for session_id, payload in zip(rows["clusterSessionId"], rows["payload"], strict=True):
            _, _, number = payload.rstrip(b".").rpartition(b":")
            numbers[session_id].append(int(number))
    return Kept(end, digest.hexdigest(), dict(numbers))


def count(kept: Kept, sessions: Iterable[Session]) -> Count:
    """Hold a log against what clients were told; AssertionError where a session's order is broken."""
    acknowledged = lost = doubled = 0
    for session in sessions:
        numbers = kept.numbers.get(session.session_id, [])
        once = sorted(set(numbers))
        acknowledged += session.acknowledged
        lost += session.acknowledged - sum(number <= session.acknowledged for number in once)
        doubled += len(numbers) - len(once)
        assert numbers == sorted(numbers), f"{session.name} is out of order"
        assert not numbers or numbers[-1] <= session.offered, f"{session.name}: {numbers[-1]} was not offered"
        assert once == list(range(1, len(once) + 1)), f"{session.name} has a hole"
    return Count(acknowledged, lost, doubled)


def check_logs(
    directories: Iterable[Path], endpoints: Iterable[str], sessions: list[Session], end: int
) -> Count:
    """The logs in these directories, and as members serve them, are one and the same up to ``end``.

    AssertionError unless it holds every acknowledged message once, in the order of its session.
    """
    logs: dict[str, Kept] = {}
    for directory in directories:
        with LogReader.open(dir=str(directory)) as reader:
            logs[str(directory)] = read_log(reader, end)
    for endpoint in endpoints:
        with LogReader.open(endpoints=endpoint) as reader:
            logs[endpoint] = read_log(reader, end)
    digests = {name: kept.digest for name, kept in logs.items()}
    assert len(set(digests.values())) == 1, f"logs differ below position {end}: {digests}"
    counts = {name: count(kept, sessions) for name, kept in logs.items()}
    worst = Count(
        sum(session.acknowledged for session in sessions),
        max(found.lost for found in counts.values()),
        max(found.doubled for found in counts.values()),
    )
    assert (worst.lost, worst.doubled) == (0, 0), f"lost or doubled: {counts}"
    return worst
