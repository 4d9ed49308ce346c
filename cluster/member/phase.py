"""The phases of a member, and the one table of how it passes from one to another.

A member is in one phase at a time. Each handler of a phase returns what is to happen next, or None to stay;
only the agent changes the phase (``ConsensusModuleAgent._enter``), along ``PHASES``. docs/phases.md is drawn
from the table: python -m tests.member.phase_diagram
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from cluster.consensus.actions import CompleteElection
from cluster.consensus.context import NULL_VALUE
from cluster.consensus.election import Election
from cluster.errors import ClusterError
from cluster.protocol.sbe import Message
from cluster.transport.clock import NEVER_NS


class PhaseName(Enum):
    """What a member does."""

    REPAIRING = auto()  # its log is damaged, and it asks the others for what is missing
    REPLICATING = auto()  # it fetches a standby's snapshot that is newer than its own
    STARTING = auto()  # its state is loaded, and its services load theirs
    ELECTING = auto()  # an election runs: consensus/election.py has its states
    FETCHING = auto()  # its election rests while it fetches another member's snapshot
    LEADING = auto()
    FOLLOWING = auto()
    CLOSED = auto()  # it has ended in order; any other end is an exception


# Every change of phase that there is, and why.
PHASES: Mapping[PhaseName, Mapping[PhaseName, str]] = {
    PhaseName.REPAIRING: {PhaseName.STARTING: "log repaired, or cut where nobody has the rest"},
    PhaseName.REPLICATING: {PhaseName.STARTING: "snapshot fetched, or not to be had"},
    PhaseName.STARTING: {PhaseName.ELECTING: "all services have started"},
    PhaseName.ELECTING: {
        PhaseName.LEADING: "elected, and the first entry of the term is written",
        PhaseName.FOLLOWING: "level with an elected leader",
        PhaseName.FETCHING: "the leader's log begins after the end of this one, or this one is empty",
    },
    PhaseName.FETCHING: {PhaseName.ELECTING: "no snapshot to be had"},
    PhaseName.LEADING: {PhaseName.ELECTING: "no majority follows, or a later term is heard of"},
    PhaseName.FOLLOWING: {PhaseName.ELECTING: "the leader is silent, gone, replaced, or sends no log"},
    PhaseName.CLOSED: {},
}
# Besides these: from any phase to CLOSED, when the member is ended or its cluster is.

# Of these the member does not know yet what it has.
BEFORE_RECOVERY = (PhaseName.REPAIRING, PhaseName.REPLICATING)


# ---- what a handler returns


@dataclass(frozen=True, slots=True)
class Next:
    """Base of all that may come next."""


@dataclass(frozen=True, slots=True)
class Elect(Next):
    """Begin an election; the leader hands over to ``successor_id``; who closed in order is not waited for."""

    reason: str
    graceful_closed_leader_id: int = NULL_VALUE
    successor_id: int = NULL_VALUE


@dataclass(frozen=True, slots=True)
class Resume(Next):
    """Go on with the election that rests."""


@dataclass(frozen=True, slots=True)
class Fetch(Next):
    """Fetch a member's snapshot. ``is_needed``: its log alone would not do."""

    member_id: int
    is_needed: bool


@dataclass(frozen=True, slots=True)
class Establish(Next):
    """The election is over: lead, or follow."""

    result: CompleteElection


@dataclass(frozen=True, slots=True)
class Recover(Next):
    """Log and snapshots are as good as they get: start with them."""


@dataclass(frozen=True, slots=True)
class Close(Next):
    """End in order."""


class Phase:
    """What every phase answers, as most of them do; ``takes_reports``, ``takes_commits``: as numbers."""

    name: PhaseName
    takes_reports = False
    takes_commits = False

    @property
    def election(self) -> Election | None:
        """The election that runs or rests; None outside of one."""
        return None

    @property
    def awaits_events(self) -> bool:
        """Whether only a message, a client or time gives it more to do: False where it cannot say."""
        return False

    @property
    def may_be_lent(self) -> bool:
        """Whether compiled turns may stand for its own: they send followers the commit position, too."""
        return self.awaits_events

    @property
    def next_due_ns(self) -> int:
        """Until when compiled turns may stand for its own, where ``may_be_lent`` holds."""
        return NEVER_NS

    def do_work(self) -> Next | None:
        """The phase's part of a turn."""
        return None

    def slow_tick(self) -> Next | None:
        """Its part of the slow tick."""
        return None

    def look_around(self, heard: int, since_ns: int) -> bool:
        """Whether nothing is left to be heard of what has happened since then, while the member slept."""
        return not heard

    def check_quorum(self) -> Next | None:
        """Whether a leader still is one (C-17)."""
        return None

    def on_message(self, member_id: int, message: Message) -> Next | None:
        """A message that was admitted, and that is not answered alike in all phases."""
        return None

    def on_append_position(self, member_id: int, term_id: int, log_position: int, flags: int) -> Next | None:
        """AppendPosition, where ``takes_reports``."""
        raise NotImplementedError

    def on_commit_position(self, member_id: int, term_id: int, log_position: int) -> Next | None:
        """CommitPosition, where ``takes_commits``."""
        raise NotImplementedError

    def on_link_up(self, member_id: int) -> Next | None:
        return None

    def on_link_down(self, member_id: int) -> Next | None:
        return None

    def on_member_gone(self, member_id: int) -> Next | None:
        return None

    def on_log_fault(self, error: ClusterError) -> Next | None:
        """What came of the leader's log does not join on: nothing more is taken of it."""
        return None

    def on_failure(self, error: ClusterError) -> Next | None:
        """What another member asked for could not be done."""
        return None

    def close(self) -> None:
        """The member is ended in order from outside."""
