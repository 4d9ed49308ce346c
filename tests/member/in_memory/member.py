"""A scripted member: the simulator's process of a member, started and killed again and again on a disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from cluster.consensus.context import ConsensusModuleContext
from cluster.member.log.retention import NeededPosition
from cluster.member.ports import FetchedRecordings
from cluster.node.life import MemberLife
from cluster.service.agent import ClusteredServiceAgent
from cluster.testing.disk import SimulatedFiles
from cluster.testing.member import host_of
from cluster.testing.network import SimulatedSocket
from cluster.testing.world import FOREVER_NS, Process
from cluster.transport.server import ClientPort
from tests.member.in_memory.network import ClientConnection, ScriptedLinks
from tests.simulation.disk import FaultyDisk
from tests.simulation.member import Member, ObservedPorts, Observer
from tests.simulation.member_state import MemberState
from tests.simulation.world import FaultyClock

if TYPE_CHECKING:
    from tests.member.in_memory.cluster import SimulatedCluster

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


class ScriptedPorts(ObservedPorts):
    """The simulator's, but for links that a script speaks over, and a service that may fail."""

    def __init__(
        self, process: ScriptedProcess, context: ConsensusModuleContext, scripted: SimulatedMember
    ) -> None:
        super().__init__(process, context, process.world.random(f"{process.name}, {process.incarnation}"))
        self.links_type = partial(ScriptedLinks, process)
        self._scripted = scripted

    def fetch_recordings(self, endpoint: str, recording_ids: Sequence[int]) -> FetchedRecordings:
        return self._scripted.cluster.archives(endpoint, recording_ids)

    def needed_positions(self) -> list[NeededPosition]:
        return [lambda: self._scripted.needed_position]


class ScriptedProcess(Member):
    """One process of a scripted member."""

    hears_by_sockets_alone = False

    def __init__(self, scripted: SimulatedMember, **arguments: Any) -> None:
        super().__init__(observer=_Turns(scripted), **arguments)
        self.directory = DIRECTORY
        self._scripted = scripted

    def open_ports(self, context: ConsensusModuleContext) -> ScriptedPorts:
        return ScriptedPorts(self, context, self._scripted)

    def load_service(self, service_id: int, random: Random) -> HashingEcho:  # type: ignore[override]
        self._scripted.service = HashingEcho(self._scripted)
        return self._scripted.service

    def on_recorded_error(self, where: str, error: BaseException) -> None:
        if isinstance(error.__cause__, AssertionError):
            raise error.__cause__  # of the test: a promise is broken
        self.say(f"error: {where}: {error}")

    def wake(self, time_ns: int) -> None:
        time_ns = max(time_ns, self._busy_until_ns, self.world.now_ns)
        super().wake(-(-time_ns // self._scripted.turns_apart_ns) * self._scripted.turns_apart_ns)


class _Turns(Observer):
    """Counts the turns, and lets the cluster look at the member behind each."""

    def __init__(self, scripted: SimulatedMember) -> None:
        self._scripted = scripted

    def on_turn(self, member: Member) -> None:
        self._scripted.turns += 1
        self._scripted.cluster.after_turn(self._scripted)


class SimulatedMember(MemberState):
    """A member's machine: what is seen of it is that of its present process, if it has one that lives."""

    def __init__(self, cluster: SimulatedCluster, member_id: int) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.world = world = cluster.world
        self.name = f"member {member_id}"
        self.disk = FaultyDisk(world, world.random(f"disk {member_id}"))
        self.files = SimulatedFiles(self.disk, Process(world, host_of(member_id), "operator"), 1)
        self.clock = FaultyClock(world)
        self.process: ScriptedProcess | None = None
        self.service: HashingEcho | None = None
        self.needed_position: int | None = None  # by a reader, or by what exports the log
        self.turns = 0
        self.turns_apart_ns = 1  # a turn begins at a multiple of this

    # -- its process --

    def start(self) -> None:
        """Start a process, which recovers from what is on the disk."""
        assert not self.is_running
        cluster, context = self.cluster, self.cluster.context_of(self.member_id)
        cluster.network.revive(host_of(self.member_id))
        self.process = ScriptedProcess(
            self,
            world=self.world,
            member_id=self.member_id,
            settings=cluster.settings_of(context),
            disk=self.disk,
            network=cluster.network,
            clock=self.clock,
            random=self.world.random(f"{self.name}, life {cluster.incarnation + 1}"),
            next_incarnation=cluster.next_incarnation,
            cluster_id=context.cluster_id,
        )
        self.process.say("starts")
        self.process.wake(self.world.now_ns)
        self.world.run_until(self.world.now_ns)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def life(self) -> MemberLife | None:  # type: ignore[override]
        return self.process.life if self.process is not None and self.process.is_alive else None

    @property
    def death(self) -> str:
        """Why the last process ended by itself, "" for one that was asked to, or has not."""
        error = None if self.process is None else self.process.end
        return "" if error is None else f"{type(error).__name__}: {error}"

    @property
    def _alive(self) -> ScriptedProcess:
        assert self.is_running
        return self.process

    def kill(self) -> None:
        """SIGKILL: the process is gone at once, what it wrote stays."""
        if self.is_running:
            self._alive.kill()

    def power_cut(self) -> None:
        """Of what was not synced some is lost, and so is the process, if there is one."""
        if self.is_running:
            self._alive.lose_power()
        else:
            self.disk.power_cut()

    def stop(self) -> None:
        """In order, as a process that got SIGTERM."""
        if self.is_running:
            self._alive.stop()

    def pause(self) -> None:
        """SIGSTOP."""
        self._alive.pause()

    def resume(self) -> None:
        """SIGCONT: a turn after all that time."""
        self._alive.resume()

    def take_turn(self, after_ns: int = 0) -> int:
        """Have its module take a turn now, as if it were so much later."""
        assert self.life is not None
        self._alive.poller.wait(0)
        module = self.life.consensus_module
        now_ns = max(self._alive.clock_ns() + after_ns, module.turn.now_ns)  # no clock goes back
        return module.do_work(now_ns, self.cluster_time)

    @property
    def cluster_time(self) -> int:
        return self.clock.epoch_ms(self.world.now_ns)

    # -- its service --

    @property
    def service_agent(self) -> ClusteredServiceAgent | None:
        return None if self.life is None else self.life.services[0].agent

    def stall_service(self) -> None:
        """Its service takes no turn from now on."""
        self._alive.services_stalled_until_ns[0] = FOREVER_NS

    def release_service(self) -> None:
        """Its service takes turns again."""
        self._alive.services_stalled_until_ns.clear()
        self._alive.wake(self.world.now_ns)

    # -- its ports --

    @property
    def links(self) -> ScriptedLinks | None:
        return None if self.life is None else self.life.links

    @property
    def clients(self) -> ClientPort | None:
        return None if self.life is None else self.life.clients

    def connections(self) -> list[SimulatedSocket]:
        """Open ones of its process, if it runs."""
        return self._alive.poller.connections() if self.is_running else []

    def dial(
        self, on_frames: Callable[[bytes], None], on_closed: Callable[[], None] = lambda: None
    ) -> ClientConnection:
        """Connect to it as a client does; who is not there refuses, and that is heard as an end."""
        connection = ClientConnection(self, on_frames, on_closed)
        connection.wake(self.world.now_ns)
        return connection

    # -- its disk --

    def wipe(self) -> None:
        """An empty disk."""
        assert not self.is_running
        self.disk.wipe()

    def backup(self) -> dict[str, bytes]:
        """All files."""
        return {path: bytes(self.disk.inode(path).cache) for path in self.disk.paths()}

    def restore(self, backup: dict[str, bytes]) -> None:
        """A disk with the files of a backup, and no others."""
        folders = set(self.disk.folders)
        self.wipe()
        for folder in sorted(folders):
            self.files.make_directory(folder)
        for path, content in backup.items():
            self.files.open(path, create=True).pwrite(content, 0)


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
