"""Messages of older and newer writers are read by SBE's rules."""

import struct
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import LogDamaged, RemoteProtocolError
from cluster.protocol import CLUSTER, decode
from cluster.protocol.backup import BackupQuery, BackupResponse, BackupSnapshotRecording
from cluster.protocol.consensus import AppendPosition, CanvassPosition
from cluster.protocol.enums import CloseReason, ClusterTimeUnit
from cluster.protocol.log import NewLeadershipTermEvent, SessionOpenEvent
from cluster.protocol.sbe import Ascii, Composite, Message, Schema, at, i32, i64, since, u16
from cluster.protocol.session import SessionConnectRequest, SessionEvent
from cluster.protocol.snapshot import ConsensusModule
from tests.protocol.examples import MESSAGES, sample

SCHEMA_VERSIONS = {111: 17, 1111: 1}


def written_by(version: int, message: Message, block_length: int) -> bytes:
    """``message`` as a writer of ``version`` writes it, whose block has ``block_length`` bytes."""
    encoded = message.encode()
    header = struct.pack("<HHHH", block_length, message.TEMPLATE_ID, message.SCHEMA.id, version)
    block = encoded[8 : 8 + message.BLOCK_LENGTH][:block_length].ljust(block_length, b"\xee")
    return header + block + encoded[8 + message.BLOCK_LENGTH :]


def old_block_length(message: type[Message], version: int) -> int:
    return max((field.end for field in message.layout().fields if field.since <= version), default=0)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_fields_that_an_older_writer_did_not_know_are_null(message):
    value = sample(message)
    for version in range(SCHEMA_VERSIONS[message.SCHEMA.id] + 1):
        known = [field for field in message.layout().fields if field.since <= version]
        unknown = [field for field in message.layout().fields if field.since > version]
        if any(part.since > version for part in message.layout().tail):
            continue
        read = decode(written_by(version, value, old_block_length(message, version)))
        assert [getattr(read, f.name) for f in known] == [getattr(value, f.name) for f in known]
        for field in unknown:
            expected = None if field.optional else field.primitive.null
            assert getattr(read, field.name) == expected
        assert read[len(known) + len(unknown) :] == value[len(known) + len(unknown) :]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
@pytest.mark.parametrize("extra", [1, 8, 200])
def test_a_newer_writers_longer_block_is_skipped(message, extra):
    value = sample(message)

    assert decode(written_by(99, value, message.BLOCK_LENGTH + extra)) == value


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_var_data_that_a_newer_writer_added_is_left_alone(message):
    value = sample(message)

    assert decode(value.encode() + b"\x03\x00\x00\x00new") == value


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_a_block_shorter_than_its_version_allows_is_an_error(message):
    for length in range(message.BLOCK_LENGTH):
        with pytest.raises(RemoteProtocolError, match=message.__name__):
            decode(written_by(message.SCHEMA.version, sample(message), length))


def test_var_data_newer_than_the_writer_is_empty_and_takes_no_bytes():
    request = SessionConnectRequest(42, 102, 768, "aeron:udp", b"secret", "name=c1")
    client_info = struct.pack("<I", 7) + b"name=c1"
    old = written_by(13, request, 16).removesuffix(client_info)

    assert decode(old) == request.replace(client_info="")


def test_var_data_that_the_version_has_must_be_there():
    request = SessionConnectRequest(42, 102, 768, "aeron:udp", b"", "")

    with pytest.raises(RemoteProtocolError, match=r"SessionConnectRequest\.client_info: no length at offset"):
        decode(request.encode()[:-4])


def test_a_length_that_points_beyond_the_message_is_an_error():
    encoded = bytearray(SessionOpenEvent(0, 42, 1, 5, 102, "channel", b"").encode())
    encoded[44:48] = (2**31 - 1).to_bytes(4, "little")

    with pytest.raises(RemoteProtocolError, match="response_channel: 2147483647 bytes at offset 48, 11 are"):
        decode(encoded)


def test_a_count_of_elements_that_are_not_there_is_an_error():
    snapshot = BackupSnapshotRecording(2, 0, 0, 416, 5, -1)
    encoded = bytearray(BackupResponse(9, 0, 0, 0, 1, 416, 67, 1, 0, (snapshot,), "").encode())
    encoded[70:72] = (65_535).to_bytes(2, "little")

    with pytest.raises(RemoteProtocolError, match="BackupSnapshotRecording: block of 44 bytes at offset"):
        decode(encoded)


def test_elements_of_a_newer_writer_are_longer():
    snapshot = BackupSnapshotRecording(2, 0, 0, 416, 5, -1)
    encoded = BackupResponse(9, 0, 0, 0, 1, 416, 67, 1, 0, (snapshot, snapshot), "members").encode()
    element = snapshot.encode_body()
    newer = encoded.replace(b"\x2c\x00\x02\x00" + element * 2, b"\x30\x00\x02\x00" + (element + b"new!") * 2)

    assert len(newer) == len(encoded) + 8
    assert decode(newer) == decode(encoded)


def test_known_histories():
    """What the versions of the schema brought, one message each."""
    assert decode(written_by(0, SessionEvent(1, 2, 3, 0, 0, 768, 5, "d"), 32)) == SessionEvent(
        1, 2, 3, 0, 0, 0, None, "d"
    )
    assert decode(written_by(12, SessionEvent(1, 2, 3, 0, 0, 768, 5, "d"), 36)) == SessionEvent(
        1, 2, 3, 0, 0, 768, None, "d"
    )
    assert decode(written_by(7, AppendPosition(4, 96, 2, 1), 20)) == AppendPosition(4, 96, 2, None)
    assert decode(written_by(8, CanvassPosition(1, 96, 2, 0, 65_536), 28)) == CanvassPosition(1, 96, 2, 0, 0)
    assert decode(written_by(3, NewLeadershipTermEvent(1, 96, 5, 0, 0, 7, ClusterTimeUnit.NANOS, 1), 40)) == (
        NewLeadershipTermEvent(1, 96, 5, 0, 0, 7, None, 0)
    )
    assert decode(written_by(2, ConsensusModule(5, 6, 7, 8), 8)) == ConsensusModule(5)
    assert decode(written_by(2, BackupQuery(1, 2, 768, 9, "c"), 16)) == BackupQuery(1, 2, 768, None, "c")


@settings(max_examples=300)
@given(st.binary(max_size=120), st.sampled_from(sorted(CLUSTER.templates)), st.integers(0, 20))
def test_random_bytes_behind_a_good_header_are_read_or_refused(noise, template_id, version):
    block_length = CLUSTER.templates[template_id].BLOCK_LENGTH
    header = struct.pack("<HHHH", block_length, template_id, 111, version)
    try:
        decode(header + noise)
    except RemoteProtocolError:
        pass


TOY = Schema("toy", 9, 3)


class Element(Composite):
    number: i64
    later: Annotated[i32 | None, since(2)] = None


class Toy(Message, template_id=1, schema=TOY, block_length=24):
    first: u16
    reason: Annotated[CloseReason | None, at(4)]
    second: Annotated[i64, at(8), since(1)] = 0
    elements: tuple[Element, ...] = ()
    newest: Annotated[tuple[Element, ...], since(3)] = ()
    text: Ascii = ""


def test_gaps_fixed_lengths_and_late_groups_follow_the_same_rules():
    toy = Toy(1, CloseReason.TIMEOUT, 7, (Element(5, 6),), (Element(8, 9),), "end")
    encoded = toy.encode()

    assert encoded[8:32] == b"\x01\0\0\0\x02\0\0\0\x07" + bytes(15)
    assert Toy.decode(encoded) == toy
    assert Toy.offset_of("second") == 8

    element = struct.pack("<HHq", 8, 1, 5)
    old = struct.pack("<HHHH", 8, 1, 9, 0) + encoded[8:16] + element + b"\x03\0\0\0end"
    assert Toy.decode(old) == Toy(1, CloseReason.TIMEOUT, -(2**63), (Element(5, None),), (), "end")


def test_records_of_files_are_damaged_where_messages_are_a_peers_fault():
    assert Element.decode_record(Element(5, None).encode_body()) == Element(5, None)
    with pytest.raises(LogDamaged, match="offset 4: Element: block of 12 bytes at offset 4, 2 are there"):
        Element.decode_record(bytes(6), 4)


def test_declarations_that_no_reader_could_follow_are_refused():
    with pytest.raises(AssertionError):

        class NewBeforeOld(Composite):
            new: Annotated[i64, since(3)]
            old: i64

    with pytest.raises(AssertionError, match="fields come before"):

        class FieldBehindText(Composite):
            text: Ascii
            number: i64

    with pytest.raises(AssertionError, match="has no width"):

        class Unmeasured(Composite):
            number: int

    with pytest.raises(AssertionError):

        class Overlapping(Composite):
            one: i64
            two: Annotated[i64, at(4)]

    with pytest.raises(AssertionError):

        class Taken(Message, template_id=1, schema=TOY):
            one: i64
