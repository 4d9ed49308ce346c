"""What a backup gets of a member of a real cluster: its log and snapshots as its archive has them."""

from __future__ import annotations

import numpy as np
import pytest

from cluster.errors import ClusterError, TimedOut
from cluster.log.scan import frame_starts
from cluster.media.aeron_archive import AeronArchive
from cluster.protocol.backup import BackupQuery, BackupSnapshotRecording
from cluster.protocol.enums import Role
from cluster.protocol.frame import DATA_FRAME_HEADER
from cluster.protocol.link import EndOfStream
from cluster.reader import LogReader
from cluster.reader.aeron_supplier import AeronSupplier
from cluster.reader.supplier import described, frames_of
from cluster.transport.credentials import FixedCredentials
from tests.aeron.recorded import SESSION, TERM_LENGTH, recorded
from tests.aeron.scripted_aeron import Script, ScriptedArchive, open_scripted
from tests.reader import real

NOBODY = FixedCredentials(b"")
MEMBERS = "0,in:1,host:9000,log:1,up:1,archive:8010|1,in:1,host:9001,log:1,up:1,archive:8110"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    with LogReader.open(dir=str(real.a_copy(tmp_path_factory.mktemp("real")))) as reader:
        return reader.term_length, np.concatenate([block for _, block in reader.blocks()])


@pytest.fixture
def scripts(monkeypatch, log):
    term_length, data = log
    scripts = [Script(member, data, term_length, is_leader=member == 1, leader_id=1) for member in range(2)]
    snapshot = Script(3, recorded(1)[0], TERM_LENGTH, stream_id=106, is_stopped=True)
    for script in scripts:
        script.members = MEMBERS
    monkeypatch.setattr(AeronArchive, "connect", lambda *_: ScriptedArchive("archive:8010", {3: snapshot}))
    open_scripted(monkeypatch, scripts).close()
    return scripts


def asked(endpoint: str = "host:9000", timeout_s: float = 1.0) -> AeronSupplier:
    supplier = AeronSupplier(endpoint, None, NOBODY, 5, timeout_s)
    supplier.ask(BackupQuery(1, 2))
    supplier.poll()
    return supplier


def headers_of(frames: np.ndarray) -> np.ndarray:
    return frames.view(DATA_FRAME_HEADER)[frame_starts(frames) // 32]


def test_a_member_says_its_role_and_how_far_it_has_committed(scripts):
    status = asked().status()
    assert (status.role, status.cluster_id, status.commit_position) == (
        Role.FOLLOWER,
        5,
        len(scripts[0].data),
    )
    assert asked("host:9001").status().role == Role.LEADER
    assert scripts[0].replays, "it is asked, and no other"


def test_its_log_and_snapshots_have_the_sessions_and_streams_of_their_recordings(scripts, log):
    supplier = asked()
    theirs = np.concatenate(list(frames_of("", supplier.read(0, len(log[1])))))
    of_log = described("", supplier.read_recording(0))
    assert (of_log.stream_id, of_log.term_length, of_log.terms) == (100, log[0], ())
    assert set(headers_of(theirs)["stream_id"]) == {100}
    answers = supplier.read_recording(3)
    status = described("", answers)
    frames = np.concatenate(list(frames_of("", answers)))
    assert (status.stream_id, status.session_id, status.stop_position) == (106, SESSION, len(frames))
    assert set(headers_of(frames)["stream_id"]) == {106}
    assert set(headers_of(frames)["session_id"]) == {SESSION}
    payloads = [row["payload"] for row in recorded(1)[1]]
    starts = frame_starts(frames)[: len(payloads)]
    assert [frames[at + 32 :][: len(data)].tobytes() for at, data in zip(starts, payloads)] == payloads


def test_the_end_of_a_range_is_told(scripts):
    *_, last = asked().read(0, 128)
    assert isinstance(last, EndOfStream)


def test_a_log_without_its_head_begins_in_a_term_that_a_snapshot_names(scripts):
    scripts[0].start = scripts[0].term_length
    with pytest.raises(ClusterError, match="no snapshot says in which term"):
        next(asked().read_recording(0))
    scripts[0].snapshots = (BackupSnapshotRecording(3, 2, 64, scripts[0].term_length + 96, 70, -1),)
    (term,) = described("", asked().read_recording(0)).terms
    assert (term.leadership_term_id, term.term_base_log_position, term.timestamp) == (2, 64, 70)


def test_a_member_that_does_not_answer_is_given_up_after_its_time(scripts):
    scripts[0].answers = False
    with pytest.raises(TimedOut, match=r"host:9000: it does not answer within 0\.05 s"):
        asked(timeout_s=0.05)
