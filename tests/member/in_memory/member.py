"""One simulated member: the lives of production over a simulated disk and network."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from cluster.archive.mark_files import ClusterMarkFile
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import ClusterError, MemberRestart, ServiceError
from cluster.member.log.retention import NeededPosition
from cluster.node.disk_failures import DiskFailures
from cluster.node.life import MemberLife
from cluster.node.ports import LifeSettings
from cluster.protocol.enums import ClusterComponentType
from cluster.service.agent import ClusteredServiceAgent
from tests.member.in_memory.disk import SimulatedDisk
from tests.member.in_memory.network import SimulatedClients, SimulatedLinks
from tests.member.in_memory.world import EPOCH_NS, MS, US
from tests.simulation.member_state import MemberState

if TYPE_CHECKING:
    from tests.member.in_memory.cluster import SimulatedCluster

TURN_NS = 30 * US  # what a turn with work takes
DIRECTORY = "member"
CLUSTER_DIRECTORY = f"{DIRECTORY}/cluster"


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


class SimulatedPorts:
    """What a simulated process gives to a life of its member."""

    def __init__(self, member: SimulatedMember, context: ConsensusModuleContext) -> None:
        self._member = member
        self._context = context
        self.files = member.disk
        self.random = Random(member.world.random.getrandbits(64))
        self.mark_file = ClusterMarkFile.create(
            CLUSTER_DIRECTORY,
            files=self.files,
            component_type=ClusterComponentType.CONSENSUS_MODULE,
            now_ms=self.epoch_ms(),
            cluster_id=context.cluster_id,
            member_id=context.member_id,
        )

    def epoch_ms(self) -> int:
        return (EPOCH_NS + self._member.world.now_ns) // MS

    def open_counters(self) -> CountersFile:
        return CountersFile.in_memory()

    def open_links(self) -> SimulatedLinks:
        member = self._member
        return SimulatedLinks(
            member.cluster.network,
            member.world,
            member.member_id,
            self._context.member_ids,
            member.incarnation,
            member.wake,
        )

    def open_clients(self, incarnation: int) -> SimulatedClients:
        member = self._member
        return SimulatedClients(member.world, member.wake, member.cluster.network.delay_ns)

    def load_service(self, service_id: int) -> HashingEcho:
        self._member.service = HashingEcho(self._member)
        return self._member.service

    def needed_positions(self) -> list[NeededPosition]:
        return [lambda: self._member.needed_position]

    def on_event(self, text: str) -> None:
        self._member.world.tell(self._member.name, text)

    def record(self, mark_file: ClusterMarkFile, where: str, error: BaseException) -> None:
        if isinstance(error.__cause__, AssertionError):
            raise error.__cause__  # of the test: a promise is broken
        self.on_event(f"error: {where}: {error}")

    def on_service_error(self, error: ServiceError, count: int) -> None:
        """``record`` has told it."""


class SimulatedMember(MemberState):
    """A process that can be started and killed again and again over the same disk."""

    def __init__(self, cluster: SimulatedCluster, member_id: int) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.world = cluster.world
        self.disk = SimulatedDisk(Random(self.world.random.getrandbits(64)), 1000 * (member_id + 1))
        self.incarnation = 0
        self.life: MemberLife | None = None
        self.service: HashingEcho | None = None
        self.death = ""  # why the process ended by itself
        self.clock_offset_ns = 0
        self.needed_position: int | None = None  # by a reader, or by what exports the log
        self.is_paused = False
        self.turns = 0  # of this process
        self._turn_at_ns: int | None = None
        self._generation = 0

    @property
    def is_running(self) -> bool:
        return self.life is not None

    @property
    def name(self) -> str:
        return f"member {self.member_id}"

    def start(self) -> None:
        """Start the process; it recovers from what is on its disk."""
        assert self.life is None
        self.incarnation += 1
        self.turns = 0
        self._generation += 1
        self.death = ""
        context = self.cluster.context_of(self.member_id)
        settings = LifeSettings(
            context=context,
            archive_directory=f"{DIRECTORY}/archive",
            cluster_directory=CLUSTER_DIRECTORY,
            driver_directory=f"{DIRECTORY}/driver",
            file_sync_level=self.cluster.file_sync_level,
            archive_segment_file_length=self.cluster.term_length,
            archive_record_checksum=None,
            services=["HashingEcho"],
            service_responder=True,
            service_error_policy="continue",
            service_cycle_threshold_ns=context.cycle_threshold_ns,
            log_fragment_limit=4096,
        )
        try:
            self.life = MemberLife(settings, SimulatedPorts(self, context), DiskFailures())
            self.world.tell(self.name, f"starts, incarnation {self.incarnation}")
            self.life.start(self.world.now_ns, self.cluster_time)
        except ClusterError as error:
            self._die(error)
            return
        self.cluster.network.attach(self.life.links)
        self.wake()

    @property
    def service_agent(self) -> ClusteredServiceAgent | None:
        return None if self.life is None else self.life.services[0].agent

    @property
    def links(self) -> SimulatedLinks | None:
        return None if self.life is None else self.life.links

    @property
    def clients(self) -> SimulatedClients | None:
        return None if self.life is None else self.life.clients

    @property
    def cluster_time(self) -> int:
        return (EPOCH_NS + self.world.now_ns + self.clock_offset_ns) // MS

    # ---- turns

    def take_turn(self, now_ns: int | None = None) -> int:
        """Have its module take a turn now, beside those that come by themselves."""
        now_ns = self.world.now_ns if now_ns is None else now_ns
        return self.life.consensus_module.do_work(now_ns, self.cluster_time)

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
        if generation != self._generation or time_ns != self._turn_at_ns or self.life is None:
            return
        self._turn_at_ns = None
        if self.is_paused:
            return
        life, agent = self.life, self.life.consensus_module
        try:
            work_count = life.do_work(self.world.now_ns, self.cluster_time)
        except ClusterError as error:
            self._die(error)
            return
        self.turns += 1
        self.cluster.after_turn(self)
        if agent.is_closed:
            self.stop()
        elif self.life is life:
            deadline_ns = self.world.now_ns + TURN_NS if work_count else agent.turn.slow_tick_ns
            self._turn_at(max(deadline_ns, self.world.now_ns + TURN_NS))

    def _die(self, error: Exception) -> None:
        if isinstance(error, MemberRestart):
            self.world.tell(self.name, f"starts again: {error}")
            self._end()
            self.start()
            return
        self.death = f"{type(error).__name__}: {error}"
        self.world.tell(self.name, f"ends: {self.death}")
        self._end()

    def stall_service(self) -> None:
        """Its service takes no turn from now on."""
        self.service_agent.do_work = lambda *_: 0

    def release_service(self) -> None:
        """Its service takes turns again."""
        del self.service_agent.do_work

    # ---- ends

    def kill(self) -> None:
        """SIGKILL: the process is gone at once, what it wrote stays."""
        if self.is_running:
            self.world.tell(self.name, "is killed")
            self._end()
            self.disk.kill()

    def power_cut(self) -> None:
        if self.is_running:
            self.world.tell(self.name, "loses power")
            self._end()
        self.disk.power_cut()

    def stop(self) -> None:
        """In order, as a process that got SIGTERM."""
        if self.is_running:
            self.world.tell(self.name, "stops")
            self.life.close(self.world.now_ns, self.cluster_time)
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
        if self.life is not None:
            self.life.links.close()
            self.life.clients.shutdown()
        self.life = None
        self.is_paused = False
        self.disk.kill()


def log_bytes(member: SimulatedMember, begin: int, end: int) -> bytes:
    """Recorded bytes of a running member, as they can be read now."""
    recording = member.recording
    assert recording is not None
    pieces: list[bytes] = []
    while begin < end:
        data = recording.read(begin, end - begin)
        if not len(data):
            break
        pieces.append(data.tobytes())
        begin += len(data)
    return b"".join(pieces)


def service_messages(members: Sequence[SimulatedMember]) -> list[list[bytes]]:
    return [[] if member.service is None else member.service.applied for member in members]
