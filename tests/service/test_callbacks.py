"""What a service is told, in which order (points S-73 to S-98)."""

from __future__ import annotations

import numpy as np
import pytest

from cluster.errors import AgentTermination, ClusterError, LocalProtocolError, ServiceError
from cluster.protocol.enums import CloseReason, ClusterTimeUnit, Role
from cluster.protocol.service import CancelTimer, CloseSession, ScheduleTimer
from cluster.service.buffer_claim import BufferClaim
from cluster.service.clustered_service import ClusteredService
from cluster.service.echo import EchoService
from tests.service.harness import Container, Recorder, a_follower, a_leader


@pytest.mark.conformance("S-73", "S-74")
def test_the_start_comes_once_and_first_and_without_an_image_when_there_is_no_snapshot():
    container = a_leader(service := Recorder())
    container.log.timer(1)
    container.commit()

    assert service.names.count("on_start") == 1
    assert service.calls[0][0] == "on_start"
    assert service.calls[0][2] is None


@pytest.mark.conformance("S-75")
def test_the_leadership_term_is_the_first_that_is_told_of_each_term():
    container = a_leader(service := Recorder())
    container.log.opened(1)
    container.log.term(timestamp=50)
    container.log.timer(4)
    container.commit()

    assert service.names == [
        "on_start",
        "on_role_change",
        "on_new_leadership_term_event",
        "on_session_open",
        "on_new_leadership_term_event",
        "on_timer_event",
    ]
    event = service.calls[4][1]
    assert (event.leadership_term_id, event.timestamp, event.app_version) == (1, 50, 1)
    assert service.cluster.time_unit() is ClusterTimeUnit.MILLIS
    assert service.cluster.leadership_term_id() == 1


@pytest.mark.conformance("S-76", "S-77", "S-79")
def test_leader_and_follower_are_told_the_same_in_log_order():
    def write(container: Container) -> list:
        log = container.log
        log.opened(1, 10)
        log.message(1, b"a", 11)
        log.timer(8, 12)
        log.message(1, b"b", 13)
        log.closed(1, 14, CloseReason.TIMEOUT)
        container.commit()
        return [
            (call[0], *(getattr(argument, "id", argument) for argument in call[1:]))
            for call in container.service.calls
            if call[0].startswith(("on_session", "on_timer"))
        ]

    expected = [
        ("on_session_open", 1, 10),
        ("on_session_message", 1, 11, b"a"),
        ("on_timer_event", 8, 12),
        ("on_session_message", 1, 13, b"b"),
        ("on_session_close", 1, 14, CloseReason.TIMEOUT),
    ]
    assert write(a_leader(Recorder())) == expected
    assert write(a_follower(Recorder())) == expected


@pytest.mark.conformance("S-78")
def test_position_and_time_in_a_callback_are_those_of_its_event():
    container = a_leader(service := Recorder())
    seen = []
    for name in ("on_session_open", "on_session_message", "on_timer_event", "on_session_close"):
        service.do[name] = lambda *_: seen.append((service.cluster.log_position(), service.cluster.time()))
    ends = [
        container.log.opened(3, 21),
        container.log.message(3, b"x" * 5000, 22),
        container.log.timer(1, 23),
        container.log.closed(3, 24),
    ]
    container.commit()

    assert seen == list(zip(ends, (21, 22, 23, 24), strict=True))


@pytest.mark.conformance("S-80")
def test_a_closed_session_is_not_found_any_more_and_takes_no_answers():
    container = a_leader(service := Recorder())
    results = []
    service.do["on_session_close"] = lambda session, *_: results.append(
        (service.cluster.get_client_session(session.id), session.offer(b"late"))
    )
    container.log.opened(1)
    container.log.closed(1)
    container.commit()

    assert results == [(None, -1)]
    assert container.answers() == []


@pytest.mark.conformance("S-81")
def test_messages_of_services_come_without_a_session():
    container = a_follower(service := Recorder())
    container.log.message(-(2**63) + 1, b"from a service", 5)
    container.commit()

    assert service.calls[-1] == ("on_session_message", None, 5, b"from a service")


FORBIDDEN_IN = ("on_start", "on_role_change", "on_terminate", "do_background_work")


class Sender(Recorder):
    """Tries everything that sends, in one callback, and notes what came of it."""

    def __init__(self, callback: str) -> None:
        super().__init__()
        self.callback = callback
        self.outcomes: list[object] = []

    def _note(self, name, *arguments):
        super()._note(name, *arguments)
        if name == self.callback and not self.outcomes:
            cluster = self.cluster
            session = cluster.get_client_session(1)
            for attempt in (
                lambda: cluster.offer(b"m"),
                lambda: cluster.try_claim(3, BufferClaim()),
                lambda: cluster.schedule_timer(1, 1),
                lambda: cluster.cancel_timer(1),
                lambda: cluster.offer_batch(*[np.zeros(1, np.int64)] * 3, np.zeros(9, np.uint8)),
                lambda: session.offer(b"s") if session else cluster.offer(b""),
                lambda: cluster.close_client_session(1),
            ):
                try:
                    self.outcomes.append(attempt())
                except ClusterError as error:
                    self.outcomes.append(error)

    def do_background_work(self, now_ns):
        self._note("do_background_work", now_ns)
        return 0


@pytest.mark.conformance("S-82")
@pytest.mark.parametrize("callback", FORBIDDEN_IN)
def test_sending_from_outside_the_log_raises_and_names_the_callback(callback):
    container = a_leader(service := Sender(callback))
    container.log.opened(1)
    container.commit()
    container.terminate_at(container.log.end).settle()

    assert len(service.outcomes) == 7
    for outcome in service.outcomes:
        assert isinstance(outcome, LocalProtocolError)
        assert callback in str(outcome)


@pytest.mark.conformance("S-83")
@pytest.mark.parametrize(
    "callback",
    ["on_session_message", "on_timer_event", "on_session_open", "on_new_leadership_term_event"],
)
def test_sending_is_allowed_in_the_callbacks_of_log_entries(callback):
    container = Container(service := Sender(callback)).start()
    container.join().turn()
    container.log.term()
    if callback != "on_new_leadership_term_event":
        container.log.opened(1)
        container.log.message(1, b"")
        container.log.timer(1)
    container.commit()

    failed = [outcome for outcome in service.outcomes if isinstance(outcome, Exception)]
    # In the first term event no session is known yet, and that is all that can be wrong.
    assert [str(error) for error in failed] == (
        ["unknown cluster session 1"] if callback == "on_new_leadership_term_event" else []
    )


@pytest.mark.conformance("S-84", "S-85")
def test_offers_on_a_follower_are_only_acted():
    container = a_follower(service := Recorder())
    claim = BufferClaim()
    results = []

    def answer(session, *_):
        results.append(session.offer(b"hello"))
        results.append(session.try_claim(4, claim))
        claim.buffer[:] = b"abcd"
        claim.commit()
        results.append(service.cluster.offer_batch(*[np.array([1])] * 3, np.zeros(9, np.uint8)))

    service.do["on_session_message"] = answer
    container.log.opened(1)
    container.log.message(1, b"question")
    container.commit()

    assert results == [1, 1, 1]
    assert container.egress == []


@pytest.mark.conformance("S-86")
def test_offers_on_the_leader_carry_session_term_and_cluster_time():
    container = a_leader(service := Recorder())
    claim = BufferClaim()
    results = []

    def answer(session, *_):
        results.append(session.offer(b"he", memoryview(b"llo"), np.frombuffer(b"!", np.uint8)))
        results.append(session.try_claim(2, claim))
        claim.buffer[:] = b"ab"
        claim.commit()
        session.try_claim(2, claim)
        claim.abort()

    service.do["on_session_message"] = answer
    container.log.opened(9)
    container.log.message(9, b"question", timestamp=77)
    container.commit()

    assert all(result > 1 for result in results)
    assert container.answers() == [(9, 77, b"hello!"), (9, 77, b"ab")]
    assert {batch.leadership_term_id for batch in container.egress} == {0}


def test_answers_in_batches_and_one_by_one_keep_their_order():
    container = a_leader(service := Recorder())

    def answer(session, *_):
        session.offer(b"1")
        buffer = bytearray(b"23")
        service.cluster.offer_batch(np.array([4, 4]), np.array([0, 1]), np.array([1, 1]), buffer)
        buffer[:] = b"--"  # the service's own again: it was copied
        session.offer(b"4")

    service.do["on_session_message"] = answer
    container.log.opened(4)
    container.log.message(4, b"", 6)
    container.commit()

    assert container.answers() == [(4, 6, b"1"), (4, 6, b"2"), (4, 6, b"3"), (4, 6, b"4")]


def test_an_answer_bears_the_term_of_what_it_answers():
    container = a_leader(service := Recorder())
    service.do["on_session_message"] = lambda session, *_: session.offer(b"x")
    container.log.opened(1)
    container.log.message(1, b"in the first term")
    container.log.term()
    container.log.message(1, b"in the second")
    container.commit()

    assert [batch.leadership_term_id for batch in container.egress] == [0, 1]


@pytest.mark.parametrize(
    ("offsets", "lengths"), [([0, 8], [1, 2]), ([-1, 0], [1, 1]), ([0, 0], [1, -1]), ([0], [1])]
)
def test_a_batch_that_does_not_fit_its_buffer_is_refused(offsets, lengths):
    container = a_leader(service := Recorder())
    service.do["on_timer_event"] = lambda *_: service.cluster.offer_batch(
        np.array([1, 1]), np.array(offsets), np.array(lengths), np.zeros(9, np.uint8)
    )
    container.log.timer(1)
    with pytest.raises(ServiceError) as raised:
        container.commit()
    assert isinstance(raised.value.__cause__, LocalProtocolError)
    assert container.egress == []


def test_the_echo_service_answers_each_message_with_itself_and_its_time():
    container = a_leader(EchoService())
    sent = []
    for session_id in (1, 2):
        container.log.opened(session_id)
    for i in range(100):
        payload = bytes([i]) * (i * 40)  # some are fragmented
        container.log.message(1 + i % 2, payload, timestamp=i)
        sent.append((1 + i % 2, i, payload))
    container.commit()

    assert container.answers() == sent


@pytest.mark.conformance("S-87", "S-89")
def test_timers_are_requests_to_the_consensus_module():
    container = a_leader(service := Recorder())

    def schedule(*_):
        assert service.cluster.schedule_timer(5, 1_000) is True
        assert service.cluster.schedule_timer(5, 2_000) is True
        assert service.cluster.cancel_timer(5) is True

    service.do["on_timer_event"] = schedule
    container.log.timer(1)
    container.commit()

    assert container.sent[-3:] == [
        ScheduleTimer(correlation_id=5, deadline=1_000),
        ScheduleTimer(correlation_id=5, deadline=2_000),
        CancelTimer(correlation_id=5),
    ]


@pytest.mark.conformance("S-91")
def test_a_timer_is_refused_under_back_pressure_and_raises_when_the_module_is_gone():
    container = a_leader(service := Recorder(), capacity=100)
    results = []
    service.do["on_timer_event"] = lambda *_: results.extend(
        service.cluster.schedule_timer(i, 1) for i in range(6)
    )
    container.log.timer(1)
    container.commit()
    assert results == [True] * 4 + [False] * 2  # 24 bytes each

    container.channel.close()
    container.log.timer(1)
    with pytest.raises(ClusterError, match="gone"):
        container.commit()


@pytest.mark.conformance("S-92")
def test_a_session_is_closed_once_and_an_unknown_one_raises():
    container = a_leader(service := Recorder())
    results = []

    def close(session, *_):
        cluster = service.cluster
        results.extend([cluster.close_client_session(1), session.is_closing, session.close()])
        cluster.close_client_session(99)

    service.do["on_session_message"] = close
    container.log.opened(1)
    container.log.message(1, b"")
    with pytest.raises(ClusterError, match="unknown cluster session 99"):
        container.commit()

    assert results == [True, True, True]
    assert container.sent.count(CloseSession(cluster_session_id=1)) == 1


@pytest.mark.conformance("S-93", "S-98")
def test_idling_does_background_work_lets_the_module_take_and_ends_with_the_container():
    container = a_leader(service := Sender("none"), capacity=60)
    taken = []

    def take() -> int:
        message = container.channel.poll_consensus_module()
        taken.append(message)
        return message is not None

    container.channel.on_idle = take

    def schedule(*_):
        before = service.names.count("do_background_work")
        for correlation_id in (1, 2, 3, 4):
            while not service.cluster.schedule_timer(correlation_id, 9):
                service.cluster.idle_strategy().idle()
        assert service.names.count("do_background_work") - before == 2
        container.channel.close()
        service.cluster.idle_strategy().idle()

    service.do["on_timer_event"] = schedule
    container.log.timer(1)
    with pytest.raises(AgentTermination):
        container.commit()
    assert len(taken) == 2


@pytest.mark.conformance("S-98")
def test_background_work_is_done_in_every_turn_and_counts_as_work():
    class Busy(ClusteredService):
        def do_background_work(self, now_ns: int) -> int:
            return 3

    container = Container(Busy()).start()
    assert container.turn() == 3


@pytest.mark.conformance("S-94")
def test_the_role_is_told_when_it_changes_and_is_follower_when_a_leaders_log_closes():
    container = a_leader(service := Recorder())
    container.log.timer(1)
    end = container.log.timer(2)
    container.commit(end - 64)
    container.channel.close_log(container.commit_position)
    container.settle()
    container.join(Role.FOLLOWER).commit()
    container.join(Role.LEADER, position=end).settle()

    assert [call[1] for call in service.calls if call[0] == "on_role_change"] == [
        Role.LEADER,
        Role.FOLLOWER,
        Role.LEADER,
    ]
    assert [call[1] for call in service.calls if call[0] == "on_timer_event"] == [1, 2]


@pytest.mark.conformance("S-95")
def test_a_replay_runs_as_follower_and_answers_nobody():
    container = Container(service := Recorder()).start()
    service.do["on_session_message"] = lambda session, *_: session.offer(b"old news")
    roles = []
    service.do["on_session_open"] = lambda *_: roles.append(service.cluster.role())
    container.log.term()
    container.log.opened(1)
    end = container.log.message(1, b"m")
    container.join(Role.FOLLOWER, max_position=end, is_startup=True).commit()
    container.join(Role.LEADER, is_startup=True, position=end).settle()

    assert roles == [Role.FOLLOWER]
    assert service.names.count("on_session_message") == 1
    assert container.egress == []
    assert service.cluster.role() is Role.LEADER


def test_sessions_of_a_replay_are_not_connected_at_startup_but_after_a_change_of_leader():
    for is_startup, expected in ((True, -1), (False, 32 + 32 + 1)):
        container = a_follower(service := Recorder())
        container.log.opened(1)
        container.commit()
        container.channel.close_log(container.log.end)
        container.join(Role.LEADER, is_startup=is_startup).settle()
        results = []
        service.do["on_timer_event"] = lambda *_: results.append(  # noqa: B023
            service.cluster.get_client_session(1).offer(b"x")
        )
        container.log.timer(1)
        container.commit()
        assert results == [expected]


@pytest.mark.conformance("S-96")
def test_sessions_iterate_by_ascending_id():
    container = a_follower(service := Recorder())
    for session_id in (5, 1, 3):
        container.log.opened(session_id, principal=b"p%d" % session_id)
    container.log.closed(3)
    container.commit()

    sessions = service.cluster.client_sessions()
    assert [session.id for session in sessions] == [1, 5]
    assert [session.encoded_principal for session in sessions] == [b"p1", b"p5"]
    visited = []
    service.cluster.for_each_client_session(visited.append)
    assert visited == list(sessions)


@pytest.mark.conformance("S-97")
def test_the_end_is_told_once_and_not_when_the_start_failed():
    container = a_leader(service := Recorder())
    container.terminate_at(container.log.end).settle()
    container.agent.close()
    assert service.names.count("on_terminate") == 1

    service = Recorder()
    service.do["on_start"] = lambda *_: 1 / 0
    container = Container(service)
    with pytest.raises(AgentTermination):
        container.start()
    container.agent.close()
    assert "on_terminate" not in service.names


@pytest.mark.conformance("S-126")
def test_a_container_that_is_no_responder_connects_nobody():
    container = a_leader(service := Recorder(), is_responder=False)
    results = []
    service.do["on_session_message"] = lambda session, *_: results.extend(
        [session.offer(b"x"), service.cluster.offer_batch(*[np.array([1])] * 3, np.zeros(9, np.uint8))]
    )
    container.log.opened(1)
    container.log.message(1, b"")
    container.commit()

    assert results == [-1, -1]


def test_a_text_is_no_message_and_the_service_learns_what_to_do():
    container = a_leader(service := Recorder())
    outcomes = []

    def send(session, *_):
        for offer in (session.offer, service.cluster.offer):
            with pytest.raises(TypeError, match="payload 1: expected bytes, got the text 'b': encode it"):
                offer(b"a", "b")
            outcomes.append(offer(b"a"))

    service.do["on_session_message"] = send
    container.log.opened(1)
    container.log.message(1, b"")
    container.commit()
    assert len(outcomes) == 2


def test_a_message_that_is_too_long_is_refused():
    container = a_leader(service := Recorder(), max_message_length=100)
    outcomes = []

    def send(session, *_):
        for attempt in (
            lambda: session.offer(b"x" * 60, b"x" * 41),
            lambda: session.try_claim(101, BufferClaim()),
            lambda: service.cluster.offer(b"x" * 101),
        ):
            with pytest.raises(LocalProtocolError, match="101 bytes is longer than the maximum of 100"):
                attempt()
        outcomes.append(session.offer(b"x" * 100))

    service.do["on_session_message"] = send
    container.log.opened(1)
    container.log.message(1, b"")
    container.commit()
    assert len(outcomes) == 1
    assert [len(payload) for _, _, payload in container.answers()] == [100]
