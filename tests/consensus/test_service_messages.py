"""What a service offers to its own cluster is in the log once, in order, whoever leads."""

import pytest

from cluster.consensus.service_messages import (
    PendingServiceMessageTracker,
    service_id_of,
    service_session_id,
)
from cluster.errors import LogDamaged


class Log:
    def __init__(self, capacity: int = 1_000) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.capacity = capacity

    def append(self, message_id: int, payload: bytes) -> int:
        if len(self.entries) >= self.capacity:
            return -3
        self.entries.append((message_id, payload))
        return 64 * len(self.entries)


def pending_of(*payloads: bytes, service_id: int = 0) -> PendingServiceMessageTracker:
    pending = PendingServiceMessageTracker(service_id)
    for payload in payloads:
        pending.enqueue(payload)
    return pending


def kept(pending: PendingServiceMessageTracker) -> list[tuple[int, bytes]]:
    return [(message_id, payload) for message_id, _, payload in pending.pending_messages()]


def loaded(next_id: int, log_id: int, messages: list[tuple[int, bytes]]) -> PendingServiceMessageTracker:
    pending = PendingServiceMessageTracker(0)
    pending.load(next_id, log_id)
    for message_id, payload in messages:
        pending.load_message(message_id, payload)
    pending.verify()
    return pending


@pytest.mark.conformance("C-276")
@pytest.mark.parametrize(
    ("service_id", "number", "expected"),
    [(0, 1, 0x8000000000000001), (1, 1, 0x8100000000000001), (9, 0, 0x8900000000000000)],
)
def test_an_id_in_the_log_is_negative_and_names_service_and_number(service_id, number, expected):
    message_id = service_session_id(service_id, number)

    assert message_id < 0
    assert message_id & (2**64 - 1) == expected
    assert service_id_of(message_id) == service_id


@pytest.mark.conformance("C-274", "C-277")
def test_a_leader_appends_what_its_service_offered_in_order():
    pending, log = pending_of(b"a", b"b", b"c", service_id=2), Log()

    assert pending.has_unappended
    assert pending.poll(log.append, limit=20) == 3
    assert not pending.has_unappended
    assert log.entries == [(service_session_id(2, n), p) for n, p in ((1, b"a"), (2, b"b"), (3, b"c"))]


@pytest.mark.conformance("C-278")
def test_a_poll_appends_no_more_than_its_limit():
    pending, log = pending_of(*[b"x"] * 45), Log()

    assert [pending.poll(log.append, limit=20) for _ in range(4)] == [20, 20, 5, 0]


def test_what_the_log_refuses_is_appended_by_the_next_poll():
    pending, log = pending_of(b"a", b"b"), Log(capacity=1)

    assert pending.poll(log.append, limit=20) == 1
    log.capacity = 2
    assert pending.poll(log.append, limit=20) == 1
    assert [payload for _, payload in log.entries] == [b"a", b"b"]


def test_a_commit_drops_what_it_covers_and_keeps_the_rest():
    pending, log = pending_of(b"a", b"b", b"c"), Log()
    pending.poll(log.append, limit=20)

    pending.sweep_leader(commit_position=128)

    assert kept(pending) == [(service_session_id(0, 3), b"c")]
    assert pending.log_service_session_id == service_session_id(0, 2)


@pytest.mark.conformance("C-279")
def test_a_follower_drops_its_copy_once_the_log_shows_the_id():
    pending = pending_of(b"a", b"b", b"c")

    pending.sweep_follower(service_session_id(0, 2))

    assert kept(pending) == [(service_session_id(0, 3), b"c")]


@pytest.mark.conformance("C-280")
def test_a_message_that_the_log_showed_first_is_dropped_when_offered():
    pending = PendingServiceMessageTracker(0)
    pending.sweep_follower(service_session_id(0, 2))

    for payload in (b"a", b"b", b"c"):
        pending.enqueue(payload)

    assert kept(pending) == [(service_session_id(0, 3), b"c")]


@pytest.mark.conformance("C-281", "C-275")
def test_uncommitted_messages_are_appended_again_after_a_loss_of_leadership():
    pending, log = pending_of(b"a", b"b", b"c"), Log()
    pending.poll(log.append, limit=20)

    pending.restore_uncommitted(commit_position=64)
    again = Log()
    pending.poll(again.append, limit=20)

    assert [payload for _, payload in again.entries] == [b"b", b"c"]


def test_an_uncommitted_message_that_the_next_leader_logged_is_not_appended_again():
    pending, log = pending_of(b"a", b"b"), Log()
    pending.poll(log.append, limit=20)
    pending.restore_uncommitted(commit_position=0)

    pending.sweep_follower(service_session_id(0, 1))
    again = Log()
    pending.poll(again.append, limit=20)

    assert [payload for _, payload in again.entries] == [b"b"]


@pytest.mark.conformance("C-282")
def test_pending_messages_survive_a_snapshot_with_their_ids():
    before = pending_of(b"a", b"b", b"c")
    before.sweep_follower(service_session_id(0, 1))

    after = loaded(before.next_service_session_id, before.log_service_session_id, kept(before))

    assert kept(after) == kept(before)
    after.enqueue(b"d")
    assert kept(after)[-1] == (service_session_id(0, 4), b"d")


@pytest.mark.conformance("C-283")
@pytest.mark.parametrize("numbers", [(2, 4), (3,), (2, 2)])
def test_a_snapshot_whose_ids_do_not_follow_one_another_does_not_load(numbers):
    messages = [(service_session_id(0, number), b"x") for number in numbers]

    with pytest.raises(LogDamaged, match="expected"):
        loaded(service_session_id(0, 2 + len(numbers)), service_session_id(0, 1), messages)


def test_a_1903_what_a_service_offers_to_a_new_leader_is_in_the_log():
    """Every member's service offers the same messages: a follower's numbers go on where the log is."""
    old_leader, new_leader, log = pending_of(b"a", b"b"), pending_of(b"a", b"b"), Log()
    old_leader.poll(log.append, limit=20)
    for message_id, _ in log.entries:
        new_leader.sweep_follower(message_id)

    new_leader.enqueue(b"c")
    new_leader.poll(log.append, limit=20)

    assert [payload for _, payload in log.entries] == [b"a", b"b", b"c"]
    assert log.entries[-1][0] == service_session_id(0, 3)


@pytest.mark.conformance("C-275")
def test_a_1903_a_service_that_lags_behind_its_log_repeats_nothing_and_loses_nothing():
    """Its member leads before the service has offered what the log shows already."""
    new_leader, log = PendingServiceMessageTracker(0), Log()
    new_leader.sweep_follower(service_session_id(0, 2))

    for payload in (b"a", b"b", b"c", b"d"):
        new_leader.enqueue(payload)
        new_leader.poll(log.append, limit=20)

    assert [payload for _, payload in log.entries] == [b"c", b"d"]


def test_what_the_log_shows_of_the_appended_ones_is_not_counted_as_appended_any_more():
    pending, log = pending_of(b"a", b"b"), Log()
    assert pending.poll(log.append) == 2

    pending.sweep_follower(service_session_id(0, 1))
    pending.enqueue(b"c")
    assert pending.has_unappended
    assert pending.poll(log.append) == 1
    assert [payload for _, payload in log.entries] == [b"a", b"b", b"c"]
