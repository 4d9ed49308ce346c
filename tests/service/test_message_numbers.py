"""Each answer has the number of the message that the service was handling, in the answered session."""

import numpy as np
import pytest

from cluster.errors import LocalProtocolError, ServiceError
from cluster.log.message_numbers import SESSIONS_AT_FIRST, MessageNumbers, _number
from cluster.protocol.session import answer_id_of
from cluster.service.clustered_service import ClusteredService
from tests.service.harness import Container, a_leader


def numbered(container: Container) -> list[tuple[int, int, bytes]]:
    """Session, number and payload of all that was answered."""
    return [
        (session, batch.number(row), batch.buffer[offset : offset + length].tobytes())
        for batch in container.egress
        for row, (session, offset, length) in enumerate(
            zip(batch.session_ids.tolist(), batch.offsets.tolist(), batch.lengths.tolist(), strict=True)
        )
    ]


def with_messages(service: ClusteredService, *messages: tuple[int, bytes]) -> Container:
    container = a_leader(service)
    for session_id in (1, 2):
        container.log.opened(session_id)
    for session_id, payload in messages:
        container.log.message(session_id, payload)
    return container


class EachByItself(ClusteredService):
    def on_start(self, cluster, snapshot_image):
        self.cluster = cluster

    def on_session_message(self, session, timestamp, buffer):
        payload = bytes(buffer)
        if payload == b"raise":
            raise ValueError("as it was told")
        if payload == b"columns":
            self.cluster.offer_batch(np.array([1, 2]), np.array([0, 0]), np.array([1, 1]), payload)
        else:
            session.offer(payload)


def test_messages_are_counted_by_session_and_one_that_raises_is_among_them():
    messages = [(1, b"a"), (2, b"b"), (1, b"raise"), (1, b"c"), (2, b"raise"), (2, b"d")]
    container = with_messages(EachByItself(), *messages)
    for _ in range(2):
        with pytest.raises(ServiceError):
            container.commit()
    container.commit()

    assert numbered(container) == [(1, 1, b"a"), (2, 1, b"b"), (1, 3, b"c"), (2, 3, b"d")]


def test_columns_that_are_offered_for_a_message_answer_it_in_its_own_session():
    container = with_messages(EachByItself(), (1, b"a"), (1, b"columns"))
    container.commit()
    assert numbered(container)[1:] == [(1, 2, b"c"), (2, 0, b"c")]


class InBatches(ClusteredService):
    def __init__(self, rows):
        self.rows = rows

    def on_start(self, cluster, snapshot_image):
        self.cluster = cluster

    def on_session_messages(self, batch):
        column = np.zeros(len(self.rows), np.int64)
        self.cluster.offer_batch(column + 1, column, column + 1, b"x", rows=np.array(self.rows))


@pytest.mark.parametrize("rows", [[3], [-1], [0, 5]])
def test_rows_that_are_not_in_the_batch_are_refused(rows):
    container = with_messages(InBatches(rows), (1, b"a"), (1, b"b"), (1, b"c"))
    with pytest.raises(ServiceError, match=r"rows: expected \d of the batch's \d") as raised:
        container.commit()
    assert isinstance(raised.value.__cause__, LocalProtocolError)


def test_rows_are_given_where_there_is_no_batch():
    class Wrong(EachByItself):
        def on_session_message(self, session, timestamp, buffer):
            none = np.zeros(1, np.int64)
            self.cluster.offer_batch(none, none, none, b"x", rows=none)

    container = with_messages(Wrong(), (1, b"a"))
    with pytest.raises(ServiceError, match="rows: no batch is being delivered"):
        container.commit()


def test_more_sessions_than_there_was_room_for_at_first_are_counted_on():
    numbers = MessageNumbers()
    many = range(1, 3 * SESSIONS_AT_FIRST)
    for session_id in many:
        numbers.open(session_id, count=session_id)
    numbers.close(2)
    numbers.close(1_000_000)
    numbers.open(unknown := 1_000_001, count=None)

    assert numbers.number(np.array([5, 5, 2, 9, 5, unknown])).tolist() == [6, 7, 0, 10, 8, 0]
    numbers.take_back(np.array([9, 5, unknown]))
    assert [numbers.count_of(session_id) for session_id in (5, 9, 2, unknown)] == [7, 9, None, None]
    assert numbers.count_of(many[-1]) == many[-1]


def test_a_message_of_a_session_that_is_not_known_has_number_0():
    numbers, table = np.full(3, 9, np.int64), MessageNumbers()
    table.open(7, 4)
    _number(table.words, np.array([8, 7, 8]), numbers)

    assert numbers.tolist() == [0, 5, 0]


def test_the_id_of_an_answer_is_of_its_service():
    numbers = MessageNumbers()
    numbers.open(5, is_supervised=True, answered=7)
    numbers.open(6)
    session_ids = np.array([5, 6, 5])

    assert numbers.next_answer_ids(session_ids, 3).tolist() == [answer_id_of(3, 8), 0, answer_id_of(3, 9)]
    assert numbers.answered_of(5) == 7, "they are not given yet"
