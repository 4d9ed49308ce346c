"""The state that the log determines: a leader that acts on what it writes comes to what others read."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.module_snapshot import ModuleSnapshot
from cluster.consensus.replica import ReplicatedState
from cluster.consensus.service_messages import service_session_id
from cluster.consensus.session_events import KnownLeader
from cluster.errors import AgentTermination
from cluster.protocol.enums import (
    CloseReason,
    ClusterAction,
    ClusterActionFlags,
    ClusterTimeUnit,
    ConsensusModuleState,
)
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.session import SessionConnectRequest, SessionMessageHeader
from tests.consensus.captured import records_of_capture

TERM = 3
MEMBER_ID = 0
CONTEXT = ConsensusModuleContext(max_sessions=16, service_count=2)
CHANNEL = "aeron:udp?endpoint=h:1"


class ALog:
    """What a leader writes, as (end position, entry); the sessions' way into it, and to their clients."""

    def __init__(self):
        self.entries = []
        self.end = 0
        self.replica = ReplicatedState(CONTEXT, self)
        self.replica.apply(a_term(timestamp=0), 0)
        self.replica.module.change(ConsensusModuleState.ACTIVE)

    def append(self, entry):
        self.end += 96
        self.entries.append((self.end, entry))
        return self.end

    def append_session_open(self, session):
        return self.append(opened(session.id, self.replica.cluster_time, session.correlation_id))

    def append_session_close(self, session, reason):
        return self.append(SessionCloseEvent(TERM, session.id, self.replica.cluster_time, reason))

    def ingress_endpoints(self, connection_id):
        return ""

    def is_connected(self, connection_id):
        return True

    def certificate_name(self, connection_id):
        return None

    def address(self, connection_id):
        return ""

    def on_refused(self, connection_id, encoded_principal, what, why):
        raise AssertionError(why)

    def send_egress(self, connection_id, message):
        return True

    def close_egress(self, connection_id):
        pass


def opened(session_id, timestamp=5, correlation_id=40):
    return SessionOpenEvent(TERM, correlation_id, session_id, timestamp, 102, CHANNEL, b"")


def a_term(term_id=TERM, timestamp=5, unit=ClusterTimeUnit.MILLIS, app_version=CONTEXT.app_version):
    return NewLeadershipTermEvent(term_id, 96, timestamp, 0, MEMBER_ID, 7, unit, app_version)


def an_action(action, term_id=TERM, flags=0, timestamp=5):
    return ClusterActionRequest(term_id, 96, timestamp, action, flags)


def a_replica():
    """One that reads the log of a leader."""
    return ALog().replica


def records_of(replica):
    return records_of_capture(replica.capture(0))


# ---- a member that reads the log


@pytest.mark.conformance("C-252")
def test_a_timer_event_takes_the_timer_away():
    replica = a_replica()
    replica.timers.schedule(9, 100)
    replica.apply(TimerEvent(TERM, 9, 100), 96)
    assert list(replica.timers) == []


def test_sessions_are_those_that_the_log_opens_and_does_not_close():
    replica = a_replica()
    for session_id in (1, 2):
        replica.apply(opened(session_id), 96 * session_id)
    replica.apply(SessionCloseEvent(TERM, 1, 5, CloseReason.CLIENT_ACTION), 288)

    assert [(session.id, session.opened_log_position) for session in replica.sessions] == [(2, 192)]
    assert replica.sessions.next_session_id == 3


@pytest.mark.conformance("C-257")
def test_a_new_term_is_taken_over():
    replica = a_replica()
    replica.apply(a_term(TERM + 1), 96)
    assert replica.leadership_term_id == TERM + 1


@pytest.mark.parametrize(
    "entry",
    [
        a_term(timestamp=70),
        opened(1, timestamp=70),
        SessionCloseEvent(TERM, 1, 70, CloseReason.TIMEOUT),
        TimerEvent(TERM, 1, 70),
        an_action(ClusterAction.SUSPEND, timestamp=70),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_time_goes_on_with_every_entry_and_never_back(entry):
    replica = a_replica()
    replica.apply(entry, 96)
    assert replica.cluster_time == 70
    replica.apply(TimerEvent(TERM, 5, 60), 192)
    replica.advance_time(50)
    assert replica.cluster_time == 70


@pytest.mark.conformance("C-254")
@pytest.mark.parametrize(
    ("action", "state"),
    [
        (ClusterAction.SUSPEND, ConsensusModuleState.SUSPENDED),
        (ClusterAction.RESUME, ConsensusModuleState.ACTIVE),
        (ClusterAction.SNAPSHOT, ConsensusModuleState.SNAPSHOT),
    ],
)
def test_an_action_that_is_read_puts_the_module_into_its_state(action, state):
    replica = a_replica()
    assert replica.apply(an_action(action), 96) is action
    assert replica.module.state is state


@pytest.mark.conformance("C-255", "C-256")
@pytest.mark.parametrize(
    "request_",
    [
        an_action(ClusterAction.SUSPEND, term_id=TERM - 1),
        an_action(ClusterAction.SNAPSHOT, flags=ClusterActionFlags.STANDBY_SNAPSHOT),
    ],
    ids=["of another term", "for standbys"],
)
def test_an_action_that_is_not_ours_changes_nothing(request_):
    replica = a_replica()
    assert replica.apply(request_, 96) is None
    assert replica.module.is_active


@pytest.mark.conformance("C-254")
@pytest.mark.parametrize("is_led", [False, True])
def test_an_action_of_the_term_before_the_one_that_is_joined_is_carried_out(is_led):
    """Its leader died before it was committed; the next one has it, and services act on it, too."""
    replica = a_replica()
    if is_led:
        replica.enter_term(TERM + 1)
        replica.sweep(96)
    term_id = replica.leadership_term_id
    replica.enter_term(term_id + 1)
    assert replica.apply(an_action(ClusterAction.SNAPSHOT, term_id), 192) is ClusterAction.SNAPSHOT
    replica.module.change(ConsensusModuleState.ACTIVE)
    replica.apply(a_term(term_id + 1), 288)
    assert replica.apply(an_action(ClusterAction.SUSPEND, term_id), 384) is None
    assert replica.apply(an_action(ClusterAction.SUSPEND, term_id + 1), 480) is ClusterAction.SUSPEND


@pytest.mark.conformance("C-259")
@pytest.mark.parametrize(
    ("event", "told"),
    [
        (a_term(TERM + 1, unit=ClusterTimeUnit.NANOS), "counts time in NANOS, this member in MILLIS"),
        (a_term(TERM + 1, app_version=2 << 16), "is of app version 0x20000, this member of 0x1"),
    ],
    ids=["time unit", "app version"],
)
def test_a_log_that_this_member_cannot_read_ends_it(event, told):
    replica = a_replica()
    with pytest.raises(AgentTermination, match=f"the log at 96 {told}"):
        replica.apply(event, 96)
    assert replica.leadership_term_id == TERM


def test_a_template_of_a_later_version_changes_nothing():
    replica = a_replica()
    before = records_of(replica)
    assert replica.apply(None, 96) is None
    assert (records_of(replica), replica.cluster_time) == (before, 0)


@pytest.mark.conformance("C-279", "C-280")
def test_service_messages_that_the_log_shows_are_let_go_also_before_their_service_offers_them():
    replica = a_replica()
    one, two = replica.trackers[1], service_session_id(1, 2)
    one.enqueue(service_message(b"1"))
    replica.sessions.table.service_message_ids[1] = two
    replica.drop_logged_service_messages()
    one.enqueue(service_message(b"2"))
    one.enqueue(service_message(b"3"))

    assert [id_ for id_, _, _ in one.pending_messages()] == [service_session_id(1, 3)]
    assert replica.trackers[0].log_service_session_id == service_session_id(0, 0)


# ---- a leader


def service_message(payload):
    return SessionMessageHeader(NULL_VALUE, NULL_VALUE, 0).encode() + payload


class ALeader(ALog):
    """What its clients, services and operator do; ``script`` is what a member that follows it has to do."""

    def __init__(self):
        super().__init__()
        self.commit_position = 0
        self.script = []
        self.correlation_id = 0

    def append(self, entry):
        position = super().append(entry)
        self.script.append(("read", position, entry))
        return position

    def connects(self):
        self.correlation_id += 1
        request = SessionConnectRequest(self.correlation_id, 102, 3 << 8, CHANNEL, b"")
        sessions, now = self.replica.sessions, self.replica.cluster_time
        sessions.on_connect_request(self.correlation_id, request, is_leader=True, now_ns=0, now_ms=now)
        sessions.process_pending(KnownLeader(TERM, MEMBER_ID), now, 0, now)

    def closes(self, session_id, reason=CloseReason.CLIENT_ACTION):
        """Of its own accord: for its client, or because it is silent, or sends too long a message."""
        self.replica.sessions.close(session_id, reason, KnownLeader(TERM, MEMBER_ID))

    def closes_for_service(self, session_id):
        """As ``ClientRequests`` does it."""
        self.closes(session_id, CloseReason.SERVICE_ACTION)
        self.replica.sessions.mark_closing(session_id, CloseReason.SERVICE_ACTION)
        self.script.append(("close", self.commit_position, session_id))

    def asks_for_timer(self, correlation_id, delay):
        deadline = self.replica.cluster_time + delay
        self.replica.timers.on_schedule(correlation_id, deadline, self.commit_position)
        self.script.append(("timer", self.commit_position, (correlation_id, deadline)))

    def cancels_timer(self, correlation_id):
        self.replica.timers.on_cancel(correlation_id)
        self.script.append(("cancel", self.commit_position, correlation_id))

    def time_passes(self, duration):
        replica = self.replica
        replica.advance_time(replica.cluster_time + duration)
        now = replica.cluster_time
        replica.timers.poll(now, lambda id_: self.append(TimerEvent(TERM, id_, now)))

    def offers(self, service_id):
        message = service_message(b"%d" % self.end)
        self.replica.trackers[service_id].enqueue(message)
        self.script.append(("offer", self.commit_position, (service_id, message)))

    def appends_offered(self):
        for tracker in self.replica.trackers:
            tracker.poll(lambda id_, message: self.append(id_))

    def toggles(self):
        module = self.replica.module
        if module.is_active:
            action, state = ClusterAction.SUSPEND, ConsensusModuleState.SUSPENDED
        else:
            action, state = ClusterAction.RESUME, ConsensusModuleState.ACTIVE
        module.change_by_log(state, self.append(an_action(action, timestamp=self.replica.cluster_time)))

    def commits(self, back):
        """All but the last ``back`` entries."""
        ends = [0, *(position for position, _ in self.entries)]
        self.commit_position = max(self.commit_position, ends[max(0, len(ends) - 1 - back)])
        self.replica.sweep(self.commit_position)

    def loses_leadership(self):
        self.replica.restore_uncommitted(self.commit_position, now_ns=0)

    def follower(self):
        """A member that has read this one's log up to the commit position."""
        replica = a_replica()
        for kind, position, what in self.script:
            match kind:
                case "timer":
                    replica.timers.on_schedule(*what, position)
                case "cancel":
                    replica.timers.on_cancel(what)
                case "close":
                    replica.sessions.mark_closing(what, CloseReason.SERVICE_ACTION)
                case "offer":
                    replica.trackers[what[0]].enqueue(what[1])
                case "read" if position > self.commit_position:
                    pass
                case "read" if isinstance(what, int):
                    service_id = what >> 56 & 0x7F
                    replica.sessions.table.service_message_ids[service_id] = what
                    replica.drop_logged_service_messages()
                case "read":
                    replica.apply(what, position)
        return replica


def a_leader(*, committed):
    """One that has written one entry of each kind, and seen them committed or not."""
    leader = ALeader()
    leader.connects()
    leader.asks_for_timer(9, 100)
    leader.offers(1)
    leader.commits(0)
    leader.closes(1)
    leader.time_passes(100)
    leader.appends_offered()
    leader.toggles()
    leader.connects()
    if committed:
        leader.commits(0)
    return leader


@pytest.mark.conformance("C-32")
@pytest.mark.parametrize("committed", [False, True])
def test_a_commit_lets_go_what_could_be_undone(committed):
    replica = a_leader(committed=committed).replica
    assert len(replica.timers._uncommitted) == (0 if committed else 1)
    assert replica.module.has_uncommitted is not committed


def test_what_is_committed_stays_when_the_leadership_is_lost():
    leader = a_leader(committed=True)
    before = records_of(leader.replica)
    leader.loses_leadership()

    assert records_of(leader.replica) == before
    assert [session.id for session in leader.replica.sessions] == [2]
    assert list(leader.replica.timers) == []
    assert [len(tracker) for tracker in leader.replica.trackers] == [0, 0]
    assert leader.replica.module.state is ConsensusModuleState.SUSPENDED


@pytest.mark.conformance("C-232", "C-269", "C-281", "C-309")
def test_what_is_not_committed_is_undone_when_the_leadership_is_lost():
    leader = a_leader(committed=False)
    leader.loses_leadership()

    assert [session.id for session in leader.replica.sessions] == [1]
    assert list(leader.replica.timers) == [(9, 100)]
    assert [tracker.has_unappended for tracker in leader.replica.trackers] == [False, True]
    assert leader.replica.module.is_active


STEPS = st.one_of(
    st.just(("connects",)),
    st.tuples(st.just("closes"), st.integers(1, 6), st.sampled_from(CloseReason)),
    st.tuples(st.just("closes_for_service"), st.integers(1, 6)),
    st.tuples(st.just("asks_for_timer"), st.integers(1, 4), st.integers(0, 30)),
    st.tuples(st.just("cancels_timer"), st.integers(1, 4)),
    st.tuples(st.just("time_passes"), st.integers(0, 20)),
    st.tuples(st.just("offers"), st.integers(0, 1)),
    st.just(("appends_offered",)),
    st.just(("toggles",)),
    st.tuples(st.just("commits"), st.integers(0, 4)),
)


def led(steps):
    leader = ALeader()
    for name, *arguments in steps:
        getattr(leader, name)(*arguments)
    return leader


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=30))
@example([("connects",), ("commits", 0), ("closes", 1, CloseReason.SERVICE_ACTION)])
def test_a_leader_that_is_none_any_more_has_the_state_of_those_that_read_its_log(steps):
    leader = led(steps)
    leader.loses_leadership()
    follower = leader.follower()

    assert records_of(leader.replica) == records_of(follower)
    assert leader.replica.module.state is follower.module.state


# ---- snapshots


def loaded(records, log_position=10_000, timestamp=77):
    snapshot = ModuleSnapshot()
    for record in records:
        snapshot.on_record(record)
    assert snapshot.is_whole
    replica = ReplicatedState(CONTEXT, ALog())
    replica.load(snapshot, leadership_term_id=TERM, log_position=log_position, timestamp=timestamp)
    return replica


@pytest.mark.conformance("C-271", "C-282", "C-320")
@settings(max_examples=100)
@given(st.lists(STEPS, max_size=30))
def test_what_is_loaded_from_a_snapshot_makes_the_same_snapshot(steps):
    leader = led([*steps, ("commits", 0)])
    records = records_of_capture(leader.replica.capture(10_000))
    replica = loaded(records)

    assert records_of_capture(replica.capture(10_000)) == records
    assert records_of(replica) == records_of(leader.replica)


def test_a_start_from_a_snapshot_stands_in_its_term_and_not_before_its_time():
    replica = loaded(records_of_capture(a_replica().capture(96)), log_position=96, timestamp=77)
    assert (replica.leadership_term_id, replica.cluster_time) == (TERM, 77)
    replica.advance_time(76)
    assert replica.cluster_time == 77


def test_a_snapshot_says_where_it_is_of_and_by_what():
    snapshot = ModuleSnapshot()
    for record in records_of_capture(a_replica().capture(96)):
        snapshot.on_record(record)
    assert snapshot.place == (96, TERM, CONTEXT.time_unit, CONTEXT.app_version)
