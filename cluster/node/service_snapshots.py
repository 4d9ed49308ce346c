"""Snapshots of a service in a process of its own: written by a copy of the process, while it goes on.

    service   ── SnapshotBegin ──▶ member: creates the recording, and goes on
              ◀─ SnapshotReserved ─
              fork ── child: writes the recording's segments, makes them safe ──┐ pipe
              goes on with the log                                             │
              ── ServiceSnapshot: how long it is, its checksum, or why not ◀───┘

The child has the service's memory as of the snapshot (copy on write). It touches neither the socket nor the
poller, which are its parent's, runs nothing at its exit, and dies with its parent. A service that cannot be
copied, as one with threads, writes in its own thread: then it alone is late, and its member is not.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from cluster.archive.files import Files
from cluster.archive.recording import RecordingWriter
from cluster.archive.snapshot_archive import SnapshotImage, SnapshotPublication
from cluster.errors import ClusterError
from cluster.log.checksum import Checksum
from cluster.node.module_link import ModuleLink
from cluster.node.service_errors import raised
from cluster.node.supervisor import die_with
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.link import ServiceSnapshot
from cluster.protocol.service_link import SnapshotReserved, request_frame
from cluster.reader.recordings import open_recording
from cluster.service.container_snapshot import NO_RECORDING, WriteSnapshot
from cluster.transport.message_frames import link_frame

NICENESS = 10  # the member and the service go first
PIPE_BYTES = 1 << 16  # more than a child ever says


class SnapshotChild:
    """A copy of this process, from ``start`` on; ``poll`` returns what it has said when it has ended."""

    def __init__(self, say: Callable[[], bytes]) -> None:
        """Start it: it ends when ``say`` has returned what its parent is to hear. Raises OSError."""
        parent_pid = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pipe, said_to = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self._pipe)
            os.close(said_to)
            raise
        if self.pid == 0:
            _run_child(say, said_to, parent_pid)
        os.close(said_to)
        os.set_blocking(self._pipe, False)

    def poll(self) -> tuple[bytes, int] | None:
        """All that it has said, and its exit code (negative: a signal's number); None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        try:
            said = os.read(self._pipe, PIPE_BYTES)
        except BlockingIOError:  # nothing, and another process has a copy of the child's end
            said = b""
        os.close(self._pipe)
        return said, os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """End it now."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._pipe)


def _run_child(say: Callable[[], bytes], said_to: int, parent_pid: int) -> None:
    """In the child; does not return."""
    status = 1
    try:
        die_with(parent_pid, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.nice(NICENESS)
        gc.disable()  # it would write into the pages that are shared with the parent
        os.write(said_to, say())
        sys.stdout.flush()
        status = 0
    finally:
        os._exit(status)


@dataclass(slots=True)
class ServiceSnapshots:
    """``Snapshots`` of a service whose member has its recordings; ``do_work`` looks after the child."""

    _service_id: int
    _link: ModuleLink
    _files: Files
    _may_fork: bool
    _is_reported: bool = False  # that it is not copied
    _child: SnapshotChild | None = None
    _taken: tuple[int, int] = (0, NO_RECORDING)  # position and recording of the child's

    @property
    def is_writing(self) -> bool:
        """Whether a child is at work, whose end is to be looked for."""
        return self._child is not None

    def take(self, log_position: int, write: WriteSnapshot) -> int:
        """Not written where nobody wants it. Raises ClusterError, AgentTermination without a member."""
        self._await_child()
        reserved = self._link.reserve_snapshot(log_position)
        if reserved.why:
            raise ClusterError(reserved.why.decode())
        if not reserved.descriptor:
            return NO_RECORDING
        descriptor = RecordingDescriptor.decode_record(reserved.descriptor)
        self._taken = log_position, descriptor.recording_id
        if self._is_copied:
            self._copy(lambda: self._written(reserved, descriptor, write))
        else:
            self._link.send_frames(self._written(reserved, descriptor, write))
        return descriptor.recording_id

    def _copy(self, say: Callable[[], bytes]) -> None:
        try:
            self._child = SnapshotChild(say)
        except OSError as error:
            self._link.send_frames(self._frame(why=f"its process cannot be copied: {error.strerror}"))

    @property
    def _is_copied(self) -> bool:
        threads = threading.active_count()
        if self._may_fork and threads > 1 and not self._is_reported:
            self._is_reported = True
            print(
                f"service {self._service_id} has {threads} threads, so its process is not copied for a "
                "snapshot: it stops while it writes one"
            )
        return self._may_fork and threads == 1

    def _written(
        self, reserved: SnapshotReserved, descriptor: RecordingDescriptor, write: WriteSnapshot
    ) -> bytes:
        """Write the snapshot; returns the frames that report to the member what became of it."""
        recording = RecordingWriter(
            self._files,
            self._link.archive_directory,
            descriptor,
            file_sync_level=reserved.file_sync_level,
            checksum=Checksum(reserved.checksum) if reserved.checksum else None,
            is_sparse=True,
        )
        try:
            recording.activate(is_new=False)
            publication = SnapshotPublication(recording)
            digest = write(publication)
            publication.sync()
        except Exception as error:
            return link_frame(raised(error)) + self._frame(why=str(error))
        finally:
            recording.abandon()
        return self._frame(publication.position, publication.checksum, digest)

    def _frame(self, length: int = 0, checksum: int = 0, digest: int = -1, *, why: str = "") -> bytes:
        log_position, recording_id = self._taken
        message = ServiceSnapshot(
            self._service_id, log_position, recording_id, length, checksum, digest, why.encode()
        )
        return request_frame(message.encode(), log_position)

    # -- the child --

    def do_work(self) -> int:
        """Report to the member when the child has ended; returns how much was done."""
        ended = None if self._child is None else self._child.poll()
        if ended is None:
            return 0
        self._child = None
        said, status = ended
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        self._link.send_frames(said or self._frame(why=f"the process that wrote it {how}"))
        return 1

    def _await_child(self) -> None:
        """One snapshot after the other. Raises AgentTermination when the member is gone."""
        while self._child is not None:
            self._link.await_more()
            self.do_work()

    def close(self) -> None:
        """End what still writes."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    # -- reading --

    def open(self, recording_id: int) -> SnapshotImage:
        """Read a snapshot from the member's archive. Raises LogDamaged, NotAClusterDirectory."""
        return SnapshotImage(open_recording(self._files, self._link.archive_directory, recording_id))
