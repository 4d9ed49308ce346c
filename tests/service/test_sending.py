"""What a service sends is taken, or it is told at the call that it is not: offers, batches and claims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cluster import BufferClaim, ClusteredService, LocalProtocolError, Offer, ServiceError
from tests.service.harness import Container, Recorder, a_follower, a_leader

CONTROL = 32  # header of a message to the cluster, in stream 105
ANSWER = 64  # headers of an answer, as they are sent
LENGTH = 36


def in_a_message(container: Container, do: Any) -> Container:
    """Have the service do something in the callback of a message of session 1."""
    container.service.do["on_session_message"] = lambda session, *_: do(session, container.service.cluster)
    if container.service.cluster.get_client_session(1) is None:
        container.log.opened(1)
    container.log.message(1, b"")
    return container.commit()


def offered(target: Any) -> int:
    return target.offer(b"x" * LENGTH)


def claimed(target: Any) -> int:
    claim = BufferClaim()
    result = target.try_claim(LENGTH, claim)
    if result > 0:
        claim.buffer[:] = b"x" * LENGTH
        assert claim.commit() > 0
    return result


def messages(container: Container) -> list[bytes]:
    return [sent[1] for sent in container.sent if type(sent) is tuple]


@pytest.mark.parametrize("send", [offered, claimed])
def test_of_messages_to_the_cluster_as_many_are_sent_as_are_said_to_be(send):
    results: list[int] = []
    container = a_leader(Recorder(), capacity=10 * (CONTROL + LENGTH))
    in_a_message(container, lambda _, cluster: results.extend(send(cluster) for _ in range(13)))

    assert [result > 0 for result in results] == [True] * 10 + [False] * 3
    assert results[10:] == [Offer.BACK_PRESSURED] * 3
    assert messages(container) == [b"x" * LENGTH] * 10


@pytest.mark.parametrize("send", [offered, claimed])
def test_of_answers_as_many_are_sent_as_are_said_to_be(send):
    results: list[int] = []
    container = a_leader(Recorder(), egress_capacity=10 * (ANSWER + LENGTH))
    in_a_message(container, lambda session, _: results.extend(send(session) for _ in range(13)))

    assert [result > 0 for result in results] == [True] * 10 + [False] * 3
    assert results[10:] == [Offer.BACK_PRESSURED] * 3
    assert [payload for _, _, payload in container.answers()] == [b"x" * LENGTH] * 10


def test_a_batch_of_answers_is_taken_whole_or_not_at_all():
    results: list[int] = []
    container = a_leader(Recorder(), egress_capacity=10 * (ANSWER + LENGTH))
    rows = [np.full(4, value) for value in (1, 0, LENGTH)]
    in_a_message(
        container,
        lambda _, cluster: results.extend(cluster.offer_batch(*rows, b"x" * LENGTH) for _ in range(3)),
    )

    assert results == [4, 4, Offer.BACK_PRESSURED]
    assert len(container.answers()) == 8


def test_a_message_longer_than_the_room_is_taken_when_nothing_waits():
    results: list[int] = []
    container = a_leader(Recorder(), capacity=60, egress_capacity=60)
    in_a_message(
        container,
        lambda session, cluster: results.extend(
            offered(target) for target in (session, session, cluster, cluster)
        ),
    )
    assert [result > 0 for result in results] == [True, False, True, False]


@pytest.mark.parametrize("is_session", [True, False])
def test_what_is_claimed_is_kept_free_until_it_is_committed_or_aborted(is_session):
    header = ANSWER if is_session else CONTROL
    container = a_leader(Recorder(), capacity=2 * (header + LENGTH), egress_capacity=2 * (header + LENGTH))
    first, second = BufferClaim(), BufferClaim()

    def send(session: Any, cluster: Any) -> None:
        target = session if is_session else cluster
        assert target.try_claim(LENGTH, first) > 0
        assert target.try_claim(LENGTH, second) > 0
        assert offered(target) == Offer.BACK_PRESSURED
        second.abort()
        second.abort()
        assert offered(target) > 0
        assert offered(target) == Offer.BACK_PRESSURED
        assert target.try_claim(LENGTH, second) == Offer.BACK_PRESSURED
        first.buffer[:] = b"y" * LENGTH
        assert first.commit() > 0

    in_a_message(container, send)
    sent = [payload for _, _, payload in container.answers()] if is_session else messages(container)
    assert sent == [b"x" * LENGTH, b"y" * LENGTH]


def test_a_claim_is_committed_once_and_claims_one_message_at_a_time():
    container = a_leader(Recorder())
    claim = BufferClaim()

    def send(session: Any, cluster: Any) -> None:
        with pytest.raises(LocalProtocolError, match="nothing is claimed"):
            claim.commit()
        assert session.try_claim(1, claim) > 0
        for target in (session, cluster):
            with pytest.raises(LocalProtocolError, match="the claim is open"):
                target.try_claim(1, claim)
        claim.buffer[:] = b"1"
        claim.commit()
        with pytest.raises(LocalProtocolError, match="nothing is claimed"):
            claim.commit()
        session.try_claim(1, claim)
        claim.abort()
        with pytest.raises(LocalProtocolError, match="nothing is claimed"):
            claim.commit()

    in_a_message(container, send)
    assert [payload for _, _, payload in container.answers()] == [b"1"]


def test_a_commit_where_sending_is_not_allowed_raises_and_the_claim_stays_open():
    container = a_leader(service := Recorder())
    claim = BufferClaim()
    in_a_message(container, lambda session, _: session.try_claim(1, claim))

    raised = []

    def commit(role: Any) -> None:
        try:
            claim.commit()
        except LocalProtocolError as error:
            raised.append(str(error))

    service.do["on_role_change"] = commit
    container.channel.close_log(container.log.end)
    container.settle()
    assert len(raised) == 1
    assert "on_role_change" in raised[0]

    container.join().settle()
    service.do["on_role_change"] = lambda *_: None
    claim.buffer[:] = b"1"
    in_a_message(container, lambda *_: claim.commit())
    assert [payload for _, _, payload in container.answers()] == [b"1"]


def test_a_claim_of_a_session_that_has_closed_says_so_and_gives_its_room_back():
    container = a_leader(service := Recorder(), egress_capacity=2 * (ANSWER + LENGTH))
    claim = BufferClaim()
    results: list[int] = []
    in_a_message(container, lambda session, _: session.try_claim(LENGTH, claim))
    service.do["on_session_close"] = lambda session, *_: results.extend(
        [claim.commit(), offered(session), session.try_claim(1, claim)]
    )
    container.log.closed(1)
    container.commit()
    assert results == [Offer.NOT_CONNECTED] * 3

    in_a_message(container, lambda session, _: results.extend(offered(session) for _ in range(3)))
    assert [result > 0 for result in results[3:]] == [True, True, False]


def test_a_session_that_is_about_to_be_closed_still_takes_answers():
    container = a_leader(Recorder())
    results: list[Any] = []
    in_a_message(container, lambda session, _: results.extend([session.close(), offered(session) > 0]))
    in_a_message(container, lambda session, _: results.extend([session.is_closing, claimed(session) > 0]))
    assert results == [True] * 4
    assert len(container.answers()) == 2


def test_claims_that_are_open_when_a_callback_raises_are_aborted():
    container = a_leader(Recorder(), capacity=2 * (CONTROL + LENGTH))
    claim = BufferClaim()

    def fail(_: Any, cluster: Any) -> None:
        assert cluster.try_claim(LENGTH, claim) > 0
        raise ValueError("boom")

    for _ in range(3):  # the third would find no room
        with pytest.raises(ServiceError, match="boom"):
            in_a_message(container, fail)
    with pytest.raises(ServiceError, match="nothing is claimed"):
        in_a_message(container, lambda *_: claim.commit())


@pytest.mark.parametrize("start", [a_leader, a_follower])
def test_what_cannot_be_sent_raises_on_leader_and_follower_alike(start):
    container = start(Recorder(), max_message_length=100)
    refused = []

    def send(session: Any, cluster: Any) -> None:
        rows = [np.array([1]), np.array([0]), np.array([101])]
        for attempt in (
            lambda: session.offer(b"x" * 101),
            lambda: session.offer("text"),
            lambda: cluster.offer(b"x" * 60, b"x" * 41),
            lambda: session.try_claim(101, BufferClaim()),
            lambda: session.try_claim(-1, BufferClaim()),
            lambda: cluster.try_claim(101, BufferClaim()),
            lambda: cluster.try_claim(-1, BufferClaim()),
            lambda: cluster.offer_batch(*rows, b"x" * 200),
            lambda: cluster.offer_batch(*rows, b"x"),
        ):
            with pytest.raises((LocalProtocolError, TypeError)) as raised:
                attempt()
            refused.append(raised.type)

    in_a_message(container, send)
    assert refused == [LocalProtocolError, TypeError, *[LocalProtocolError] * 7]
    assert container.answers() == []


@pytest.mark.parametrize("start", [a_leader, a_follower])
@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1), (5, 4), (2**63 - 1, 2), (2**63 - 8, 8)])
def test_a_row_outside_its_buffer_is_refused_by_its_number_on_every_member(start, offset, length):
    container = start(Recorder())
    told = f"row 1: a payload of {length} bytes at offset {offset} does not lie in the buffer of 8 bytes"

    def send(session: Any, cluster: Any) -> None:
        rows = [np.array([1, 1]), np.array([0, offset]), np.array([8, length])]
        with pytest.raises(LocalProtocolError, match=f"^{told}(?m:$)"):
            cluster.offer_batch(*rows, b"x" * 8)

    in_a_message(container, send)
    assert container.answers() == []


def test_a_follower_claims_and_commits_without_sending_answers():
    container = a_follower(Recorder(), egress_capacity=1)
    results: list[int] = []
    in_a_message(container, lambda session, _: results.extend(claimed(session) for _ in range(9)))
    assert results == [1] * 9
    assert container.answers() == []


def test_answers_that_wait_are_handed_over_between_callbacks():
    container = a_leader(service := Recorder(), egress_capacity=2 * (ANSWER + LENGTH))
    results: list[int] = []
    container.channel.on_idle = lambda: container._drain() or 0
    service.do["on_session_message"] = lambda session, *_: results.append(offered(session))
    container.log.opened(1)
    for _ in range(9):
        container.log.message(1, b"")
    container.commit()

    assert all(result > 0 for result in results)
    assert len(container.answers()) == 9


def test_idling_lets_the_module_take_answers_too():
    container = a_leader(Recorder(), egress_capacity=2 * (ANSWER + LENGTH))
    container.channel.on_idle = lambda: container._drain() or 0
    idled = []

    def answer(session: Any, cluster: Any) -> None:
        for _ in range(9):
            while offered(session) < 0:
                idled.append(cluster.idle_strategy())
                idled[-1].idle()

    in_a_message(container, answer)
    assert len(container.answers()) == 9
    assert len(idled) == 4
    assert not hasattr(idled[0], "do_work")  # the container is not handed out


def test_a_vectorised_service_finds_room_for_its_first_batch_in_each_callback():
    results: list[int] = []

    class Answering(ClusteredService):
        def on_start(self, cluster: Any, snapshot_image: Any) -> None:
            self.cluster = cluster

        def on_session_messages(self, batch: Any) -> None:
            results.append(
                self.cluster.offer_batch(batch.session_ids, batch.offsets, batch.lengths, batch.buffer)
            )

    container = a_leader(Answering(), egress_capacity=100, log_fragment_limit=3)
    container.log.opened(1)
    for _ in range(9):
        container.log.message(1, b"question")
    container.commit()
    assert results == [3, 3, 3]
