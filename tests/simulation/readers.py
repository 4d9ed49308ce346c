"""Readers of the simulation: the production DirectoryLog, on the machines of members.

A reader follows the committed log, as a stream does. When a member fails it, and now and then, it rests.
Then it goes on in those of any: at the position that it has come to, or where that member's log begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random

import numpy as np

from cluster.errors import ClusterError, DataLoss
from cluster.reader.directory import DirectoryLog
from cluster.testing.disk import Disk, SimulatedFiles
from cluster.testing.world import MS, SECOND, Clock, Process, VirtualWorld
from cluster.transport.committed_log import BlockOptions
from tests.simulation.counters_files import SimulatedCounters

READER_TICK_NS = 200 * MS
REST_NS = 4 * SECOND  # at most: logs are purged meanwhile
TURN_NS = 20_000
PROCESS_ID = 9_000


class ReaderObserver:
    """What the invariants want to hear of readers."""

    def on_bound(self, reader: Reader) -> None: ...

    def on_read(self, reader: Reader, position: int, data: bytes) -> None: ...

    def on_read_error(self, reader: Reader, error: ClusterError) -> None: ...


class Machines:
    """Those of the members, whose directories programs on them read."""

    def __init__(self, disks: Mapping[int, Disk], clocks: Mapping[int, Clock]) -> None:
        self._disks = disks
        self._clocks = clocks

    def open(self, process: Process, member_id: int) -> DirectoryLog:
        """A member's log. Raises ClusterError."""
        disk, clock = self._disks[member_id], self._clocks[member_id]
        directory = f"/member-{member_id}"
        return DirectoryLog(
            None,
            archive_dir=f"{directory}/archive",
            cluster_dir=f"{directory}/cluster",
            files=SimulatedFiles(disk, process, PROCESS_ID),
            now_ms=lambda: clock.epoch_ms(process.now_ns),
            open_counters=partial(SimulatedCounters, disk),
        )

    def choose(self, random: Random) -> int:
        """Any member's id."""
        return random.choice(sorted(self._disks))


class Reader(Process):
    """One program that reads: it has come to ``position``, and may go on to ``bound``."""

    def __init__(
        self,
        world: VirtualWorld,
        machines: Machines,
        random: Random,
        observer: ReaderObserver,
    ) -> None:
        super().__init__(world, "10.0.3.1", "reader")
        self.position = self.bound = 0
        self.member_id = 0
        self._machines = machines
        self._random = random
        self._observer = observer
        self._log: DirectoryLog | None = None
        self._blocks: Iterator[tuple[int, np.ndarray]] | None = None

    def turn(self) -> int:
        self.spend(TURN_NS)
        try:
            if self._log is None:
                self.member_id = self._machines.choose(self._random)
                self._log = self._machines.open(self, self.member_id)
            self._read(self._log)
        except ClusterError as error:
            self._on_error(error)
        return self._random.randrange(REST_NS if self._log is None else 2 * READER_TICK_NS)

    def _read(self, log: DirectoryLog) -> None:
        """Go on with what was being read, for some blocks: the member acts between them."""
        if self._blocks is None:
            self.bound = log.commit_position()
            self._observer.on_bound(self)
            if self.bound <= self.position:
                return
            max_bytes = self._random.choice([1_024, 64 * 1024])
            self._blocks = log.blocks(self.position, self.bound, BlockOptions(max_bytes))
        for _ in range(self._random.randint(1, 20)):
            position, block = next(self._blocks, (0, None))
            if block is None:
                self._blocks = None
                if self._random.random() < 0.1:
                    self._leave()
                return
            self._observer.on_read(self, position, block.tobytes())
            self.position = position + len(block)

    def _on_error(self, error: ClusterError) -> None:
        self.world.say(self.name, f"member {self.member_id}: {type(error).__name__}: {error}")
        self._observer.on_read_error(self, error)
        if isinstance(error, DataLoss) and self._log is not None:
            self.position = max(self.position, self._log.start_position)
        self._leave()

    def _leave(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = self._blocks = None
