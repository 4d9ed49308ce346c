"""One simulated member: the production agents over a simulated disk and network."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from cluster.archive.archive import Archive
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import AgentTermination, ClusterError, MemberRestart, ServiceError
from cluster.member.agent import ConsensusModuleAgent
from cluster.member.counters import MemberCounters
from cluster.member.repair import open_files
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.channel import ServiceChannel
from tests.member.in_memory.disk import SimulatedDisk
from tests.member.in_memory.network import SimulatedClients, SimulatedLinks
from tests.member.in_memory.world import EPOCH_NS, MS, US

if TYPE_CHECKING:
    from tests.member.in_memory.cluster import SimulatedCluster

TURN_NS = 30 * US  # what a turn with work takes
DIRECTORY = "member"


class HashingEcho:
    """Answers every message with itself, and keeps a hash chain over everything it was told."""

    def __init__(self, member: SimulatedMember) -> None:
        self._member = member
        self.chain = hashlib.blake2b(digest_size=8).digest()
        self.chain_at: dict[int, bytes] = {}
        self.applied: list[bytes] = []
        self.timers: list[int] = []
        self.cluster = None

    def _apply(self, what: bytes) -> None:
        assert self.cluster is not None
        self.chain = hashlib.blake2b(self.chain + what, digest_size=8).digest()
        position = self.cluster.log_position()
        self.chain_at[position] = self.chain
        self._member.cluster.on_applied(self._member.member_id, position, self.chain)

    def on_start(self, cluster, snapshot_image) -> None:  # type: ignore[no-untyped-def]
        self.cluster = cluster
        if snapshot_image is not None:
            self.chain, *rest = snapshot_image
            timers = rest.index(b"timers")
            self.applied, self.timers = rest[:timers], [int(timer) for timer in rest[timers + 1 :]]

    def on_take_snapshot(self, snapshot_publication) -> None:  # type: ignore[no-untyped-def]
        for record in (self.chain, *self.applied, b"timers", *(b"%d" % timer for timer in self.timers)):
            snapshot_publication.offer(record)

    def on_session_open(self, session, timestamp) -> None:  # type: ignore[no-untyped-def]
        self._apply(b"open %d %d" % (session.id, timestamp))

    def on_session_close(self, session, timestamp, close_reason) -> None:  # type: ignore[no-untyped-def]
        self._apply(b"close %d %d %d" % (session.id, timestamp, close_reason))

    def on_session_message(self, session, timestamp, buffer) -> None:  # type: ignore[no-untyped-def]
        payload = bytes(buffer)
        self.applied.append(payload)
        self._apply(b"message %d %d " % (-1 if session is None else session.id, timestamp) + payload)
        if session is not None:
            if payload.startswith(b"timer "):
                self.cluster.schedule_timer(int(payload[6:]), timestamp + 50)
            elif payload.startswith(b"again "):
                self.cluster.offer(payload[6:])
            session.offer(payload)

    def on_timer_event(self, correlation_id, timestamp) -> None:  # type: ignore[no-untyped-def]
        self.timers.append(correlation_id)
        self._apply(b"timer %d %d" % (correlation_id, timestamp))

    def on_new_leadership_term_event(self, event) -> None:  # type: ignore[no-untyped-def]
        self._apply(b"term %d %d" % (event.leadership_term_id, event.term_base_log_position))

    def on_role_change(self, role) -> None:  # type: ignore[no-untyped-def]
        pass

    def on_terminate(self, cluster) -> None:  # type: ignore[no-untyped-def]
        pass


class SimulatedMember:
    """A process that can be started and killed again and again over the same disk."""

    def __init__(self, cluster: SimulatedCluster, member_id: int) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.world = cluster.world
        self.disk = SimulatedDisk(Random(self.world.random.getrandbits(64)), 1000 * (member_id + 1))
        self.incarnation = 0
        self.agent: ConsensusModuleAgent | None = None
        self.service: HashingEcho | None = None
        self.service_agent: ClusteredServiceAgent | None = None
        self.links: SimulatedLinks | None = None
        self.clients: SimulatedClients | None = None
        self.death = ""  # why the process ended by itself
        self.clock_offset_ns = 0
        self.needed_position: int | None = None  # by a reader, or by what exports the log
        self.is_paused = False
        self._archive: Archive | None = None
        self._turn_at_ns: int | None = None
        self._generation = 0

    @property
    def is_running(self) -> bool:
        return self.agent is not None

    @property
    def name(self) -> str:
        return f"member {self.member_id}"

    def start(self) -> None:
        """Start the process; it recovers from what is on its disk."""
        assert self.agent is None
        world, cluster = self.world, self.cluster
        self.incarnation += 1
        self._generation += 1
        self.death = ""
        random = Random(world.random.getrandbits(64))
        context: ConsensusModuleContext = cluster.context_of(self.member_id)
        try:
            self._archive, recording_log, node_state = open_files(
                self.disk,
                f"{DIRECTORY}/archive",
                f"{DIRECTORY}/cluster",
                file_sync_level=cluster.file_sync_level,
                segment_length=cluster.term_length,
                checksum=None,
                is_after_failure=False,
                is_alone=cluster.member_count == 1,
                epoch_ms=lambda: (EPOCH_NS + world.now_ns) // MS,
                tell=lambda what: world.tell(self.name, what),
            )
        except ClusterError as error:
            self._die(error)
            return
        self.links = SimulatedLinks(
            cluster.network, world, self.member_id, context.member_ids, self.incarnation, self.wake
        )
        self.clients = SimulatedClients(world, self.wake, cluster.network.delay_ns)
        channel = ServiceChannel()
        counters = MemberCounters(CountersFile.in_memory(), context)
        self.agent = ConsensusModuleAgent(
            context,
            archive=self._archive,
            recording_log=recording_log,
            node_state=node_state,
            links=self.links,
            clients=self.clients,
            service_channels=[channel],
            counters=counters,
            random=random,
            needed_positions=[lambda: self.needed_position],
            on_event=lambda what: world.tell(self.name, what),
            on_error=lambda error: world.tell(self.name, f"error: {error}"),
        )
        self.service = HashingEcho(self)
        self.service_agent = ClusteredServiceAgent(
            self.service,
            channel,
            counters.commit_position.get,
            client_id=1,
            max_message_length=cluster.term_length // 8,
            snapshots=self.agent.snapshots.archive,
        )
        world.tell(self.name, f"starts, incarnation {self.incarnation}")
        try:
            self.agent.on_start(world.now_ns, self.cluster_time)
        except ClusterError as error:
            self._die(error)
            return
        cluster.network.attach(self.links)
        self.wake()

    @property
    def cluster_time(self) -> int:
        return (EPOCH_NS + self.world.now_ns + self.clock_offset_ns) // MS

    # ---- turns

    def wake(self) -> None:
        """Something came: take a turn soon."""
        self._turn_at(self.world.now_ns + 1 * US)

    def _turn_at(self, time_ns: int) -> None:
        if self._turn_at_ns is not None and self._turn_at_ns <= time_ns:
            return
        self._turn_at_ns = time_ns
        generation = self._generation
        self.world.at(time_ns, lambda: self._turn(time_ns, generation))

    def _turn(self, time_ns: int, generation: int) -> None:
        if generation != self._generation or time_ns != self._turn_at_ns or self.agent is None:
            return
        self._turn_at_ns = None
        if self.is_paused:
            return
        agent, service_agent = self.agent, self.service_agent
        assert service_agent is not None
        try:
            work_count = agent.do_work(self.world.now_ns, self.cluster_time)
            if not service_agent.is_closed:
                work_count += self._turn_service(service_agent)
        except ServiceError:
            raise  # of the test: the member goes on after others
        except ClusterError as error:
            self._die(error)
            return
        self.cluster.after_turn(self)
        if agent.is_closed:
            self.stop()
        elif self.agent is agent:
            deadline_ns = self.world.now_ns + TURN_NS if work_count else agent.next_deadline_ns()
            self._turn_at(max(deadline_ns, self.world.now_ns + TURN_NS))

    def _turn_service(self, service_agent: ClusteredServiceAgent) -> int:
        """As the node does: what a callback raises is counted, and the log goes on behind it."""
        try:
            return service_agent.do_work(self.world.now_ns, self.cluster_time)
        except AgentTermination:
            raise
        except ClusterError as error:
            if isinstance(error.__cause__, AssertionError):
                raise  # of the test: a promise is broken
            self.world.tell(self.name, f"service: {error}")
            return 1

    def _die(self, error: Exception) -> None:
        if isinstance(error, MemberRestart):
            self.world.tell(self.name, f"starts again: {error}")
            self._end()
            self.start()
            return
        self.death = f"{type(error).__name__}: {error}"
        self.world.tell(self.name, f"ends: {self.death}")
        self._end()

    # ---- ends

    def kill(self) -> None:
        """SIGKILL: the process is gone at once, what it wrote stays."""
        if self.agent is not None:
            self.world.tell(self.name, "is killed")
            self._end()
            self.disk.kill()

    def power_cut(self) -> None:
        if self.agent is not None:
            self.world.tell(self.name, "loses power")
            self._end()
        self.disk.power_cut()

    def stop(self) -> None:
        """In order, as a process that got SIGTERM."""
        if self.agent is not None:
            self.world.tell(self.name, "stops")
            self.agent.close()
            assert self._archive is not None
            self._archive.close()
            self._end()

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: a turn after all that time."""
        self.is_paused = False
        self._turn_at_ns = None
        self.wake()

    def _end(self) -> None:
        self._generation += 1
        self._turn_at_ns = None
        self.agent = self.service_agent = None
        self.is_paused = False
        self.disk.kill()
        self.cluster.network.detach(self.member_id)
        if self.clients is not None:
            self.clients.shutdown()
        self.links = self.clients = None


def log_bytes(member: SimulatedMember, begin: int, end: int) -> bytes:
    """Recorded bytes of a running member, as they can be read now."""
    agent = member.agent
    assert agent is not None and agent.recording is not None
    pieces: list[bytes] = []
    while begin < end:
        data = agent.recording.read(begin, end - begin)
        if not len(data):
            break
        pieces.append(data.tobytes())
        begin += len(data)
    return b"".join(pieces)


def service_messages(members: Sequence[SimulatedMember]) -> list[list[bytes]]:
    return [[] if member.service is None else member.service.applied for member in members]
