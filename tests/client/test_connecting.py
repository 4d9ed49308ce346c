"""How a session is opened."""

import hashlib
import itertools

import pytest

from cluster.client import ClientContext, ClusterClient
from cluster.client.connecting import ConnectState, SessionOpening
from cluster.errors import AuthenticationRejected, ClusterError, ConfigurationError, TimedOut
from cluster.protocol import link, streams
from cluster.protocol.enums import EventCode
from cluster.protocol.session import Challenge, ChallengeResponse, SessionConnectRequest
from cluster.transport.endpoint import Endpoint, Medium, parse_endpoint
from tests.client.scripted import (
    ENDPOINTS,
    RESUME_TOKEN,
    Listener,
    connect,
    poll_until,
)


def request_to(member):
    (request,) = member.of_type(SessionConnectRequest)
    return request


@pytest.mark.conformance("S-1")
def test_a_connect_request_says_who_asks_and_where_egress_goes(cluster):
    connect(cluster, credentials=b"who I am", client_name="bench")

    request = request_to(cluster.leader)
    assert request.response_stream_id == streams.EGRESS
    assert request.version == 0x000300
    channel, _, resume_hash = request.response_channel.partition("|")
    assert channel == "aeron:udp?endpoint=127.0.0.1:4321"
    assert resume_hash == f"resume-hash={hashlib.sha256(RESUME_TOKEN).hexdigest()}"
    assert request.encoded_credentials == b"who I am"
    assert request.client_info.startswith("name=bench version=")


@pytest.mark.conformance("S-28")
def test_the_reply_tells_session_term_and_leader(cluster):
    client = connect(cluster)

    assert client.cluster_session_id == 7
    assert client.leadership_term_id == 1
    assert client.leader_member_id == 0
    assert client.max_payload_length == 1024 - 32


@pytest.mark.conformance("S-6", "S-4")
@pytest.mark.parametrize(
    "endpoints",
    ["", "127.0.0.1", "x=127.0.0.1:9000", "0=a:1,b:1", "0=a:1,0=b:1", "0=a:70000", None, 5, b"a:1"],
)
def test_endpoints_that_cannot_be_meant_are_refused_before_anything_is_sent(endpoints):
    with pytest.raises(ConfigurationError):
        ClusterClient.connect(endpoints)


@pytest.mark.conformance("S-7")
def test_a_client_name_has_at_most_100_characters():
    ClientContext(ENDPOINTS, client_name="x" * 100)
    for name in ("x" * 101, 5):
        with pytest.raises(ConfigurationError, match="client_name: expected a text of at most 100 char"):
            ClientContext(ENDPOINTS, client_name=name)


@pytest.mark.parametrize("name", ["message_timeout_s", "new_leader_timeout_s", "keep_alive_interval_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "5"])
def test_a_time_that_cannot_be_waited_for_is_refused_by_name(name, value):
    with pytest.raises(ConfigurationError, match=f"{name} is {value!r}, expected more than 0"):
        ClientContext(ENDPOINTS, **{name: value})


def test_a_listener_that_would_never_hear_anything_is_refused():
    with pytest.raises(ConfigurationError, match="on_message"):
        ClientContext(ENDPOINTS, object())


@pytest.mark.conformance("S-9")
def test_one_member_that_can_be_reached_is_enough(cluster):
    cluster.members[0].is_up = cluster.members[1].is_up = False
    cluster.leader = cluster.members[2]

    assert connect(cluster).leader_member_id == 2


@pytest.mark.parametrize("endpoints", ["tcp:a:1", "tcp:b:1", "tcp:c:1,tcp:a:1"])
def test_endpoints_need_no_ids_and_one_of_them_is_enough_where_the_members_tell_of_the_others(
    cluster, endpoints
):
    cluster.leader = cluster.members[1]
    client = connect(cluster, endpoints=endpoints)
    assert client.leader_member_id == 1

    client.poll_egress()
    cluster.members[1].stop()
    cluster.elect(2)

    poll_until(client, lambda: client.leader_member_id == 2)
    assert client.offer(b"still here") > 0


def test_a_member_that_was_given_by_two_names_is_connected_to_once(cluster):
    cluster.aliases[parse_endpoint("tcp:other-name:1")] = 0

    connect(cluster, endpoints="tcp:other-name:1,tcp:a:1")

    assert [connection.is_closed for connection in cluster.members[0].connections].count(False) == 1


def test_a_member_that_cannot_be_reached_and_has_told_no_id_is_named_by_its_endpoint(cluster):
    for member in cluster.members:
        member.is_up = False

    with pytest.raises(TimedOut, match=": tcp:a:1: ECONNREFUSED; tcp:b:1: ECONNREFUSED "):
        connect(cluster, endpoints="tcp:a:1,tcp:b:1")


def test_that_nobody_can_be_reached_is_said_once_before_it_is_given_up(cluster):
    for member in cluster.members:
        member.is_up = False

    with pytest.raises(TimedOut):
        connect(cluster, endpoints="tcp:a:1,tcp:b:1", message_timeout_s=5)
    assert cluster.warnings == [
        "no session yet: tcp:a:1: ECONNREFUSED; tcp:b:1: ECONNREFUSED; trying for another 3.5 s"
    ]


@pytest.mark.parametrize(
    ("endpoints", "why"),
    [
        (
            "tcp:a:1",
            "tcp:a:1: connected, but not answered: a member without a leader, a busy one, or another program",
        ),
        ("aeron:a:1", "aeron:a:1: neither the media driver nor a member has answered yet"),
    ],
)
def test_who_is_silent_is_said_by_what_is_known_of_the_way_there(cluster, endpoints, why):
    cluster.aliases[Endpoint(Medium.AERON, path="a:1")] = 0
    cluster.members[0].on_frame = lambda *_: None
    with pytest.raises(TimedOut):
        connect(cluster, endpoints=endpoints, message_timeout_s=5)
    assert cluster.warnings == [f"no session yet: {why}; trying for another 3.5 s"]


def test_a_leader_that_opens_no_session_is_named_before_it_is_given_up(cluster):
    """A suspended cluster takes no request, and nothing has failed."""
    cluster.leader.on_connect_request = lambda connection, request: None

    with pytest.raises(TimedOut, match=r"no session within 5 s: member 0 opens none; .*POLL_RESPONSE"):
        connect(cluster, message_timeout_s=5)
    [said] = cluster.warnings
    assert said.startswith("no session yet: member 0 opens none; the cluster may be suspended")


@pytest.mark.conformance("S-10", "S-11")
def test_a_follower_names_the_leader_wherever_it_stands_in_the_list(cluster):
    cluster.leader = cluster.members[2]

    client = connect(cluster)

    assert client.leader_member_id == 2
    assert request_to(cluster.members[0]).correlation_id != request_to(cluster.members[2]).correlation_id


def test_a_leader_that_cannot_be_reached_is_not_waited_for(cluster):
    """A follower may still name the leader that just died."""
    cluster.leader = cluster.members[2]
    cluster.members[2].stop()
    attempt = SessionOpening(ClientContext(ENDPOINTS), cluster)
    while not cluster.members[1].of_type(SessionConnectRequest):
        attempt.poll()
        cluster.wait(0.001)

    cluster.elect(1)
    while not attempt.poll():
        cluster.wait(0.001)

    assert attempt.event.leader_member_id == 1


@pytest.mark.conformance("S-13")
def test_redirects_do_not_extend_the_deadline(cluster):
    cluster.leader = None
    started_ns = cluster.now_ns()

    with pytest.raises(TimedOut, match="redirected"):
        connect(cluster, message_timeout_s=2.0)

    assert cluster.now_ns() - started_ns < 2.1e9


@pytest.mark.parametrize("knows_session", [False, True])
def test_a_leader_that_is_cut_off_from_the_others_is_left_for_the_one_that_they_follow(
    cluster, knows_session
):
    """It leads its earlier term for 10 s more, and never commits a session (etcd 8660)."""
    stale = cluster.members[0]
    stale.on_connect_request = lambda connection, request: None
    attempt = SessionOpening(ClientContext(ENDPOINTS), cluster)
    while not stale.of_type(SessionConnectRequest):
        attempt.poll()
        cluster.wait(0.001)
    cluster.elect(2)
    if knows_session:
        opened = cluster.open_session(request_to(stale).correlation_id)
        cluster.leader.on_resume = lambda connection, _: cluster.leader.send(connection, opened)
    while not attempt.poll():
        cluster.wait(0.001)

    assert (attempt.event.leader_member_id, attempt.publication.member_id) == (2, 2)
    assert all(connection.is_closed for connection in stale.connections)
    assert bool(cluster.leader.of_type(SessionConnectRequest)) is not knows_session


def test_a_leader_that_is_slow_is_waited_for(cluster):
    """As where it asks an authenticator elsewhere: to ask again would begin that anew."""
    cluster.elect(2)
    leader, stale = cluster.leader, cluster.members[1]
    leader.on_connect_request = lambda connection, request: None
    not_open = cluster.event(EventCode.CLOSED, 0).replace(leader_member_id=1, leadership_term_id=1)
    stale.on_resume = lambda connection, request: stale.send(connection, not_open)
    attempt = SessionOpening(ClientContext(ENDPOINTS), cluster)
    for _ in range(4000):
        attempt.poll()
        cluster.wait(0.001)
    leader.send(leader.connection, cluster.open_session(request_to(leader).correlation_id))
    while not attempt.poll():
        cluster.wait(0.001)

    assert len(leader.of_type(SessionConnectRequest)) == 1
    assert stale.of_type(link.SessionResume) and cluster.members[0].of_type(link.SessionResume)


@pytest.mark.parametrize("is_open", [True, False])
def test_after_a_lost_answer_a_client_asks_for_the_session_that_it_may_have(cluster, is_open):
    first, second = cluster.members[0], cluster.members[2]
    first.on_connect_request = lambda connection, request: None  # its answer is lost with it
    attempt = SessionOpening(ClientContext(ENDPOINTS), cluster)
    while not first.of_type(SessionConnectRequest):
        attempt.poll()
        cluster.wait(0.001)
    lost = request_to(first)

    def answer(connection, request):
        if is_open:
            second.send(connection, cluster.event(EventCode.OK, lost.correlation_id, session_id=7))
        else:
            second.send(connection, cluster.event(EventCode.CLOSED, request.correlation_id, "not open"))

    second.on_resume = answer
    first.stop()
    cluster.elect(2)
    while not attempt.poll():
        cluster.wait(0.001)

    asked = [type(message) for message in second.received if not isinstance(message, link.Hello)]
    assert asked == [link.SessionResume] + [SessionConnectRequest] * (not is_open)
    (resume,) = second.of_type(link.SessionResume)
    assert (resume.cluster_session_id, resume.resume_token) == (-1, RESUME_TOKEN)
    assert attempt.event.cluster_session_id == 7


def test_a_leader_whose_endpoint_was_not_given_is_named(cluster):
    """A follower tells of gRPC endpoints only, and who came by another medium keeps to it."""
    cluster.leader = cluster.members[2]
    cluster.told_endpoints = "0=a:1,1=b:1,2=c:1"
    attempt = SessionOpening(ClientContext("0=tcp:a:1", message_timeout_s=1.0), cluster)

    with pytest.raises(TimedOut, match="last to member 2, which leads, but whose tcp endpoint was not given"):
        while not attempt.poll():
            cluster.wait(0.001)


@pytest.mark.conformance("S-14", "S-26")
def test_when_no_member_answers_the_error_names_the_state_and_each_reason(cluster):
    for member in cluster.members:
        member.is_up = False

    with pytest.raises(TimedOut) as raised:
        connect(cluster, message_timeout_s=1.0)

    for told in ("AWAIT_PUBLICATION_CONNECTED", "within 1 s", "member 1 at tcp:b:1: ECONNREFUSED"):
        assert told in str(raised.value)
    assert "name other members" not in str(raised.value)


@pytest.mark.conformance("S-26")
def test_who_named_one_member_and_it_is_down_is_asked_for_others(cluster):
    cluster.members[0].is_up = False
    attempt = SessionOpening(ClientContext("0=tcp:a:1", message_timeout_s=1.0), cluster)
    with pytest.raises(TimedOut, match="ECONNREFUSED; name other members, too, if only this one is down"):
        while not attempt.poll():
            cluster.wait(0.001)


@pytest.mark.conformance("S-26")
def test_a_member_that_refuses_at_first_is_asked_again_within_the_deadline(cluster):
    for member in cluster.members:
        member.is_up = False
    attempt = SessionOpening(ClientContext(ENDPOINTS, message_timeout_s=5.0), cluster)
    for _ in range(1_000):
        assert not attempt.poll()
        cluster.wait(0.001)
    for member in cluster.members:
        member.is_up = True

    while not attempt.poll():
        cluster.wait(0.001)
    attempt.close()


@pytest.mark.conformance("S-15", "S-16")
def test_replies_that_are_not_ours_are_passed_over(cluster):
    def answer(connection, request):
        wrong = cluster.event(EventCode.ERROR, request.correlation_id + 1, "not yours")
        cluster.leader.send(connection, wrong)
        foreign = bytearray(b"\x20\0\0\0\0\xc0\x01\0" + bytes(8) + (102).to_bytes(4, "little") + bytes(12))
        foreign[0] = 40
        connection.put(bytes(foreign) + b"\x00\x00\x01\x00\x63\x00\x01\x00" + bytes(24))
        cluster.leader.send(connection, cluster.open_session(request.correlation_id))

    cluster.leader.on_connect_request = answer

    assert connect(cluster).cluster_session_id == 7


@pytest.mark.conformance("S-17")
def test_an_error_event_ends_the_attempt_with_its_text(cluster):
    cluster.leader.on_connect_request = lambda connection, request: cluster.leader.send(
        connection, cluster.event(EventCode.ERROR, request.correlation_id, "concurrent session limit")
    )

    with pytest.raises(ClusterError, match="concurrent session limit"):
        connect(cluster)
    assert all(connection.is_closed for member in cluster.members for connection in member.connections)


@pytest.mark.conformance("S-20")
def test_rejected_credentials_are_an_error_of_their_own(cluster):
    cluster.leader.on_connect_request = lambda connection, request: cluster.leader.send(
        connection, cluster.event(EventCode.AUTHENTICATION_REJECTED, request.correlation_id, "who are you")
    )

    with pytest.raises(AuthenticationRejected, match="who are you"):
        connect(cluster)


@pytest.mark.conformance("S-21")
def test_a_challenge_is_answered_once_with_a_new_correlation_id(cluster):
    class Supplier:
        def encoded_credentials(self):
            return b"name"

        def on_challenge(self, encoded_challenge):
            return b"answer to " + encoded_challenge

    leader = cluster.leader

    def challenge(connection, request):
        leader.send(connection, Challenge(request.correlation_id, cluster.session_id, b"riddle"))

    leader.on_connect_request = challenge
    attempt = SessionOpening(ClientContext(ENDPOINTS, credentials=Supplier()), cluster)
    while not leader.of_type(ChallengeResponse):
        attempt.poll()
        cluster.wait(0.001)
    (response,) = leader.of_type(ChallengeResponse)
    leader.send(leader.connection, cluster.open_session(response.correlation_id))
    while not attempt.poll():
        pass

    assert response.cluster_session_id == cluster.session_id
    assert response.encoded_credentials == b"answer to riddle"
    assert response.correlation_id != request_to(leader).correlation_id


@pytest.mark.conformance("S-25")
def test_closing_an_unfinished_attempt_leaves_no_connection(cluster):
    attempt = SessionOpening(ClientContext(ENDPOINTS), cluster)
    attempt.poll()
    attempt.poll()

    attempt.close()

    connections = [connection for member in cluster.members for connection in member.connections]
    assert connections
    assert all(connection.is_closed for connection in connections)


@pytest.mark.conformance("S-27")
def test_each_poll_takes_at_most_one_step(cluster):
    attempt = SessionOpening(ClientContext(ENDPOINTS), cluster)
    states = [attempt.state]
    while not attempt.poll():
        states.append(attempt.state)

    steps = [after - before for before, after in itertools.pairwise(states)]
    assert set(steps) <= {0, 1}
    assert states[-1] is ConnectState.CONCLUDE_CONNECT


@pytest.mark.conformance("S-29")
@pytest.mark.parametrize(
    ("announced_ns", "chosen_s", "expected_s"),
    [(3_000_000_000, None, 6), (None, None, 20), (3_000_000_000, 1.5, 1.5)],
)
def test_a_new_leader_is_sought_for_twice_the_announced_heartbeat_timeout(
    cluster, announced_ns, chosen_s, expected_s
):
    context = ClientContext(ENDPOINTS, new_leader_timeout_s=chosen_s)

    assert context.new_leader_timeout_ns(announced_ns) == expected_s * 1_000_000_000


def test_a_connection_lost_before_the_reply_is_asked_again(cluster):
    """Aeron's client would only find out by its time-out."""
    leader = cluster.leader

    def die_once(connection, request):
        leader.on_connect_request = None
        connection.break_off()

    leader.on_connect_request = die_once

    assert connect(cluster).cluster_session_id == 7


def test_what_a_service_says_when_the_session_opens_is_heard(cluster):
    def open_and_greet(connection, request):
        cluster.leader.send(connection, cluster.open_session(request.correlation_id))
        cluster.answer(b"welcome")

    listener = Listener()
    cluster.leader.on_connect_request = open_and_greet
    client = connect(cluster, listener)
    client.poll_egress()

    assert listener.payloads == [b"welcome"]
