"""Every change of state that the diagram shows is taken here, and no other is possible.

One way for each arrow; that there is one for every arrow, and none beside, is checked against the table that
the code itself obeys and that docs/election.md is drawn from.
"""

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.consensus import election as election_module
from cluster.consensus.context import MS, SECOND
from cluster.consensus.election import TRANSITIONS
from cluster.protocol.consensus import StopCatchup
from cluster.protocol.enums import ElectionState
from tests.consensus.language import (
    OTHER_ID,
    TERM,
    WAYS,
    ALeader,
    Driven,
    an_election,
    an_election_in,
    appended,
    canvass,
    in_candidate_ballot,
    in_canvass,
    in_catchup,
    in_catchup_await,
    in_catchup_init,
    in_follower_ballot,
    in_follower_log_await,
    in_follower_log_init,
    in_follower_log_replication,
    in_follower_ready,
    in_follower_replay,
    in_leader_init,
    in_leader_log_replication,
    in_leader_ready,
    in_leader_replay,
    in_nominate,
    request_vote,
    vote,
)
from tests.consensus.state_diagram import election_diagram, redrawn

ELECTION_MD = Path(__file__).resolve().parents[2] / "docs" / "election.md"
S = ElectionState
Way = Callable[[], Driven]
TAKEN: dict[tuple[ElectionState, ElectionState], Way] = {}

BETTER_LOG = (TERM - 1, 10_000)


def takes(old: ElectionState, new: ElectionState) -> Callable[[Way], Way]:
    def register(way: Way) -> Way:
        assert (old, new) not in TAKEN
        TAKEN[old, new] = way
        return way

    return register


@pytest.mark.parametrize(
    ("old", "new"), [(old, new) for old, exits in TRANSITIONS.items() for new in exits], ids=lambda s: s.name
)
def test_every_arrow_of_the_diagram_can_be_taken(old, new):
    driven = TAKEN[old, new]()

    assert driven.path[-2:] == [old, new]


def test_no_way_is_kept_for_an_arrow_that_is_gone():
    assert set(TAKEN) == {(old, new) for old, exits in TRANSITIONS.items() for new in exits}


@pytest.mark.conformance("C-44")
@pytest.mark.parametrize("state", [s for s in WAYS if s is not S.INIT], ids=lambda s: s.name)
def test_whatever_goes_wrong_leads_back_to_init(state):
    driven = an_election_in(state)

    driven.fails()

    assert driven.path[-2:] == [state, S.INIT]


def test_a_change_that_the_table_does_not_know_is_a_bug():
    driven = an_election_in(S.NOMINATE)

    with pytest.raises(AssertionError, match="NOMINATE -> LEADER_READY"):
        driven.election._change_state(S.LEADER_READY, driven.now_ns, "no reason at all")


@pytest.mark.conformance("C-98")
def test_leader_replay_is_entered_from_leader_log_replication_only():
    assert [old for old, exits in TRANSITIONS.items() if S.LEADER_REPLAY in exits] == [
        S.LEADER_LOG_REPLICATION
    ]


def test_every_state_of_the_protocol_is_in_the_table():
    assert set(TRANSITIONS) == set(ElectionState)
    assert set(WAYS) == set(ElectionState) - {S.CLOSED}


def test_the_document_shows_the_diagram_of_the_code():
    text = ELECTION_MD.read_text()

    assert election_diagram() in text
    assert redrawn(text, election_diagram()) == text


# ---- a way for each arrow


@takes(S.INIT, S.CANVASS)
def _():
    driven = an_election(1000, is_startup=True)
    driven.work()
    return driven


@takes(S.INIT, S.LEADER_LOG_REPLICATION)
def _():
    driven = an_election(1000, is_startup=True, members=1)
    driven.work()
    return driven


@takes(S.CANVASS, S.NOMINATE)
def _():
    driven = in_canvass(1000)
    driven.hears(canvass(1, 0, 1000), canvass(2, 0, 1000))
    driven.work()
    return driven


@takes(S.CANVASS, S.CANDIDATE_BALLOT)
def _():
    driven = an_election(1000, successor=0)
    driven.work()
    driven.prepared()
    driven.work()
    return driven


@takes(S.CANVASS, S.FOLLOWER_BALLOT)
def _():
    driven = in_canvass(1000)
    driven.hears(request_vote(1, TERM, BETTER_LOG))
    return driven


@takes(S.CANVASS, S.FOLLOWER_LOG_REPLICATION)
def _():
    driven = in_canvass(700)
    driven.meets(ALeader(1000))
    return driven


@takes(S.CANVASS, S.FOLLOWER_REPLAY)
def _():
    driven = in_canvass(1000)
    driven.meets(ALeader(1000))
    return driven


@takes(S.NOMINATE, S.CANDIDATE_BALLOT)
def _():
    driven = in_nominate(1000)
    driven.work(after=500 * MS)
    return driven


@takes(S.NOMINATE, S.CANVASS)
def _():
    driven = in_nominate(1000)
    driven.hears(ALeader(1000).broadcast())
    driven.work(after=500 * MS)
    return driven


@takes(S.NOMINATE, S.FOLLOWER_BALLOT)
def _():
    driven = in_nominate(1000)
    driven.hears(request_vote(1, TERM, BETTER_LOG))
    return driven


@takes(S.CANDIDATE_BALLOT, S.LEADER_LOG_REPLICATION)
def _():
    driven = in_candidate_ballot(1000)
    driven.hears(vote(1, TERM), vote(2, TERM))
    driven.work()
    return driven


@takes(S.CANDIDATE_BALLOT, S.CANVASS)
def _():
    driven = in_candidate_ballot(1000)
    driven.work(after=1 * SECOND)
    return driven


@takes(S.CANDIDATE_BALLOT, S.FOLLOWER_BALLOT)
def _():
    driven = in_candidate_ballot(1000)
    driven.hears(request_vote(1, TERM + 1, BETTER_LOG))
    return driven


@takes(S.CANDIDATE_BALLOT, S.FOLLOWER_LOG_REPLICATION)
def _():
    driven = in_candidate_ballot(700)
    driven.meets(ALeader(1000))
    return driven


@takes(S.CANDIDATE_BALLOT, S.FOLLOWER_REPLAY)
def _():
    driven = in_candidate_ballot(1000)
    driven.meets(ALeader(1000))
    return driven


@takes(S.FOLLOWER_BALLOT, S.CANVASS)
def _():
    driven = in_follower_ballot(1000)
    driven.work(after=1 * SECOND)
    return driven


@takes(S.FOLLOWER_BALLOT, S.FOLLOWER_LOG_REPLICATION)
def _():
    driven = in_follower_ballot(700)
    driven.meets(ALeader(1000))
    return driven


@takes(S.FOLLOWER_BALLOT, S.FOLLOWER_REPLAY)
def _():
    driven = in_follower_ballot(1000)
    driven.meets(ALeader(1000))
    return driven


@takes(S.LEADER_LOG_REPLICATION, S.LEADER_REPLAY)
def _():
    driven = in_leader_log_replication(1000)
    driven.hears(appended(OTHER_ID, TERM, 1000))
    driven.work()
    return driven


@takes(S.LEADER_REPLAY, S.LEADER_INIT)
def _():
    driven = in_leader_replay(1000, processed=200)
    driven.work()
    driven.processes(1000)
    driven.work()
    return driven


@takes(S.LEADER_INIT, S.LEADER_READY)
def _():
    driven = in_leader_init(1000)
    driven.joined()
    driven.work()
    return driven


@takes(S.LEADER_READY, S.CLOSED)
def _():
    driven = in_leader_ready(1000)
    driven.work()
    driven.appends_term_event()
    return driven


@takes(S.FOLLOWER_LOG_REPLICATION, S.CANVASS)
def _():
    driven = in_follower_log_replication(400, 700)
    driven.grows(1000)
    driven.hears(ALeader(400, 1000, 1600).commits(1000))
    driven.work()
    return driven


@takes(S.FOLLOWER_REPLAY, S.CANVASS)
def _():
    leader = ALeader(1000)
    driven = in_follower_replay(1000, leader=leader)
    driven.hears(leader.commits(1000))
    driven.grows(1600)  # of this term, and not committed yet
    driven.work()
    driven.processes(1000)
    driven.work()
    return driven


@takes(S.FOLLOWER_REPLAY, S.FOLLOWER_CATCHUP_INIT)
def _():
    return in_catchup_init()


@takes(S.FOLLOWER_REPLAY, S.FOLLOWER_LOG_INIT)
def _():
    return in_follower_log_init()


@takes(S.FOLLOWER_CATCHUP_INIT, S.FOLLOWER_CATCHUP_AWAIT)
def _():
    return in_catchup_await()


@takes(S.FOLLOWER_CATCHUP_AWAIT, S.FOLLOWER_CATCHUP)
def _():
    return in_catchup()


@takes(S.FOLLOWER_CATCHUP, S.FOLLOWER_LOG_INIT)
def _():
    return caught_up()


@takes(S.FOLLOWER_LOG_INIT, S.FOLLOWER_LOG_AWAIT)
def _():
    return in_follower_log_await()


@takes(S.FOLLOWER_LOG_INIT, S.FOLLOWER_READY)
def _():
    driven = caught_up()
    driven.work()
    return driven


@takes(S.FOLLOWER_LOG_AWAIT, S.FOLLOWER_READY)
def _():
    return in_follower_ready()


@takes(S.FOLLOWER_READY, S.CLOSED)
def _():
    driven = in_follower_ready()
    driven.work()
    driven.work()
    return driven


def caught_up() -> Driven:
    driven = in_catchup()
    driven.grows(1600)
    driven.processes(1600)
    driven.hears(StopCatchup(TERM, 0))
    driven.work()
    return driven


def test_the_file_says_of_each_state_where_it_leads():
    """What stands above a state's code is read as its description: it names its exits, all and no others."""
    source = inspect.getsource(election_module)
    told = {}
    for section in source.split("    # ---- ")[1:]:
        name = section.split()[0].rstrip(":")
        exits = re.search(r"# exits .*(?:\n    # {11}.*)*", section)
        if name in ElectionState.__members__ and exits is not None:
            words = re.findall(r"[A-Z]+(?:_[A-Z]+)*", exits[0])
            told[ElectionState[name]] = {ElectionState[word] for word in words}

    assert told == {state: set(exits) for state, exits in TRANSITIONS.items() if exits}
