"""A snapshot's records: what is written of a member's state is what is read back, whoever wrote it."""

import pytest

from cluster.consensus.cluster_session import SessionState
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.kept_answers import KeptAnswers
from cluster.consensus.module_snapshot import CapturedModule, ModuleSnapshot, SnapshotPlace
from cluster.consensus.service_messages import PendingServiceMessageTracker, service_session_id
from cluster.consensus.sessions import SessionManager
from cluster.consensus.timers import RUN_LENGTH, PriorityHeapTimerService
from cluster.errors import LogDamaged
from cluster.protocol import decode
from cluster.protocol.enums import CloseReason, ClusterTimeUnit, SnapshotMark
from cluster.protocol.log import SessionOpenEvent
from cluster.protocol.session import SessionMessageHeader
from cluster.protocol.snapshot import ClusterSession, ConsensusModule, PendingMessageTracker, Timer
from tests.consensus.captured import records_of_capture
from tests.protocol.examples import dump

PLACE = SnapshotPlace(4096, 3, ClusterTimeUnit.MILLIS, 1)


class State:
    """What a snapshot is of."""

    def __init__(self, services=1):
        self.sessions = SessionManager(ConsensusModuleContext(max_sessions=8), None)
        self.timers = PriorityHeapTimerService()
        self.trackers = [PendingServiceMessageTracker(service_id) for service_id in range(services)]

    def open(self, session_id, principal=b""):
        event = SessionOpenEvent(
            leadership_term_id=0,
            correlation_id=40 + session_id,
            cluster_session_id=session_id,
            timestamp=5,
            response_stream_id=102,
            response_channel="aeron:udp?endpoint=h:1",
            encoded_principal=principal,
        )
        self.sessions.on_replay_session_open(event, 128 * session_id)

    def records(self):
        return records_of_capture(self.capture())

    def capture(self):
        return CapturedModule(
            PLACE, self.sessions, self.timers, self.trackers, KeptAnswers(1024, self.sessions.table)
        )


def service_message(term_id, payload):
    return SessionMessageHeader(term_id, 0, 77).encode() + payload


def a_state():
    state = State(services=2)
    state.open(1, b"alice")
    state.open(2)
    state.open(5)
    row = state.sessions.table.slots[state.sessions.table.slot_of(2)]
    row["committed"] = row["appended"] = 17
    row["committed_position"] = 4000
    state.sessions.mark_closing(5, CloseReason.SERVICE_ACTION)
    for correlation_id, deadline in [(9, 300), (3, 100), (8, 100)]:
        state.timers.schedule(correlation_id, deadline)
    state.trackers[1].sweep_follower(service_session_id(1, 20))
    state.trackers[1].next_service_session_id = service_session_id(1, 21)
    state.trackers[1].enqueue(service_message(2, b"one"))
    state.trackers[1].enqueue(service_message(3, b"two"))
    return state


def loaded(records, services=2):
    snapshot = ModuleSnapshot()
    for record in records:
        snapshot.on_record(record)
    state = State(services)
    snapshot.load(state.sessions, state.timers, state.trackers)
    return state


@pytest.mark.conformance("C-271", "C-282", "C-320", "C-321")
def test_what_is_loaded_is_what_was_there():
    before, after = a_state(), loaded(a_state().records())

    assert after.records() == before.records()
    assert [s.id for s in after.sessions] == [1, 2, 5]
    assert after.sessions.sessions[1].encoded_principal == b"alice"
    assert after.sessions.sessions[2].opened_log_position == 256
    assert after.sessions.sessions[5].state is SessionState.CLOSING
    assert after.sessions.sessions[5].close_reason is CloseReason.SERVICE_ACTION
    row = after.sessions.table.slots[after.sessions.table.slot_of(2)]
    assert (row["committed"], row["appended"], row["committed_position"]) == (17, 17, 4000)
    assert row["connection_id"] == NULL_VALUE
    assert list(after.timers) == list(before.timers)
    assert [id_ for id_, _, _ in after.trackers[1].pending_messages()] == [
        service_session_id(1, 21),
        service_session_id(1, 22),
    ]
    assert after.trackers[1].next_service_session_id == service_session_id(1, 23)


def test_what_is_captured_is_not_changed_by_what_comes_after():
    state, expected = a_state(), a_state().records()
    captured = state.capture()
    state.sessions.mark_closing(1, CloseReason.SERVICE_ACTION)
    state.open(6)
    state.timers.cancel(9)
    state.timers.schedule(8, 400)
    state.timers.schedule(1, 1)
    state.trackers[1].sweep_follower(service_session_id(1, 21))
    state.trackers[1].enqueue(service_message(3, b"three"))
    assert records_of_capture(captured) == expected != state.records()


def test_many_timers_are_sorted_a_run_at_a_time():
    state = State()
    for number in range(3 * RUN_LENGTH):
        state.timers.schedule(number * 7919 % 65_537, number * 104_729 % 1009)
    state.timers.cancel(7919)
    captured = state.capture()
    assert sum(1 for _ in captured.sort()) == 3
    found = [(r.deadline, r.correlation_id) for r in map(decode, captured.state()) if isinstance(r, Timer)]
    assert found == sorted((deadline, id_) for id_, deadline in state.timers)


@pytest.mark.conformance("C-322")
def test_the_next_session_id_counts_committed_opens_only():
    state = a_state()
    state.sessions.next_session_id = 50
    module = next(r for r in map(decode, state.records()) if isinstance(r, ConsensusModule))
    assert module.next_session_id == 6
    assert loaded(state.records()).sessions.next_session_id == 6


def test_what_only_a_leader_knows_of_a_session_is_not_in_it():
    state = a_state()
    state.sessions.mark_closing(1, CloseReason.TIMEOUT)
    assert state.records() == a_state().records()


def test_timers_of_one_deadline_stand_in_the_order_of_their_ids():
    timers = [r.correlation_id for r in map(decode, a_state().records()) if isinstance(r, Timer)]
    assert timers == [3, 8, 9]


def test_pending_messages_keep_their_term_and_say_that_they_are_not_appended():
    records = list(map(decode, a_state().records()))
    headers = [r for r in records if isinstance(r, SessionMessageHeader)]
    assert [(h.leadership_term_id, h.timestamp) for h in headers] == [(2, 2**63 - 1), (3, 2**63 - 1)]
    trackers = [r for r in records if isinstance(r, PendingMessageTracker)]
    assert [t.pending_message_capacity for t in trackers] == [0, 2 * 48]


def test_the_worked_example_of_the_reference_loads():
    data, offset = dump("consensus-module-snapshot"), 0
    records = []
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 4], "little")
        records.append(data[offset + 32 : offset + length])
        offset += (length + 31) // 32 * 32
    snapshot = ModuleSnapshot()
    for record in records:
        snapshot.on_record(record)
    assert snapshot.is_whole and snapshot.checksum is None
    assert snapshot.place == SnapshotPlace(416, 0, ClusterTimeUnit.MILLIS, 1)

    after = loaded(records, services=1)
    assert [(s.id, s.correlation_id, s.opened_log_position) for s in after.sessions] == [(1, 42, 224)]
    assert list(after.timers) == [(77, 1_700_003_600_000)]
    assert after.sessions.next_session_id == 2
    assert [r for r in after.records()[: len(records)]] == _at(records, after)


def _at(records, state):
    """The records as we would write them at our place in the log."""
    return [
        PLACE.marker(1, SnapshotMark.BEGIN),
        *records[1:-1],
        PLACE.marker(1, SnapshotMark.END),
    ]


@pytest.mark.conformance("C-283")
def test_pending_messages_with_a_gap_are_refused():
    records = a_state().records()
    first = next(i for i, r in enumerate(records) if isinstance(decode(r), SessionMessageHeader))
    with pytest.raises(LogDamaged, match="service 1: message"):
        loaded(records[:first] + records[first + 1 :])


def test_a_snapshot_begins_with_begin_and_only_once():
    records = a_state().records()
    with pytest.raises(LogDamaged, match="begins with ConsensusModule"):
        ModuleSnapshot().on_record(records[1])
    snapshot = ModuleSnapshot()
    snapshot.on_record(records[0])
    with pytest.raises(LogDamaged, match="begins twice"):
        snapshot.on_record(records[0])
    assert not snapshot.is_whole


def test_messages_of_a_service_that_is_not_there_are_refused():
    with pytest.raises(LogDamaged, match="messages of service 1, here are 1"):
        loaded(a_state().records(), services=1)


def test_sessions_are_records_without_a_reason_while_they_are_open():
    sessions = [r for r in map(decode, a_state().records()) if isinstance(r, ClusterSession)]
    assert [s.close_reason for s in sessions] == [None, None, CloseReason.SERVICE_ACTION]
