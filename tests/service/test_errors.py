"""A callback that raises: what is passed over, what is said of it, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from cluster import ClusteredService, StorageError
from cluster.protocol.enums import ClusterAction
from cluster.protocol.link import ServiceFailed
from tests.service.harness import Container, Recorder, a_follower, a_leader, errors_of


def raise_boom(*_: Any) -> None:
    raise ValueError("boom")


def told(container: Container) -> list[ServiceFailed]:
    return [message for message in container.sent if isinstance(message, ServiceFailed)]


LOGGED = {
    "on_session_open": lambda log: log.opened(1),
    "on_session_message": lambda log: log.message(1, b"a"),
    "on_timer_event": lambda log: log.timer(5),
    "on_session_close": lambda log: log.closed(1),
    "on_new_leadership_term_event": lambda log: log.term(),
}


@pytest.mark.conformance("S-111")
@pytest.mark.parametrize("callback", LOGGED)
def test_an_error_says_which_callback_raised_where_in_code_and_log_and_the_log_goes_on(callback):
    container = a_leader(service := Recorder())
    if callback != "on_session_open":
        container.log.opened(1)
        container.commit()
    service.do[callback] = raise_boom
    end = LOGGED[callback](container.log)
    container.log.timer(9)
    if callback == "on_timer_event":
        service.do[callback] = lambda correlation_id, _: raise_boom() if correlation_id == 5 else None

    (error,) = errors_of(container)
    assert (error.service_id, error.callback, error.log_position) == (0, callback, end)
    assert isinstance(error.__cause__, ValueError)
    line = raise_boom.__code__.co_firstlineno + 1
    assert str(error) == f"service 0 raised ValueError in {callback} ({__file__}:{line}): boom"
    assert service.calls[-1] == ("on_timer_event", 9, 0)


@pytest.mark.parametrize("callback", LOGGED)
def test_a_callback_that_leaves_the_process_is_one_that_raised(callback):
    error = SystemExit(3)

    def leave(*_: Any) -> None:
        raise error

    container = a_leader(service := Recorder())
    if callback != "on_session_open":
        container.log.opened(1)
        container.commit()
    service.do[callback] = leave
    LOGGED[callback](container.log)

    (told,) = errors_of(container)
    assert told.__cause__ is error


@pytest.mark.parametrize("callback", LOGGED)
def test_the_client_whose_entry_it_was_is_told_by_the_leader(callback):
    for start in (a_leader, a_follower):
        container = start(service := Recorder())
        if callback != "on_session_open":
            container.log.opened(1)
            container.commit()
        service.do[callback] = raise_boom
        end = LOGGED[callback](container.log)
        errors_of(container)

        is_told = start is a_leader and callback in ("on_session_open", "on_session_message")
        what = f"service 0 raised ValueError in {callback} at position {end}"
        assert told(container) == ([ServiceFailed(1, what)] if is_told else [])


def test_what_an_exception_says_is_not_for_the_client():
    container = a_leader(service := Recorder())
    container.log.opened(1)
    container.log.message(1, b"")
    service.do["on_session_message"] = raise_boom
    errors_of(container)
    assert "boom" not in told(container)[0].detail


def test_errors_of_one_cause_are_of_one_kind_whatever_they_say():
    container = a_leader(service := Recorder())
    container.log.opened(1)
    for payload in (b"1", b"22"):
        container.log.message(1, payload)

    def fail(session: Any, timestamp: int, payload: bytes) -> None:
        raise ValueError(payload)

    service.do["on_session_message"] = fail
    first, second = errors_of(container)
    assert first.kind == second.kind
    assert str(first) != str(second)


class Vectorised(ClusteredService):
    """Sums numbers, and raises before it changes anything when one of a batch is none."""

    def __init__(self) -> None:
        self.total = 0
        self.seen: list[int] = []

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster

    def on_session_messages(self, batch: Any) -> None:
        numbers = [int(bytes(payload)) for payload in batch.payloads()]
        self.total += sum(numbers)
        self.seen += numbers
        self.cluster.offer_batch(batch.session_ids, batch.offsets, batch.lengths, batch.buffer)


@pytest.mark.parametrize("fragment_limit", [1, 2, 3, 7, 100])
def test_of_a_batch_that_raises_only_the_messages_that_raise_alone_are_passed_over(fragment_limit):
    """However the log is cut: else one bad message would make members differ."""
    container = a_leader(service := Vectorised(), log_fragment_limit=fragment_limit)
    container.log.opened(1)
    payloads = [b"1", b"2", b"x", b"4", b"5", b"y", b"7", b"8", b"9"]
    ends = [container.log.message(1, payload) for payload in payloads]

    errors = errors_of(container)
    assert service.seen == [1, 2, 4, 5, 7, 8, 9]
    assert [error.log_position for error in errors] == [ends[2], ends[5]]
    assert [failed.detail for failed in told(container)] == [
        f"service 0 raised ValueError in on_session_messages at position {end}" for end in (ends[2], ends[5])
    ]
    assert [payload for _, _, payload in container.answers()] == [b"1", b"2", b"4", b"5", b"7", b"8", b"9"]


def test_a_batch_that_raises_although_none_of_its_messages_does_is_told_once():
    class OnlyAlone(Recorder):
        def on_session_messages(self, batch: Any) -> None:
            if len(batch) > 1:
                raise ValueError("not together")
            self.calls.append(bytes(batch.payload(0)))

    container = a_leader(service := OnlyAlone())
    for payload in (b"1", b"2"):
        container.log.message(1, payload)

    (error,) = errors_of(container)
    assert "not together" in str(error)
    assert service.calls[-2:] == [b"1", b"2"]


def test_a_disk_that_fails_in_a_callback_is_no_error_of_the_service():
    container = a_leader(service := Recorder())

    def fail(*_: Any) -> None:
        raise StorageError("segment", 28)

    service.do["on_timer_event"] = fail
    container.log.timer(1)
    with pytest.raises(StorageError):
        container.commit()


class _Disk:
    """Where snapshots are kept: one that notes what became of each."""

    def __init__(self) -> None:
        self.recording_id = 3
        self.fate = ""

    def create(self, *_: Any) -> _Disk:
        return self

    def offer(self, *_: Any) -> None:
        pass

    def complete(self, _: Any) -> int:
        self.fate = "complete"
        return self.recording_id

    def discard(self, recording_id: int) -> None:
        assert recording_id == self.recording_id
        self.fate = "discarded"


@pytest.mark.conformance("S-115")
def test_a_snapshot_in_which_the_service_raises_is_discarded_and_acked_with_minus_1():
    disk = _Disk()
    container = a_leader(service := Recorder(), archive=disk)

    def half(publication: Any) -> None:
        publication.offer(b"half")
        raise ValueError("boom")

    service.on_take_snapshot = half  # type: ignore[attr-defined]
    end = container.log.action(ClusterAction.SNAPSHOT)
    (error,) = errors_of(container)

    assert (error.callback, error.log_position) == ("on_take_snapshot", end)
    assert disk.fate == "discarded"
    assert (container.acks[-1].log_position, container.acks[-1].relevant_id) == (end, -1)
