"""A client of ours over a session of a real cluster: what it hears, and that each message counts once."""

from __future__ import annotations

import select
import socket
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from cluster.aeron.aeron_gateway import QUEUED_BYTES_MAX, AeronGateway
from cluster.aeron.log_follower import Found, FoundEnd, FoundMessages, FoundTerm
from cluster.log.frames import SESSION_HEADER_LENGTH
from cluster.media.frame_wait import NO_DESCRIPTOR
from cluster.protocol import Message, decode, link, streams
from cluster.protocol.enums import EventCode, Offer
from cluster.protocol.session import (
    AdminRequest,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
    SessionMessageHeader,
)
from cluster.transport.frame_splitter import FrameSplitter
from cluster.transport.message_frames import each_frame, message_frame
from tests.aeron.scripted_cluster import (
    LISTED,
    LOG_MESSAGE_MAX,
    SESSION,
    ScriptedFollower,
    ScriptedMembers,
    Wait,
)


class Gateway:
    """A gateway with its members, and a client's end of the connection to it."""

    def __init__(self, members: ScriptedMembers, answer: EventCode | None = EventCode.OK) -> None:
        """``answer`` to the request for a session; None: not yet."""
        self.members, self.follower = members, ScriptedFollower()
        self.gateway = AeronGateway(members.session, self.follower, LOG_MESSAGE_MAX)  # type: ignore[arg-type]
        self.session = self.gateway._session
        self.dial()
        self.turn()
        if answer is not None:
            members.say(members.answer(answer, 0, "not you"))
        self.turn(3)
        self.greeting = self.heard()
        self.send(SessionConnectRequest(5, 102, 768, "aeron:ipc"), stream_id=streams.INGRESS)

    def dial(self) -> None:
        self.client, theirs = socket.socketpair()
        self.client.setblocking(False)
        self.gateway.take(theirs)
        self._splitter = FrameSplitter()
        self.send(link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT))

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.gateway.do_work()

    def send(self, *messages: Message | bytes, stream_id: int = streams.LINK) -> None:
        """From the client; a message of the application in the term that comes before it."""
        self.client.sendall(b"".join(message_frame(each, stream_id) for each in messages))  # type: ignore[arg-type]
        self.turn()

    def offer(self, *payloads: bytes, term_id: int = 3) -> None:
        header = SessionMessageHeader(term_id, SESSION, 0).encode()
        self.send(*(_Raw(header + payload) for payload in payloads), stream_id=streams.INGRESS)

    def find(self, *found: Found | bytes) -> None:
        """In the log; a payload stands for the session's message, which ends at 1000 more each."""
        for each in found:
            if isinstance(each, bytes):
                position = 1000 * (1 + sum(isinstance(f, FoundMessages) for f in self.follower.found))
                each = FoundMessages([crc32(each)], position)
            self.follower.found.append(each)
        self.turn(2)

    def resume(self, session_id: int = SESSION, term_id: int = 3) -> None:
        self.send(link.SessionResume(77, session_id, term_id))
        self.turn(2)

    def heard(self, kind: type[Message] | None = None) -> list[Any]:
        """What has arrived at the client since, of this kind."""
        frames = b""
        while True:
            try:
                data = self.client.recv(1 << 20)
            except BlockingIOError:
                break
            if not data:
                break
            frames += self._splitter.split(data)
        run = np.frombuffer(frames, np.uint8)
        messages = [decode(run, offset, length) for _, offset, length in each_frame(run, 0, len(run))]
        return [message for message in messages if kind is None or isinstance(message, kind)]

    def is_ended(self) -> bool:
        """Whether nothing more comes to the client."""
        try:
            return self.client.recv(1) == b""
        except BlockingIOError:
            return False


class _Raw:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self) -> bytes:
        return self._data


@pytest.fixture
def members(monkeypatch):
    return ScriptedMembers(monkeypatch)


@pytest.fixture
def gateway(members):
    gateway = Gateway(members)
    yield gateway
    gateway.client.close()
    gateway.gateway.close()


def test_a_client_is_greeted_once_there_is_a_session_and_its_request_is_answered_with_that(gateway):
    (reply,) = gateway.greeting
    assert (reply.code, reply.member_id) == (link.LinkErrorCode.OK, 0)
    assert reply.message_length_max == LOG_MESSAGE_MAX, "the log takes less than the way there"
    (event,) = gateway.heard()
    assert (event.code, event.correlation_id, event.cluster_session_id) == (EventCode.OK, 5, SESSION)
    assert (event.leadership_term_id, event.leader_member_id) == (3, 0)
    gateway.send(link.SessionResume(6, -1, -1))
    (event,) = gateway.heard()
    assert (event.code, event.correlation_id) == (EventCode.OK, 6), "whose answer had been lost"


@pytest.mark.parametrize("code", [EventCode.ERROR, EventCode.AUTHENTICATION_REJECTED])
def test_a_client_that_the_cluster_refuses_hears_its_words(members, code):
    gateway = Gateway(members, code)
    (event,) = gateway.heard()
    assert (event.code, event.correlation_id) == (code, 5)
    assert "not you" in event.detail
    gateway.client.close()
    gateway.turn(2)
    assert gateway.gateway.is_over


def test_a_message_is_acknowledged_when_the_log_has_it_and_not_before(gateway, members):
    gateway.offer(b"one", b"two")
    assert members.to(0).payloads == [(3, b"one"), (3, b"two")]
    assert gateway.heard(link.CommitAck) == []
    gateway.find(b"one", b"two")
    (ack,) = gateway.heard(link.CommitAck)
    assert (ack.committed_messages, ack.committed_position) == (2, 2000)


def test_back_pressure_holds_messages_in_their_order_and_nothing_twice(gateway, members):
    members.to(0).results = [Offer.BACK_PRESSURED] * 6
    gateway.offer(b"one", b"two")
    gateway.offer(b"three")
    assert members.to(0).payloads == []
    gateway.turn(3)
    assert members.to(0).payloads == [(3, b"one"), (3, b"two"), (3, b"three")]


def is_ready(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_a_wait_ends_with_what_comes_and_is_short_while_messages_are_on_their_way(gateway, members):
    def waits() -> Wait:
        gateway.gateway.wait()
        assert gateway.follower.is_due == members.waits[-1].is_due
        return members.waits[-1]

    waits()
    descriptor, is_reading, is_due = waits()
    assert (is_reading, is_due, is_ready(descriptor)) == (True, False, False)
    gateway.gateway.wake()
    assert is_ready(descriptor)
    gateway.turn()
    assert not is_ready(descriptor)
    header = SessionMessageHeader(3, SESSION, 0).encode()
    gateway.client.sendall(message_frame(_Raw(header + b"one"), streams.INGRESS))  # type: ignore[arg-type]
    assert is_ready(descriptor)
    gateway.turn()
    assert [waits().is_due for _ in range(3)] == [True] * 3
    gateway.find(b"one")
    assert [waits().is_due for _ in range(2)] == [True, False], "its answer may come later"


def test_what_cannot_go_on_ends_no_wait(gateway, members):
    members.to(0).results = [Offer.BACK_PRESSURED] * 2
    gateway.offer(b"one")
    gateway.gateway.wait()
    assert members.waits[-1].descriptor == NO_DESCRIPTOR, (
        "the leader takes no more, whatever the client sends"
    )
    gateway.turn()
    for _ in range(40):
        members.say(SessionMessageHeader(3, SESSION, 11).encode() + b"x" * 100_000)
        gateway.turn()
    gateway.gateway.wait()
    assert not members.waits[-1].is_reading, "the client reads nothing"


@pytest.mark.conformance("M-38")
@pytest.mark.parametrize("first", ["cluster", "log"])
@pytest.mark.parametrize("leader", [0, 1])
def test_a_new_term_resumes_with_what_the_log_has_and_takes_only_what_is_meant_for_it(
    gateway, members, first, leader
):
    """The leader had accepted three messages; one is in the log when its term is over."""
    gateway.offer(b"one", b"two", b"three")
    gateway.find(b"one")
    if first == "cluster":
        members.say(members.new_leader(4, leader))
    else:
        gateway.find(FoundTerm(4, leader))
    gateway.turn(3)
    assert gateway.heard(link.CommitAck)[0].committed_messages == 1
    assert gateway.is_ended(), "the client looks for its leader"
    gateway.dial()
    gateway.offer(b"two", b"three")  # on their way when the term ended
    gateway.resume()
    if first == "cluster":
        assert gateway.heard(link.SessionResumed) == [], "the log may still get messages of the old term"
        gateway.find(FoundTerm(4, leader))
    (resumed,) = gateway.heard(link.SessionResumed)
    assert (resumed.appended_messages, resumed.leadership_term_id) == (1, 4)
    assert (resumed.leader_member_id, resumed.ingress_endpoints) == (leader, LISTED)
    gateway.offer(b"two", b"three", term_id=4)
    assert [p for p in members.to(leader).payloads if p[0] == 4] == [(4, b"two"), (4, b"three")]
    assert (3, b"two") not in members.to(1).payloads
    gateway.find(b"two", b"three")
    assert gateway.heard(link.CommitAck)[-1].committed_messages == 3


def test_what_an_old_term_still_brings_into_the_log_is_counted(gateway, members):
    gateway.offer(b"one", b"two")
    members.say(members.new_leader(4, 1))
    gateway.turn(2)
    gateway.dial()
    gateway.find(b"one", b"two", FoundTerm(4, 1))
    gateway.resume()
    assert gateway.heard(link.SessionResumed)[0].appended_messages == 2


def test_what_is_on_its_way_when_the_log_shows_a_new_term_goes_to_no_leader(gateway, members):
    header = SessionMessageHeader(3, SESSION, 0).encode()
    gateway.client.sendall(message_frame(_Raw(header + b"one"), streams.INGRESS))  # type: ignore[arg-type]
    gateway.follower.found.append(FoundTerm(4, 0))
    gateway.turn(3)
    gateway.dial()
    gateway.resume()
    assert gateway.heard(link.SessionResumed)[0].appended_messages == 0
    assert members.to(0).payloads == []


def test_a_new_term_takes_messages_only_once_the_log_shows_its_begin(gateway, members):
    members.say(members.new_leader(4, 0))
    gateway.turn(2)
    gateway.dial()
    gateway.resume()
    assert gateway.heard(link.SessionResumed) == []
    gateway.find(FoundTerm(4, 0))
    gateway.offer(b"one", term_id=4)
    gateway.find(b"one")
    assert gateway.heard(link.CommitAck)[0].committed_messages == 1


def test_over_another_connection_nothing_comes_before_the_greeting_and_the_acknowledgement_again(
    gateway, members
):
    """A client that has heard nothing for long takes another connection to the same leader."""
    gateway.offer(b"one")
    gateway.find(b"one")
    gateway.client.close()
    gateway.client, theirs = socket.socketpair()
    gateway.client.setblocking(False)
    gateway.gateway.take(theirs)
    members.say(SessionMessageHeader(3, SESSION, 11).encode() + b"answer")
    gateway.find(FoundTerm(4, 0))
    assert gateway.heard() == []
    gateway.send(link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT))
    gateway.resume()
    gateway.turn(2)
    greeting, resumed, *others = gateway.heard()
    assert (greeting.code, resumed.appended_messages) == (link.LinkErrorCode.OK, 1)
    assert resumed.leadership_term_id == 4
    assert sorted(type(each).__name__ for each in others) == ["CommitAck", "SessionMessageHeader"]


def test_a_lost_connection_goes_on_in_its_term_when_the_log_has_all(gateway, members):
    gateway.offer(b"one")
    members.to(0).is_connected = False
    gateway.turn(2)
    gateway.heard()
    assert gateway.is_ended()
    gateway.dial()
    members.to(0).is_connected = True
    gateway.turn(3)
    assert gateway.heard() == [], "the leader may have missed it"
    gateway.find(b"one")
    gateway.resume()
    assert gateway.heard(link.SessionResumed)[0].appended_messages == 1
    gateway.offer(b"two")
    assert members.to(0).payloads == [(3, b"one"), (3, b"two")]


def test_a_gap_in_what_the_leader_got_ends_the_session(gateway):
    gateway.offer(b"one", b"two", b"three")
    gateway.find(b"one", b"three")
    closed = gateway.heard(SessionEvent)[-1]
    assert closed.code is EventCode.CLOSED
    assert closed.detail.startswith("message 2 of the session in the log is not the one that was offered")
    assert gateway.is_ended()
    assert gateway.session.is_closed


@pytest.mark.parametrize("how", ["log", "cluster", "driver"])
def test_the_end_of_a_session_is_said_to_its_client(gateway, members, how):
    if how == "log":
        gateway.find(FoundEnd("TIMEOUT"))
    elif how == "cluster":
        members.say(members.answer(EventCode.CLOSED, 0, "TIMEOUT", correlation_id=99))
    else:
        members.lost = "TIMEOUT of the driver"
    gateway.turn(2)
    closed = gateway.heard(SessionEvent)[-1]
    assert (closed.code, closed.cluster_session_id) == (EventCode.CLOSED, SESSION)
    assert closed.detail.startswith("TIMEOUT")
    assert gateway.is_ended()
    gateway.client.close()
    gateway.turn(2)
    assert gateway.gateway.is_over
    assert gateway.follower.is_closed


def test_a_session_that_is_not_this_one_is_said_to_be_over(gateway):
    gateway.heard()
    gateway.resume(session_id=SESSION + 1)
    (event,) = gateway.heard()
    assert (event.code, event.cluster_session_id) == (EventCode.CLOSED, SESSION + 1)


def test_answers_come_as_the_cluster_gives_them_while_their_client_reads(gateway, members):
    gateway.heard()
    answer = SessionMessageHeader(3, SESSION, 11).encode() + b"x" * 100_000
    for _ in range(40):
        members.say(answer)
        gateway.turn()
    assert len(members.egress) > 5, "the rest waits where it is, and holds its sender back"
    assert gateway.gateway._connection.queued_bytes < QUEUED_BYTES_MAX + 200_000
    count = 0
    while members.egress or gateway.gateway._connection.queued_bytes:
        count += len(gateway.heard(SessionMessageHeader))
        gateway.turn()
    assert count + len(gateway.heard(SessionMessageHeader)) == 40


def test_no_answer_is_lost_while_the_client_looks_for_its_leader_who_is_heard_of(gateway, members):
    members.to(0).is_connected = False
    gateway.turn(2)
    members.say(members.new_leader(4, 1))
    gateway.turn(2)
    assert gateway.session.leader_member_id == 1, "it is kept alive there, before the log shows the term"
    members.say(SessionMessageHeader(4, SESSION, 11).encode() + b"answer")
    gateway.turn(2)
    gateway.dial()
    gateway.find(FoundTerm(4, 1))
    gateway.resume()
    gateway.turn(2)
    assert [type(message) for message in gateway.heard()] == [
        link.HelloReply,
        link.SessionResumed,
        SessionMessageHeader,
    ]


def test_requests_of_operators_go_through(gateway, members):
    gateway.send(AdminRequest(3, SESSION, 8, 0), stream_id=streams.INGRESS)
    assert members.to(0).of(AdminRequest)[0].correlation_id == 8


def test_a_client_that_closes_has_the_cluster_close_the_session_after_its_last_message(gateway, members):
    gateway.offer(b"last")
    gateway.send(SessionCloseRequest(3, SESSION), stream_id=streams.INGRESS)
    assert isinstance(decode(members.to(0).offered[-1]), SessionCloseRequest)
    assert members.to(0).payloads == [(3, b"last")]
    gateway.client.shutdown(socket.SHUT_WR)
    gateway.turn(2)
    assert [event.code for event in gateway.heard(SessionEvent)] == [EventCode.OK]
    assert gateway.gateway.is_over


def test_a_message_that_does_not_go_through_the_driver_ends_the_session_with_what_is_wrong(gateway, members):
    members.to(0).message_length_max = LOG_MESSAGE_MAX
    gateway.offer(b"x" * (LOG_MESSAGE_MAX + 1 - SESSION_HEADER_LENGTH))
    assert "expected at most 900" in gateway.heard(SessionEvent)[-1].detail


def test_what_is_no_frame_of_a_client_ends_the_session(gateway):
    gateway.client.sendall(b"GET / HTTP/1.1\r\n" + b" " * 64)
    gateway.turn(2)
    assert gateway.session.is_closed


def test_a_log_that_cannot_be_followed_ends_the_attempt_with_the_reason(members):
    gateway = Gateway(members, None)
    gateway.find(FoundEnd("no member goes on"))
    gateway.turn()
    greeting, event = gateway.heard()
    assert isinstance(greeting, link.HelloReply)
    assert (event.code, event.correlation_id, event.detail) == (EventCode.ERROR, 5, "no member goes on")
