"""An archive that others replay from: what its clients ask, are answered, and are sent."""

from __future__ import annotations

import re
import struct
from concurrent.futures import Future

import pytest

from cluster.aeron.archive_conductor import REPLAYS_MAX
from cluster.aeron.asked_publication import CONNECT_TIMEOUT_NS
from cluster.aeron.replay_session import LOOK_INTERVAL_NS, replay_channel
from cluster.errors import LogDamaged, MediaDriverError
from cluster.protocol import archive_control as control
from cluster.protocol.archive_control import ArchiveErrorCode as Code
from cluster.protocol.archive_control import ControlResponse
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.link import RecordingRequest
from cluster.protocol.versions import semantic_version
from cluster.transport.log_server import Judged
from tests.aeron.recorded import TERM_LENGTH
from tests.aeron.served_archive import (
    ARCHIVE_ID,
    BOUNDS,
    CONNECT,
    COUNTER,
    EMPTY,
    ERROR,
    LOG,
    OK,
    OPEN,
    REPLAY,
    SNAPSHOT,
    UNKNOWN,
    Served,
    a_recording,
)


@pytest.fixture
def served():
    return Served()


@pytest.fixture
def client(served):
    return served.connect()


# ---- who comes in


@pytest.mark.conformance("M-42", "M-43")
def test_who_may_read_is_answered_with_a_session_at_its_endpoint_and_with_none_of_its_other_settings(served):
    client = served.connect()
    assert served.aeron.subscribed == [("aeron:udp?endpoint=localhost:8010", 10)]
    assert client.publication.stream_id == 20
    assert client.publication.channel == "aeron:udp?endpoint=10.0.0.7:9020|term-length=64k|sparse=true"
    ((identity, template_id),) = served.asked
    assert (identity.peer, identity.credentials, template_id) == (
        "10.0.0.7",
        b"secret",
        RecordingRequest.TEMPLATE_ID,
    )
    assert client.id is not None


def test_what_is_asked_before_the_session_is_open_is_not_answered(served):
    served.judged = Future()
    client = served.connect()
    client.id = 0
    assert client.asks(control.ArchiveIdRequest) == []
    served.judged.set_result(Judged(""))
    served.turn()
    assert client.answers() == [ControlResponse(0, 40, 0, OK, control.ARCHIVE_CONTROL_VERSION)]
    assert client.asks(control.ArchiveIdRequest)[0].relevant_id == ARCHIVE_ID


@pytest.mark.parametrize(
    ("why", "version", "code", "says"),
    [
        (
            "no right to read",
            semantic_version(1, 12, 0),
            Code.AUTHENTICATION_REJECTED,
            "authentication rejected",
        ),
        ("", semantic_version(2, 0, 0), 0, "invalid client version 2.0.0, archive is 1.11.0"),
    ],
)
def test_who_may_not_read_or_speaks_another_version_hears_so_and_is_out(served, why, version, code, says):
    served.judged = Future()
    served.judged.set_result(Judged(why))
    client = served.connect(request=CONNECT.replace(version=version))
    assert (client.first.code, client.first.relevant_id, client.first.error_message) == (ERROR, code, says)
    assert served.aeron.removed == [client.publication]
    assert client.asks(control.ArchiveIdRequest) == []


def test_who_does_not_answer_at_its_own_endpoint_is_asked_for_nothing_and_given_up(served):
    served.aeron.is_connecting = False
    served.connect()
    assert served.asked == []
    served.turn(after_ns=CONNECT_TIMEOUT_NS + 1)
    assert "no connection established" in served.errors[0]
    assert served.aeron.removed == served.aeron.publications


@pytest.mark.parametrize(
    ("channel", "says"),
    [("aeron:ipc", "cannot be answered at"), ("aeron:udp?endpoint=nonsense", "the media driver refused")],
)
def test_a_channel_to_which_nothing_leads_is_no_client_s(served, channel, says):
    served.aeron.client().sends(CONNECT.replace(response_channel=channel).encode())
    served.turn()
    assert says in served.errors[0]


def test_a_session_is_spoken_for_by_its_own_publication_alone(served, client):
    other = served.connect(6)
    other.id = client.id
    assert other.asks(control.ArchiveIdRequest) == []
    assert client.answers() == []


def test_a_host_gets_no_more_sessions_than_it_leaves_to_others(served, client):
    served.connect(6, host="10.0.0.8")
    count = len(served.aeron.publications)
    served.connect(8, host="10.0.0.9")
    assert len(served.aeron.publications) == count
    assert "readers_max" in served.errors[0]


def test_a_session_ends_as_its_client_says_or_with_the_client_or_with_the_archive(served, client):
    client.image.sends(control.CloseSessionRequest(client.id).encode())
    served.turn()
    assert served.aeron.removed == [client.publication]
    gone, deaf = served.connect(6), served.connect(7)
    del served.aeron.images[6]
    deaf.publication.is_connected = False
    served.turn()
    assert served.aeron.removed[1:] == [gone.publication, deaf.publication]
    last = served.connect(8)
    served.aeron.room = 0
    last.replays()
    served.conductor.close()
    assert served.aeron.removed[3:] == [last.publication, served.aeron.publications[-1]]
    assert served.archive.is_closed


def test_whoever_sends_what_is_no_request_is_read_no_more_and_others_are(served, client):
    other = served.connect(6)
    for garbage in (bytes(3), struct.pack("<HHHH", 8, 1, 111, 1) + bytes(8), CONNECT.encode()[:-9]):
        other.image.sends(garbage)
        served.turn()
    assert len(served.errors) == 1
    assert other.asks(control.ArchiveIdRequest) == []
    served.aeron.client(7).is_damaged = True
    assert client.asks(control.ArchiveIdRequest)[0].relevant_id == ARCHIVE_ID
    assert len(served.errors) == 2


def test_who_takes_no_answers_is_asked_nothing_more_until_it_does(served, client):
    client.publication.takes = False
    for _ in range(20):
        client.image.sends(control.ListRecordingsRequest(client.id, 41, 0, 100).encode())
    served.turn(30)
    session = served.conductor._clients[5].session
    assert len(session._answers) == 5
    client.publication.takes = True
    served.turn(50)
    assert len(client.answers()) == 100


def test_a_driver_that_is_gone_is_everybody_s(served, client):
    served.aeron.room = 0
    client.replays()
    served.aeron.failure = MediaDriverError("the media driver was stopped")
    with pytest.raises(MediaDriverError):
        served.turn()


# ---- what is asked


@pytest.mark.conformance("M-44")
def test_recordings_are_listed_as_the_catalog_has_them(served, client):
    def ids(answers):
        return [
            (each.recording_id if isinstance(each, RecordingDescriptor) else (each.code, each.relevant_id))
            for each in answers
        ]

    listed = client.asks(control.ListRecordingRequest, SNAPSHOT)
    snapshot = served.archive.found[SNAPSHOT]
    assert listed == [snapshot.replace(control_session_id=client.id, correlation_id=41)]
    assert ids(client.asks(control.ListRecordingRequest, 3)) == [(UNKNOWN, 3)]
    assert ids(client.asks(control.ListRecordingsRequest, 0, 2)) == [0, 1]
    assert ids(client.asks(control.ListRecordingsRequest, 1, 9)) == [1, 2, 5, (UNKNOWN, 6)]
    assert ids(client.asks(control.ListRecordingsRequest, 8, -1)) == []
    for_uri = control.ListRecordingsForUriRequest
    assert ids(client.asks(for_uri, 0, 9, 106, "eron")) == [1, 2, (UNKNOWN, 6)]
    assert ids(client.asks(for_uri, 0, 1, 106, ":b")) == [1]


def test_positions_are_those_of_the_catalog_and_of_the_log_the_commit_position(served, client):
    committed, stop = served.archive.committed_position, served.archive.frames.size
    for kind, answers in (
        (control.StartPositionRequest, (0, 0, 0)),
        (control.StopPositionRequest, (-1, stop, -1)),
        (control.RecordingPositionRequest, (committed, -1, -1)),
        (control.MaxRecordedPositionRequest, (committed, stop, -1)),
    ):
        for recording_id, position in zip((LOG, SNAPSHOT, OPEN), answers, strict=True):
            (answer,) = client.asks(kind, recording_id)
            assert (answer.code, answer.relevant_id) == (OK, position)
        assert client.refused(kind, 3) == (Code.UNKNOWN_RECORDING, "unknown recording id: 3")
    for fields, recording_id in (((0, 8, 106, "b"), 1), ((0, 8, 106, ""), 2), ((0, 9, 106, ""), -1)):
        assert client.asks(control.FindLastMatchingRecordingRequest, *fields)[0].relevant_id == recording_id
    last = client.refused(control.FindLastMatchingRecordingRequest, -2, 8, 106, "")
    assert last == (Code.UNKNOWN_RECORDING, "minRecordingId=-2 < 0")


def test_what_would_change_the_archive_is_refused_as_to_one_who_may_not(served, client):
    for template_id in (4, 5, 11, 13, 14, 50, 51, 53, 54, 55, 56, 57, 62, 63, 64, 65, 66, 104, 105, 107):
        body = struct.pack("<qqqq", client.id, 41, LOG, 64)
        client.image.sends(struct.pack("<HHHH", len(body), template_id, 101, 12) + body)
        served.turn()
        (answer,) = client.answers()
        assert (answer.code, answer.relevant_id) == (ERROR, Code.UNAUTHORISED_ACTION), template_id
    assert client.asks(control.ArchiveKeepAliveRequest) == []


def test_files_that_cannot_be_read_are_an_error_of_that_request(served, client):
    served.archive.failure = LogDamaged("archive.catalog", 32, "no entry")
    code, text = client.refused(control.ListRecordingsRequest, 0, 9)
    assert (code, "no entry" in text) == (Code.GENERIC, True)
    served.archive.failure = None
    assert len(client.asks(control.ListRecordingsRequest, 0, 4)) == 4


# ---- replays


@pytest.mark.conformance("M-45", "M-47")
@pytest.mark.parametrize("number", [0, 7, -5])
def test_a_recording_is_replayed_from_any_frame_to_its_end_in_its_own_place(served, client, number):
    begin = served.archive.begins[number]
    replay = client.replays(SNAPSHOT, begin)
    assert replay.stream_id == 1001
    term = f"init-term-id=9|term-id={9 + begin // TERM_LENGTH}|term-offset={begin % TERM_LENGTH}"
    assert replay.channel == f"{REPLAY}|{term}|term-length={TERM_LENGTH}|mtu=1408|sparse=true"
    served.turn(50)
    assert replay.recorded == served.archive.frames[begin:].tobytes()
    assert served.aeron.removed == [replay]
    assert served.conductor.replay_count == 0


def test_a_replay_waits_for_room_and_ends_at_the_frame_that_passes_its_length(served, client):
    end = served.archive.begins[100]
    served.aeron.room = 0
    served.aeron.is_connecting = False
    replay = client.replays(SNAPSHOT, 0, end - 32)
    served.turn()
    assert not replay.recorded
    replay.is_connected, replay.room = True, 1000
    served.turn()
    assert 1000 <= len(replay.recorded) < 4096
    replay.room = 1 << 30
    served.turn(50)
    assert len(replay.recorded) == end


@pytest.mark.conformance("M-45", "M-46")
@pytest.mark.parametrize("is_bounded", [True, False])
def test_the_log_is_followed_as_far_as_it_is_committed_and_holds_back_what_removes_it(
    served, client, is_bounded
):
    committed = served.archive.committed_position
    if is_bounded:
        request = control.BoundedReplayRequest(
            client.id, 41, LOG, 0, 2**63 - 1, COUNTER, 1001, replay_channel=REPLAY
        )
        client.image.sends(request.encode())
        served.turn()
        replay = served.aeron.publications[-1]
    else:
        replay = client.replays(LOG)
    served.turn(50)
    assert replay.recorded == served.archive.frames[:committed].tobytes()
    assert served.conductor.least_position == committed
    served.archive.committed_position = served.archive.frames.size
    served.turn()
    assert len(replay.recorded) == committed
    served.turn(50, after_ns=LOOK_INTERVAL_NS)
    assert replay.recorded == served.archive.frames.tobytes()
    replay.is_connected = False
    served.turn()
    assert served.aeron.removed == [replay]
    assert served.conductor.least_position is None


def test_replays_that_wait_for_a_commit_look_for_it_together(served, client):
    for _ in range(5):
        client.replays(LOG)
    served.turn(50)
    looks = served.archive.looks
    for _ in range(10):
        served.turn(3, after_ns=LOOK_INTERVAL_NS)
    assert served.archive.looks - looks == 10
    assert served.conductor.replay_count == 5


def test_a_log_that_is_another_recording_now_ends_its_replays(served, client):
    replay = client.replays(LOG)
    served.turn(50)
    served.archive.log_id = SNAPSHOT
    served.turn(after_ns=LOOK_INTERVAL_NS)
    (answer,) = client.answers()
    assert answer.error_message == "the log is in another recording now, recordingId=0"
    assert served.aeron.removed == [replay]


def test_who_is_led_gets_the_log_beyond_what_is_committed_and_only_without_a_bound(served, client):
    committed = served.archive.committed_position
    end = served.archive.recorded_position = served.archive.begins[-3]
    assert end > committed
    served.archive.led_session_id = 9
    replay = client.replays(LOG, committed, end - committed)
    served.turn()
    assert replay.recorded == served.archive.frames[committed:end].tobytes()
    assert served.aeron.removed == [replay]
    followed = client.replays(LOG, committed)
    request = LOG, 0, -1, COUNTER, 1001
    (answer,) = client.asks(control.BoundedReplayRequest, *request, replay_channel=REPLAY)
    assert answer.code == OK
    bounded = served.aeron.publications[-1]
    served.turn()
    assert bounded.recorded == served.archive.frames[:committed].tobytes()
    assert followed.recorded == served.archive.frames[committed:end].tobytes()


@pytest.mark.parametrize("led_session_id", [None, 10])
def test_a_replay_to_who_is_led_ends_with_the_leadership_before_anything_is_cut(
    served, client, led_session_id
):
    served.archive.recorded_position = served.archive.begins[-3]
    served.archive.led_session_id = 9
    replay = client.replays(LOG, served.archive.committed_position)
    served.turn()
    sent = len(replay.recorded)
    served.archive.led_session_id = led_session_id
    served.archive.recorded_position = served.archive.frames.size
    served.turn(after_ns=LOOK_INTERVAL_NS)
    assert len(replay.recorded) == sent
    assert served.aeron.removed == [replay]
    assert "leads no more" in served.errors[0]


def test_a_snapshot_s_replay_holds_back_no_log(served, client):
    served.aeron.room = 0
    client.replays(SNAPSHOT)
    assert (served.conductor.replay_count, served.conductor.least_position) == (1, None)


@pytest.mark.parametrize(
    ("fields", "more", "code", "says"),
    [
        ((3, 0, -1), {}, Code.UNKNOWN_RECORDING, "unknown recording id: 3"),
        ((SNAPSHOT, 40, -1), {}, Code.GENERIC, r"position=40 is not a multiple of FRAME_ALIGNMENT \(32\)"),
        (
            (SNAPSHOT, -64, -1),
            {},
            Code.INVALID_POSITION,
            "position=-64 is less than recording start position=0",
        ),
        ((SNAPSHOT, "stop", -1), {}, Code.INVALID_POSITION, "must be less than the limit position="),
        ((LOG, "stop", -1), {}, Code.INVALID_POSITION, "must be less than the limit position="),
        ((SNAPSHOT, 32, -1), {}, Code.INVALID_POSITION, "replayPosition=32 does not point to a valid frame"),
        ((SNAPSHOT, 0, -9), {}, Code.GENERIC, "replay length must be positive: length=-9"),
        ((EMPTY, -1, -2), {}, Code.EMPTY_RECORDING, "the replay length must be non-zero, recordingId=5"),
        (
            (OPEN, 0, -1),
            {},
            Code.GENERIC,
            "recording 2 is written, and nothing of it is known to be committed",
        ),
        (
            (SNAPSHOT, 0, -1),
            {"file_io_max_length": 1024},
            Code.GENERIC,
            "fileIoMaxLength=1024 < mtuLength=1408",
        ),
        (
            (SNAPSHOT, 0, -1),
            {"replay_channel": "aeron:ipc"},
            Code.GENERIC,
            "expected aeron:udp.endpoint=host:port",
        ),
        (
            (SNAPSHOT, 0, -1),
            {"replay_channel": "aeron:udp?control-mode=response|control=a:1"},
            Code.GENERIC,
            "expected aeron:udp.endpoint=host:port",
        ),
        ((SNAPSHOT, 0, -1), {"replay_channel": "aeron:udp?endpoint=nonsense"}, Code.GENERIC, "nonsense"),
    ],
)
def test_a_replay_that_cannot_be_is_refused_as_aeron_s_archive_would(
    served, client, fields, more, code, says
):
    recording_id, position, length = fields
    position = served.archive.frames.size if position == "stop" else position
    request = {"replay_channel": REPLAY, **more}
    found, text = client.refused(control.ReplayRequest, recording_id, position, length, 1001, **request)
    assert found == code
    assert re.search(says, text), text
    assert served.conductor.replay_count == 0


def test_a_replay_is_bounded_by_the_commit_position_of_the_log_and_by_nothing_else(served, client):
    for recording_id, counter_id in ((LOG, COUNTER + 1), (SNAPSHOT, COUNTER)):
        fields = recording_id, 0, -1, counter_id, 1001
        code, text = client.refused(control.BoundedReplayRequest, *fields, replay_channel=REPLAY)
        assert code == Code.GENERIC
        assert f"unable to create replay limit counter id= {counter_id}" in text


def test_an_empty_recording_is_a_replay_without_a_frame(served, client):
    replay = client.replays(EMPTY, -1)
    served.turn()
    assert (replay.recorded, served.aeron.removed) == (b"", [replay])


def test_so_many_replays_are_under_way_and_a_host_leaves_some_to_others(served, client):
    begun = 0
    while True:
        (answer,) = client.asks(control.ReplayRequest, LOG, 0, -1, 1001, replay_channel=REPLAY)
        if answer.code is ERROR:
            break
        begun += 1
    assert answer.relevant_id == Code.MAX_REPLAYS
    assert answer.error_message.startswith(f"max concurrent replays reached {REPLAYS_MAX}")
    assert begun == 15
    other = served.connect(6, host="10.0.0.8")
    other.replays(LOG)


def test_a_client_ends_its_own_replays_and_nobody_else_s(served, client):
    theirs = client.replays(LOG)
    other = served.connect(6)
    ours = [other.replays(LOG), other.replays(SNAPSHOT, length=64)]
    for kind, value in (
        (control.StopReplayRequest, client.replay_id),
        (control.StopAllReplaysRequest, SNAPSHOT),
    ):
        assert other.asks(kind, value)[0].code is OK
    assert theirs not in served.aeron.removed and ours[0] not in served.aeron.removed
    assert other.asks(control.StopAllReplaysRequest, -1)[0].code is OK
    assert ours[0] in served.aeron.removed and theirs not in served.aeron.removed
    assert client.asks(control.StopReplayRequest, client.replay_id)[0].code is OK
    assert theirs in served.aeron.removed


def test_a_replay_that_nobody_takes_is_ended_and_one_that_waits_for_a_commit_is_not(served, client):
    waits = client.replays(LOG)
    served.aeron.room = 0
    stuck = client.replays(LOG)
    served.turn(3, after_ns=BOUNDS.reader_timeout_ns + 1)
    assert stuck in served.aeron.removed and waits not in served.aeron.removed
    (answer,) = client.answers()
    assert "the client takes nothing (reader_timeout), recordingId=0" in answer.error_message


def test_who_does_not_come_for_a_replay_hears_so_after_its_id(served, client):
    served.aeron.is_connecting = False
    client.replays()
    served.turn(after_ns=CONNECT_TIMEOUT_NS + 1)
    (answer,) = client.answers()
    assert (answer.code, answer.correlation_id) == (ERROR, 41)
    assert "no connection established for channel=" in answer.error_message


def test_damage_within_a_replay_ends_it_with_its_place(served, client):
    replay = client.replays(LOG)
    served.turn(50)
    served.archive.committed_position = served.archive.frames.size
    served.archive.begins.clear()
    served.turn(after_ns=LOOK_INTERVAL_NS)
    (answer,) = client.answers()
    assert answer.code is ERROR and "no frame begins here, recordingId=0" in answer.error_message
    assert served.aeron.removed == [replay]


def test_nothing_is_sent_from_a_publication_that_the_driver_has_begun_elsewhere(served, client):
    served.aeron.is_answering = False
    client.sends(control.ReplayRequest, SNAPSHOT, 0, -1, 1001, replay_channel=REPLAY)
    replay = served.aeron.publications[-1]
    replay.begins_at = (64, TERM_LENGTH, 9, 1408)
    served.aeron.is_answering = True
    served.turn()
    (answer,) = client.answers()
    assert "the media driver's publication is not at 0" in answer.error_message
    assert not replay.recorded


def test_terms_beyond_the_last_id_go_on_with_the_least():
    recording = a_recording(1, 0, initial_term_id=2**31 - 1)
    channel = replay_channel("aeron:udp?endpoint=a:1|linger=9h|control=b:2", recording, TERM_LENGTH + 32)
    assert channel == (
        "aeron:udp?endpoint=a:1|init-term-id=2147483647|term-id=-2147483648|term-offset=32|"
        f"term-length={TERM_LENGTH}|mtu=1408|sparse=true"
    )
