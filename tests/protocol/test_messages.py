"""What every message promises: its place in the table, its bytes, and a round trip."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import LocalProtocolError, RemoteProtocolError
from cluster.log.frames import SESSION_HEADER_LENGTH
from cluster.protocol import CLUSTER, decode, link
from cluster.protocol.consensus import AppendPosition, CommitPosition, NewLeadershipTerm, Vote
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.sbe import Composite, Message, kind_at
from cluster.protocol.service import ClusterMembersExtendedResponse, ExtendedMember
from cluster.protocol.session import SessionConnectRequest, SessionMessageHeader
from cluster.protocol.snapshot import ClusterSession
from tests.protocol.examples import DATA, MESSAGES, composites, sample
from tests.protocol.format_tables import WIRE_TYPES, camel, empty_length

by_name = pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)


def parts(composite: type[Composite], base: int, joined: str = " ") -> str:
    """A declaration in the notation of messages-1.53.txt."""
    texts = []
    for field in composite.layout().fields:
        text = f"{camel(field.name)}:{base + field.offset}:{WIRE_TYPES[field.primitive.code]}"
        texts.append(text + (f":v{field.since}" if field.since else ""))
    for part in composite.layout().tail:
        if part.element is not None:
            texts.append(f"{camel(part.name)}:{part.element.BLOCK_LENGTH}[{parts(part.element, 0, ',')}]")
        else:
            kind = "ascii" if part.text else "blob"
            texts.append(f"{camel(part.name)}:{kind}" + (f":v{part.since}" if part.since else ""))
    return joined.join(texts)


def test_every_template_lies_as_in_the_table_of_aeron_1_53():
    table = [
        line for line in (DATA / "messages-1.53.txt").read_text().splitlines() if not line.startswith("#")
    ]
    ours = [
        f"{template_id} {message.__name__} {message.BLOCK_LENGTH} {empty_length(message)} {parts(message, 8)}"
        for template_id, message in sorted(CLUSTER.templates.items())
    ]

    # The schema writes this one name with a small letter; a class does not.
    assert [line.replace(" requestServiceAck ", " RequestServiceAck ") for line in table] == ours
    assert len(ours) == 54


@by_name
@settings(max_examples=15)
@given(st.data())
def test_every_message_reads_back_as_it_was_written(message, data):
    check_that_it_reads_back(message, data)


@pytest.mark.slow
@by_name
@settings(max_examples=100)
@given(st.data())
def test_more_of_every_message_reads_back_as_it_was_written(message, data):
    check_that_it_reads_back(message, data)


def check_that_it_reads_back(message, data):
    value = data.draw(composites(message))
    before, after = data.draw(st.binary(max_size=9)), data.draw(st.binary(max_size=9))
    encoded = value.encode()

    assert decode(encoded) == value
    assert decode(encoded).encode() == encoded
    assert decode(before + encoded + after, len(before), len(encoded)) == value
    assert message.decode(np.frombuffer(encoded, np.uint8)) == value
    assert message.decode(memoryview(encoded)) == value


@by_name
def test_an_empty_message_is_as_long_as_the_table_says(message):
    names = [field.name for field in message.layout().fields]
    values = [getattr(sample(message), name) for name in names]

    assert len(message(*values).encode()) == empty_length(message)


@by_name
def test_a_message_is_told_by_its_kind(message):
    encoded = sample(message).encode()

    assert kind_at(encoded) == kind_at(b"x" + encoded, 1) == message.KIND
    assert [other for other in MESSAGES if other.KIND == message.KIND] == [message]


@by_name
def test_the_numpy_type_of_a_block_reads_the_same_numbers(message):
    value = sample(message)
    block = np.frombuffer(value.encode(), message.DTYPE, 1, offset=8)[0]

    assert message.DTYPE.itemsize == message.BLOCK_LENGTH
    for field in message.layout().fields:
        assert block[field.name] == getattr(value, field.name)


@by_name
def test_a_message_cut_anywhere_is_an_error_of_the_peer(message):
    encoded = sample(message).encode()
    of_0_1 = set()
    if message is link.LogRequest:
        of_0_1 = {8 + message.BLOCK_LENGTH}  # whole, without what is wanted
    elif message is link.LogStatus:
        whole = sample(message)
        without_term = len(encoded) - 4 - len(whole.term)
        without_standing = without_term - 4 - len(whole.standing)
        of_0_1 = {without_term, without_standing, without_standing - 4 - len(whole.consumers)}
    elif message is link.PromiseStatement:
        of_0_1 = {len(sample(message).replace(cluster=()).encode()) - 4}

    for length in set(range(len(encoded))) - of_0_1:
        with pytest.raises(RemoteProtocolError):
            decode(encoded, 0, length)
        with pytest.raises(RemoteProtocolError):
            decode(encoded[:length])


@by_name
def test_flipped_bytes_are_read_or_refused_and_nothing_else(message):
    encoded = sample(message).encode()

    for index in range(len(encoded)):
        for bits in (0x01, 0x80, 0xFF):
            garbled = bytearray(encoded)
            garbled[index] ^= bits
            try:
                decode(garbled)
            except RemoteProtocolError as error:
                assert "\n" not in str(error)


def test_messages_are_values():
    position = CommitPosition(leadership_term_id=4, log_position=96, leader_member_id=1)

    assert position == CommitPosition(4, 96, 1)
    assert position != (4, 96, 1)
    assert position != AppendPosition(4, 96, 1)
    assert hash(position) == hash(CommitPosition(4, 96, 1))
    assert position.replace(log_position=128) == CommitPosition(4, 128, 1)
    assert position.as_dict() == {"leadership_term_id": 4, "log_position": 96, "leader_member_id": 1}
    assert repr(position) == "CommitPosition(leadership_term_id=4, log_position=96, leader_member_id=1)"
    assert pickle.loads(pickle.dumps(position)) == copy.deepcopy(position) == position
    with pytest.raises(AttributeError):
        position.log_position = 5
    with pytest.raises(AttributeError):
        position.no_such_field = 5
    with pytest.raises(TypeError):
        CommitPosition(4, 96)


def test_a_message_matches_a_pattern_by_its_fields():
    match decode(Vote(1, 0, 96, 0, 2, True).encode()):
        case Vote(candidate_term_id=term, vote=True):
            assert term == 1
        case _:
            pytest.fail("no match")


def test_a_value_that_does_not_fit_names_its_field():
    with pytest.raises(LocalProtocolError, match="CommitPosition: leader_member_id = 2147483648"):
        CommitPosition(1, 96, 2**31).encode()
    with pytest.raises(LocalProtocolError, match="AppendPosition: flags = 256"):
        AppendPosition(1, 96, 0, 256).encode()


def test_a_group_too_long_is_refused():
    member = ExtendedMember(0, 0, 0, 0)
    with pytest.raises(LocalProtocolError, match="active_members: 65535 elements, at most 65534"):
        ClusterMembersExtendedResponse(1, 2, 0, 0, (member,) * 65_535).encode()


def test_null_is_none_where_a_field_may_be_null():
    session = ClusterSession(1, 42, 224, -1, None, 102)

    assert session.encode()[40:44] == (-(2**31)).to_bytes(4, "little", signed=True)
    assert decode(session.encode()).close_reason is None
    assert AppendPosition(1, 96, 0).encode()[28] == 255
    assert (
        NewLeadershipTerm.decode(sample(NewLeadershipTerm).replace(commit_position=None).encode())[-1] is None
    )


def test_text_that_is_not_ascii_does_not_stop_a_message():
    for text in ("café", "价格"):
        request = SessionConnectRequest(1, 102, client_info=text)
        assert len(decode(request.encode()).client_info) == len(text)
    stranger = SessionConnectRequest(1, 102, client_info="X").encode()[:-1] + b"\xff"
    assert decode(stranger).encode() == stranger


def test_an_unknown_template_is_none_and_a_foreign_schema_an_error():
    header = bytearray(CommitPosition(1, 96, 0).encode())
    header[2:4] = (999).to_bytes(2, "little")
    assert decode(header) is None

    header[4:6] = (7).to_bytes(2, "little")
    with pytest.raises(RemoteProtocolError, match=r"schema 7 at offset 0, expected one of \[111, 1111\]"):
        decode(header)


def test_one_class_does_not_read_another_classes_message():
    with pytest.raises(RemoteProtocolError, match=r"template 55 of schema 111 .* expected Vote"):
        Vote.decode(CommitPosition(1, 96, 0).encode())


def test_an_unknown_number_of_an_enum_names_field_and_choices():
    encoded = bytearray(SessionCloseEvent(1, 2, 3, 2).encode())
    encoded[32] = 9
    with pytest.raises(
        RemoteProtocolError, match=r"SessionCloseEvent.close_reason at offset 32: 9, expected one of 0, 1, 2"
    ):
        decode(encoded)


def test_our_own_messages_have_their_own_schema():
    ack = link.CommitAck(1, 0, 5, 480).encode()

    assert int.from_bytes(ack[4:6], "little") == 1111
    assert decode(ack) == link.CommitAck(1, 0, 5, 480)


def fields(message: type[Message]) -> list[str]:
    return list(message._fields)


@pytest.mark.conformance("C-244")
def test_session_messages_begin_with_term_session_and_time():
    assert fields(SessionMessageHeader) == ["leadership_term_id", "cluster_session_id", "timestamp"]
    assert len(SessionMessageHeader(3, 1, 99).encode()) == SESSION_HEADER_LENGTH


@pytest.mark.conformance("C-245")
def test_a_session_open_event_tells_who_opened_it_and_where_answers_go():
    assert fields(SessionOpenEvent) == [
        "leadership_term_id",
        "correlation_id",
        "cluster_session_id",
        "timestamp",
        "response_stream_id",
        "response_channel",
        "encoded_principal",
    ]


@pytest.mark.conformance("C-246")
def test_a_session_close_event_tells_term_session_time_and_reason():
    assert fields(SessionCloseEvent) == [
        "leadership_term_id",
        "cluster_session_id",
        "timestamp",
        "close_reason",
    ]


@pytest.mark.conformance("C-247")
def test_a_timer_event_tells_term_timer_and_time():
    assert fields(TimerEvent) == ["leadership_term_id", "correlation_id", "timestamp"]


@pytest.mark.conformance("C-248")
def test_a_cluster_action_request_tells_term_position_time_action_and_flags():
    assert fields(ClusterActionRequest) == [
        "leadership_term_id",
        "log_position",
        "timestamp",
        "action",
        "flags",
    ]


@pytest.mark.conformance("C-251")
def test_a_new_leadership_term_event_tells_all_of_its_term():
    assert fields(NewLeadershipTermEvent) == [
        "leadership_term_id",
        "log_position",
        "timestamp",
        "term_base_log_position",
        "leader_member_id",
        "log_session_id",
        "time_unit",
        "app_version",
    ]
