"""The Log of one member and how it is processed, alone: an archive, counters, a state that it changes."""

import numpy as np
import pytest

from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.counters import CountersFile
from cluster.member.counters import MemberCounters
from cluster.member.log.log_in_memory import LogInMemory
from cluster.member.log.member_log import MemberLog
from cluster.member.log.processing import LogProcessing
from cluster.member.measuring import BUCKETS, COUNTER_WORDS
from cluster.member.reporter import Reporter
from cluster.member.status import MemberStatus
from cluster.protocol.enums import ClusterAction, ConsensusModuleState
from cluster.protocol.link import LogGeometry
from cluster.protocol.log import ClusterActionRequest, NewLeadershipTermEvent
from tests.archive.logs import LogWriter

TIME = 1_000
CONTEXT = ConsensusModuleContext(log_term_length=64 * 1024)


class NoSessions:
    """No part of these tests is written to or sent."""


@pytest.fixture
def counters():
    return MemberCounters(CountersFile.in_memory(), CONTEXT)


@pytest.fixture
def replica():
    state = ReplicatedState(CONTEXT, NoSessions())
    state.module.change(ConsensusModuleState.ACTIVE)
    return state


@pytest.fixture
def log(tmp_path, counters):
    archive = Archive.open(
        str(tmp_path / "archive"), files=OsFiles(), segment_length=128 * 1024, epoch_ms=lambda: 0
    )
    recording_log = RecordingLog.open(str(tmp_path / "cluster"), files=OsFiles())
    log = MemberLog(CONTEXT, archive, recording_log, counters)
    yield log
    log.stop(now_ms=0)
    archive.close()
    recording_log.close()


@pytest.fixture
def snapshots():
    """Positions and timestamps of snapshots' actions that were read."""
    return []


@pytest.fixture
def processing(log, counters, replica, snapshots):
    state = MemberStatus(0, replica, counters, Reporter(counters.errors, print, print))
    return LogProcessing(
        log,
        replica,
        counters.leadership_term_id,
        state.on_module_changed,
        lambda *read: snapshots.append(read),
    )


def writer_of(log, session_id=7):
    log.extend(session_id)
    return LogWriter(log.params(session_id), start=log.append_position, leadership_term_id=0, time=TIME)


def write(log, timers, session_id=7):
    """Append that many entries to the recording; return their ends."""
    writer = writer_of(log, session_id)
    begin, ends = writer.position, []
    for number in range(timers):
        writer.timer(number)
        ends.append(writer.position)
    log.recording.append(begin, writer.frames())
    return ends


def write_action(log, action):
    """Append a control action; return its end."""
    writer = writer_of(log)
    begin = writer.position
    end = writer.append(ClusterActionRequest(0, 0, TIME, action, 0).encode())
    log.recording.append(begin, writer.frames())
    return end


def test_without_a_recording_nothing_is_processed_and_it_ends_where_it_is_processed(
    log, processing, counters
):
    log.start(None, 4096)
    processing.start(4096)
    assert (processing.process(10_000), log.commit_position, log.append_position) == (0, 4096, 4096)
    assert counters.commit_position.get() == 4096


def test_what_is_processed_is_shown_and_the_rest_is_not(log, processing, counters, replica):
    log.create(7, None)
    ends = write(log, 10)
    assert processing.process(ends[3]) == ends[3]
    assert replica.cluster_time == TIME + 4, "the time of the fourth entry"
    assert log.commit_position == counters.commit_position.get() == ends[3] < log.append_position == ends[-1]


def test_nothing_beyond_the_recording_is_processed_whatever_the_limit(log, processing):
    log.create(7, None)
    ends = write(log, 3)
    assert processing.process(1 << 40) == ends[-1]
    assert processing.process(1 << 40) == 0


def test_an_action_ends_the_poll_and_the_next_one_goes_on(log, processing, replica, snapshots):
    log.create(7, None)
    replica.apply(NewLeadershipTermEvent(0, 0, 0, 0, 0, 7, CONTEXT.time_unit, CONTEXT.app_version), 0)
    first = write(log, 2)[-1]
    action = write_action(log, ClusterAction.SNAPSHOT)
    end = write(log, 2)[-1]
    assert processing.process(end, length=1 << 20) == action == log.commit_position
    assert snapshots == [(action, TIME)]
    assert processing.process(end, length=1 << 20) == 0, "nothing moves while snapshots are taken"
    replica.module.change(ConsensusModuleState.ACTIVE)
    assert processing.process(end, length=1 << 20) == end - action
    assert first < action


def test_a_module_that_has_ended_reads_no_log(log, processing, replica):
    log.create(7, None)
    ends = write(log, 2)
    replica.module.change(ConsensusModuleState.CLOSED)
    assert processing.process(ends[-1]) == 0


def test_the_commit_position_never_falls(log):
    log.start(None, 4096)
    with pytest.raises(AssertionError):
        log.commit(4095)


def test_a_new_log_has_the_shape_of_its_leaders(log):
    recording = log.create(7, LogGeometry(5, 128 * 1024, 1024))
    assert (recording.initial_term_id, recording.term_length, recording.mtu) == (5, 128 * 1024, 1024)
    params = log.params(9)
    assert (params.session_id, params.initial_term_id, params.mtu) == (9, 5, 1024)


def test_another_leaders_session_goes_on_in_the_same_recording(log):
    first = log.create(7, None)
    end = write(log, 2, session_id=7)[-1]
    assert log.extend(7) is first
    second = log.extend(8)
    assert (second.recording_id, second.session_id, second.append_position) == (0, 8, end)
    assert second.position_counter is not None


def test_how_long_syncs_of_the_log_take_is_counted_whoever_asks_for_them(log, counters):
    log.create(7, None)
    for count in (1, 2, 3):
        write(log, 1, session_id=7)
        log.recording.sync()
        log.recording.sync()
        values = counters.file.words[counters.sync_time.index :: COUNTER_WORDS][: BUCKETS + 2].tolist()
        assert sum(values[:-1]) == count and values[-1] > 0


def test_the_last_term_alone_is_open_again_when_it_is_recorded_without_an_end(log):
    log.create(7, LogGeometry(0, 64 * 1024, 1408))
    for term_id, base in ((0, 0), (1, 960)):
        log.record_term(term_id, base, NULL_POSITION, TIME)
    log.record_term(1, 960, 1920, TIME)

    def ends():
        return [entry.log_position for entry in log.recording_log.entries]

    log.record_term(0, 0, NULL_POSITION, TIME)
    assert ends() == [960, 1920]
    log.record_term(1, 960, NULL_POSITION, TIME)
    assert ends() == [960, NULL_POSITION]


def test_recorded_log_comes_in_front_of_what_is_in_memory_as_far_as_there_is_room():
    class Recorded:
        def read(self, position, length):
            return np.arange(position, position + length, dtype=np.uint8)

    end = LogInMemory(100, 160)
    end.buffer[:10], end.position = np.arange(100, 110), 110

    assert end.reach_back(Recorded(), 100) and end.base == 100
    assert not end.reach_back(Recorded(), 69) and end.base == 100, "41 bytes of 160"
    assert end.reach_back(Recorded(), 70)
    assert (end.base, end.position) == (70, 110)
    assert end.buffer[:40].tolist() == list(range(70, 110))
