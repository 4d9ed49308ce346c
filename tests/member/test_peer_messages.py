"""Whatever a member says, and in whatever phase it is heard: no process ends, and the cluster goes on."""

import re
from pathlib import Path
from random import Random

import pytest

from cluster.consensus.context import NULL_POSITION
from cluster.member.phase import PhaseName
from cluster.protocol import consensus, link
from cluster.protocol.enums import ElectionState
from cluster.protocol.link_histories import TermEvents
from tests.member.cluster_steps import a_busy_cluster, take_snapshot
from tests.member.in_memory import liar
from tests.member.in_memory.cluster import MS, SECOND
from tests.simulation.byzantine import KINDS, as_it_should_be
from tests.simulation.member_state import framed

ARCHITECTURE_MD = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
NAME = re.compile(r"`(\w+)`")


# They move the stream of the log to whoever asks. Over a new link the real member asks again.
MOVES_ITS_OWN_LOG = (link.ReplicationRequest, consensus.CatchupPosition)

# Whoever has recorded a later term that begins before what is committed has a log of another history.
# Only it knows what it has recorded. So it is taken at its word, and set apart while its link lasts.
# Over a new link the real member tells its own log.
TELLS_ITS_OWN_LOG = (TermEvents,)


class Liars:
    """A cluster at work; whoever is in a phase of ``kinds_left`` is lied to by both others, kind by kind."""

    def __init__(self):
        self.cluster = cluster = a_busy_cluster(messages=300)
        self.client = cluster.clients[0]
        self.random = Random(1)
        self.kinds_left = {}
        self.phase_of = lambda member: None
        self._after_turn, cluster.after_turn = cluster.after_turn, self.after_turn
        take_snapshot(cluster)
        self.goes_on()

    def send_some(self):
        for _ in range(3):
            self.client.send(b"0:%d" % len(self.client.sent) + bytes(100))

    def all_are_there(self, what):
        deaths = [member.death for member in self.cluster.members if member.death]
        assert not deaths, f"{what}: {deaths}"

    def goes_on(self):
        """Whatever was said, all members follow again, and commit."""
        cluster = self.cluster
        cluster.await_leader(120 * SECOND)
        self.send_some()
        cluster.await_settled(120 * SECOND)
        cluster.await_level(120 * SECOND)
        assert len(cluster.followers) == 2
        cluster.check()
        cluster.check_promises()
        self.all_are_there("afterwards")

    def victim_and_peer(self, role):
        leader, (one, two) = self.cluster.leader, self.cluster.followers
        return {
            "leader": (leader, one),
            "follower, by its leader": (one, leader),
            "follower, by another": (one, two),
        }[role]

    def lie(self, kind, victim, peer):
        """Each lie of this kind, in a turn of its own."""
        index, right = 0, None
        while True:
            if (now := as_it_should_be(kind, victim, peer)) != right:
                right, lies = now, liar.lies(kind, victim, peer, Random(1))
            if index >= len(lies):
                break
            message, index = lies[index], index + 1
            if not self.is_meant(message, victim, peer) and liar.tell(victim, peer, framed(message)):
                self.cluster.run(1 * MS)
            self.all_are_there(message)
        if kind in TELLS_ITS_OWN_LOG:
            self.send_some()
            self.cluster.await_settled(120 * SECOND)  # the two others of whoever is set apart go on
            self.cluster.links.reset(victim.member_id, peer.member_id)

    def is_meant(self, message, victim, peer):
        """A leader's word for the end of its cluster is taken from it."""
        return (
            isinstance(message, consensus.TerminationPosition)
            and victim.is_following
            and victim.leader_member_id == peer.member_id
            and message.log_position == victim.commit_position
        )

    def after_turn(self, member):
        self._after_turn(member)
        if kinds := self.kinds_left.get(self.phase_of(member)):
            kind = kinds.pop()
            for peer in self.cluster.members:
                if peer is not member and peer.is_running:
                    said = liar.lies(kind, member, peer, self.random)
                    liar.tell(member, peer, b"".join(framed(message) for message in said))
                    if kind in (*MOVES_ITS_OWN_LOG, *TELLS_ITS_OWN_LOG):
                        self.cluster.after(MS, self.cluster.links.reset, member.member_id, peer.member_id)

    def lie_about_everything(self, phases, phase_of, go_through):
        """Go through the phases until in each every kind of message has been said in every wrong way."""
        self.phase_of = phase_of
        self.kinds_left = {phase: list(KINDS) for phase in phases}
        while any(self.kinds_left.values()):
            before = sum(map(len, self.kinds_left.values()))
            go_through()
            self.goes_on()
            left = {phase.name: kinds for phase, kinds in self.kinds_left.items() if kinds}
            assert sum(map(len, left.values())) < before, f"nobody was seen in {' or '.join(left)}"


def phase_of(member):
    return None if member.agent is None else member.agent.phase.name


ROLES = ["leader", "follower, by its leader", "follower, by another"]


@pytest.mark.parametrize("role", ROLES)
def test_nothing_that_a_peer_says_ends_an_established_member(role):
    liars = Liars()
    for kind in KINDS:
        liars.lie(kind, *liars.victim_and_peer(role))
        liars.goes_on()


@pytest.mark.parametrize("role", ROLES)
def test_no_log_frames_of_a_peer_end_a_member(role):
    liars = Liars()
    victim, peer = liars.victim_and_peer(role)
    for number in range(len(list(liar.lies_of_log(victim)))):
        frames = list(liar.lies_of_log(victim))[number]
        liar.tell(victim, peer, frames)
        liars.goes_on()


STATES = [state for state in ElectionState if state is not ElectionState.CLOSED]


def lie_in_elections(states):
    """One member comes back behind a term and a half; the others have elected a leader meanwhile."""
    liars = Liars()
    cluster = liars.cluster

    def go_through_elections():
        late, leader = cluster.followers[0], cluster.leader
        late.kill()
        liars.send_some()
        cluster.await_settled(120 * SECOND)
        leader.kill()
        leader.start()
        cluster.await_leader(120 * SECOND)
        liars.send_some()
        cluster.await_settled(120 * SECOND)
        late.start()

    liars.lie_about_everything(states, lambda member: member.election_state, go_through_elections)


@pytest.mark.slow
def test_nothing_that_peers_say_all_the_time_ends_a_member_in_an_election():
    lie_in_elections(STATES)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_nothing_that_a_peer_says_ends_a_member_in_an_election(state):
    lie_in_elections([state])


def test_nothing_that_a_peer_says_ends_a_member_that_fetches_a_snapshot():
    liars = Liars()

    def wipe_one():
        member = liars.cluster.followers[0]
        member.kill()
        member.wipe()
        member.start()

    liars.lie_about_everything([PhaseName.FETCHING], phase_of, wipe_one)


def test_nothing_that_a_peer_says_ends_a_member_whose_log_is_mended():
    liars = Liars()

    def damage_one():
        member = liars.cluster.followers[0]
        member.stop()
        member.files.unlink("member/archive/0-0.rec")
        member.start()

    liars.lie_about_everything([PhaseName.REPAIRING], phase_of, damage_one)


def test_what_members_take_from_each_other_is_in_the_documentation():
    """Every message of the table is admitted by somebody, and every other one is refused in every phase."""
    rows = ARCHITECTURE_MD.read_text().split("## What members take from each other")[1].split("\n## ")[0]
    told = {
        name for row in rows.splitlines() if row.startswith("| `") for name in NAME.findall(row.split("|")[1])
    }
    liars = Liars()
    for role in ROLES:
        victim, peer = liars.victim_and_peer(role)
        for kind in KINDS:
            fault = victim.fault_of(peer.member_id, as_it_should_be(kind, victim, peer))
            assert (fault != "no message between members") == (kind.__name__ in told), kind
    assert told <= {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize(
    ("what", "role"),
    [
        (lambda term, end, ids: consensus.TerminationPosition(term, end), "follower, by another"),
        (lambda term, end, ids: consensus.TerminationPosition(term, end - 32), "follower, by its leader"),
        (lambda term, end, ids: consensus.TerminationAck(term, end, ids[1]), "leader"),
        (lambda term, end, ids: consensus.StopCatchup(term, ids[0]), "follower, by another"),
        (lambda term, end, ids: consensus.StopCatchup(term, ids[1]), "leader"),
        (lambda term, end, ids: consensus.CommitPosition(term, end, ids[1]), "follower, by another"),
        (lambda term, end, ids: consensus.CommitPosition(term, 1 << 62, ids[1]), "follower, by its leader"),
        (lambda term, end, ids: consensus.CommitPosition(term, end, ids[1]), "leader"),
        (lambda term, end, ids: consensus.AppendPosition(term, end + 32, ids[1]), "leader"),
        (lambda term, end, ids: consensus.AppendPosition(term, -32, ids[1]), "leader"),
        (lambda term, end, ids: link.LogGeometry(0, 0, 1408), "follower, by its leader"),
        (lambda term, end, ids: link.ClockReply(0, -1), "leader"),
        (lambda term, end, ids: link.Hello(0, ids[1], 1, 0, 0), "follower, by its leader"),
    ],
)
def test_what_cannot_be_is_told_and_counted(what, role):
    liars = Liars()
    victim, peer = liars.victim_and_peer(role)
    before = victim.counters.errors.get()
    ids = victim.member_id, peer.member_id
    message = what(victim.leadership_term_id, victim.commit_position, ids)
    liar.tell(victim, peer, framed(message))
    liars.cluster.run(1 * MS)

    assert victim.counters.errors.get() == before + 1
    assert f"error: consensus module: member {peer.member_id}" in liars.cluster.events[-1]
    liars.goes_on()
    assert victim.counters.election_count.get() == 1


def test_an_end_that_a_longer_log_passes_is_no_end():
    liars = Liars()
    victim, leader = liars.victim_and_peer("follower, by its leader")
    end = consensus.TerminationPosition(victim.leadership_term_id, victim.commit_position + 32)
    liar.tell(victim, leader, framed(end))
    liars.goes_on()

    assert f"the log was to end at {end.log_position}" in "\n".join(liars.cluster.events)
    assert victim.termination_position == NULL_POSITION
