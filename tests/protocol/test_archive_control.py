"""Requests to an Aeron archive and its answers, byte by byte."""

from __future__ import annotations

import struct

import pytest

from cluster.errors import RemoteProtocolError
from cluster.protocol import archive_control as control
from cluster.protocol.catalog import RecordingDescriptor

HEADER = struct.Struct("<HHHH")


@pytest.mark.conformance("M-43", "M-45")
def test_requests_have_the_bytes_of_aeron_s():
    for request, block, template_id, body in [
        (
            control.AuthConnectRequest(1, 20, 0x010B00, "aeron:udp", b"me", "name"),
            16,
            58,
            struct.pack("<qiiI9sI2sI4s", 1, 20, 0x010B00, 9, b"aeron:udp", 2, b"me", 4, b"name"),
        ),
        (control.ListRecordingsRequest(5, 2, 0, 100), 28, 8, struct.pack("<qqqi", 5, 2, 0, 100)),
        (control.ListRecordingRequest(5, 2, 7), 24, 10, struct.pack("<qqq", 5, 2, 7)),
        (control.RecordingPositionRequest(5, 2, 7), 24, 12, struct.pack("<qqq", 5, 2, 7)),
        (
            control.BoundedReplayRequest(5, 3, 7, 64, 128, 9, 100, replay_channel="aeron:ipc"),
            60,
            18,
            struct.pack("<qqqqqiiiqI9s", 5, 3, 7, 64, 128, 9, 100, -(2**31), -(2**63), 9, b"aeron:ipc"),
        ),
        (
            control.ReplayRequest(5, 3, 7, 64, 128, 100, replay_channel="aeron:ipc"),
            56,
            6,
            struct.pack("<qqqqqiiqI9s", 5, 3, 7, 64, 128, 100, -(2**31), -(2**63), 9, b"aeron:ipc"),
        ),
        (
            control.ListRecordingsForUriRequest(5, 2, 0, 100, 106, "ipc"),
            32,
            9,
            struct.pack("<qqqiiI3s", 5, 2, 0, 100, 106, 3, b"ipc"),
        ),
        (
            control.FindLastMatchingRecordingRequest(5, 2, 0, -3, 106, "ipc"),
            32,
            16,
            struct.pack("<qqqiiI3s", 5, 2, 0, -3, 106, 3, b"ipc"),
        ),
        (control.StopPositionRequest(5, 2, 7), 24, 15, struct.pack("<qqq", 5, 2, 7)),
        (control.StartPositionRequest(5, 2, 7), 24, 52, struct.pack("<qqq", 5, 2, 7)),
        (control.MaxRecordedPositionRequest(5, 2, 7), 24, 67, struct.pack("<qqq", 5, 2, 7)),
        (control.StopAllReplaysRequest(5, 2, -1), 24, 19, struct.pack("<qqq", 5, 2, -1)),
        (control.ArchiveIdRequest(5, 2), 16, 68, struct.pack("<qq", 5, 2)),
        (control.StopReplayRequest(5, 4, 11), 24, 7, struct.pack("<qqq", 5, 4, 11)),
        (control.ArchiveKeepAliveRequest(5, 4), 16, 61, struct.pack("<qq", 5, 4)),
        (control.CloseSessionRequest(5), 8, 3, struct.pack("<q", 5)),
    ]:
        message = HEADER.pack(block, template_id, 101, 12) + body
        assert request.encode() == message
        assert control.decode_archive_request(message) == request
        for cut in range(len(message)):
            with pytest.raises(RemoteProtocolError):
                control.decode_archive_request(message[:cut])


def test_a_request_that_only_an_archive_that_is_written_to_serves_is_known_by_its_session():
    message = HEADER.pack(24, 56, 101, 12) + struct.pack("<qqq", 5, 2, 7)
    assert control.decode_archive_request(message) == control.UnservedRequest(5, 2)
    for wrong in (message[:23], HEADER.pack(8, 1, 111, 1) + bytes(8)):
        with pytest.raises(RemoteProtocolError):
            control.decode_archive_request(wrong)


def test_a_recording_is_listed_as_it_is_read():
    recording = RecordingDescriptor(0, 0, 7, 1, -1, 0, -1, 0, 1, 2, 3, -4, 100, "a", "b", "c")
    listed = control.decode_archive_answer(control.encode_descriptor(recording, 5, 2))
    assert listed == recording.replace(control_session_id=5, correlation_id=2)


@pytest.mark.conformance("M-44", "M-45")
def test_answers_are_read_of_whatever_version_and_cut_ones_are_refused():
    fields = struct.pack("<qqqi", 5, 2, -9, 1)
    old = HEADER.pack(28, 1, 101, 3) + fields + struct.pack("<I2s", 2, b"no")
    new = HEADER.pack(40, 1, 101, 14) + fields + struct.pack("<iqI2s", 0x010C00, 0, 2, b"no")
    recording = RecordingDescriptor(5, 2, 7, 1, -1, 0, -1, 0, 1, 2, 3, -4, 100, "a", "b", "c")
    for message, answer in [
        (old, control.ControlResponse(5, 2, -9, control.ControlResponseCode.ERROR, None, "no")),
        (new, control.ControlResponse(5, 2, -9, control.ControlResponseCode.ERROR, 0x010C00, "no")),
        (HEADER.pack(80, 22, 101, 12) + recording.encode_body(), recording),
        (HEADER.pack(8, 106, 101, 12) + bytes(8), None),
    ]:
        assert control.decode_archive_answer(message) == answer
        for cut in range(len(message) if answer else 8):
            with pytest.raises(RemoteProtocolError):
                control.decode_archive_answer(message[:cut])
    for wrong in (HEADER.pack(8, 3, 101, 12) + bytes(8), HEADER.pack(8, 1, 111, 1) + bytes(8)):
        with pytest.raises(RemoteProtocolError):
            control.decode_archive_answer(wrong)
