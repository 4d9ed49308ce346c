"""What a service answers a supervised session is numbered, alike on every member."""

import numpy as np
import pytest

from cluster import BufferClaim
from cluster.log.message_numbers import MessageNumbers
from cluster.protocol.enums import Offer, Role
from cluster.protocol.log import SessionOpenEvent
from cluster.protocol.response_channel import as_supervised, split_answer_count
from cluster.protocol.session import answer_id_of
from cluster.service.channel import EGRESS_CAPACITY
from cluster.service.outbox import Outbox
from tests.service.harness import Container, Recorder


class Answering(Recorder):
    """Answers each message one by one, by a claim, and as a batch with another session's."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[int] = []
        self.do["on_session_message"] = self._answer

    def _answer(self, session, timestamp, payload):
        claim = BufferClaim()
        self.results += [session.offer(payload), session.try_claim(2, claim)]
        claim.buffer[:] = b"cc"
        self.results.append(claim.commit())
        ids = np.array([1, 2, 9, 1])
        lengths = np.ones(4, np.int64)
        self.results.append(
            self.cluster.offer_batch(ids, np.arange(4), lengths, np.frombuffer(b"wxyz", np.uint8))
        )


def opened(container: Container, session_id: int, channel: str) -> None:
    container.log.append(SessionOpenEvent(0, 1, session_id, 0, 102, channel).encode())


def answered(role: Role, **settings) -> Container:
    container = Container(Answering(), **settings).start().join(role)
    container.log.term()
    opened(container, 1, as_supervised("aeron:ipc"))
    opened(container, 2, "aeron:ipc")
    container.log.message(1, b"m")
    return container.commit()


def numbered(container: Container) -> list[tuple[int, int, bytes]]:
    """Session, answer id and payload of all that was handed over."""
    rows = []
    for batch in container.egress:
        ids = np.zeros(len(batch), np.int64) if batch.answer_ids is None else batch.answer_ids
        for row, answer_id in enumerate(ids.tolist()):
            begin, length = int(batch.offsets[row]), int(batch.lengths[row])
            payload = batch.buffer[begin : begin + length].tobytes()
            rows.append((int(batch.session_ids[row]), answer_id, payload))
    return rows


@pytest.mark.conformance("S-187", "S-84")
def test_a_follower_hands_over_the_same_answers_to_supervised_sessions_as_a_leader_and_acts_the_others():
    leader, follower = answered(Role.LEADER), answered(Role.FOLLOWER)

    assert numbered(follower) == [(1, 1, b"m"), (1, 2, b"cc"), (1, 3, b"w"), (1, 4, b"z")]
    assert [row for row in numbered(leader) if row[1]] == numbered(follower)
    assert [row for row in numbered(leader) if not row[1]] == [(2, 0, b"x"), (9, 0, b"y")]
    assert follower.service.results == [1, 1, 1, 1]
    assert leader.service.results == [65, 131, 131, 4]


def test_each_service_numbers_for_itself():
    assert numbered(answered(Role.FOLLOWER, service_id=3))[0][1] == answer_id_of(3, 1)


def test_a_container_that_answers_nobody_numbers_nothing():
    assert numbered(answered(Role.FOLLOWER, is_responder=False)) == []


@pytest.mark.conformance("S-187")
def test_a_service_that_starts_from_its_snapshot_goes_on_numbering():
    sessions = answered(Role.FOLLOWER).agent._sessions

    records = list(sessions.records())

    counts = [split_answer_count(record.response_channel) for record in records]
    assert counts == [(as_supervised("aeron:ipc") + "|messages=1", 4), ("aeron:ipc?messages=0", 0)]
    sessions.close(1)
    again = sessions.open(records[0])
    assert again.response_channel == as_supervised("aeron:ipc"), "as it was opened"
    assert sessions.numbers.next_answer_ids(np.array([1]), 0).tolist() == [5]


def test_batches_are_numbered_in_the_order_of_their_rows():
    numbers, session_ids = answered(Role.FOLLOWER).agent.numbers, np.array([2, 1, 2, 1, 1])

    assert numbers.next_answer_ids(session_ids, 0).tolist() == [0, 5, 0, 6, 7]
    assert numbers.next_answer_ids(np.array([1]), 0).tolist() == [5], "nothing is counted that is not sent"
    numbers.on_answered(session_ids, 0)
    assert numbers.next_answer_ids(np.array([1]), 0).tolist() == [8]


@pytest.mark.parametrize("where", ["next_answer_ids", "answer_batch"])
def test_no_number_is_without_an_answer_whatever_is_raised_before_it_is_given(where, monkeypatch):
    container = answered(Role.LEADER)
    owner = MessageNumbers if where == "next_answer_ids" else Outbox
    original = getattr(owner, where)

    def raising(self, *arguments):
        if where == "next_answer_ids":
            original(self, *arguments)
        raise MemoryError

    monkeypatch.setattr(owner, where, raising)
    ids = np.array([1, 1])
    with pytest.raises(MemoryError):
        container.agent._answers.offer(ids, ids, ids, np.zeros(9, np.uint8), ids, ids)
    monkeypatch.undo()
    assert container.agent.numbers.next_answer_ids(ids, 0).tolist() == [5, 6]


def test_a_batch_that_is_refused_is_not_counted():
    container = answered(Role.FOLLOWER)
    agent = container.agent
    agent._channel.egress_room.used = EGRESS_CAPACITY

    ones = np.ones(2, np.int64)
    offered = agent._answers.offer(ones, ones - 1, ones, np.zeros(1, np.uint8), ones, ones)

    assert offered == Offer.BACK_PRESSURED
    assert agent.numbers.answered_of(1) == 4
