"""The client's half of a consumer group's report."""

import pytest

from cluster.client import ClientContext
from cluster.errors import ClusterError, ConfigurationError
from cluster.protocol.consumer import Consumer, group_text, with_consumer
from cluster.protocol.enums import EventCode
from cluster.protocol.lane import Lane
from cluster.protocol.session import SessionConnectRequest
from tests.client.scripted import ENDPOINTS, connect

BILLING = Consumer("billing", 640)


class Hearing:
    """A listener of a client that opens another session for a lost one."""

    def on_session_lost(self, *arguments) -> None:
        raise AssertionError


@pytest.fixture
def answering(cluster):
    """The leader answers connect requests with this event, by code and detail."""

    def answer(code: EventCode, detail: str) -> None:
        leader = cluster.leader
        leader.on_connect_request = lambda connection, request: leader.send(
            connection, cluster.event(code, request.correlation_id, detail, cluster.session_id)
        )

    return answer


def test_the_group_goes_with_the_credentials(cluster, answering):
    answering(EventCode.OK, group_text(640))
    connect(cluster, credentials=b"alice", consumer=BILLING)

    (request,) = cluster.leader.of_type(SessionConnectRequest)
    assert request.encoded_credentials == with_consumer(b"alice", BILLING)


def test_a_member_that_knows_no_groups_is_none_for_this_client(cluster, answering):
    answering(EventCode.OK, "")

    with pytest.raises(ClusterError) as refused:
        connect(cluster, consumer=BILLING)
    assert str(refused.value) == (
        "member 0 does not know where consumer group billing is: "
        "consumer groups need release 0.2.0 on every member"
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"consumer": "billing"}, "consumer is 'billing', expected a Consumer or None"),
        (
            {"consumer": BILLING, "lane": Lane("orders", 0, 0)},
            "consumer with lane: a session that reports does nothing else",
        ),
        (
            {"consumer": BILLING, "reopen": True, "egress_listener": Hearing()},
            "consumer with reopen: a session that reports does nothing else",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, told):
    with pytest.raises(ConfigurationError) as refused:
        ClientContext(ENDPOINTS, **settings)
    assert str(refused.value) == told
