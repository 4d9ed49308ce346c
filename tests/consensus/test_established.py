"""Leading and following once the election is over (parts of groups A, C, E and F; who may unseat whom)."""

import pytest

from cluster.consensus.cluster_member import MemberTable
from cluster.consensus.context import MS, SECOND
from cluster.consensus.follower import Follower
from cluster.consensus.leader import Leader
from cluster.consensus.leadership import Leadership
from tests.consensus.language import (
    CLUSTER_TIME,
    LEADER_ID,
    OTHER_ID,
    START_NS,
    TERM,
    ALeader,
    a_context,
    a_log,
    canvass,
    request_vote,
    vote,
)


class Led:
    """A leader of term 5 that began at 1000, with its clock."""

    def __init__(self, members: int = 3, commit: int = 1000) -> None:
        context = a_context(members=members)
        self.members = MemberTable(context.member_ids)
        terms = a_log(400, 1000)
        terms.record(TERM, 1000)
        self.now_ns = START_NS
        leadership = Leadership(
            context,
            self.members,
            terms,
            leadership_term_id=TERM,
            term_base=1000,
            log_session_id=77,
            log_recording_id=0,
            now_ns=START_NS,
        )
        self.leader = Leader(
            context, self.members, leadership, commit_position=commit, candidate_term_id=TERM
        )
        self.position = 1000

    def reports(self, member_id: int, position: int, term: int = TERM) -> None:
        self.leader.on_append_position(member_id, term, position, self.now_ns)

    def turn(self, position: int | None = None, after: int = 0) -> int | None:
        """What CommitPosition says in this turn, None when none is sent."""
        self.now_ns += after
        self.position = self.position if position is None else position
        is_told = self.leader.update(self.position, self.now_ns)
        return self.leader.leadership.quorum_position if is_told else None


def a_leader(**options: int) -> Led:
    led = Led(**options)
    led.turn()
    return led


def a_follower(**changed: int) -> Follower:
    return Follower(
        a_context(),
        leadership_term_id=TERM,
        leader_member_id=LEADER_ID,
        notified_commit_position=changed.get("notified", 1000),
        candidate_term_id=TERM,
        now_ns=START_NS,
    )


# ---- the leader's commit position


def test_a_risen_quorum_position_is_to_be_told():
    led = a_leader()
    assert led.turn(1600) is None

    led.reports(1, 1300)

    assert led.turn() == 1300
    assert led.leader.commit_position == 1300


@pytest.mark.conformance("C-31")
def test_an_idle_leader_speaks_every_200_ms():
    led = a_leader()

    assert led.turn(after=200 * MS - 1) is None
    assert led.turn(after=1) is not None
    assert led.turn(after=200 * MS - 1) is None
    assert led.turn(after=1) is not None


@pytest.mark.conformance("C-29")
def test_the_leaders_own_share_is_what_it_has_on_its_disk():
    led = a_leader()

    led.turn(1600)

    assert led.members[0].report_term_id == TERM
    assert led.members[0].report_position == 1600


@pytest.mark.conformance("C-168")
def test_a_fast_follower_commits_nothing_that_the_leader_does_not_hold():
    led = a_leader()
    led.reports(1, 5000)
    led.reports(2, 5000)

    led.turn(1600)

    assert led.leader.commit_position == 1600


@pytest.mark.conformance("C-169", "C-170", "S-168")
def test_the_commit_position_never_falls_but_commit_position_tells_the_lower_quorum():
    led = a_leader()
    led.reports(1, 1600)
    led.turn(1600)
    assert led.leader.commit_position == 1600

    led.reports(1, 1200)  # it began anew

    assert led.turn() is None
    assert led.turn(after=200 * MS) == 1200
    assert led.leader.commit_position == 1600


@pytest.mark.conformance("C-170")
def test_a_fallen_quorum_position_is_reported_once_for_each_commit_position():
    led = a_leader()
    led.reports(1, 1600)
    led.turn(1600)
    reported = []
    for position in (1200, 1200, 1100, 1632, 1200, 1200):
        led.reports(1, position)
        led.turn(1632, after=200 * MS)
        reported.append(led.leader.regression)
        led.leader.regression = None

    assert [text is not None for text in reported] == [True, False, False, False, True, False]
    assert reported[0] == "quorum position fell to 1200 below commit position 1600"


def test_a_single_member_commits_what_it_has_synced_and_no_more():
    led = a_leader(members=1)

    assert led.turn(1600) == 1600
    assert led.leader.commit_position == 1600


def test_a_report_above_the_leaders_own_position_waits_for_the_leader():
    led = a_leader()
    led.reports(1, 1600)  # more than we have

    assert led.turn() is None
    assert led.leader.commit_position == 1000


def test_a_report_of_another_term_commits_nothing():
    led = a_leader()
    led.reports(1, 1600, term=TERM - 1)
    led.reports(2, 1600, term=TERM + 1)

    led.turn(1600, after=200 * MS)

    assert led.leader.commit_position == 1000


def test_who_reports_of_an_older_term_has_lost_what_it_said_of_this_one():
    led = a_leader()
    led.reports(1, 1600)
    led.reports(1, 400, term=TERM - 1)

    led.turn(1600)

    assert led.leader.commit_position == 1000


def test_what_came_over_a_broken_link_proves_nothing_any_more():
    led = a_leader()
    led.reports(1, 1600)
    led.leader.on_link_down(1)

    led.turn(1600)

    assert led.leader.commit_position == 1000


# ---- who is active


@pytest.mark.conformance("C-17")
def test_followers_silent_for_ten_seconds_are_no_quorum():
    led = a_leader()
    led.reports(1, 1000)
    led.reports(2, 1000)

    led.turn(after=10 * SECOND - 1)
    assert led.leader.has_active_quorum(led.now_ns)
    led.turn(after=1)
    assert not led.leader.has_active_quorum(led.now_ns)


@pytest.mark.conformance("C-18")
def test_one_follower_that_reported_lately_is_enough_of_three():
    led = a_leader()
    led.turn(after=20 * SECOND)
    led.reports(2, 1000)

    led.turn(after=9 * SECOND)

    assert led.leader.has_active_quorum(led.now_ns)


@pytest.mark.conformance("C-19")
def test_so_is_one_that_canvasses():
    led = a_leader()
    led.turn(after=15 * SECOND)
    led.leader.on_canvass_position(canvass(2, 1, 1000), 1000, CLUSTER_TIME, led.now_ns)

    assert led.leader.has_active_quorum(led.now_ns)


def test_but_not_for_ever_if_it_does_not_come_to_follow():
    """Maybe it does not hear us; those that do follow us must be free to elect another."""
    led = a_leader()
    led.reports(2, 1000)
    assert led.leader.has_active_quorum(led.now_ns)
    for _ in range(5):
        led.turn(after=4 * SECOND - 1)
        led.leader.on_canvass_position(canvass(2, 1, 1000), 1000, CLUSTER_TIME, led.now_ns)
        assert led.leader.has_active_quorum(led.now_ns)

    led.turn(after=5)
    assert not led.leader.has_active_quorum(led.now_ns)
    led.reports(2, 1000)
    assert led.leader.has_active_quorum(led.now_ns)


@pytest.mark.conformance("C-20")
def test_the_only_member_is_always_a_quorum():
    led = Led(members=1)

    assert led.leader.has_active_quorum(led.now_ns + 3_600 * SECOND)


# ---- members that look for a leader


@pytest.mark.conformance("C-71", "C-72")
@pytest.mark.parametrize(
    ("log_term", "next_term"),
    [(-1, (0, 0, 400)), (0, (1, 400, 1000)), (1, (5, 1000, -1)), (4, (5, 1000, -1)), (5, (-1, -1, -1))],
)
def test_a_member_that_asks_is_told_of_the_term_after_its_last(log_term, next_term):
    """Terms 2 to 4 are empty: they are passed over."""
    led = a_leader()

    answer = led.leader.on_canvass_position(canvass(2, log_term, 250), 1600, CLUSTER_TIME, led.now_ns)

    assert answer is not None
    assert answer.log_leadership_term_id == log_term
    told = (answer.next_leadership_term_id, answer.next_term_base_log_position, answer.next_log_position)
    assert told == next_term
    assert (answer.leadership_term_id, answer.term_base_log_position, answer.log_position) == (
        TERM,
        1000,
        1600,
    )
    assert (answer.leader_member_id, answer.timestamp, answer.commit_position) == (0, CLUSTER_TIME, 1000)
    assert answer.is_startup is False


def test_a_member_with_a_later_log_term_gets_no_answer():
    led = a_leader()

    assert led.leader.on_canvass_position(canvass(2, TERM + 1, 0), 1600, CLUSTER_TIME, led.now_ns) is None


def test_a_member_that_canvasses_has_proved_nothing():
    led = a_leader()
    led.reports(1, 1600)
    led.leader.on_canvass_position(canvass(1, TERM, 1600), 1600, CLUSTER_TIME, led.now_ns)

    led.turn(1600)

    assert led.leader.commit_position == 1000


# ---- what ends a leadership


@pytest.mark.conformance("C-94")
def test_a_leader_that_no_majority_reports_to_yields_to_a_candidate_of_a_higher_term():
    led = a_leader()
    led.reports(1, 1000)

    led.turn(after=1 * SECOND)

    assert led.leader.on_request_vote(request_vote(2, TERM + 1, log=(0, 0)), led.now_ns)


@pytest.mark.conformance("C-95")
@pytest.mark.parametrize("term", [TERM, TERM - 1])
def test_a_leader_ignores_candidates_of_its_own_and_older_terms(term):
    led = a_leader()

    assert led.leader.on_request_vote(request_vote(2, term, log=(9, 9999)), led.now_ns + 60 * SECOND) is None


@pytest.mark.conformance("C-160")
def test_a_leader_of_a_later_term_ends_it_and_one_of_an_older_term_does_not():
    led = a_leader()
    for term, ends in ((TERM - 1, False), (TERM, False), (TERM + 1, True)):
        other = ALeader(1000, term=term, member_id=2)
        assert bool(led.leader.on_new_leadership_term(other.broadcast())) is ends
        assert bool(led.leader.on_commit_position(other.commits(0))) is ends


# ---- the follower


@pytest.mark.conformance("C-22")
def test_a_leader_silent_for_ten_seconds_is_one_no_more():
    follower = a_follower()

    assert not follower.is_leader_silent(START_NS + 10 * SECOND - 1)
    assert follower.is_leader_silent(START_NS + 10 * SECOND)


@pytest.mark.conformance("C-22")
@pytest.mark.parametrize("word", ["CommitPosition", "NewLeadershipTerm"])
def test_each_word_of_it_counts(word):
    follower = a_follower()
    heard_ns = START_NS + 7 * SECOND
    if word == "CommitPosition":
        follower.on_commit_position(TERM, 1000, LEADER_ID, heard_ns)
    else:
        follower.on_new_leadership_term(ALeader(1000).broadcast(), heard_ns)

    assert not follower.is_leader_silent(heard_ns + 10 * SECOND - 1)
    assert follower.is_leader_silent(heard_ns + 10 * SECOND)


@pytest.mark.conformance("C-23")
def test_bytes_of_the_log_do_not():
    follower = a_follower()
    for after in range(1, 10):
        follower.on_append_position_sent(1000 + 64 * after, START_NS + after * SECOND)

    assert follower.is_leader_silent(START_NS + 10 * SECOND)


@pytest.mark.conformance("C-38", "C-39")
def test_a_follower_reports_when_it_grew_and_every_200_ms():
    follower = a_follower()
    assert follower.is_append_position_due(1000, START_NS)
    follower.on_append_position_sent(1000, START_NS)

    assert not follower.is_append_position_due(1000, START_NS + 200 * MS - 1)
    assert follower.is_append_position_due(1032, START_NS + 1)
    assert follower.is_append_position_due(1000, START_NS + 200 * MS)
    assert follower.next_append_position_ns == START_NS + 200 * MS


@pytest.mark.conformance("C-159", "C-161")
def test_the_notified_commit_position_grows_by_the_leaders_word_only():
    follower = a_follower()

    assert follower.on_commit_position(TERM, 1200, LEADER_ID, START_NS) is None
    assert follower.on_commit_position(TERM, 1100, LEADER_ID, START_NS) is None  # never falls
    assert follower.on_commit_position(TERM, 1600, OTHER_ID, START_NS) is None  # not the leader
    assert follower.on_commit_position(TERM - 1, 1600, LEADER_ID, START_NS) is None  # not this term
    assert follower.on_new_leadership_term(ALeader(1000, commit=1150).broadcast(), START_NS) is None

    assert follower.notified_commit_position == 1200


@pytest.mark.conformance("C-161")
def test_another_members_word_does_not_stand_for_the_leaders():
    follower = a_follower()
    follower.on_commit_position(TERM, 1000, OTHER_ID, START_NS + 9 * SECOND)

    assert follower.is_leader_silent(START_NS + 10 * SECOND)


@pytest.mark.conformance("C-160")
def test_a_later_term_ends_the_following():
    follower = a_follower()
    later = ALeader(1000, term=TERM + 1, member_id=2)

    assert follower.on_commit_position(TERM + 1, 0, 2, START_NS) == "member 2 leads term 6"
    assert follower.on_new_leadership_term(later.broadcast(), START_NS) == "member 2 leads term 6"


@pytest.mark.conformance("C-94")
def test_a_follower_that_has_not_heard_its_leader_for_a_second_yields_to_a_candidate():
    follower = a_follower()

    assert follower.on_request_vote(request_vote(2, TERM + 1, log=(0, 0)), START_NS + 1 * SECOND)


@pytest.mark.conformance("C-95")
@pytest.mark.parametrize("term", [TERM, TERM - 1])
def test_a_follower_ignores_candidates_of_its_own_and_older_terms(term):
    assert a_follower().on_request_vote(request_vote(2, term, log=(9, 9999)), START_NS + 60 * SECOND) is None


# ---- elections are not stolen


@pytest.mark.parametrize(
    ("member_id", "log_term", "is_over"),
    [(LEADER_ID, TERM, True), (LEADER_ID, TERM - 1, False), (OTHER_ID, TERM, False)],
    ids=["the leader", "the leader before it led", "another member"],
)
def test_a_leader_that_looks_for_a_leader_leads_no_more(member_id, log_term, is_over):
    assert bool(a_follower().on_canvass_position(canvass(member_id, log_term, 4096))) is is_over


def test_a_follower_that_hears_its_leader_ignores_candidates():
    follower = a_follower()

    assert follower.on_request_vote(request_vote(2, 99, log=(98, 9999)), START_NS + 1 * SECOND - 1) is None


def test_a_leader_with_fresh_reports_of_a_majority_ignores_candidates():
    led = a_leader()
    led.reports(1, 1000)
    led.turn(after=1 * SECOND - 1)

    assert led.leader.on_request_vote(request_vote(2, 99, log=(98, 9999)), led.now_ns) is None


def test_a_member_that_has_voted_in_a_later_term_can_still_end_a_leadership():
    """The way out for a member whose promise forbids it to follow; each refused term ends one leadership."""
    led = a_leader()
    led.reports(1, 1000)

    assert led.leader.on_vote(vote(2, TERM, granted=False)) is None
    assert led.leader.on_vote(vote(2, TERM + 3, granted=True)) is None
    assert led.leader.on_vote(vote(2, TERM + 3, granted=False)) == "member 2 has voted in term 8"
    assert led.leader.candidate_term_id == TERM + 3
    assert led.leader.on_vote(vote(2, TERM + 3, granted=False)) is None, "once for each term"


def test_what_strangers_say_is_dropped():
    led = a_leader()
    led.reports(9, 5000)
    led.reports(-1, 5000)

    led.turn(1600)

    assert led.leader.commit_position == 1000
    assert led.leader.on_canvass_position(canvass(9, 0, 0), 1600, CLUSTER_TIME, led.now_ns) is None
