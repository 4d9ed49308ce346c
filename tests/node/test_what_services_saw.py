"""What readers of the log get beside what a service was given; and a service that cannot go on."""

from __future__ import annotations

from typing import Any

import pytest

from cluster import AgentTermination, ClusterClient, ClusteredService, ClusterNode, LogReader
from tests.node.processes import await_that, endpoints_of, keys_of


class Watching(ClusteredService):
    """Notes each entry as a reader's row shows it, talks to itself, and sets timers."""

    made: list[Watching] = []

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        Watching.made.append(self)

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster

    def _note(self, entry_type: str, *what: Any) -> None:
        self.seen.append((entry_type, self.cluster.log_position(), self.cluster.time(), *what))

    def on_session_open(self, session: Any, timestamp: int) -> None:
        self._note("SESSION_OPEN", session.id)

    def on_session_close(self, session: Any, timestamp: int, close_reason: Any) -> None:
        self._note("SESSION_CLOSE", session.id)

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        self._note("SESSION_MESSAGE", session.id if session else -1, bytes(buffer))
        if session is not None:
            self.cluster.offer(b"of " + bytes(buffer[:10]))
            self.cluster.schedule_timer(len(buffer), timestamp)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self._note("TIMER", correlation_id)

    def on_new_leadership_term_event(self, event: Any) -> None:
        self._note("NEW_LEADERSHIP_TERM", event.leadership_term_id)


def as_seen(row: dict[str, Any]) -> tuple[Any, ...]:
    """A reader's row as the service notes its entry."""
    match row["entryType"]:
        case "SESSION_MESSAGE":
            what = (max(row["clusterSessionId"], -1), row["payload"])
        case "TIMER":
            what = (row["correlationId"],)
        case "NEW_LEADERSHIP_TERM":
            what = (row["leadershipTermId"],)
        case _:
            what = (row["clusterSessionId"],)
    return row["entryType"], row["endPosition"], row["clusterTime"], *what


@pytest.mark.conformance("S-182")
@pytest.mark.parametrize("medium", ["directory", "tcp"])
def test_a_reader_gets_just_what_the_service_was_given_in_its_order(tmp_path, medium):
    keys = keys_of(tmp_path, services=[f"{__name__}:Watching"], service_mode="inline")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
        with ClusterClient.connect(endpoints_of(node, "ipc")) as client:
            for length in (1, 100, 5_000, 70_000):
                client.offer(bytes([length % 251]) * length)
            client.await_committed(40)
        seen = Watching.made[-1].seen
        # A term, a session's begin and end, four messages, as many of the service's own, and as many timers.
        await_that(lambda: len(seen) == 15, "all of it")
        is_local = medium == "directory"
        source = {"dir": str(node.config.path)} if is_local else {"endpoints": endpoints_of(node, medium)}
        with LogReader.open(**source) as reader:
            assert [as_seen(row) for row in reader] == seen


class Ending(ClusteredService):
    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        raise AgentTermination("it cannot go on")


@pytest.mark.conformance("C-311")
def test_an_inline_service_that_dies_ends_its_member_as_unexpected(tmp_path):
    node = ClusterNode.launch(**keys_of(tmp_path, services=[f"{__name__}:Ending"], service_mode="inline"))
    await_that(lambda: node.is_leader, "it leads")
    client = ClusterClient.connect(endpoints_of(node, "ipc"))
    client.offer(b"x")
    await_that(lambda: not node.is_running, "the member has ended")
    with pytest.raises(AgentTermination, match="it cannot go on"):
        node.close()
    client.close()
