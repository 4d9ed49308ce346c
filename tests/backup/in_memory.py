"""A backup of a cluster in memory: the production agent and directory, on a disk of its own."""

from __future__ import annotations

from random import Random

import numpy as np

from cluster.archive.recording_log import RecordingLog
from cluster.backup.agent import BackupContext, ClusterBackupAgent
from cluster.backup.counters import BackupCounters
from cluster.backup.directory import BackupDirectory
from cluster.counters import CountersFile
from cluster.errors import ClusterError
from cluster.protocol import streams
from cluster.protocol.enums import ClusterBackupState
from cluster.protocol.frame import align, frame
from cluster.testing.disk import SimulatedFiles
from cluster.testing.world import MS
from cluster.transport.log_client import Unreachable
from tests.backup.served_log import ServedLog
from tests.member.answers import messages_in
from tests.simulation.disk import FaultyDisk
from tests.simulation.world import Mortal

TURN_NS = 10 * MS
BLOCK_BYTES = 4096
SEGMENT_BYTES = 128 * 1024  # twice those of the members
DIRECTORY = "backup"
CONTEXT = BackupContext(
    interval_ns=2_000 * MS, response_timeout_ns=500 * MS, cool_down_interval_ns=1_000 * MS
)


class MemberInMemory:
    """A ``Supplier``: the query goes over a client's connection, the rest is read from the member's files."""

    def __init__(self, member):
        self.member = member
        self.asked = []
        self.requests = []  # (what, of which position or recording) that it was asked for
        self.answers = []
        self.is_silent = False  # it hears, and says nothing
        self.spoil = None  # what is done to the frames that it sends
        self._log = None
        self._connection = None

    @property
    def name(self):
        return f"member {self.member.member_id}"

    def ask(self, query):
        self.asked.append(query)
        self.answers.clear()
        self._connection = self.member.dial(self._on_frames)
        self._connection.send(frame(query.encode(), session_id=0, stream_id=streams.INGRESS))

    def _on_frames(self, data):
        self.answers.extend(messages_in(data))

    def poll(self):
        return self.answers.pop() if self.answers and not self.is_silent else None

    def _open(self):
        if not self.member.is_running:
            raise Unreachable(f"{self.name} does not run")
        if self._log is None:
            self._log = ServedLog(self.member, "member", self.member.files, cluster_id=0)
        return self._log

    def status(self):
        return self._open().status()

    def read(self, from_position, to_position):
        self.requests.append(("log", from_position))
        for answer in self._open().read(from_position, to_position, BLOCK_BYTES):
            yield self._sent(answer)

    def read_recording(self, recording_id):
        for answer in self._open().read_recording(recording_id, BLOCK_BYTES):
            if isinstance(answer, np.ndarray):
                self.requests.append(("snapshot", recording_id))
            yield self._sent(answer)

    def _sent(self, answer):
        if not self.member.is_running:
            raise Unreachable(f"{self.name} is gone")
        if not isinstance(answer, np.ndarray):
            return answer
        frames = np.array(answer)
        if self.spoil is not None:
            self.spoil(frames)
        return frames

    def close(self):
        self._log = None


class Backup:
    """One backup of a ``SimulatedCluster``, in one life after the other on its own disk."""

    def __init__(
        self, cluster, context=CONTEXT, members=None, directory=DIRECTORY, needed_position=lambda: None
    ):
        self.needed_position = needed_position
        self.cluster = cluster
        self.context = context
        self.path = directory
        self.suppliers = [MemberInMemory(cluster.members[i]) for i in members or range(cluster.member_count)]
        self.disk = FaultyDisk(cluster.world, cluster.world.random("backup's disk"))
        self.files = SimulatedFiles(self.disk, Mortal(cluster.world, "10.0.9.1", "backup"), 1)
        self.events: list[str] = []
        self.errors: list[ClusterError] = []
        self.states: list[ClusterBackupState] = []
        self.start()

    @property
    def now_ms(self):
        return self.cluster.members[0].clock.epoch_ms(self.cluster.world.now_ns)

    def start(self):
        self.directory = BackupDirectory(
            self.path,
            self.files,
            cluster_id=self.context.cluster_id,
            file_sync_level=1,
            epoch_ms=lambda: self.now_ms,
            say=self.events.append,
            segment_length=SEGMENT_BYTES,
        )
        self.counters = BackupCounters(CountersFile.in_memory(), self.context.cluster_id)
        self.agent = ClusterBackupAgent(
            self.context,
            self.directory,
            self.suppliers,
            self.counters,
            Random(1),
            on_event=self.events.append,
            on_error=self.errors.append,
            needed_position=self.needed_position,
        )

    def kill(self):
        self.directory.abandon()

    def stop(self):
        self.agent.close()
        self.directory.close()

    # ---- time

    def turn(self):
        self.agent.do_work(self.cluster.world.now_ns, self.now_ms)
        if not self.states or self.states[-1] is not self.agent.state:
            self.states.append(self.agent.state)
        self.cluster.run(TURN_NS)

    def run_until(self, condition, turns=3_000):
        for _ in range(turns):
            if condition():
                return
            self.turn()
        raise AssertionError(f"not within {turns} turns; {self.agent.state!r}: {self.events} {self.errors}")

    def await_level(self):
        """Until it has all that the leader has committed."""
        self.run_until(
            lambda: (
                self.agent.state is ClusterBackupState.BACKING_UP
                and self.cluster.leader is not None
                and self.position == self.cluster.leader.commit_position
            )
        )

    def await_query(self):
        """Until it has asked again, and is backing up again."""
        asked = self.asked
        self.run_until(
            lambda: self.asked > asked and self.agent.state is ClusterBackupState.BACKING_UP, turns=10_000
        )

    # ---- what it has

    @property
    def asked(self):
        return sum(len(supplier.asked) for supplier in self.suppliers)

    @property
    def position(self):
        return self.agent.position

    def log_bytes(self):
        recording = self.directory.log.recording
        position, pieces = recording.start_position, []
        while position < recording.append_position:
            pieces.append(contents(recording.read(position, recording.append_position - position)))
            position += len(pieces[-1])
        return b"".join(pieces)

    def entries(self):
        """(type, term, base, position, service) of what recording.log names, as a tool reads it."""
        log = RecordingLog.open(f"{self.path}/cluster", files=self.files, write=False)
        log.close()
        return [
            (e.entry_type.name, e.leadership_term_id, e.term_base_log_position, e.log_position, e.service_id)
            for e in log.entries
            if e.is_valid
        ]

    def snapshots(self):
        return [(entry[4], entry[3]) for entry in self.entries() if entry[0] == "SNAPSHOT"]


def contents(run):
    """A run of frames without what their recording keeps in the place of session ids."""
    data = bytearray(run.tobytes())
    offset = 0
    while offset < len(data):
        data[offset + 12 : offset + 16] = bytes(4)
        offset += align(int.from_bytes(data[offset : offset + 4], "little"))
    return bytes(data)


def committed(member, begin, end):
    recording, pieces = member.recording, []
    while begin < end:
        pieces.append(contents(recording.read(begin, end - begin)))
        begin += len(pieces[-1])
    return b"".join(pieces)
