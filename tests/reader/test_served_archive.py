"""What a running member's archive replays: of its log what is committed, and its snapshots whole."""

from __future__ import annotations

import os

import numpy as np
import pytest

from cluster.counters import CountersFile
from cluster.errors import ClusterError, DataLoss, LogDamaged, NotAClusterDirectory
from cluster.reader.served_archive import ServedArchive
from cluster.transport.clock import epoch_ms
from tests.archive.logs import a_log
from tests.archive.members import Member, allocate_counters


def an_archive(directory):
    folders = (str(directory / folder) for folder in ("cluster", "archive", "driver"))
    return ServedArchive(*folders, lambda: 7)


@pytest.fixture(params=[None, "crc-32c"], ids=["no checksums", "checksums"])
def member(tmp_path, request):
    """One that runs, with a log and a snapshot of it."""
    member = Member(tmp_path, checksum=request.param)
    log = a_log(400)
    member.write(log)
    member.take_snapshot(log, log.entries[100][1])
    counters = CountersFile.create(str(tmp_path / "driver" / "cnc.dat"), pid=os.getpid(), now_ms=epoch_ms())
    member.commit = allocate_counters(counters)
    recording = member.recording
    counters.allocate_recording_position(
        recording.recording_id, recording.session_id, recording.stream_id, position=log.position
    )
    member.log = log
    yield member
    counters.close()
    member.kill()


def frames(archive, recording, position, end):
    return np.concatenate(list(archive.blocks(recording, position, end, 4096)))


def published(run, like):
    """Frames with the sessions of others, where a checksum may stand."""
    run = run.copy()
    at = 0
    while at < len(run):
        run[at + 12 : at + 16] = like[at + 12 : at + 16]
        at += (int(run[at : at + 4].view(np.int32)[0]) + 31) // 32 * 32
    return run.tobytes()


def test_the_log_is_there_as_far_as_it_is_committed_and_a_snapshot_to_its_end(tmp_path, member):
    archive, log = an_archive(tmp_path), member.log
    recordings = archive.recordings()
    assert [each.recording_id for each in recordings] == [0, 1, 2]
    assert archive.committed(0) == 0
    assert archive.committed(1) is None
    committed = log.entries[200][1]
    member.commit.set(committed)
    assert archive.committed(0) == committed
    begin = log.entries[50][1]
    run = frames(archive, recordings[0], begin, committed)
    expected = np.frombuffer(log.frames(begin, committed), np.uint8)
    assert published(run, expected) == expected.tobytes()
    snapshot = recordings[2]
    assert len(frames(archive, snapshot, 0, snapshot.stop_position)) == snapshot.stop_position > 0
    archive.close()


def test_who_is_led_gets_what_is_recorded_from_any_frame_on(tmp_path, member):
    archive, log = an_archive(tmp_path), member.log
    recording = archive.recordings()[0]
    assert (archive.led_session_id, archive.committed(0), archive.recorded(0)) == (7, 0, log.position)
    assert archive.recorded(1) is None
    begin = log.entries[50][1]
    run = np.concatenate(list(archive.recorded_blocks(recording, begin, log.position, 4096)))
    expected = np.frombuffer(log.frames(begin, log.position), np.uint8)
    assert published(run, expected) == expected.tobytes()
    archive.close()


def test_the_counter_of_the_commit_position_bounds_it_and_no_other(tmp_path, member):
    archive = an_archive(tmp_path)
    assert [archive.is_bounded_by(member.commit.counter_id + more) for more in (-1, 0, 1)] == [
        False,
        True,
        False,
    ]
    archive.close()


def test_what_is_not_there_is_named(tmp_path, member):
    archive = an_archive(tmp_path)
    member.commit.set(member.log.position)
    log, snapshot, _ = archive.recordings()
    for recording, position, error in (
        (log, 32, LogDamaged),
        (snapshot, 32, LogDamaged),
        (snapshot.replace(recording_id=9), 0, NotAClusterDirectory),
    ):
        with pytest.raises(error):
            frames(archive, recording, position, 4096)
    archive.close()


def test_a_member_without_a_log_has_none_that_is_committed_and_one_comes_later(tmp_path):
    member = Member(tmp_path)
    archive = an_archive(tmp_path)
    assert archive.recordings() == []
    assert archive.committed(0) is None
    assert not archive.is_bounded_by(0)
    member.write(a_log(20))
    assert archive.committed(0) == 0
    archive.close()
    member.kill()


def test_another_log_in_its_place_is_looked_at_anew(tmp_path, member, monkeypatch):
    archive = an_archive(tmp_path)
    member.commit.set(member.log.position)
    assert archive.committed(0) == member.log.position
    first = archive._log

    def refresh():
        raise DataLoss("the log is recording 7 now")

    monkeypatch.setattr(first.state, "refresh", refresh)
    with pytest.raises(ClusterError, match="recording 7"):
        archive.committed(0)
    assert archive.committed(0) == member.log.position
    assert archive._log is not first
    archive.close()
