"""What a service is told of where it runs, and errors that it reports instead of raising them."""

from __future__ import annotations

from typing import Any

from cluster import ClusteredService, ServiceError
from cluster.service.callbacks import raised_at
from tests.service.harness import Container, Recorder, a_leader


def test_a_service_is_given_what_is_configured_of_it():
    container = a_leader(service := Recorder(), service_id=3, service_name="a:B", cluster_id=7, member_id=2)
    context = service.cluster.context()
    assert (context.service_id, context.service_name) == (3, "a:B")
    assert (context.cluster_id, context.member_id) == (7, 2)
    assert container.agent.state.member_id == 0, "of the log that it joined, which is another thing"


class Reporting(ClusteredService):
    """Reports what it is asked to, and goes on."""

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        try:
            int(buffer)
        except ValueError as error:
            self.cluster.context().error_handler(error)
        session.offer(b"done")

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.cluster.context().error_handler(RuntimeError("never raised"))


def reporting() -> tuple[Container, list[ServiceError]]:
    reported: list[ServiceError] = []
    container = a_leader(Reporting(), on_reported=reported.append)
    container.log.opened(1)
    return container, reported


def test_a_reported_error_names_its_place_and_the_entry_goes_on():
    container, reported = reporting()
    end = container.log.message(1, b"one")
    container.commit()

    (error,) = reported
    assert (error.is_reported, error.callback, error.log_position) == (True, "on_session_message", end)
    assert isinstance(error.__cause__, ValueError)
    line = Reporting.on_session_message.__code__.co_firstlineno + 2
    assert error.kind == f"service 0 reported ValueError in on_session_message ({__file__}:{line})"
    assert container.answers() == [(1, container.agent.state.cluster_time, b"done")]


def test_the_client_is_not_told_of_what_is_only_reported():
    container, _ = reporting()
    container.log.message(1, b"one")
    container.commit()
    assert [type(message).__name__ for message in container.sent] == ["ServiceAck", "ServiceAck"]


def test_an_error_that_was_never_raised_is_placed_where_it_is_reported():
    container, reported = reporting()
    container.log.timer(5)
    container.commit()
    line = Reporting.on_timer_event.__code__.co_firstlineno + 1
    assert reported[0].kind == f"service 0 reported RuntimeError in on_timer_event ({__file__}:{line})"
    assert raised_at(ValueError()).startswith(f"{__file__}:")
