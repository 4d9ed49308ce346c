"""A log that parts from its leader's is cut where one of its own frames begins, whatever others have."""

from cluster.archive.archive import Archive
from cluster.archive.frame_walk import log_params
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording_log import RecordingLog
from tests.archive.logs import LogWriter
from tests.member.cluster_steps import a_busy_cluster, check_equal, send, stop_all


class StoppedLog:
    """The files of a member that does not run, to let it have lived through more terms."""

    def __init__(self, member):
        disk, directory = member.files, "member/cluster"
        self._archive = Archive.open(
            "member/archive", files=disk, segment_length=64 * 1024, epoch_ms=lambda: 0
        )
        self._recording_log = RecordingLog.open(directory, files=disk)
        self._node_state = NodeStateFile.open(directory, files=disk)
        self._recording = self._archive.extend(0, session_id=7)
        self.end = self._recording.append_position

    def begin_term(self, term_id):
        """Follow the leader of a term; those between are filled in."""
        self._node_state.propose(term_id, self.end, now_ms=0)
        self._recording_log.ensure_coherent(
            recording_id=0,
            leadership_term_id=term_id,
            term_base_log_position=self.end,
            timestamp=0,
        )

    def append(self, term_id, payload):
        """One frame of a term: a message, or a timer's event where there is no ``payload``."""
        writer = LogWriter(
            log_params(self._recording.descriptor), start=self.end, leadership_term_id=term_id, time=0
        )
        writer.timer(0) if payload is None else writer.message(payload)
        self._recording.append(self.end, writer.frames())
        self.end = writer.position

    def close(self):
        self._recording.sync()
        self._archive.close()
        self._recording_log.close()
        self._node_state.close()


def test_a_log_is_not_cut_within_its_own_frame_where_the_leader_knows_a_term_from_there_on():
    """Ours: a long frame of term 1, then term 3. The leader's: a short one of term 2, nobody's term 3.

    To cut where the leader's term 3 begins would end the log within the long frame.
    """
    cluster = a_busy_cluster(messages=10)
    first, second, third = cluster.members
    stop_all(cluster, last=first)
    for member in (first, second):
        log = StoppedLog(member)
        log.begin_term(2)
        log.append(2, None)
        log.close()
        short_end = log.end
    log = StoppedLog(third)
    begin = log.end
    log.begin_term(1)
    log.append(1, bytes(1000))
    log.begin_term(3)
    log.close()
    assert begin < short_end < log.end
    for member in (first, second):
        node_state = NodeStateFile.open("member/cluster", files=member.files)
        node_state.propose(3, 0, now_ms=0)
        node_state.close()
        member.start()
    cluster.await_leader()
    third.start()

    cluster.await_level()
    assert third.death == ""
    check_equal(cluster)
    send(cluster, 10)
