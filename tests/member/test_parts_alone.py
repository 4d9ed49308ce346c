"""Parts of a member, each built from the few things that it reaches: no agent, no cluster, no turn."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from cluster.consensus.cluster_member import MemberTable
from cluster.consensus.context import NULL_POSITION, SECOND, ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import ClusterError
from cluster.log.frames import LogParams
from cluster.member.admission import Admission
from cluster.member.clocks import MemberClocks
from cluster.member.control import NodeControl, Toggles
from cluster.member.counters import MemberCounters
from cluster.member.lease import Lease
from cluster.member.log.requests import LogRequests
from cluster.member.log.subscription import LogSubscription
from cluster.member.phase import Elect, Phase, PhaseName
from cluster.member.ports import Peers
from cluster.member.reporter import Reporter
from cluster.member.services.termination import Termination
from cluster.member.turn import Turn
from cluster.protocol.consensus import CommitPosition, TerminationAck, Vote
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState, NodeControlToggle
from cluster.protocol.link import ClockReply, LogGeometry, LogImage

CONTEXT = ConsensusModuleContext(member_id=0, member_ids=(0, 1, 2))
TERM, LEADER_ID = 5, 1


class Links:
    """Up to every member that is not in ``down``; what is sent is kept."""

    def __init__(self):
        self.sent = []
        self.down = set()

    def is_up(self, member_id):
        return member_id not in self.down

    def send(self, member_id, *buffers):
        self.sent.append((member_id, b"".join(buffers)))
        return 1

    def publish(self, log):
        pass


@pytest.fixture
def links():
    return Links()


@pytest.fixture
def counters():
    return MemberCounters(CountersFile.in_memory(), CONTEXT)


@pytest.fixture
def told():
    return []


@pytest.fixture
def reporter(counters, told):
    return Reporter(counters.errors, told.append, told.append, lambda text: told.append(f"warning: {text}"))


def status(leader_member_id, module=ConsensusModuleState.ACTIVE):
    return SimpleNamespace(
        member_id=0,
        leader_member_id=leader_member_id,
        is_leading=leader_member_id == 0,
        is_following=leader_member_id > 0,
        module=module,
        set_module=lambda state: None,
    )


# ---- the lease


class APhase(Phase):
    def __init__(self, name, is_done=False, step=None):
        self.name = name
        self.is_done = is_done
        self.step = step

    def look_around(self, heard, since_ns):
        return self.is_done

    def check_quorum(self):
        return self.step


def test_a_lease_is_in_question_after_a_pause_as_long_as_itself(reporter, told):
    lease = Lease(2 * SECOND, status(0), reporter)
    assert lease.on_turn(2 * SECOND - 1, 10, APhase(PhaseName.LEADING)) is None
    assert not lease.is_looking_around
    lease.on_turn(2 * SECOND, 10, APhase(PhaseName.LEADING))
    assert lease.is_looking_around
    assert told == ["warning: woke up after 2.0 s"]
    lease.on_polled(3, APhase(PhaseName.LEADING))
    assert lease.is_looking_around, "its followers were not all read"
    lease.on_polled(0, APhase(PhaseName.LEADING, is_done=True))
    assert not lease.is_looking_around


def test_the_turn_of_waking_up_is_not_the_one_that_has_seen_the_sockets(reporter):
    """After compiled turns that ended by time, Python's turn takes what is ready and asks for no more."""
    lease, following = Lease(SECOND, status(1), reporter), APhase(PhaseName.FOLLOWING, is_done=True)
    lease.on_turn(SECOND, 10, following)
    lease.on_polled(0, following)
    assert lease.is_looking_around
    lease.on_polled(0, following)
    assert not lease.is_looking_around


def test_a_leader_that_nobody_follows_any_more_stands_down_when_it_wakes(reporter):
    lease = Lease(SECOND, status(0), reporter)
    step = Elect("inactive follower quorum")
    assert lease.on_turn(SECOND, 10, APhase(PhaseName.LEADING, step=step)) is step


@pytest.mark.parametrize("name", [PhaseName.ELECTING, PhaseName.FETCHING, PhaseName.REPAIRING])
def test_who_neither_leads_nor_follows_has_no_lease(reporter, name):
    lease = Lease(SECOND, status(-1), reporter)
    lease.on_turn(60 * SECOND, 10, APhase(name))
    assert not lease.is_looking_around


# ---- toggles


def test_one_action_is_asked_for_at_a_time_and_only_of_a_leader(counters):
    toggles = Toggles(counters)
    assert not toggles.request(ClusterControlToggle.SNAPSHOT), "it does not lead"
    toggles.on_leading()
    assert toggles.requested is None
    assert toggles.request(ClusterControlToggle.SNAPSHOT)
    assert not toggles.request(ClusterControlToggle.ABORT)
    assert toggles.requested == ClusterControlToggle.SNAPSHOT
    toggles.done()
    assert toggles.requested is None
    toggles.on_election()
    assert counters.control_toggle.get() == ClusterControlToggle.INACTIVE


def test_the_node_toggle_is_done_after_what_it_asks_for(counters, reporter):
    toggles = Toggles(counters)
    seen = []

    class RecordingLog:
        @property
        def entries(self):
            seen.append(counters.node_control_toggle.get())
            return []

    control = NodeControl(toggles, RecordingLog(), None, None, reporter)
    toggles.on_established()
    assert control.do_work() == 0
    counters.node_control_toggle.set(NodeControlToggle.VALIDATE_RECORDING_LOG)
    assert control.do_work() == 1
    assert seen == [NodeControlToggle.VALIDATE_RECORDING_LOG]
    assert counters.node_control_toggle.get() == NodeControlToggle.NEUTRAL


# ---- requests for the log


def a_subscription():
    recording = SimpleNamespace(append_position=4096)
    params = LogParams(64 * 1024, 1408, 0, 7)
    return LogSubscription(
        recording, params, leader_member_id=LEADER_ID, leadership_term_id=TERM, correlation_id=9
    )


@pytest.fixture
def log():
    return SimpleNamespace(subscription=a_subscription(), append_position=4096, commit_position=4096)


def test_the_log_is_asked_for_once_on_each_connection(log, links, reporter):
    requests = LogRequests(log, links, reporter)
    links.down.add(LEADER_ID)
    requests.request()
    assert not links.sent
    links.down.clear()
    requests.on_link_up(LEADER_ID)
    requests.request()
    assert len(links.sent) == 1
    requests.on_link_down(LEADER_ID)
    requests.on_link_up(LEADER_ID)
    assert len(links.sent) == 2


def test_an_image_that_does_not_join_on_ends_the_subscription(log, links, reporter):
    requests = LogRequests(log, links, reporter)
    assert requests.subscription_of(LEADER_ID, correlation_id=8) is None
    assert requests.subscription_of(2, correlation_id=9) is None
    subscription = requests.subscription_of(LEADER_ID, correlation_id=9)
    with pytest.raises(ClusterError, match="joins at 4128, expected 4096"):
        requests.join(subscription, LogImage(9, TERM, 4128, 7))
    assert log.subscription is None


@pytest.mark.parametrize(
    ("term_length", "mtu", "key"),
    [(1 << 17, 1408, "log_term_length = 131072"), (1 << 16, 1024, "log_mtu = 1024")],
)
def test_a_log_of_another_shape_does_not_join_on_and_the_key_is_named(
    log, links, reporter, term_length, mtu, key
):
    requests = LogRequests(log, links, reporter)
    subscription = requests.subscription_of(LEADER_ID, correlation_id=9)
    requests.geometry_of[LEADER_ID] = LogGeometry(0, term_length, mtu)
    with pytest.raises(
        ClusterError, match=f"has {key}, and this one .* remove its dir, and start it with {key}"
    ):
        requests.join(subscription, LogImage(9, TERM, 4096, 7))
    assert log.subscription is None


# ---- what is taken of other members


def an_admission(log, leader_member_id):
    termination = SimpleNamespace(position=NULL_POSITION)
    promises = SimpleNamespace(term_limit=lambda member_id: TERM + 100)
    replica = SimpleNamespace(leadership_term_id=TERM)
    state = status(leader_member_id)
    return Admission(1 << 16, log, replica, state, promises, termination, lambda: (TERM, leader_member_id))


def test_what_a_member_cannot_mean_is_named(log):
    admission = an_admission(log, LEADER_ID)
    assert admission.fault_of(1, CommitPosition(TERM, 96, 1)) is None
    assert admission.fault_of(2, CommitPosition(TERM, 96, 1)) == "speaks as member 1"
    assert admission.fault_of(2, CommitPosition(TERM, 96, 2)) == "member 1 leads term 5"
    assert admission.fault_of(1, CommitPosition(TERM, 97, 1)) == "no position of a log"
    far = TERM + 101
    assert admission.fault_of(2, Vote(far, TERM, 96, 0, 2, True)).startswith(f"term {far}, ")


# ---- the end


def a_termination(log, reporter, links, leader_member_id, *, services):
    members = MemberTable(CONTEXT.member_ids)
    replica = SimpleNamespace(leadership_term_id=TERM)
    peers = Peers([1, 2], set(), links)
    return Termination(
        CONTEXT, members, peers, log, replica, status(leader_member_id), services, Turn(), reporter
    )


class Services:
    """They end as soon as they are asked to."""

    def __init__(self):
        self.ends = []

    def terminate(self, log_position, on_acked):
        self.ends.append(log_position)
        on_acked([])


def test_a_leader_is_done_when_its_services_and_followers_are_or_their_time_is_up(log, reporter, links):
    services = Services()
    termination = a_termination(log, reporter, links, 0, services=services)
    termination.begin_at(8192, now_ns=0)
    assert [member_id for member_id, _ in links.sent] == [1, 2]
    termination.on_snapshot_done(8192, now_ns=0)
    assert services.ends == [8192]
    assert not termination.is_leader_done(now_ns=1)
    termination.on_termination_ack(TerminationAck(TERM, 8192, 1))
    termination.on_termination_ack(TerminationAck(TERM, 8191, 2))
    assert not termination.is_leader_done(now_ns=1), "member 2 is not there yet"
    assert termination.is_leader_done(CONTEXT.termination_timeout_ns)
    termination.on_termination_ack(TerminationAck(TERM, 8192, 2))
    assert termination.is_leader_done(now_ns=1)
    assert not termination.is_over, "a leader ends by its slow tick"


def test_a_follower_is_over_when_its_services_are(log, reporter, links):
    termination = a_termination(log, reporter, links, LEADER_ID, services=Services())
    termination.position = 8192
    assert not termination.is_reached()
    log.commit_position = 8192
    assert termination.is_reached()
    termination.terminate_services()
    assert termination.is_over


def test_an_end_that_a_longer_log_passes_was_none(log, reporter, links, told):
    termination = a_termination(log, reporter, links, LEADER_ID, services=Services())
    termination.position, log.commit_position = 8192, 8224
    assert not termination.is_reached()
    assert termination.position == NULL_POSITION
    assert "was to end at 8192, and goes on to 8224" in str(told[0])


# ---- the clocks of others


@pytest.mark.parametrize(("hears_clocks", "time_ms"), [(True, 20_000), (False, 50_000)])
def test_who_is_told_no_clocks_stamps_by_its_own(links, reporter, hears_clocks, time_ms):
    """And does not wait for those of a majority, going on from the log's last time."""
    turn, stamped = SimpleNamespace(now_ns=10 * SECOND, clock_ns=50 * SECOND), []
    gauges = SimpleNamespace(clock_offset_ns=None, time_offset_ns=None)
    replica = SimpleNamespace(
        cluster_time=20_000,
        advance_time=stamped.append,
        sessions=SimpleNamespace(keep_longer=lambda _: None),
    )
    context = replace(CONTEXT, hears_clocks=hears_clocks)
    MemberClocks(context, replica, Peers([1, 2], set(), links), turn, gauges, reporter).begin()
    assert stamped[-1] == time_ms


def test_that_a_clock_is_off_is_a_warning(links):
    turn, warned = SimpleNamespace(now_ns=10 * SECOND, clock_ns=50 * SECOND), []
    gauges = SimpleNamespace(clock_offset_ns=None, time_offset_ns=None)
    reporter = SimpleNamespace(warning=warned.append)
    clocks = MemberClocks(CONTEXT, None, Peers([1, 2], set(), links), turn, gauges, reporter)
    clocks.on_link_up(1)
    clocks.on_reply(1, ClockReply(clocks._asked_ns[1], turn.clock_ns + 5 * SECOND))
    assert warned == ["the clock of member 1 shows 5.000 s more than this member's"]


def test_an_answer_counts_to_the_last_question_since_this_member_runs_and_no_other(links):
    turn = SimpleNamespace(now_ns=10 * SECOND, clock_ns=50 * SECOND)
    clocks = MemberClocks(
        CONTEXT,
        None,
        Peers([1, 2], set(), links),
        turn,
        SimpleNamespace(clock_offset_ns=None, time_offset_ns=None),
        SimpleNamespace(event=lambda text: None),
    )

    def heard(asked_ns):
        clocks.on_reply(1, ClockReply(asked_ns, turn.clock_ns))
        return list(clocks._heard.best(turn.now_ns))

    clocks.on_link_up(1)
    assert heard(9 * SECOND) == heard(11 * SECOND) == [], "it was never asked so"
    clocks.forget()
    assert heard(10 * SECOND) == [], "the own clock may have stood still since"
    clocks.on_link_up(1)
    assert heard(10 * SECOND) == [1]
