"""A leader that does not know that it was replaced, and a wiped member that may have helped to replace it.

The leader is heard by too few and hears all; the rest elects another one, and is then cut off from it and
in itself. One of the rest is wiped, in the ballot or behind the next commit, and comes back beside the old
leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.protocol.enums import ElectionState
from cluster.testing.member import host_of
from cluster.testing.world import MS, SECOND
from tests.simulation.network_faults import both_ways

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis

BALLOT = (ElectionState.CANDIDATE_BALLOT, ElectionState.FOLLOWER_BALLOT)
POLL_NS = 2 * MS


class StaleLeaders:
    """The nemesis's fault of that name."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._history = nemesis.history
        self.random = nemesis.history.world.random("stale leaders")
        self._end_ns = 0

    def strike(self) -> str | None:
        """Let the leader not be heard by a majority without it; the rest follows as they react."""
        history, random = self._history, self.random
        leader = history.leader()
        ids = list(history.context.member_ids)
        if leader is None or len(ids) < 3 or not self._nemesis.expendable_ids():
            return None
        others = [id_ for id_ in ids if id_ != leader.member_id]
        random.shuffle(others)
        near, far = [leader.member_id, *others[: history.quorum - 2]], others[history.quorum - 2 :]
        timeout_ns = history.context.leader_heartbeat_timeout_ns
        self._end_ns = history.world.now_ns + 2 * timeout_ns + random.randrange(2, 8) * SECOND
        self._block(near, far)
        in_ballot = random.random() < 0.4
        self._await(near, far, in_ballot, history.invariants.log.end)
        when = "in" if in_ballot else "after"
        return f"members {near} are not heard by {far}, one of which is wiped {when} a ballot"

    def _block(self, sources: list[int], sinks: list[int]) -> None:
        pairs = [(host_of(a), host_of(b)) for a in sources for b in sinks if a != b]
        self._nemesis.network.block_pairs(
            pairs, max(self._end_ns - self._history.world.now_ns, 0), "the old leader is heard again"
        )

    def _await(self, near: list[int], far: list[int], in_ballot: bool, committed: int) -> None:
        """Wait for the moment: the far ones have forgotten the leader, then one of them leads and commits."""
        history = self._history
        if not self._nemesis.is_storm or history.world.now_ns >= self._end_ns:
            return
        members = [history.members[id_] for id_ in far]
        if any(member.election_state in BALLOT for member in members):
            self._block(far, near)
            if in_ballot:
                self._wipe(near, far, self.random.choice(far))
                return
        leaders = [member.member_id for member in members if member.is_leading]
        if leaders and history.invariants.log.end > committed:
            self._block(far, near)
            self._wipe(near, far, self.random.choice([id_ for id_ in far if id_ not in leaders]))
            return
        history.world.at(history.world.now_ns + POLL_NS, self._await, near, far, in_ballot, committed)

    def _wipe(self, near: list[int], far: list[int], wiped_id: int) -> None:
        if wiped_id not in self._nemesis.expendable_ids():
            return
        self._nemesis.say(f"stale leader: member {wiped_id} is wiped, and comes back beside {near}")
        rest = [id_ for id_ in far if id_ != wiped_id]
        cut_off = rest if self.random.random() < 0.7 else rest[1:]
        self._block(cut_off, [*near, *far])
        self._block([*near, *far], cut_off)
        self._nemesis.wipe_member(wiped_id)
        network = self._history.network
        for one, other in both_ways([host_of(wiped_id)], [host_of(id_) for id_ in near]):
            network.path(one, other).is_blocked = False
