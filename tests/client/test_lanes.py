"""The client's half of a lane: what it asks for, what it is told, and that it never comes back by itself."""

import pytest

from cluster.client import ClientContext
from cluster.errors import ApplicationUnknown, BatchRegistered, ClientClosed, ClusterError, ConfigurationError
from cluster.protocol.enums import EventCode
from cluster.protocol.lane import Lane, LaneStanding, registered_text, unknown_text, with_lane
from cluster.protocol.session import SessionConnectRequest
from tests.client.scripted import ENDPOINTS, Listener, connect

LANE = Lane("orders", 3, 17)
STANDING = LaneStanding(rows=5, begin=640, end=4096, session_id=2)


@pytest.fixture
def answering(cluster):
    """The leader answers connect requests with this event, by code and detail."""

    def answer(code: EventCode, detail: str) -> None:
        leader = cluster.leader
        leader.on_connect_request = lambda connection, request: leader.send(
            connection, cluster.event(code, request.correlation_id, detail, cluster.session_id)
        )

    return answer


@pytest.mark.conformance("S-189")
def test_the_lane_goes_with_the_credentials_and_the_answer_tells_its_rows(cluster, answering):
    answering(EventCode.OK, STANDING.to_text())
    client = connect(cluster, credentials=b"alice", lane=LANE)

    (request,) = cluster.leader.of_type(SessionConnectRequest)
    assert request.encoded_credentials == with_lane(b"alice", LANE)
    assert (client.lane_rows, client.lane_standing) == (5, STANDING)


def test_a_client_without_a_lane_has_no_rows_in_one(cluster):
    client = connect(cluster)

    assert (client.lane_rows, client.lane_standing) == (0, None)


def test_a_member_that_opens_the_session_and_knows_no_lanes_is_none_for_this_client(cluster, answering):
    answering(EventCode.OK, "")

    with pytest.raises(ClusterError) as refused:
        connect(cluster, lane=LANE)
    assert str(refused.value) == (
        "member 0 has opened the session without lane orders/3: lanes need release 0.2.0 on every member"
    )


@pytest.mark.conformance("S-192")
def test_a_registered_batch_is_an_error_of_its_own_kind(cluster, answering):
    answering(EventCode.ERROR, registered_text(LANE, 18))

    with pytest.raises(BatchRegistered) as refused:
        connect(cluster, lane=LANE)
    assert str(refused.value) == "registered: batch 17 of orders is in the log, 18 is the last one"


def test_an_application_that_the_cluster_does_not_know_is_an_error_of_its_own_kind(cluster, answering):
    answering(EventCode.ERROR, unknown_text(LANE))

    with pytest.raises(ApplicationUnknown) as refused:
        connect(cluster, lane=LANE)
    assert str(refused.value) == unknown_text(LANE)


@pytest.mark.conformance("S-190")
def test_a_displaced_client_says_which_lane_it_has_lost_and_asks_for_nothing_more(cluster, answering):
    answering(EventCode.OK, STANDING.to_text())
    client = connect(cluster, lane=LANE)
    client.offer(b"row")
    leader = cluster.leader
    told = cluster.event(EventCode.CLOSED, 0, "displaced by session 9", cluster.session_id)
    leader.send(leader.connection, told)
    while not client.is_closed:
        client.poll_egress()
    before = len(leader.received)

    with pytest.raises(ClientClosed) as lost:
        for _ in range(100):
            client.poll_egress()
            cluster.wait(0.1)
    assert str(lost.value) == "session 7 of lane orders/3 is closed: displaced by session 9"
    assert len(leader.received) == before
    assert len(leader.connections) == 1


def test_a_lane_does_not_go_with_reopening():
    class Reopening(Listener):
        def on_session_lost(self, *lost):
            raise AssertionError

    with pytest.raises(ConfigurationError, match="reopen with a lane"):
        ClientContext(ENDPOINTS, Reopening(), reopen=True, lane=LANE)


def test_what_is_no_lane_is_refused_before_anything_is_sent():
    with pytest.raises(ConfigurationError) as refused:
        ClientContext(ENDPOINTS, lane="orders")
    assert str(refused.value) == "lane is 'orders', expected a Lane or None"
