"""Leader changes: the session goes on, and each message is in the log once."""

import random
from itertools import pairwise

import pytest

from cluster.client import ClientState, Offer
from cluster.errors import ClusterError
from cluster.protocol import link, streams
from cluster.protocol.enums import EventCode
from cluster.protocol.session import SessionMessageHeader
from cluster.transport.message_frames import link_frame, message_frame
from tests.client.scripted import MS, FakeCluster, Listener, connect, poll_until


@pytest.mark.conformance("S-52")
def test_when_the_leader_dies_the_session_goes_on_with_the_new_one(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    session_id = client.cluster_session_id
    client.offer(b"before")

    cluster.leader.stop()
    cluster.elect(1)
    poll_until(client, lambda: client.state is ClientState.CONNECTED and client.leader_member_id == 1)

    assert client.cluster_session_id == session_id
    assert client.leadership_term_id == 2
    assert [told[:4] for told in listener.told] == [("new leader", 7, 2, 1)]
    assert client.offer(b"after") > 0
    assert cluster.log == [b"before", b"after"]


def test_who_lost_its_leader_asks_often_at_first_and_then_every_100_ms(cluster):
    """An election takes some 50 ms as a rule; where it takes longer, nobody is kept busy by the question."""
    client = connect(cluster)
    asked = []
    cluster.members[1].on_resume = lambda *_: asked.append(cluster.now_ns())
    cluster.wait(1)  # what it dialled to connect, it may dial again
    cluster.leader.stop()
    cluster.elect(None)
    for _ in range(1000):
        client.poll_egress()
        cluster.wait(0.001)

    waits = [(b - a) // MS for a, b in pairwise(asked)]
    assert waits[:4] == [10, 10, 20, 40]
    assert set(waits[-7:]) == {100}


def test_a_lost_connection_is_told_by_codes_and_never_raised(cluster):
    client = connect(cluster)
    cluster.leader.stop()
    cluster.elect(None)
    client.poll_egress()

    assert client.state is ClientState.AWAIT_NEW_LEADER
    assert client.offer(b"x") == Offer.NOT_CONNECTED
    assert client.offer_batch([b"x"]) == Offer.NOT_CONNECTED
    assert client.send_keep_alive() is False
    assert not client.is_closed


@pytest.mark.conformance("S-34")
@pytest.mark.parametrize("code", [Offer.NOT_CONNECTED, Offer.CLOSED])
def test_a_connection_that_takes_nothing_any_more_is_closed_and_left(cluster, code):
    client = connect(cluster)
    connection = cluster.leader.connection
    connection.write = lambda buffer: code
    client.offer(b"x")

    assert client.state is ClientState.AWAIT_NEW_LEADER
    assert connection.is_closed


def test_a_client_that_only_offers_finds_the_new_leader_too(cluster):
    client = connect(cluster)
    cluster.leader.stop()
    cluster.elect(2)

    for _ in range(1000):
        if client.offer(b"x") > 0 and client.leader_member_id == 2:
            break
        cluster.wait(0.001)

    assert client.leader_member_id == 2


def test_what_the_new_leader_lacks_is_sent_again_with_the_new_term_and_nothing_else_is(cluster):
    client = connect(cluster)
    client.offer_batch([b"1", b"2", b"3", b"4", b"5"])
    cluster.acknowledge(2)
    client.poll_egress()

    cluster.leader.stop()
    del cluster.log[3:]  # 4 and 5 had not reached the member that leads now
    cluster.elect(1)
    poll_until(client, lambda: client.leader_member_id == 1)

    assert cluster.log == [b"1", b"2", b"3", b"4", b"5"]
    sent_again = cluster.members[1].of_type(SessionMessageHeader)
    assert [header.leadership_term_id for header in sent_again] == [2, 2]
    cluster.acknowledge(5, 800)
    assert client.await_committed(1) == 800


def test_what_comes_right_behind_the_answer_of_the_new_leader_is_heard(cluster):
    """Over gRPC all of it is one message, and when nothing else is sent nothing else will come."""
    listener = Listener()
    client = connect(cluster, listener)
    client.offer_batch([b"1", b"2"])
    new_leader = cluster.members[1]

    def answer_with_all(connection, request):
        connection.put(link_frame(cluster.resume(request.correlation_id)))
        cluster.answer(b"first")
        cluster.acknowledge(1)
        cluster.answer(b"second")
        cluster.acknowledge(2, 640)

    new_leader.on_resume = answer_with_all
    cluster.leader.stop()
    cluster.elect(1)
    poll_until(client, lambda: client.state is ClientState.CONNECTED and client.leader_member_id == 1)
    client.poll_egress()

    assert listener.payloads == [b"first", b"second"]
    assert (client.acknowledged, client.committed_position) == (2, 640)
    assert len(new_leader.of_type(link.SessionResume)) == 1


@pytest.mark.conformance("S-58")
def test_the_same_leader_in_a_new_term_is_asked_what_it_holds(cluster):
    """What was sent with the old term is dropped silently; sending on without asking would leave a hole."""
    listener = Listener()
    client = connect(cluster, listener)
    client.offer(b"1")
    cluster.elect(0)
    client.offer_batch([b"2", b"3"])
    assert cluster.log == [b"1"]

    cluster.leader.send(cluster.leader.connection, cluster.new_leader_event())
    poll_until(client, lambda: client.state is ClientState.CONNECTED and client.leadership_term_id == 2)

    assert len(cluster.leader.connections) == 1
    assert cluster.log == [b"1", b"2", b"3"]
    assert [told[0] for told in listener.told] == ["new leader"]


def test_half_a_message_of_the_old_term_is_finished_before_the_leader_is_asked(cluster):
    client = connect(cluster)
    connection = cluster.leader.connection
    connection.takes = 100
    client.offer_batch([b"a" * 100, b"b" * 100])
    cluster.elect(0)
    cluster.leader.send(connection, cluster.new_leader_event())

    client.poll_egress()
    assert client.state is ClientState.AWAIT_NEW_LEADER_CONNECTION
    assert client.offer(b"x") == Offer.ADMIN_ACTION
    assert cluster.leader.of_type(link.SessionResume) == []
    connection.takes = None
    poll_until(client, lambda: client.state is ClientState.CONNECTED)

    assert cluster.log == [b"a" * 100, b"b" * 100]


def test_a_leader_that_says_again_that_it_leads_is_asked_nothing(cluster):
    client = connect(cluster)
    cluster.leader.send(cluster.leader.connection, cluster.new_leader_event())
    client.poll_egress()

    assert client.state is ClientState.CONNECTED
    assert cluster.leader.of_type(link.SessionResume) == []


@pytest.mark.conformance("S-53")
def test_a_new_leader_of_another_session_is_passed_over(cluster):
    client = connect(cluster)
    cluster.elect(1)
    cluster.members[0].send(cluster.members[0].connection, cluster.new_leader_event(session_id=8))
    client.poll_egress()

    assert client.leadership_term_id == 1
    assert client.state is ClientState.CONNECTED


def test_a_new_leader_elsewhere_is_dialled(cluster):
    client = connect(cluster)
    cluster.elect(1)
    cluster.members[0].send(cluster.members[0].connection, cluster.new_leader_event())
    poll_until(client, lambda: client.leader_member_id == 1 and client.state is ClientState.CONNECTED)

    assert all(connection.is_closed for connection in cluster.members[0].connections)


def redirected(cluster, member, session_id=7):
    """The member answers what the client asked it last: another one leads, or nobody."""
    redirect = cluster.redirect(1).replace(cluster_session_id=session_id)
    member.send(member.connection, redirect)


def test_a_member_that_names_another_leader_is_left_for_it_and_the_listener_is_told_of_that_only(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    old = cluster.leader
    cluster.elect(1)
    redirected(cluster, old)
    poll_until(client, lambda: client.leader_member_id == 1 and client.state is ClientState.CONNECTED)

    assert [told[0] for told in listener.told] == ["new leader"]
    assert old.connection.is_closed


def test_a_member_that_knows_of_no_leader_is_kept_until_it_does_or_closes(cluster):
    client = connect(cluster)
    old = cluster.leader
    cluster.elect(None)
    redirected(cluster, old)
    for _ in range(100):
        client.poll_egress()
        cluster.wait(0.01)
    assert client.state is ClientState.CONNECTED
    assert len(old.connections) == 1

    cluster.elect(2)
    old.send(old.connection, cluster.new_leader_event())
    poll_until(client, lambda: client.leader_member_id == 2 and client.state is ClientState.CONNECTED)


def test_a_leader_that_takes_no_input_for_now_is_kept(cluster):
    """Suspended, or at a snapshot: it names itself."""
    client = connect(cluster)
    redirected(cluster, cluster.leader)
    client.poll_egress()

    assert client.state is ClientState.CONNECTED
    assert not cluster.leader.connection.is_closed


def test_a_new_leader_that_is_replaced_before_it_takes_the_session_up_is_left_at_once(cluster):
    client = connect(cluster, message_timeout_s=2.0)
    first = cluster.leader
    cluster.elect(0)
    first.on_resume = lambda connection, resume: redirected(cluster, first)
    first.send(first.connection, cluster.new_leader_event())
    client.poll_egress()
    assert client.state is ClientState.AWAIT_NEW_LEADER_CONNECTION
    client.poll_egress()
    assert client.state is ClientState.AWAIT_NEW_LEADER

    cluster.elect(1)
    poll_until(client, lambda: client.leader_member_id == 1 and client.state is ClientState.CONNECTED)


def test_a_leader_that_is_stopped_and_not_dead_is_left_after_its_heartbeat_timeout(cluster):
    """SIGSTOP, or a network that swallows everything: the connection stays, and nothing comes."""
    client = connect(cluster)
    cluster.leader.on_frame = lambda *frame: None
    cluster.elect(1)
    started_ns = cluster.now_ns()
    poll_until(client, lambda: client.leader_member_id == 1)

    assert 10e9 <= cluster.now_ns() - started_ns < 11e9
    connected = len(cluster.leader.connections)
    for _ in range(600):
        client.poll_egress()
        cluster.wait(0.01)
    assert len(cluster.leader.connections) == connected, "the next one is asked before it is left"


def test_an_idle_leader_is_asked_for_a_sign_of_life_and_kept(cluster):
    client = connect(cluster)
    for _ in range(6_000):
        client.poll_egress()
        cluster.wait(0.01)

    assert 10 <= len(cluster.leader.of_type(link.SessionResume)) <= 12
    assert client.state is ClientState.CONNECTED
    assert len(cluster.leader.connections) == 1


def test_a_client_that_was_not_polled_for_long_does_not_take_that_for_silence(cluster):
    client = connect(cluster)
    cluster.wait(100)
    client.poll_egress()
    cluster.wait(100)
    client.poll_egress()

    assert client.state is ClientState.CONNECTED


@pytest.mark.conformance("S-54")
def test_the_client_is_connected_again_when_the_leader_took_the_session_up(cluster):
    client = connect(cluster)
    cluster.leader.stop()
    cluster.elect(None)
    for _ in range(200):  # followers answer with redirects to nobody meanwhile
        client.poll_egress()
        cluster.wait(0.01)
    assert client.state is ClientState.AWAIT_NEW_LEADER

    cluster.elect(2)
    poll_until(client, lambda: client.state is ClientState.CONNECTED)
    assert client.offer(b"x") > 0


@pytest.mark.conformance("S-55")
def test_a_leader_that_never_takes_the_session_up_ends_it_after_the_message_timeout(cluster):
    client = connect(cluster, message_timeout_s=2.0)
    cluster.leader.connection.takes = 0
    client.offer(b"stuck")
    cluster.term_id += 1
    cluster.leader.on_frame = lambda *frame: None
    cluster.leader.send(cluster.leader.connection, cluster.new_leader_event())

    started_ns = cluster.now_ns()
    poll_until(client, lambda: client.is_closed)

    assert 2.0e9 <= cluster.now_ns() - started_ns < 2.2e9


@pytest.mark.conformance("S-56")
def test_without_a_new_leader_the_client_closes_itself_after_the_new_leader_timeout(cluster):
    client = connect(cluster, new_leader_timeout_s=3.0)
    for member in cluster.members:
        member.stop()
    started_ns = cluster.now_ns()
    poll_until(client, lambda: client.is_closed)

    assert 3.0e9 <= cluster.now_ns() - started_ns < 3.2e9
    assert "member 2 at tcp:c:1: ECONNREFUSED" in client.why_closed
    assert client.offer(b"x") == Offer.CLOSED


def test_a_session_that_the_new_leader_does_not_know_is_closed(cluster):
    listener = Listener()
    client = connect(cluster, listener)
    cluster.leader.stop()
    cluster.elect(1)
    cluster.members[1].on_resume = lambda connection, resume: cluster.members[1].send(
        connection, cluster.event(EventCode.CLOSED, resume.correlation_id, "TIMEOUT", session_id=7)
    )
    poll_until(client, lambda: client.is_closed)

    assert client.why_closed == "TIMEOUT"
    assert listener.told[-1][0] == "session event"


@pytest.mark.parametrize("knows_session", [False, True])
def test_a_member_that_still_leads_an_earlier_term_neither_ends_nor_takes_up_the_session(
    cluster, knows_session
):
    """Cut off from the others, it does not know what was committed since (atomix 35, etcd 15247)."""
    client = connect(cluster)
    stale, earlier_term_id = cluster.members[2], cluster.term_id
    cluster.leader.stop()
    cluster.elect(1)
    poll_until(client, lambda: client.leader_member_id == 1)
    client.offer(b"1")
    cluster.acknowledge(1)
    client.poll_egress()

    def answer(connection, request):
        resumed = cluster.resume(request.correlation_id).replace(
            leadership_term_id=earlier_term_id, appended_messages=0, leader_member_id=2
        )
        unknown = cluster.event(EventCode.CLOSED, request.correlation_id, "not open", cluster.session_id)
        message = resumed if knows_session else unknown.replace(leadership_term_id=earlier_term_id)
        connection.put(message_frame(message, streams.LINK if knows_session else streams.EGRESS))

    stale.on_resume = answer
    cluster.leader.on_resume = lambda *_: None  # until the other one has answered
    cluster.leader.connection.break_off()
    poll_until(client, lambda: len(stale.of_type(link.SessionResume)) > 1)  # asked again behind its answer
    cluster.leader.on_resume = None
    poll_until(client, lambda: client.state is not ClientState.AWAIT_NEW_LEADER)

    assert (client.state, client.leader_member_id) == (ClientState.CONNECTED, 1)


def test_a_leader_that_lost_committed_messages_is_not_followed(cluster):
    client = connect(cluster)
    client.offer_batch([b"1", b"2"])
    cluster.acknowledge(2)
    client.poll_egress()
    cluster.leader.stop()
    cluster.log.clear()
    cluster.elect(1)

    poll_until(client, lambda: client.is_closed)

    assert "holds 0 messages of the session, 2 were committed" in client.why_closed


def test_a_leader_that_holds_what_no_leader_was_sent_is_not_followed(cluster):
    client = connect(cluster)
    cluster.leader.connection.takes = 100
    client.offer_batch([b"1", b"2"])
    cluster.leader.stop()
    cluster.log.append(b"what nobody was sent")
    cluster.elect(1)

    poll_until(client, lambda: client.is_closed)

    assert client.why_closed == "leader 1 holds 2 messages of the session, 0 were committed and 1 sent"


def test_a_leader_may_hold_what_one_before_the_last_was_sent(cluster):
    client = connect(cluster)
    client.offer_batch([b"1", b"2", b"3"])
    cluster.leader.stop()
    held, cluster.log = cluster.log, []
    cluster.elect(1)

    def on_resume(connection, resume):
        connection.takes = 40  # no message whole
        connection.put(link_frame(cluster.resume(resume.correlation_id)))

    cluster.leader.on_resume = on_resume
    poll_until(client, lambda: client.leader_member_id == 1)
    assert cluster.log == []
    cluster.leader.stop()
    cluster.log = held
    cluster.elect(2)

    poll_until(client, lambda: client.leader_member_id == 2)
    assert client.offer(b"4") > 0
    assert cluster.log == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("seed", range(30))
def test_through_any_history_each_message_is_in_the_log_once_and_in_order(seed):
    """Leaders die, come back, are elected again in place; sockets take as much as they like."""
    chance = random.Random(seed)
    cluster = FakeCluster()
    client = connect(cluster, window_bytes=chance.choice([4096, 65_536]), new_leader_timeout_s=1e6)
    offered: list[bytes] = []
    committed = 0
    for step in range(2_000):
        cluster.wait(0.001)
        leader = cluster.leader
        match chance.randrange(60):
            case 0 if leader is not None:
                leader.stop()
                del cluster.log[chance.randint(committed, len(cluster.log)) :]
                cluster.elect(None)
            case 1 if leader is not None:
                del cluster.log[chance.randint(committed, len(cluster.log)) :]
                cluster.elect(leader.member_id)
                if not leader.connection.is_closed:
                    leader.send(leader.connection, cluster.new_leader_event())
            case 2 if leader is not None and not leader.connection.is_closed:
                leader.connection.break_off()
            case n if n < 12 and leader is not None and leader.connections:
                leader.connection.takes = chance.choice([None, 0, 40, 1000])
            case n if n < 20 and leader is None:
                cluster.elect(chance.randrange(3))
                cluster.leader.is_up = True
            case n if (
                n < 30 and leader is not None and leader.connections and not leader.connection.is_closed
            ):
                committed = chance.randint(committed, len(cluster.log))
                cluster.acknowledge(committed)
            case n if n < 45:
                payload = b"%d:%d" % (step, len(offered))
                if client.offer(payload) > 0:
                    offered.append(payload)
            case _:
                batch = [b"%d:%d" % (step, len(offered) + n) for n in range(chance.randrange(1, 30))]
                if client.offer_batch(batch) > 0:
                    offered.extend(batch)
        client.poll_egress()
        assert not client.is_closed, client.why_closed
        assert cluster.log == offered[: len(cluster.log)]

    if cluster.leader is None:
        cluster.elect(0)
    cluster.leader.is_up = True
    for connection in cluster.leader.connections:
        connection.takes = None
    poll_until(client, lambda: cluster.log == offered and client.state is ClientState.CONNECTED)
    cluster.acknowledge(len(offered))
    client.await_committed(1)
    assert len(offered) > 100


def test_a_token_of_a_leader_whose_endpoint_is_not_known_is_refused_by_its_id(cluster):
    client = connect(cluster)
    told = cluster.new_leader_event().replace(leadership_term_id=2, leader_member_id=9)
    cluster.leader.send(cluster.leader.connection, told)
    client.poll_egress()
    assert client.leader_member_id == 9
    with pytest.raises(ClusterError, match=r"leader 9 has no endpoint .*; known are 0=tcp:a:1,1=tcp:b:1"):
        client.token()
