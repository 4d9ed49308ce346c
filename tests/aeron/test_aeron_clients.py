"""Clients of Aeron's come to a member's port as others do, and are answered on their own channels."""

from __future__ import annotations

import errno
import time
from dataclasses import replace

import pytest

from cluster.aeron import aeron_clients
from cluster.aeron.aeron_client_link import AeronClient, egress_channel
from cluster.aeron.aeron_clients import AeronClients
from cluster.protocol import decode, link, streams
from cluster.protocol.backup import BackupQuery, BackupResponse
from cluster.protocol.enums import EventCode
from cluster.protocol.session import (
    Challenge,
    ChallengeResponse,
    NewLeaderEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)
from cluster.transport.bounds import DEFAULT_BOUNDS
from cluster.transport.message_frames import each_frame, link_frame
from cluster.transport.server import STALL_TIMEOUT_NS
from tests.aeron.scripted_media import (
    CHANNEL,
    MEMBER,
    REQUEST,
    SESSION,
    TERM,
    ScriptedAeron,
    ScriptedImage,
    an_event,
    egress,
)
from tests.transport.echo_port import DEADLINE_S, MESSAGE_LENGTH_MAX, servers

CONSENSUS_CHANNEL = "aeron:udp?endpoint=localhost:9002"
BOUNDS = replace(DEFAULT_BOUNDS, address_connections_max=2)


class Member:
    """Clients over a scripted driver, and the port that they come to."""

    def __init__(self, server, monkeypatch):
        monkeypatch.setattr(aeron_clients, "IDLE_S", 0)
        monkeypatch.setattr(aeron_clients, "ALONE_IDLE_S", 0)
        self.server = server
        server.is_echo = False
        self.port = server.port
        self.aeron = ScriptedAeron()
        self.errors = []
        self.clients = AeronClients(
            self.aeron,
            {streams.INGRESS: "aeron:udp?endpoint=localhost:9000", streams.CONSENSUS: CONSENSUS_CHANNEL},
            MEMBER,
            self.port.connect,
            MESSAGE_LENGTH_MAX,
            BOUNDS,
            lambda error: self.errors.append(str(error)),
        )

    def turn_until(self, condition):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, (self.errors, self.server.told)
            self.turn()

    def turn(self):
        self.clients.do_work()
        self.server.poller.wait(0)
        self.port.poll(self.server)

    def heard(self, connection_id=1):
        """The messages that the member was given over a connection."""
        data = self.server.frames[connection_id]
        return [data[at : at + length] for _, at, length in each_frame(data, 0, len(data))]

    def says(self, message, connection_id=1):
        self.port.send(connection_id, egress(message.encode()))

    def told(self, number=0):
        """What a client was sent."""
        return [decode(message) for message in self.aeron.publications[number].offered]


@pytest.fixture
def member(monkeypatch):
    with servers() as serve:
        member = Member(serve(), monkeypatch)
        yield member
        member.clients.close()


@pytest.fixture
def client(member):
    """One that has an open session."""
    image = member.aeron.client()
    image.sends(REQUEST.encode())
    member.turn_until(lambda: member.heard())
    member.says(an_event(EventCode.OK))
    member.turn_until(lambda: member.told())
    return image


def a_message(payload, session_id=SESSION):
    return SessionMessageHeader(TERM, session_id, 0).encode() + payload


def test_a_request_comes_to_the_member_as_it_was_and_its_answer_to_the_channel_that_it_names(member, client):
    assert member.heard() == [REQUEST.encode()]
    assert member.port.address(1) == "10.0.0.7"
    (publication,) = member.aeron.publications
    assert (publication.channel, publication.stream_id) == ("aeron:udp?endpoint=10.0.0.7:9020", 102)
    assert member.told() == [an_event(EventCode.OK)]


def test_nothing_comes_to_the_member_before_the_client_has_answered_where_it_says_that_it_is(member):
    member.aeron.is_connecting = False
    member.aeron.client().sends(REQUEST.encode())
    member.turn_until(lambda: member.aeron.publications)
    for _ in range(20):
        member.turn()
    assert member.port.connection_count == 0
    member.aeron.publications[0].is_connected = True
    member.turn_until(lambda: member.heard() == [REQUEST.encode()])


def test_who_never_answers_there_is_given_up_in_time(member, monkeypatch):
    member.aeron.is_connecting = False
    member.aeron.client().sends(REQUEST.encode())
    member.turn_until(lambda: member.aeron.publications)
    later = time.monotonic_ns() + BOUNDS.session_open_timeout_ns + 1
    monkeypatch.setattr(aeron_clients.time, "monotonic_ns", lambda: later)
    member.clients.do_work()
    assert member.aeron.removed == member.aeron.publications
    assert "no connection established" in member.errors[0]


def test_a_driver_that_is_long_about_one_client_s_channel_keeps_no_other_client_waiting(member, client):
    member.aeron.is_answering = False
    other = member.aeron.client(6, "10.0.0.8:40123")
    other.sends(REQUEST.replace(response_channel="aeron:udp?endpoint=slow.example:9020").encode())
    member.turn_until(lambda: other.is_read)
    client.sends(a_message(b"meanwhile"))
    member.turn_until(lambda: len(member.heard(1)) == 2)
    member.says(an_event(EventCode.ERROR, detail="meanwhile"))
    member.turn_until(lambda: len(member.told(0)) == 2)
    assert member.port.connection_count == 1
    member.aeron.is_answering = True
    member.turn_until(lambda: member.heard(2))


def test_messages_of_any_length_pass_both_ways_in_order(member, client):
    messages = [a_message(bytes([n]) * (1 + 701 * n)) for n in range(100)]
    for message in messages:
        client.sends(message)
    keep_alive = SessionKeepAlive(TERM, SESSION).encode()
    client.sends(keep_alive)
    member.turn_until(lambda: len(member.heard()) == 102)
    assert member.heard()[1:] == [*messages, keep_alive]

    for _, at, length in each_frame(member.server.frames[1], 0, len(member.server.frames[1])):
        member.port.send(1, egress(member.server.frames[1][at : at + length]))
    offered = member.aeron.publications[0].offered
    member.turn_until(lambda: len(offered) == 103)
    assert offered[2:-1] == messages


def test_only_what_is_aeron_s_goes_to_the_client(member, client):
    member.port.send(1, link_frame(link.CommitAck(SESSION, TERM, 1, 96)))
    member.says(NewLeaderEvent(TERM, SESSION, MEMBER + 1, "0=a:1"))  # who leads now says so itself
    member.says(NewLeaderEvent(TERM, SESSION, MEMBER, "0=a:1"))
    member.turn_until(lambda: len(member.told()) == 2)
    assert member.told()[1].leader_member_id == MEMBER


def test_a_redirect_to_nobody_is_kept_from_the_client_and_one_to_a_leader_is_not(member, client):
    for leader_id in (-1, MEMBER + 1):
        member.says(an_event(EventCode.REDIRECT, -1, "0=a:1").replace(leader_member_id=leader_id))
    member.turn_until(lambda: len(member.told()) == 2)
    assert member.told()[1].leader_member_id == MEMBER + 1


def test_messages_go_to_the_session_that_they_name_and_to_nobody_without_one(member, client, monkeypatch):
    monkeypatch.setattr(aeron_clients, "DIALLED_WITHIN_NS", 0)
    other = member.aeron.client(6, "10.0.0.8:40123")
    other.sends(REQUEST.replace(response_channel="aeron:udp?endpoint=10.0.0.8:9020").encode())
    member.turn_until(lambda: member.heard(2))
    member.says(Challenge(77, SESSION + 1, b"who?"), 2)
    member.turn_until(lambda: member.told(1))
    answer = ChallengeResponse(78, SESSION + 1, b"me")
    for message in (a_message(b"stray", 99), b"\x01", bytes(64), answer.encode(), a_message(b"mine")):
        other.sends(message)
    member.turn_until(lambda: len(member.heard(2)) == 2 and len(member.heard(1)) == 2)
    assert member.heard(2)[1:] == [answer.encode()]
    assert member.heard(1)[1:] == [a_message(b"mine")]
    assert member.errors == []


def test_a_connection_that_the_member_ends_takes_its_publication_along_after_the_last_word(member, client):
    (publication,) = member.aeron.publications
    publication.takes = False
    member.says(an_event(EventCode.CLOSED, detail="TIMEOUT"))
    member.port.close(1)
    for _ in range(20):
        member.turn()
    assert member.aeron.removed == []
    publication.takes = True
    member.turn_until(lambda: member.aeron.removed)
    assert member.told()[-1].code is EventCode.CLOSED
    client.sends(a_message(b"too late"))
    member.turn_until(lambda: client.is_read)


def test_who_has_died_is_let_go_though_it_takes_none_of_what_the_member_said_last(
    member, client, monkeypatch
):
    (publication,) = member.aeron.publications
    publication.takes = False
    member.says(an_event(EventCode.CLOSED, detail="TIMEOUT"))
    member.port.close(1)
    for _ in range(20):
        member.turn()
    assert member.aeron.removed == []
    later = time.monotonic_ns() + STALL_TIMEOUT_NS + 1
    monkeypatch.setattr(aeron_clients.time, "monotonic_ns", lambda: later)
    member.clients.do_work()
    assert member.aeron.removed == [publication]
    assert member.clients.served() == []


def test_who_takes_a_little_egress_now_and_then_is_served_on(member, client, monkeypatch):
    (publication,) = member.aeron.publications
    now_ns = time.monotonic_ns()
    monkeypatch.setattr(aeron_clients.time, "monotonic_ns", lambda: now_ns)
    offer = publication.offer

    def offer_one(message):
        position, publication.takes = offer(message), False
        return position

    publication.offer, publication.takes = offer_one, False
    for number in range(4):
        member.says(an_event(EventCode.ERROR, detail=str(number)))
    for _ in range(20):
        member.turn()
    for count in range(2, 6):
        now_ns += STALL_TIMEOUT_NS - 1
        publication.takes = True
        member.turn_until(lambda count=count: len(publication.offered) == count)
    assert member.aeron.removed == []


def test_a_member_that_takes_nothing_keeps_the_client_waiting_and_not_its_memory(member, client):
    member.server.bytes_per_call = 0
    for _ in range(100):
        client.sends(a_message(bytes(90_000)))
    for _ in range(200):
        member.turn()
    assert not client.is_read
    member.server.bytes_per_call = None
    member.turn_until(lambda: len(member.heard()) == 101)


def test_a_client_that_takes_no_egress_is_one_that_reads_slowly_for_the_port(member, client):
    member.aeron.publications[0].takes = False
    for _ in range(60):
        member.port.send(1, egress(a_message(bytes(90_000))))
        member.turn()
    assert member.port._queued[1].connection.queued_bytes > 1_000_000
    member.aeron.publications[0].takes = True
    member.turn_until(lambda: len(member.aeron.publications[0].offered) == 61)


def test_what_a_client_had_sent_before_its_publication_ended_is_read(member, client):
    client.sends(a_message(b"the last"))
    del member.aeron.images[5]
    member.turn_until(lambda: len(member.heard()) == 2)


def test_a_publication_that_sends_no_frames_is_read_no_more_and_others_are(member, client):
    member.aeron.client(6).is_damaged = True
    client.sends(a_message(b"fine"))
    member.turn_until(lambda: len(member.heard()) == 2)
    for _ in range(5):
        member.turn()
    assert len(member.errors) == 1


@pytest.mark.parametrize("channel", ["aeron:ipc", "aeron:udp", "aeron-spy:aeron:udp?endpoint=a:1", ""])
def test_who_names_no_endpoint_cannot_be_answered(member, channel):
    member.aeron.client().sends(REQUEST.replace(response_channel=channel).encode())
    member.turn_until(lambda: member.errors)
    assert "cannot be answered" in member.errors[0]
    assert member.aeron.publications == []


def test_a_channel_that_the_driver_refuses_a_request_cut_short_and_one_too_many_harm_nobody(member, client):
    client.sends(REQUEST.replace(response_channel="aeron:udp?endpoint=nonsense").encode())
    member.turn_until(lambda: member.errors)
    client.sends(REQUEST.encode()[:-20])
    client.sends(REQUEST.encode())
    client.sends(REQUEST.encode())
    member.turn_until(lambda: len(member.errors) == 3)
    assert "nonsense" in member.errors[0]
    assert "address_connections_max" in member.errors[2]
    client.sends(a_message(b"fine"))
    member.turn_until(lambda: len(member.heard()) == 2)


def test_a_message_that_no_log_takes_ends_its_connection(member, client):
    client.sends(a_message(bytes(MESSAGE_LENGTH_MAX)))
    member.turn_until(lambda: ("disconnect", 1) in member.server.told)
    assert member.errors == [
        f"a message of {MESSAGE_LENGTH_MAX + 32} bytes in session {SESSION}, expected at most "
        f"{MESSAGE_LENGTH_MAX} (log_term_length)"
    ]


def test_a_client_is_dialled_for_its_session_and_speaks_to_it_from_then_on(member):
    member.clients.open(AeronClient(egress_channel(CHANNEL), 102, "10.0.0.7", SESSION))
    member.turn_until(lambda: member.port.connection_count == 1 and member.port.is_connected(1))
    assert member.port.dialled_session(1) == SESSION
    assert member.clients.served() == [AeronClient(egress_channel(CHANNEL), 102, "10.0.0.7", SESSION)]
    image = member.aeron.client()
    image.sends(a_message(b"here again"))
    member.turn_until(lambda: member.heard() == [a_message(b"here again")])


def test_who_knows_before_it_is_dialled_that_this_member_leads_loses_no_message(member):
    image = member.aeron.client()
    for number in range(3):
        image.sends(a_message(b"%d" % number))
        member.turn()
    member.clients.open(AeronClient(egress_channel(CHANNEL), 102, "10.0.0.7", SESSION))
    expected = [a_message(b"%d" % number) for number in range(3)]
    member.turn_until(lambda: member.server.frames.get(1) and member.heard() == expected)


def test_who_is_not_dialled_in_time_is_passed_over_from_then_on(member, monkeypatch):
    monkeypatch.setattr(aeron_clients, "DIALLED_WITHIN_NS", 0)
    image = member.aeron.client()
    image.sends(a_message(b"lost"))
    image.sends(REQUEST.encode())
    member.turn_until(lambda: member.heard())


def test_who_was_passed_over_for_long_is_forgotten_and_waited_for_again(member, monkeypatch):
    monkeypatch.setattr(aeron_clients, "DIALLED_WITHIN_NS", 0)
    monkeypatch.setattr(aeron_clients, "PASSED_OVER_NS", 0)
    image = member.aeron.client()
    for stranger in range(1000, 1100):
        image.sends(a_message(b"lost", stranger))
    image.sends(a_message(b"lost"))
    image.sends(REQUEST.encode())
    member.turn_until(lambda: member.heard())
    (known,) = member.clients._images.values()
    assert len(known.strangers) < 10

    monkeypatch.setattr(aeron_clients, "DIALLED_WITHIN_NS", 10**12)
    image.sends(a_message(b"kept"))
    for _ in range(3):
        member.turn()
    member.clients.open(AeronClient(egress_channel(CHANNEL), 102, "10.0.0.7", SESSION))
    member.turn_until(lambda: member.server.frames.get(2) and member.heard(2) == [a_message(b"kept")])


def test_who_was_dialled_and_is_lost_is_waited_for_again(member):
    image = member.aeron.client()
    image.sends(a_message(b"first"))
    member.turn()
    (known,) = member.clients._images.values()
    assert known.strangers
    member.clients.open(AeronClient(egress_channel(CHANNEL), 102, "10.0.0.7", SESSION))
    member.turn_until(lambda: member.server.frames.get(1) and member.heard() == [a_message(b"first")])
    assert not known.strangers


def test_who_comes_when_the_process_has_no_descriptors_left_is_let_go_and_others_are_served(
    member, client, monkeypatch
):
    def connect(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(member.clients, "_connect", connect)
    client.sends(REQUEST.encode())
    client.sends(a_message(b"fine"))
    member.turn_until(lambda: len(member.heard()) == 2)
    assert member.aeron.removed == member.aeron.publications[1:]
    assert member.errors == ["[Errno 24] Too many open files"]


def test_a_client_of_a_member_whose_life_has_ended_is_let_go(member):
    member.port.shutdown()
    member.aeron.client().sends(REQUEST.encode())
    deadline = time.monotonic() + DEADLINE_S
    while not member.aeron.removed:
        assert time.monotonic() < deadline
        member.clients.do_work()


QUERY = BackupQuery(77, 108, 3 << 8, None, "aeron:udp?endpoint=10.0.0.9:9999", b"secret")
OF_BACKUP = -(1 << 62)  # the least id of a backup's session


def test_a_backup_asks_at_the_consensus_endpoint_shows_who_it_is_and_is_answered_where_it_says(member):
    image = member.aeron.others[3] = ScriptedImage(3, "10.0.0.9:40000")
    image.sends(QUERY.encode())
    member.turn_until(lambda: member.heard() == [QUERY.encode()])
    (publication,) = member.aeron.publications
    assert (publication.channel, publication.stream_id) == ("aeron:udp?endpoint=10.0.0.9:9999", 108)
    member.says(Challenge(77, OF_BACKUP, b"who?"))
    member.turn_until(lambda: member.told())
    assert member.clients.served() == []  # by the next driver it asks again
    answer = ChallengeResponse(78, OF_BACKUP, b"me")
    image.sends(answer.encode())
    member.turn_until(lambda: member.heard()[1:] == [answer.encode()])
    response = BackupResponse(78, 0, 1, 2, 3, 4, 5, 0, 1, (), "0,a:1,a:2,a:2,a:2,a:2")
    member.says(response)
    member.port.close(1)
    member.turn_until(lambda: member.aeron.removed)
    assert member.told()[-1] == response


def test_a_session_is_opened_at_the_ingress_endpoint_alone_and_a_backup_asks_at_its_own_alone(member):
    member.aeron.client().sends(QUERY.encode())
    image = member.aeron.others[3] = ScriptedImage(3)
    image.sends(REQUEST.encode())
    member.turn_until(lambda: image.is_read and member.aeron.images[5].is_read)
    assert member.aeron.publications == []
