"""A service in a process of its own, without the process: both ends of its socket in one thread.

The production classes of both ends run: RemoteService and ModuleLink with its ServiceHost. The test is the
consensus module, writes the log, and says after which frame the service dies.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import numpy as np

from cluster import ClusteredService
from cluster.archive.archive import Archive
from cluster.archive.files import OsFile, OsFiles
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.errors import AgentTermination, ClusterError
from cluster.log.connection_table import SERVICE_LINK
from cluster.log.runs import headers
from cluster.member.services.remote_service import ProcessEvents, RemotePorts, RemoteService
from cluster.member.services.service_table import ServiceTable
from cluster.node.module_link import ModuleLink
from cluster.node.service_host import ServiceHost
from cluster.protocol import decode
from cluster.protocol.enums import Role
from cluster.protocol.link import ServiceSnapshot
from cluster.protocol.service import JoinLog, ServiceAck, ServiceTerminationPosition
from cluster.protocol.service_link import FRAME_LENGTH_MAX, ServicePosition, ServiceStart
from cluster.protocol.session import SessionMessageHeader
from cluster.service.channel import RecoveryState, ServiceChannel
from cluster.transport.poller import Poller
from cluster.transport.sockets import Connection, ReceiveBuffer
from tests.node.lent_service import LentTurns
from tests.service.harness import LIVE, PARAMS, LogUnderTest

SECOND = 1_000_000_000


class KernelFiles(OsFiles):
    """Files that a kernel closes when their process is gone."""

    def __init__(self) -> None:
        self._open: list[OsFile] = []

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        self._open.append(super().open(path, write=write, create=create))
        return self._open[-1]

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


class YieldingPoller(Poller):
    """A service that waits lets its member take a turn, for both are in one thread."""

    def __init__(self, on_wait: Callable[[], object]) -> None:
        super().__init__()
        self._on_wait = on_wait

    def wait(self, timeout_s: float) -> int:
        self._on_wait()
        return super().wait(0)


class InMemoryProcess:
    """``ServiceProcess``: a host at the other end of a socket pair. ``frames_left``: until it is killed."""

    def __init__(self, on_wait: Callable[[], object]) -> None:
        self.poller = Poller()
        self.poller_of_service = YieldingPoller(on_wait)
        self.host: ServiceHost | None = None
        self.frames_left: int | None = None
        self.starts = 0
        self.is_retired = False
        self.is_stuck = False  # it takes no turns
        self.is_lent = False  # compiled turns may stand for Python's
        self._connection: Connection | None = None
        self._link: Connection | None = None
        self._files = KernelFiles()
        self._is_new = False

    def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection = self._connect(ours, self.poller)
        self._connection.serve(SERVICE_LINK, 0)
        self._link = self._connect(theirs, self.poller_of_service)
        link = ModuleLink(0, self._link, self.poller_of_service, self._files)
        self.host = ServiceHost(0, link, self.poller_of_service, self._files)
        self.starts += 1
        self._is_new = True

    def _connect(self, sock: socket.socket, poller: Poller) -> Connection:
        return Connection(
            sock, poller, ReceiveBuffer(1 << 16), is_log_allowed=False, frame_length_max=FRAME_LENGTH_MAX
        )

    def turn(self, now_ns: int) -> int:
        host = self.host
        if host is None or self.is_stuck:
            return 0
        try:
            return host.do_work(now_ns, 0)
        except AgentTermination as error:
            if self.host is host:  # else it was killed
                host.end(error)
            return 1

    def kill(self, events: ProcessEvents) -> None:
        assert self._connection is not None and self._link is not None
        self._connection.close()
        self._link.close()
        self._files.close()
        self.host = self._connection = None
        self.frames_left = None
        events.on_lost()

    # -- ServiceProcess --

    @property
    def descriptor(self) -> int | None:
        connection = self._connection
        if not self.is_lent or self.frames_left == 0 or connection is None or connection.is_closed:
            return None
        return None if connection.is_readable or connection.has_frames else connection.descriptor

    def do_work(self, now_ns: int, events: ProcessEvents, *, is_receiving: bool) -> int:
        if self.host is None and not self.is_retired:
            self.start()
        if self._is_new:
            self._is_new = False
            events.on_connected()
        self.poller.wait(0)
        connection = self._connection
        if connection is None or not connection.receive():
            return 0
        data, end = connection.buffer, connection.end
        for offset, header in list(headers(data, connection.start, end)):
            if self.frames_left == 0:
                self.kill(events)
                return 1
            if self.frames_left is not None:
                self.frames_left -= 1
            events.on_frames(data, offset, offset + header.aligned_length)
        connection.release(end)
        return 1

    def send(self, frame: bytes) -> None:
        if self._connection is not None:
            self._connection.offer(frame)

    def retire(self) -> None:
        self.is_retired = True

    def close(self) -> None:
        self.is_retired = True

    def end(self) -> None:
        """Give back what the test's process has opened for both ends."""
        for connection in (self._connection, self._link):
            if connection is not None:
                connection.close()
        self._files.close()
        self.poller.close()
        self.poller_of_service.close()


class Gauges:
    def __init__(self) -> None:
        self.shown: ServicePosition | None = None

    def show(self, position: ServicePosition) -> None:
        self.shown = position

    def show_standstill(self, stands_ns: int) -> None:
        self.stands_ns = stands_ns


class Module:
    """The consensus module's side of one service, and its log in a real archive."""

    def __init__(self, directory: str, service: str, *, is_compiled: bool = False) -> None:
        self.now_ns = SECOND
        self.role = Role.FOLLOWER
        self.archive = Archive.open(directory, file_sync_level=0, checksum="crc32c", epoch_ms=lambda: 0)
        self.recording = self.archive.create_recording(
            stream_id=100,
            session_id=PARAMS.session_id,
            initial_term_id=PARAMS.initial_term_id,
            term_length=PARAMS.term_length,
            mtu=PARAMS.mtu,
        )
        self.log = LogUnderTest()
        self.recorded = self.commit_position = 0
        self.channel = ServiceChannel()
        self.process = InMemoryProcess(self._turn_of_member)
        self.gauges = Gauges()
        self.told: list[str] = []
        self.errors: list[ClusterError] = []
        self.sent: list[Any] = []  # of stream 105, acks apart
        self.acks: list[ServiceAck] = []
        self.answers: list[tuple[int, bytes]] = []
        self.written: list[ServiceSnapshot] = []
        self.snapshots: list[tuple[int, int]] = []  # position and recording of what was written
        self.remote = RemoteService(
            0,
            ServiceStart(
                0, 0, -1, 0, 0, -1, 8192, SECOND, 64, 1, True, service.encode(), directory.encode(), b""
            ),
            self.channel,
            RemotePorts(
                process=self.process,
                words=ServiceTable(1).row(0),
                snapshots=SnapshotArchive(self.archive, term_length=64 * 1024, mtu=1408),
                recording=lambda: self.recording,
                newest_snapshot=self._newest_snapshot,
                commit_position=lambda: self.commit_position,
                gauges=self.gauges,
                say=self.told.append,
                warn=lambda text: self.told.append(f"warning: {text}"),
                on_error=self.errors.append,
                snapshot_timeout_ns=60 * SECOND,
                termination_timeout_ns=10 * SECOND,
            ),
        )

        self.lent = LentTurns(self.remote, self.process.poller) if is_compiled else None
        self.process.is_lent = is_compiled

    def _newest_snapshot(self, position_max: int) -> RecoveryState | None:
        known = [
            RecoveryState(0, position, 0, (id_,))
            for position, id_ in self.snapshots
            if position <= position_max
        ]
        return known[-1] if known else None

    def turn(self, count: int = 1, *, elapsed_ns: int = 1_000_000) -> int:
        """The module's turn, then the service's."""
        work_count = 0
        for _ in range(count):
            self.now_ns += elapsed_ns
            work_count += self._turn_of_member() + self.process.turn(self.now_ns)
        return work_count

    def _turn_of_member(self) -> int:
        return self._turn_in_compiled_code() + self.remote.do_work(self.now_ns, 0) + self._take()

    def _turn_in_compiled_code(self) -> int:
        lent = self.lent
        if lent is None:
            return 0
        before = lent.taken
        lent.turn(self.commit_position, self.now_ns, is_leader=self.role is Role.LEADER)
        self.answers += lent.answers()
        if self.process.frames_left is not None:
            self.process.frames_left = max(self.process.frames_left - (lent.taken - before), 0)
        return lent.taken - before

    def settle(self) -> Module:
        idle = 0
        while idle < 3:
            idle = 0 if self.turn() else idle + 1
        return self

    def _take(self) -> int:
        count = 0
        while (message := self.channel.poll_consensus_module()) is not None:
            count += 1
            match decode(message):
                case ServiceAck() as ack:
                    self._on_ack(ack)
                case ServiceSnapshot() as snapshot:
                    self._on_snapshot(snapshot)
                case SessionMessageHeader():
                    self.sent.append(message[32:])
                case other:
                    self.sent.append(other)
        while (batch := self.channel.poll_egress()) is not None:
            count += 1
            for row in range(len(batch)):
                begin, length = int(batch.offsets[row]), int(batch.lengths[row])
                answer = batch.buffer[begin : begin + length].tobytes()
                self.answers.append((int(batch.session_ids[row]), answer))
        return count

    def _on_ack(self, ack: ServiceAck) -> None:
        assert ack.ack_id == len(self.acks)
        self.acks.append(ack)

    def _on_snapshot(self, snapshot: ServiceSnapshot) -> None:
        self.written.append(snapshot)
        if not snapshot.why:
            self.snapshots.append((snapshot.log_position, snapshot.recording_id))

    # -- what a module does --

    def start(self) -> Module:
        self.channel.recovery = RecoveryState()
        return self.settle()

    def join(self, role: Role, *, position: int | None = None) -> None:
        position = self.commit_position if position is None else position
        self.role = role
        is_startup = position == 0
        join = JoinLog(position, LIVE, 0, PARAMS.session_id, 100, is_startup, role, False, "aeron:ipc")
        self.channel.join_log(join.encode(), self.recording)

    def close_log(self) -> None:
        self.channel.close_log(self.commit_position)

    def commit(self) -> int:
        """All that was appended to the log is recorded, and committed."""
        data = np.frombuffer(self.log.raw(self.recorded, self.log.end), np.uint8).copy()
        if len(data):
            self.recording.append(self.recorded, data)
        self.recorded = self.commit_position = self.log.end
        return self.commit_position

    def terminate(self) -> None:
        message = ServiceTerminationPosition(self.commit_position, True)
        self.channel.send_to_service(message.encode())

    def close(self) -> None:
        self.remote.close()
        if self.lent is not None:
            self.lent.close()
        self.process.end()
        self.archive.close()


def led(module: Module) -> Module:
    module.start().join(Role.LEADER)
    module.log.term()
    module.log.opened(7)
    module.commit()
    return module.settle()


class Numbering(ClusteredService):
    """Answers each message with its number; tells its cluster of some, and sets timers, and waits."""

    forks_for_snapshots = False  # the process has threads of the tests' runner

    def __init__(self) -> None:
        self.number = 0

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster
        for record in snapshot_image or ():
            self.number = int(record)

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        self.number += 1
        if session is not None:
            session.offer(b"%d is %s" % (self.number, bytes(buffer)))
        if self.number % 3 == 0:
            self.cluster.offer(b"told %d" % self.number)
        if self.number % 4 == 0:
            self.cluster.schedule_timer(self.number, timestamp + 10)
        if self.number % 5 == 0:
            self.cluster.idle_strategy().idle()
        if session is not None:
            session.offer(b"%d again" % self.number)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(b"%d" % self.number)
