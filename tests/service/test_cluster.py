"""What a service is given has only what it may call, and is built from a fake outbox alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from cluster import BufferClaim, ClientSession, Cluster, LocalProtocolError, Offer
from cluster.protocol import decode
from cluster.protocol.enums import Role
from cluster.protocol.service import CloseSession, ScheduleTimer
from cluster.service.batch_answers import BatchAnswers
from cluster.service.channel import EGRESS_OVERHEAD, ServiceEgress
from cluster.service.idle_strategy import IdleStrategy
from cluster.service.open_sessions import OpenSessions
from cluster.service.service_context import ServiceContext
from cluster.service.service_state import ServiceState


class FakeOutbox:
    """Notes what is sent; takes nothing more when it is full."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.answers: list[tuple[int, bytes]] = []
        self.batches: list[ServiceEgress] = []
        self.is_full = False
        self.is_sending_allowed = True

    def check_may_send(self) -> None:
        if not self.is_sending_allowed:
            raise LocalProtocolError("not here")

    def send(self, message: bytes) -> bool:
        return not self.is_full and self.sent.append(message) is None

    def answer(self, session_id: int, payload: bytes, answer_id: int) -> bool:
        return not self.is_full and self.answers.append((session_id, payload)) is None

    def answer_batch(self, batch: ServiceEgress) -> bool:
        return not self.is_full and self.batches.append(batch) is None

    def claim_answer(self, claim: BufferClaim, length: int, reserved: int, offer: Callable) -> bool:
        return not self.is_full


class Scene:
    """A leader's Cluster with session 4 open, and nothing of a container around it."""

    def __init__(self) -> None:
        self.outbox = FakeOutbox()
        self.state = ServiceState(member_id=2, role=Role.LEADER, leadership_term_id=3, cluster_time=70)
        context = ServiceContext(max_message_length=99)
        self.sessions = OpenSessions(self.state, self.outbox, context)
        self.idled = 0
        self.cluster = Cluster(
            context,
            self.state,
            self.sessions,
            self.outbox,
            BatchAnswers(context, self.state, self.sessions, self.outbox),
            IdleStrategy(self._idle),
        )
        self.session = self.open(4)

    def open(self, session_id: int) -> ClientSession:
        opened = SimpleNamespace(
            cluster_session_id=session_id, response_stream_id=0, response_channel="", encoded_principal=b""
        )
        return self.sessions.open(opened, is_connected=True)

    def _idle(self) -> None:
        self.idled += 1


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_a_cluster_has_only_what_services_may_call():
    assert public(Cluster) == {
        "cancel_timer",
        "client_sessions",
        "close_client_session",
        "context",
        "for_each_client_session",
        "get_client_session",
        "idle_strategy",
        "leadership_term_id",
        "log_position",
        "member_id",
        "offer",
        "offer_batch",
        "role",
        "schedule_timer",
        "time",
        "time_unit",
        "try_claim",
    }


def test_a_session_has_only_what_services_may_call():
    assert public(ClientSession) == {
        "close",
        "cluster_session_id",
        "encoded_principal",
        "id",
        "is_closing",
        "offer",
        "response_channel",
        "response_stream_id",
        "try_claim",
    }


def test_a_claim_and_an_idle_strategy_have_only_what_services_may_call():
    assert public(BufferClaim) == {"abort", "buffer", "commit"}
    assert public(IdleStrategy) == {"idle", "reset"}
    assert type(Scene().cluster.idle_strategy()) is IdleStrategy


def test_it_says_where_the_service_is():
    cluster = Scene().cluster
    assert (cluster.member_id(), cluster.role(), cluster.time()) == (2, Role.LEADER, 70)
    assert (cluster.leadership_term_id(), cluster.time_unit()) == (3, None)


def test_what_is_sent_to_the_consensus_module_is_refused_whole():
    scene = Scene()
    assert scene.cluster.schedule_timer(5, 1_000)
    assert decode(scene.outbox.sent[0]) == ScheduleTimer(5, 1_000)
    assert scene.cluster.offer(b"ab", b"c") > 0
    assert scene.outbox.sent[1].endswith(b"abc")
    scene.outbox.is_full = True
    assert not scene.cluster.cancel_timer(5)
    assert scene.cluster.offer(b"x") == Offer.BACK_PRESSURED
    scene.cluster.idle_strategy().idle()
    assert scene.idled == 1
    assert len(scene.outbox.sent) == 2


def test_an_answer_tells_how_many_bytes_went_to_its_client():
    scene = Scene()
    first = scene.session.offer(b"abc")
    assert first == EGRESS_OVERHEAD + 3
    assert scene.session.try_claim(5, BufferClaim()) == first + EGRESS_OVERHEAD + 5
    assert scene.open(9).offer(b"") == EGRESS_OVERHEAD
    scene.outbox.is_full = True
    assert scene.session.offer(b"x") == Offer.BACK_PRESSURED
    assert scene.outbox.answers == [(4, b"abc"), (9, b"")]


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.LEADER])
def test_whoever_cannot_be_answered_is_not(role):
    scene = Scene()
    scene.state.role = role
    scene.sessions.disconnect()
    assert scene.session.offer(b"x") == (Offer.NOT_CONNECTED if role is Role.LEADER else 1)
    scene.sessions.close(4)
    assert scene.session.offer(b"x") == Offer.NOT_CONNECTED
    assert scene.cluster.client_sessions() == ()
    assert scene.outbox.answers == []


def test_a_session_is_asked_to_close_once():
    scene = Scene()
    scene.outbox.is_full = True
    assert not scene.cluster.close_client_session(4)
    assert not scene.session.is_closing
    scene.outbox.is_full = False
    assert scene.cluster.close_client_session(4)
    assert scene.session.is_closing
    assert scene.session.close()
    assert [decode(message) for message in scene.outbox.sent] == [CloseSession(4)]


def test_where_nothing_may_be_sent_every_way_to_send_raises():
    scene = Scene()
    scene.outbox.is_sending_allowed = False
    column = np.zeros(1, np.int64)
    for send in (
        lambda: scene.cluster.offer(b""),
        lambda: scene.cluster.try_claim(1, BufferClaim()),
        lambda: scene.cluster.offer_batch(column, column, column, np.zeros(1, np.uint8)),
        lambda: scene.cluster.schedule_timer(1, 1),
        lambda: scene.cluster.cancel_timer(1),
        lambda: scene.cluster.close_client_session(4),
        lambda: scene.session.offer(b""),
        lambda: scene.session.try_claim(1, BufferClaim()),
        scene.session.close,
    ):
        with pytest.raises(LocalProtocolError, match="not here"):
            send()
    assert scene.outbox.sent == scene.outbox.answers == scene.outbox.batches == []
