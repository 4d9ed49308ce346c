"""An application with lanes: its driver has tasks write batch after batch, and it all is killed now and then.

    driver ── a task for each partition ── all have written ── registration ── the next batch
       └─ killed: starts the batch again, sometimes with fewer partitions or with other rows; its tasks die,
          sleep, or go on

A task compares the rows that are in with its own, as the sink does: it reads them on a member's machine. Each
row names its session and its number there, as all messages do (clients.py), then itself (lane_log.py):

    .<number of the task>.<session>.<number>|<batch>.<row>|<filler>
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

import pyarrow as pa

from cluster.client.cluster_client import ClusterClient
from cluster.client.connecting import SessionOpening
from cluster.client.context import ClientContext
from cluster.errors import ApplicationUnknown, BatchRegistered, ClusterError, DataLoss, LocalProtocolError
from cluster.protocol.lane import REGISTRATION, Lane, LaneStanding
from cluster.reader.log_reader import LogReader
from cluster.testing.client import ClientWorld
from cluster.testing.network import Network, SimulatedPoller
from cluster.testing.world import MS, SECOND, Process, ProcessDied, VirtualWorld
from cluster.transport.endpoint import Endpoint
from spark_connector.sink.known_rows import KnownRows, payloads_of
from tests.simulation.lane_log import APPLICATION, LoggedLanes, Rows
from tests.simulation.readers import Machines
from tests.simulation.violation import require

TICK_NS = 20 * MS
TURN_NS = 20_000
DRIVER_TICK_NS = 50 * MS
KILL_CHANCE = 0.03  # of the driver, in a turn
SPECULATION_CHANCE = 0.03  # of a task: another one starts beside it
ABANDONED_MAX = 3  # tasks that nobody waits for and that still go on
REST_NS = 300 * MS  # before a task that failed is started again
OTHER_ROWS_CHANCE = 0.2  # of a batch that is started again
OTHERS = ("billing", "audit", "search")  # applications that open a lane now and then
OTHERS_CHANCE = 0.02  # in a turn


class Task(Process):
    """One attempt to write a partition of a batch; ``outcome`` says how it came to its end."""

    def __init__(
        self,
        world: VirtualWorld,
        number: int,
        network: Network,
        endpoints: Mapping[int, Endpoint],
        machines: Machines,
        lanes: LoggedLanes,
        lane: Lane,
        rows: Rows,
    ) -> None:
        super().__init__(world, f"10.0.{2 + number // 250}.{1 + number % 250}", f"task {number}")
        self.lane = lane
        self.outcome = ""
        self.is_refused = False  # for its rows
        self.poller = SimulatedPoller(network, self)
        self.tokens = world.random(f"tokens of task {number}")
        self._number = number
        self._rows = rows
        self._network = network
        self._machines = machines
        self._lanes = lanes
        self._random = world.random(f"task {number}")
        self._burst = self._random.choice([1, 3, 10])
        self._client: ClusterClient | None = None
        self._is_compared = False
        self._context = ClientContext(
            {i: str(endpoint) for i, endpoint in endpoints.items()}, client_name=self.name, lane=lane
        )
        self._world = ClientWorld(self)
        self._attempt = SessionOpening(self._context, self._world)

    @property
    def is_written(self) -> bool:
        """Whether all that it was to write is in the log."""
        return self.outcome in ("written", "registered")

    def turn(self) -> int | None:
        self.spend(TURN_NS)
        try:
            if self._client is None:
                self._connect()
            elif not self._is_compared:
                self._compare(self._client)
            else:
                self._work(self._client)
        except BatchRegistered:
            self._lanes.check_registered(self.lane.batch)
            self._end("registered")
        except ApplicationUnknown as error:
            is_right = self.lane.application in self._lanes.forgotten
            require(is_right, "I-22", f"{self.name} writes batch {self.lane.batch}: {error}")
            self._end(str(error))
        except ClusterError as error:
            self._end(str(error))
        except ProcessDied:
            pass  # ``on_killed`` has let go of everything
        return None if self.outcome else TICK_NS

    def _connect(self) -> None:
        self.poller.wait(0)
        if self._attempt.poll():
            self._client = ClusterClient(self._context, self._world, self._attempt)
            session_id, rows = self._client.cluster_session_id, self._client.lane_rows
            self.say(
                f"has session {session_id} of batch {self.lane.batch}, lane {self.lane}, {rows} rows are in"
            )
            self._lanes.check_answer(session_id, rows)
            self._is_compared = rows == 0

    def _compare(self, client: ClusterClient) -> None:
        """Skip the rows that are in, as the sink does, with what any member has in its directory."""
        client.poll_egress()
        standing = client.lane_standing
        assert standing is not None
        try:
            with LogReader(self._machines.open(self, self._machines.choose(self._random))) as reader:
                if reader.commit_position() < standing.end:
                    return
                known = KnownRows(self.lane, standing, self._words_in(reader, standing))
                known.skip(pa.array(self._rows.words(self.lane.batch), pa.binary()))
                known.check_all_came()
        except LocalProtocolError as error:
            self.is_refused = True
            client.close()
            self._end(str(error))
        except ClusterError as error:
            self.say(f"cannot compare: {error}")
        else:
            self._is_compared = True

    def _words_in(self, reader: LogReader, standing: LaneStanding) -> Iterator[bytes]:
        """Of the rows that are in: what of them is the same whoever sends them."""
        try:
            for payload in payloads_of(reader, self.lane, standing):
                yield payload.split(b"|")[1]
        except DataLoss:
            self._lanes.on_not_compared(self.lane)
            raise

    def _work(self, client: ClusterClient) -> None:
        client.poll_egress()
        for _ in range(self._random.randint(0, self._burst)):
            row = client.lane_rows + client.offered
            if row >= self._rows.count or client.is_closed or not self._offer(client, row):
                break
        if client.is_closed:
            self._end(client.why_closed)
        elif client.lane_rows + client.acknowledged >= self._rows.count:
            self._lanes.check_written(self.lane, self._rows)
            client.close()
            self._end("written")

    def _offer(self, client: ClusterClient, row: int) -> bool:
        head = f".{self._number}.{client.cluster_session_id}.{client.offered + 1}|".encode()
        words = self._rows.words(self.lane.batch)[row]
        return client.offer(head + words + b"|" + b"~" * self._random.choice([0, 40, 300])) > 0

    def _end(self, outcome: str) -> None:
        self.outcome = outcome
        self.say(f"ends: {outcome}")

    def on_killed(self) -> None:
        self._network.on_killed(self.poller)
        self.poller = SimulatedPoller(self._network, self)
        self._end("killed")


class Application:
    """The driver. ``is_sending`` False: it finishes its batch; ``is_troubled`` False: nobody is killed."""

    def __init__(
        self,
        world: VirtualWorld,
        network: Network,
        endpoints: Mapping[int, Endpoint],
        machines: Machines,
        random: Random,
        lanes: LoggedLanes,
    ) -> None:
        self.is_sending = True
        self.is_troubled = True
        self.is_done = False
        self._world = world
        self._network = network
        self._endpoints = endpoints
        self._machines = machines
        self._random = random
        self._other_rows = world.random("other rows")  # drawn apart: seeds without them are as they were
        self._lanes = lanes
        self._others = world.random("other applications")
        self._other_tasks: dict[str, Task] = {}  # by application: its last one
        self._known_others: set[str] = set()
        self._batch = -1
        self._task_count = 0
        self._rows: list[Rows] = []  # of the batch as it is this time, by partition
        self._partitions = 0  # that it is written with this time
        self._tasks: dict[int, Task] = {}  # by partition; the last one registers the batch
        self._abandoned: list[Task] = []
        self._not_before_ns = 0
        self._begin_batch()
        world.at(random.randrange(SECOND), self._turn)

    @property
    def _fewer(self) -> int:
        return max(len(self._rows) - 1, 1)

    def _begin_batch(self) -> None:
        self._batch += 1
        partitions = self._random.randint(1, 3)
        counts = [self._random.choice([0, 1, 5, 20]) for _ in range(partitions)]
        self._rows = [Rows(count, count) for count in counts]
        self._lanes.planned[self._batch] = [[rows] for rows in self._rows]
        self._partitions = partitions

    def _turn(self) -> None:
        if self.is_troubled and self._random.random() < KILL_CHANCE:
            self._kill_driver()
        if self.is_troubled and self._others.random() < OTHERS_CHANCE:
            self._open_another()
        self._start_tasks()
        if self._are_written():
            self._register()
        if not self.is_done:
            self._world.at(self._world.now_ns + DRIVER_TICK_NS, self._turn)

    def _lane(self, partition: int) -> Lane:
        """After the first batch, which is registered, the application is known."""
        is_known = self._batch > 0 and APPLICATION not in self._lanes.forgotten
        return Lane(APPLICATION, partition, self._batch, is_known=is_known)

    def _start_tasks(self) -> None:
        if self._world.now_ns < self._not_before_ns:
            return
        for partition in range(self._partitions):
            task = self._tasks.get(partition)
            if task is not None and task.outcome and not task.is_written:
                self._not_before_ns = self._world.now_ns + REST_NS
            is_doubted = self.is_troubled and self._random.random() < SPECULATION_CHANCE
            if task is not None and task.is_refused:
                others = self._lanes.check_refused(self._batch, partition, self._rows[partition])
                self._rows[partition] = others  # somebody sees to it that the batch has those again
            if task is None or (task.outcome and not task.is_written):
                self._start(self._lane(partition), self._rows[partition])
            elif not task.outcome and is_doubted:
                self._abandon(task)
                self._start(self._lane(partition), self._rows[partition])

    def _start(self, lane: Lane, rows: Rows) -> None:
        self._tasks[lane.partition] = self._task(lane, rows)

    def _task(self, lane: Lane, rows: Rows) -> Task:
        self._task_count += 1
        task = Task(
            self._world,
            self._task_count,
            self._network,
            self._endpoints,
            self._machines,
            self._lanes,
            lane,
            rows,
        )
        task.wake(self._world.now_ns)
        return task

    def _open_another(self) -> None:
        """A lane of another application, without rows: what is old is forgotten, and this one must not be."""
        self._known_others |= {name for name, task in self._other_tasks.items() if task.is_written}
        name = self._others.choice(OTHERS)
        lane = Lane(name, 0, 0, is_known=name in self._known_others - self._lanes.forgotten)
        self._other_tasks[name] = self._task(lane, Rows(0, 0))

    def _are_written(self) -> bool:
        tasks = [self._tasks.get(partition) for partition in range(self._partitions)]
        return all(task is not None and task.is_written for task in tasks)

    def _register(self) -> None:
        task = self._tasks.get(REGISTRATION)
        if task is None:
            rows = sum(rows.count for rows in self._rows[: self._partitions])
            self._start(Lane(APPLICATION, REGISTRATION, self._batch, self._partitions, rows), Rows(0, 0))
        elif task.is_written:
            self._lanes.check_registered(self._batch)
            self._tasks.clear()
            self.is_done = not self.is_sending
            self._begin_batch()
        elif task.outcome:
            self._tasks.clear()  # another number was registered, or too few for the rows
            self._partitions = self._fewer if self._partitions == len(self._rows) else len(self._rows)

    def _kill_driver(self) -> None:
        """Another one starts the batch again, from what a checkpoint knows: not whether it is registered."""
        self._world.say(APPLICATION, f"the driver is killed in batch {self._batch}")
        for task in self._tasks.values():
            if not task.outcome:
                self._abandon(task)
        self._tasks.clear()
        self._partitions = self._fewer if self._random.random() < 0.2 else len(self._rows)
        self._change_rows()

    def _change_rows(self) -> None:
        """Now and then a partition of the batch has other rows than before, or fewer: once a batch."""
        partition = self._other_rows.randrange(len(self._rows))
        versions = self._lanes.planned[self._batch][partition]
        count = versions[0].count
        if self._other_rows.random() >= OTHER_ROWS_CHANCE or len(versions) > 1 or not count:
            return
        kept = self._other_rows.randrange(count)
        self._rows[partition] = Rows(self._other_rows.choice([kept, count]), kept)
        versions.append(self._rows[partition])

    def _abandon(self, task: Task) -> None:
        """Nobody waits for it any more, and nobody tells it."""
        self._abandoned = [known for known in self._abandoned if not known.outcome and known.is_alive]
        how = self._random.choice(["killed", "goes on", "sleeps"])
        if how == "killed" or len(self._abandoned) >= ABANDONED_MAX:
            task.kill()
            return
        self._abandoned.append(task)
        if how == "sleeps":
            task.pause()
            self._world.at(self._world.now_ns + self._random.randrange(3 * SECOND), task.resume)
