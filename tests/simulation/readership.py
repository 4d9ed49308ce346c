"""Consumer groups: readers report how far they are, too far, or where they were once; some die of it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from cluster.client.cluster_client import ClusterClient
from cluster.client.connecting import SessionOpening
from cluster.client.context import ClientContext
from cluster.errors import ClusterError
from cluster.protocol.consumer import Consumer, group_position
from cluster.testing.client import ClientWorld
from cluster.testing.network import Network, SimulatedPoller
from cluster.testing.world import MS, SECOND, Process, ProcessDied, VirtualWorld
from cluster.transport.endpoint import Endpoint
from tests.simulation.committed_log import CommittedLog

GROUPS = ("billing", "audit", "search")
TICK_NS = 20 * MS
TURN_NS = 20_000
REPORTS_AT_ONCE_MAX = 3
DAY = 24 * 3600 * SECOND


def draw_consumer_settings(random: Random) -> dict[str, Any]:
    """Bounds of the members that groups meet; their logs are dropped early and often."""
    return {
        "log_retained_snapshots": 1,
        "snapshot_every_bytes": 32 * 1024,
        "consumers_max": random.choice([1, 2, 1024]),
        "consumer_retention_ns": random.choice([2 * SECOND, 20 * SECOND, 7 * DAY]),
        "consumer_hold_bytes": random.choice([0, 64 * 1024, 1 << 40]),
    }


class Report(Process):
    """One report; ``is_over`` when it was taken, refused, or nobody waits for it."""

    def __init__(
        self,
        world: VirtualWorld,
        number: int,
        network: Network,
        endpoints: Mapping[int, Endpoint],
        log: CommittedLog,
        consumer: Consumer,
    ) -> None:
        super().__init__(world, f"10.1.{number // 250}.{1 + number % 250}", f"report {number}")
        self.is_over = False
        self.poller = SimulatedPoller(network, self)
        self.tokens = world.random(f"tokens of report {number}")
        self._network = network
        self._log = log
        self._consumer = consumer
        self._context = ClientContext(
            {i: str(endpoint) for i, endpoint in endpoints.items()}, client_name=self.name, consumer=consumer
        )
        self._world = ClientWorld(self)
        self._attempt = SessionOpening(self._context, self._world)

    def turn(self) -> int | None:
        self.spend(TURN_NS)
        try:
            self._connect()
        except ClusterError as error:
            self._end(f"refused: {error}")
        except ProcessDied:
            pass  # ``on_killed`` has let go of everything
        return None if self.is_over else TICK_NS

    def _connect(self) -> None:
        self.poller.wait(0)
        if not self._attempt.poll():
            return
        event = self._attempt.event
        assert event is not None
        told = group_position(event.detail)
        assert told is not None
        self._log.groups.check_answer(event.cluster_session_id, self._consumer.group, told)
        ClusterClient(self._context, self._world, self._attempt).close()
        self._end(f"{self._consumer} is taken")

    def _end(self, outcome: str) -> None:
        self.is_over = True
        self.world.trace.say(self.now_ns, self.name, f"ends: {outcome}")

    def on_killed(self) -> None:
        self._network.on_killed(self.poller)
        self.poller = SimulatedPoller(self._network, self)
        self._end("killed")


class Readership:
    """All groups. ``is_sending`` False: nothing more is reported."""

    def __init__(
        self,
        world: VirtualWorld,
        network: Network,
        endpoints: Mapping[int, Endpoint],
        random: Random,
        log: CommittedLog,
    ) -> None:
        self.is_sending = True
        self._world = world
        self._network = network
        self._endpoints = endpoints
        self._random = random
        self._log = log
        self._positions = dict.fromkeys(GROUPS, 0)
        self._reports: list[Report] = []
        self._count = 0
        world.at(random.randrange(SECOND), self._turn)

    @property
    def is_done(self) -> bool:
        return not self.is_sending and not self._running()

    def _running(self) -> list[Report]:
        return [report for report in self._reports if not report.is_over and report.is_alive]

    def _turn(self) -> None:
        if not self.is_sending:
            return
        self._reports = self._running()
        if self._reports and self._random.random() < 0.05:
            self._random.choice(self._reports).kill()
        if len(self._reports) < REPORTS_AT_ONCE_MAX:
            self._start(self._random.choice(GROUPS))
        self._world.at(self._world.now_ns + self._random.randrange(100 * MS, SECOND), self._turn)

    def _start(self, group: str) -> None:
        """As a rule the group goes on; sometimes an old reader comes back, or one that is ahead of itself."""
        end, known = self._log.end, self._positions[group]
        position = self._random.randint(min(known, end), end)
        chance = self._random.random()
        if chance < 0.15:
            position = self._random.randint(0, known)
        elif chance < 0.2:
            position = end + 32 * self._random.randint(1, 1000)
        self._positions[group] = max(known, min(position, end))
        self._count += 1
        report = Report(
            self._world, self._count, self._network, self._endpoints, self._log, Consumer(group, position)
        )
        self._reports.append(report)
        report.wake(self._world.now_ns)
