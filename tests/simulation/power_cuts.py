"""Machines that lose power: at sync level 1 or 2 any, at level 0 those that the others can do without.

At level 0 nothing waits for a disk, so a cut takes back what was acknowledged, votes and terms among it. The
cluster loses nothing as long as every other member has all that this one had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.testing.world import SECOND
from tests.simulation.member import Member

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis


class PowerCuts:
    """The nemesis's faults of this kind, by name."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._history = nemesis.history
        self._random = nemesis.random
        self.at_level_0 = nemesis.history.world.random("power cuts at level 0")

    def by_name(self) -> dict[str, Callable[[], str | None]]:
        return {
            "power cut": self._cut,
            "power cut in a turn": self._cut_in_turn,
            "power cut of all": self._cut_all,
        }

    def _cut(self) -> str | None:
        member = self._nemesis.any_member(running=False)
        return None if member is None else self._cut_power_of(member)

    def _cut_power_of(self, member: Member) -> str:
        down_ns = self._nemesis.draw_down_ns()
        member.lose_power()
        self._nemesis.bring_down(member, down_ns)
        return f"member {member.member_id} for {down_ns / SECOND:.3f} s"

    def _cut_in_turn(self) -> str | None:
        member = self._nemesis.any_member()
        if member is None:
            return None
        effects = self._random.randint(1, 80)
        member.die_soon(effects)
        member.dies_by_power = True
        return f"member {member.member_id} at its effect {effects} from now"

    def _cut_all(self) -> str:
        for member in self._history.alive():
            self._cut_power_of(member)
        return "every member"

    # -- at level 0 --

    def cut_dispensable(self) -> str | None:
        """Of a member with checksums: what is torn of a log without them is not seen."""
        members = [member for member in self._history.members.values() if self._is_dispensable(member)]
        if not members:
            return None
        member = self.at_level_0.choice(members)
        self._history.invariants.on_votes_lost(member.member_id)
        self._history.recorder.forget(member.member_id)
        self._nemesis.not_whole.add(member.member_id)
        if self.at_level_0.random() < 0.7:
            member.disk.settle()
        return self._cut_power_of(member)

    def _is_dispensable(self, member: Member) -> bool:
        """Whether all others have its log, in the same term, and have promised as much."""
        members = self._history.members.values()
        return (
            len(members) == len(self._history.context.member_ids) > 1
            and self._history.invariants.frames.has_checksums(member.member_id)
            and (member.is_leading or member.is_following)
            and all(_has_all_of(other, member) for other in members if other is not member)
        )


def _has_all_of(other: Member, member: Member) -> bool:
    if not (other.is_leading or other.is_following):
        return False
    return (
        other.leadership_term_id == member.leadership_term_id
        and other.append_position >= member.append_position
        and member.start_position == 0  # it needs no snapshot, which may be torn as well
        and other.node_state.candidate_term_id >= member.node_state.candidate_term_id
    )
