"""Bytes that a real Aeron node wrote or accepted: read into the values they stand for, written back equal."""

import hashlib

import numpy as np
import pytest

from cluster.protocol import catalog, decode, mark_file, node_state, recording_log, streams
from cluster.protocol.backup import (
    BackupResponse,
    BackupSnapshotRecording,
    StandbySnapshot,
    StandbySnapshotRecording,
)
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    Vote,
)
from cluster.protocol.enums import (
    CloseReason,
    ClusterAction,
    ClusterComponentType,
    ClusterTimeUnit,
    EventCode,
    RecordingState,
    SnapshotMark,
)
from cluster.protocol.frame import (
    DATA_FRAME_HEADER,
    FLAGS_UNFRAGMENTED,
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_PAD,
    align,
    frame,
    frame_header,
)
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.service import ServiceAck
from cluster.protocol.session import SessionConnectRequest, SessionEvent, SessionMessageHeader
from cluster.protocol.snapshot import (
    CONSENSUS_MODULE_TYPE_ID,
    SERVICE_TYPE_ID,
    ClientSession,
    ClusterSession,
    ConsensusModule,
    PendingMessageTracker,
    SnapshotMarker,
    Timer,
)
from tests.protocol.examples import CHANNEL, T0, dump, worked_messages

LOG_SESSION_ID = 0x11223344
LOGGED = -(2**63)  # id of the last service message that was logged: service 0, none yet

NEW_TERM = NewLeadershipTermEvent(0, 96, T0, 0, 0, LOG_SESSION_ID, ClusterTimeUnit.MILLIS, 1)
OPEN = SessionOpenEvent(0, 42, 1, T0 + 5, 102, CHANNEL, b"alice")
MESSAGE = (SessionMessageHeader(0, 1, T0 + 9), b"hello")
TIMER = TimerEvent(0, 77, T0 + 60)
CLOSE = SessionCloseEvent(0, 1, T0 + 100, CloseReason.CLIENT_ACTION)
SNAPSHOT_ACTION = ClusterActionRequest(0, 416, T0 + 50, ClusterAction.SNAPSHOT, 0)


def marker(type_id, mark):
    return SnapshotMarker(type_id, 416, 0, 0, mark, ClusterTimeUnit.MILLIS, 1)


STREAMS = {
    "log-with-one-session": (
        [NEW_TERM, OPEN, MESSAGE, TIMER, CLOSE],
        {"stream_id": streams.LOG, "session_id": LOG_SESSION_ID, "term_id": 0},
        "3b5b0b2296b8d29bc0d74925d16a65a640a2f6ec20b890754b97afb72e3bbb30",
    ),
    "log-snapshot-action": (
        [NEW_TERM, OPEN, MESSAGE, SNAPSHOT_ACTION],
        {"stream_id": streams.LOG, "session_id": LOG_SESSION_ID, "term_id": 0},
        "adde9d90025522ec6804f04a18442f12999d2e6b34867d6ebbe1a1d9797679e3",
    ),
    "consensus-module-snapshot": (
        [
            marker(CONSENSUS_MODULE_TYPE_ID, SnapshotMark.BEGIN),
            ConsensusModule(2, LOGGED + 1, LOGGED, 0),
            ClusterSession(1, 42, 224, -1, None, 102, CHANNEL),
            Timer(77, T0 + 3_600_000),
            PendingMessageTracker(LOGGED + 1, LOGGED, 0, 0),
            marker(CONSENSUS_MODULE_TYPE_ID, SnapshotMark.END),
        ],
        {"stream_id": streams.CONSENSUS_MODULE_SNAPSHOT, "session_id": 0x55667788, "term_id": 7},
        "e890180c5139a6d029ddba526d2830a534e8e0ed5f573d17331ca81cd243fdda",
    ),
    "service-snapshot": (
        [
            marker(SERVICE_TYPE_ID, SnapshotMark.BEGIN),
            ClientSession(1, 102, CHANNEL, b"alice"),
            marker(SERVICE_TYPE_ID, SnapshotMark.END),
            b"STATE",
        ],
        {"stream_id": streams.SERVICE_SNAPSHOT, "session_id": 0x55667799, "term_id": 9},
        "bfc0645b1d88eb9561ee6e170ca3b03fcc1dbaa775879b7625ae00d8c1848d5b",
    ),
}


def payload_of(record) -> bytes:
    match record:
        case bytes():
            return record
        case (SessionMessageHeader() as header, bytes(payload)):
            return header.encode() + payload
        case message:
            return message.encode()


def stream_bytes(name: str) -> bytes:
    if name == "log-snapshot-action":  # its first three frames are those of the other log
        return dump("log-with-one-session")[:320] + dump(name)
    return dump(name)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_written_as_the_real_one_is(name):
    records, identity, digest = STREAMS[name]
    written = b""
    for record in records:
        written += frame(payload_of(record), term_offset=len(written), **identity)

    assert written == stream_bytes(name)
    assert hashlib.sha256(written).hexdigest() == digest


@pytest.mark.parametrize("name", STREAMS)
def test_a_real_stream_reads_as_the_values_it_stands_for(name):
    records, identity, _ = STREAMS[name]
    stream = stream_bytes(name)
    offset = 0
    for record in records:
        header = np.frombuffer(stream, DATA_FRAME_HEADER, 1, offset)[0]
        assert header["term_offset"] == offset
        assert (header["flags"], header["type"], header["version"]) == (FLAGS_UNFRAGMENTED, TYPE_DATA, 0)
        assert {key: header[key] for key in identity} == identity
        begin, length = offset + HEADER_LENGTH, int(header["frame_length"]) - HEADER_LENGTH
        if isinstance(record, bytes):
            assert stream[begin : begin + length] == record
        elif isinstance(record, tuple) and type(record) is tuple:
            assert decode(stream, begin, length) == record[0]
        else:
            assert decode(stream, begin, length) == record
        offset += align(HEADER_LENGTH + length)
    assert offset == len(stream)


@pytest.mark.conformance("C-249")
def test_the_position_in_a_cluster_action_is_the_end_of_its_frame():
    stream = stream_bytes("log-snapshot-action")

    assert decode(stream, 320 + HEADER_LENGTH, 40).log_position == len(stream) == 416


SNAPSHOT_RECORDING = (2, 0, 0, 416, T0 + 50, -1)
MESSAGES = {
    "CanvassPosition": CanvassPosition(2, 4096, 3, 1, 65_536),
    "RequestVote": RequestVote(2, 4096, 4, 1, 65_536),
    "Vote": Vote(4, 2, 4096, 1, 2, True),
    "NewLeadershipTerm": NewLeadershipTerm(
        log_leadership_term_id=2,
        next_leadership_term_id=4,
        next_term_base_log_position=4096,
        next_log_position=-1,
        leadership_term_id=4,
        term_base_log_position=4096,
        log_position=4096,
        leader_recording_id=0,
        timestamp=T0,
        leader_member_id=1,
        log_session_id=LOG_SESSION_ID,
        app_version=1,
        is_startup=False,
        commit_position=4000,
    ),
    "AppendPosition": AppendPosition(4, 4192, 2, 0),
    "CommitPosition": CommitPosition(4, 4192, 1),
    "CatchupPosition": CatchupPosition(4, 4096, 2, "localhost:20113"),
    "SessionConnectRequest": SessionConnectRequest(42, 102, 768, CHANNEL, b"", "name=c1"),
    "SessionEvent": SessionEvent(1, 42, 4, 1, EventCode.OK, 768, 10**10, "0=a:1,1=b:1"),
    "ServiceAck": ServiceAck(416, T0 + 50, 1, 1, 0),
    "BackupResponse": BackupResponse(
        9, 0, 0, 0, 1, 416, 67, 1, 0, (BackupSnapshotRecording(*SNAPSHOT_RECORDING),), "0,a:1,a:2,a:3,a:4,a:5"
    ),
    "StandbySnapshot": StandbySnapshot(
        9, 768, 108, (StandbySnapshotRecording(*SNAPSHOT_RECORDING, "h:8010"),), "aeron:udp", b""
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_have_the_bytes_of_the_reference_codecs(name):
    assert MESSAGES[name].encode() == worked_messages()[name]
    assert decode(worked_messages()[name]) == MESSAGES[name]


def test_every_worked_message_has_its_value_here():
    assert set(worked_messages()) == set(MESSAGES)


def test_a_recording_log_with_an_open_term_and_a_snapshot():
    entries = [
        recording_log.RecordingLogEntry(0, 0, 0, -1, T0, -1, recording_log.TERM),
        recording_log.RecordingLogEntry(1, 0, 0, 416, T0 + 50, 0, recording_log.SNAPSHOT),
        recording_log.RecordingLogEntry(2, 0, 0, 416, T0 + 50, -1, recording_log.SNAPSHOT),
    ]
    file = dump("recording-log")

    assert b"".join(map(recording_log.encode_recording_log_entry, entries)) == file
    assert list(recording_log.decode_recording_log(file)) == [
        entry._replace(entry_index=index, offset=64 * index) for index, entry in enumerate(entries)
    ]


def test_a_node_state():
    state = node_state.CandidateTerm(candidate_term_id=0, timestamp=T0, log_position=0)

    assert node_state.encode_node_state(state) == dump("node-state")
    assert node_state.decode_node_state(dump("node-state") + bytes(4032)) == (state, 24)


def test_a_catalog_with_a_recording_that_was_not_stopped():
    channel = "aeron:udp?session-id=287454020|alias=log"
    descriptor = catalog.RecordingDescriptor(
        control_session_id=0,
        correlation_id=0,
        recording_id=0,
        start_timestamp=T0,
        stop_timestamp=-1,
        start_position=0,
        stop_position=-1,
        initial_term_id=0,
        segment_file_length=131_072,
        term_buffer_length=65_536,
        mtu_length=1408,
        session_id=LOG_SESSION_ID,
        stream_id=100,
        stripped_channel=channel,
        original_channel=channel,
        source_identity="aeron:ipc",
    )
    file = dump("archive-catalog") + bytes(1000)
    header = catalog.decode_catalog_header(file)
    (entry,) = catalog.decode_entries(file, header)

    assert (
        catalog.new_catalog_header(3).encode_body() + catalog.encode_catalog_entry(descriptor) == file[:-1000]
    )
    assert header == catalog.new_catalog_header(3)
    assert entry.descriptor == descriptor
    assert entry.header == catalog.RecordingDescriptorHeader(224, RecordingState.VALID, 0)
    assert (entry.offset, entry.end, entry.is_valid) == (32, 288, True)


def test_a_cluster_mark_file():
    mark = mark_file.ClusterMarkFileHeader(
        version=768,
        component_type=ClusterComponentType.CONSENSUS_MODULE,
        activity_timestamp=T0 + 300,
        start_timestamp=T0,
        pid=4242,
        candidate_term_id=-1,
        archive_stream_id=10,
        service_stream_id=104,
        consensus_module_stream_id=105,
        ingress_stream_id=101,
        member_id=0,
        service_id=-1,
        header_length=8192,
        error_buffer_length=1_048_576,
        cluster_id=0,
    )

    assert mark_file.encode_mark_file_header(mark)[:84] == dump("cluster-mark")
    assert mark_file.decode_cluster_mark_file(dump("cluster-mark").ljust(8192, b"\0")) == mark


def test_a_padding_frame_closes_a_term():
    written = frame_header(
        65_536 - 64_416, session_id=5, stream_id=100, term_offset=64_416, frame_type=TYPE_PAD
    )

    assert written == dump("padding-frame")
    header = np.frombuffer(written, DATA_FRAME_HEADER)[0]
    assert (header["frame_length"], header["type"], header["flags"]) == (1120, TYPE_PAD, FLAGS_UNFRAGMENTED)
