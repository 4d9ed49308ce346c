"""A member that says anything at all, one message at a time.

Only what is no lie in Raft's sense: a report of what is not held, or a vote that was not given, breaks any
majority. So of what it could say one field is such as no member can mean, or the message is none of members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.consensus.context import NULL_POSITION
from cluster.protocol import consensus, link
from cluster.protocol.link_histories import TermEvents
from cluster.protocol.sbe import CLUSTER, Message
from cluster.testing.world import ProcessDied
from tests.simulation.member_state import MemberState, framed

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis

UNKNOWN_MEMBER_ID = 99
SENDER_FIELDS = ("follower_member_id", "candidate_member_id", "leader_member_id", "member_id")
KINDS: tuple[type[Message], ...] = (*CLUSTER.templates.values(), *link.LINK_SCHEMA.templates.values())
POSITIONS = (-(2**63), -32, 31, 2**62, 2**63 - 1)
TERM_IDS = (-(2**63), -2, 2**33, 2**62, 2**63 - 1)


class Byzantine:
    """The nemesis's fault of this name."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self.random = nemesis.history.world.random("byzantine")

    def say(self) -> str | None:
        """Send one message that cannot be from a member to another; nothing where one of them is down."""
        members = [member for member in self._nemesis.history.members.values() if member.is_up]
        if len(members) < 2:
            return None
        victim, peer = self.random.sample(members, 2)
        message = self._spoiled(as_it_should_be(self.random.choice(KINDS), victim, peer))
        if message is None:
            return None
        try:
            is_said = peer.links.send_again(victim.member_id, framed(message)) > 0
        except ProcessDied:
            peer.on_killed()
            is_said = False
        if not is_said:
            return None
        return f"member {peer.member_id} says {message} to member {victim.member_id}"

    def _spoiled(self, message: Message) -> Message | None:
        """The message with one field that cannot be; None where it has none such."""
        values: dict[str, tuple[int, ...]] = {}
        for field in type(message).layout().fields:
            if field.name in SENDER_FIELDS:
                values[field.name] = (UNKNOWN_MEMBER_ID, -1)
            elif field.name.endswith(("leadership_term_id", "candidate_term_id")):
                values[field.name] = TERM_IDS
            elif "position" in field.name:
                values[field.name] = POSITIONS
        if not values:
            return None
        name = self.random.choice(sorted(values))
        return message.replace(**{name: self.random.choice(values[name])})


def as_it_should_be(kind: type[Message], victim: MemberState, peer: MemberState) -> Message:
    """What the peer could say to the victim now, as far as the victim can tell."""
    election = victim.election
    term_id = victim.leadership_term_id if election is None else election.leadership_term_id
    position = victim.append_position
    values: dict[str, object] = {}
    for field in kind.layout().fields:
        name = field.name
        if name.endswith("term_id"):
            values[name] = term_id
        elif name in SENDER_FIELDS:
            values[name] = peer.member_id
        elif "position" in name:
            values[name] = position
        elif name == "correlation_id" and victim.log_correlation_id is not None:
            values[name] = victim.log_correlation_id
        elif name == "log_session_id" and election is not None:
            values[name] = election.log_session_id
        elif name == "code":
            values[name] = link.LinkErrorCode.NOT_AVAILABLE
        else:
            values[name] = 0
    for part in kind.layout().tail:
        values[part.name] = () if part.element is not None else "" if part.text else b""
    message = kind(**values)
    match message:
        case consensus.Vote():
            return message.replace(candidate_member_id=victim.member_id)
        case consensus.StopCatchup():
            return message.replace(follower_member_id=victim.member_id)
        case consensus.NewLeadershipTerm():
            return message.replace(
                next_leadership_term_id=term_id + 1, next_log_position=NULL_POSITION, term_base_log_position=0
            )
        case TermEvents():  # a later term that is recorded at 0 would be another history, and no mistake
            last = victim.recording_log.find_last_term()
            recorded = (-1, -1) if last is None else (last.leadership_term_id, last.term_base_log_position)
            return message.replace(recorded_term_id=recorded[0], recorded_term_base=recorded[1])
    return message
