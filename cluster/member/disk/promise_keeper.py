"""The member's promises on its disk and on its links; what they mean is in cluster/consensus/promises.py."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from cluster.archive.promises_file import PROMISES_FILE_NAME, read_promises, write_promises
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.consensus.promises import Promises, StoredPromises, recall
from cluster.consensus.replica import ReplicatedState
from cluster.counters import Counter
from cluster.errors import LogDamaged, MemberRestart
from cluster.member.disk.identity_keeper import IdentityKeeper
from cluster.member.disk.member_files import MemberFiles
from cluster.member.disk.repair import Repair
from cluster.member.log.member_log import MemberLog
from cluster.member.ports import Peers
from cluster.member.reporter import Reporter
from cluster.member.unrelated import Unrelated
from cluster.protocol.counter_types import bits_of
from cluster.protocol.identity import ClusterIdentity
from cluster.protocol.link import KnownPromises, PromiseStatement
from cluster.transport.message_frames import link_frame

_ID_BITS = 62


@dataclass(eq=False)
class PromiseKeeper:
    """``promises`` of a member, from ``begin`` on."""

    _context: ConsensusModuleContext
    _files: MemberFiles
    _peers: Peers
    _repair: Repair
    _identity: IdentityKeeper
    _unrelated: Unrelated
    _log: MemberLog
    _replica: ReplicatedState
    _random: Random
    _awaited_members: Counter
    _reporter: Reporter
    _find_election: Callable[[], Election | None]
    _is_identity_lost: bool = False
    _lost_cluster: tuple[ClusterIdentity, ...] = ()  # that promises.dat has, and nothing else
    _shown_to_wait: list[int] = field(default_factory=list)
    promises: Promises = field(init=False)

    def __post_init__(self) -> None:
        self._directory = self._files.recording_log.path.rpartition("/")[0]

    def begin(self) -> None:
        """Find out which cluster it is, and if promises are kept. Raises OtherMembers, StorageError."""
        stored, damage = self._read()
        has_promises = self._files.archive.files.exists(f"{self._directory}/{PROMISES_FILE_NAME}")
        if damage is not None:
            self._reporter.warning(f"{damage}: counts as a member that has lost its promises")
        self._is_identity_lost = self._identity.begin(stored, has_promises=has_promises)
        if self._is_identity_lost:
            self._lost_cluster = () if stored is None else stored.cluster
            self._reporter.warning("its identity.dat is lost: counts as a member that has lost its promises")
        self._recall(stored, is_damaged=damage is not None)

    def _recall(self, stored: PromiseStatement | None, *, is_damaged: bool) -> None:
        repair, candidate_term_id = self._repair, self._files.node_state.candidate_term_id
        is_cut = repair.is_needed and repair.acknowledged_end is None
        remembered = None if stored is None else _kept(stored)
        kept = recall(
            remembered,
            candidate_term_id,
            is_lost=is_cut or is_damaged or self._is_identity_lost,
            draw_id=lambda: self._random.getrandbits(_ID_BITS),
        )
        context = self._context
        self.promises = Promises(
            context.member_id,
            context.member_ids,
            context.quorum_threshold,
            kept,
            had_log=repair.is_needed,
        )
        if self.promises.has_say:
            self._identity.settle(is_new=candidate_term_id < 0)
        stated, named = self._identity.stated, () if stored is None else stored.cluster
        if self._peers.ids and (kept != remembered or (stated and stated != named)):
            self.store()
        self._show_waiting()

    def on_recovered(self, append_position: int) -> None:
        """The log is known, and whether it is damaged. Raises StorageError."""
        if self._repair.is_needed:
            stored, damage = self._read()
            self._recall(stored, is_damaged=damage is not None)
        if not self.promises.has_say and append_position > 0:
            self._reporter.warning(
                f"a log to {append_position}, but its votes are not known: maybe not all that it had "
                "acknowledged, so no vote before it has followed a leader"
            )

    def _read(self) -> tuple[PromiseStatement | None, LogDamaged | None]:
        try:
            return read_promises(self._files.archive.files, self._directory), None
        except LogDamaged as damage:
            return None, damage

    def store(self) -> None:
        """Make ``promises.stored`` durable; who has a say knows its cluster before. Raises StorageError."""
        if self.promises.has_say:
            self._identity.settle(is_new=True)
        kept = self.promises.stored
        known = tuple(KnownPromises(id_, member_id) for member_id, id_ in sorted(kept.known))
        statement = PromiseStatement(
            kept.promises_id,
            kept.candidate_term_id,
            NULL_VALUE,
            kept.state,
            False,
            known,
            self._identity.stated or self._lost_cluster,
        )
        write_promises(self._files.archive.files, self._directory, statement)
        self._show_waiting()

    def on_elected(self) -> None:
        """An election is over: from here on the disk has a candidate term, which never falls."""
        kept, candidate_term_id = self.promises.stored, self._files.node_state.candidate_term_id
        if self._peers.ids and kept.candidate_term_id < 0 <= candidate_term_id:
            self.promises.keep(candidate_term_id)
            self.store()

    # ---- on the links

    @property
    def _terms(self) -> tuple[int, int]:
        """The highest candidate term, and the highest that was led, followed or recorded."""
        candidate_term_id = max(self._files.node_state.candidate_term_id, NULL_VALUE)
        last = self._files.recording_log.find_last_term()
        led_term_id = max(
            self._replica.leadership_term_id, NULL_VALUE if last is None else last.leadership_term_id
        )
        if (election := self._find_election()) is not None:
            candidate_term_id = max(candidate_term_id, election.candidate_term_id)
            led_term_id = max(led_term_id, election.leadership_term_id)
        return candidate_term_id, led_term_id

    def frame(self) -> bytes:
        """The own statement, as it is sent; without promises it asks for that of the other."""
        return self._frame(asks=not self.promises.may_follow)

    def _frame(self, *, asks: bool) -> bytes:
        statement = self.promises.statement(*self._terms, asks=asks)
        return link_frame(statement.replace(cluster=self._identity.stated))

    def on_link_up(self, member_id: int) -> None:
        self._peers.links.send(member_id, self.frame())

    def on_link_down(self, member_id: int) -> None:
        self.promises.on_link_down(member_id)
        self._show_waiting()

    def on_statement(self, member_id: int, reported: PromiseStatement) -> None:
        """Take a member's statement, and answer it if it asks; who is of another cluster is unrelated.

        Raises MemberRestart when it shows that the own candidate term cannot be true, OtherMembers when the
        others are not those that are configured; StorageError.
        """
        if (reason := self._identity.difference(reported)) is not None:
            self._unrelated.add(member_id, reason)
            return
        promises = self.promises
        if promises.on_statement(member_id, reported):
            self.store()
        agreed = promises.confirmed_cluster
        if agreed is not None and not promises.has_say and self._identity.adopt(agreed):
            self._on_identity()
        if reported.asks:
            self._peers.links.send(member_id, self._frame(asks=False))
        candidate_term_id, _ = self._terms
        if promises.is_beyond_others(candidate_term_id):
            self._repair.set_votes_aside(f"candidate term {candidate_term_id} is far beyond all others")
            raise MemberRestart("its candidate term cannot be true")
        self._show_waiting()

    def learn_first_term(self) -> None:
        """Once the log's start is committed it is part of the identity, by which the others are judged."""
        if self._identity.learn_first_term(self._log.recording, self._log.commit_position):
            self._on_identity()

    def _on_identity(self) -> None:
        """It is known, or more of it: the others are to know, and are judged by it."""
        for member_id in self._peers.ids:
            reported = self.promises.statement_of(member_id)
            if reported is not None and (reason := self._identity.difference(reported)) is not None:
                self._unrelated.add(member_id, reason)
                self.promises.on_link_down(member_id)
            self._peers.links.send(member_id, self.frame())

    def _show_waiting(self) -> None:
        """Update what tools see. It is called after each change of ``promises``."""
        waits_for = self.promises.waits_for
        if waits_for != self._shown_to_wait:
            self._shown_to_wait = waits_for
            self._awaited_members.set(bits_of(waits_for))
            names = ", ".join(map(str, waits_for))
            self._reporter.event(
                f"waits for members {names}: its disk has no votes, so it asks them first (if they never "
                "answer: cluster tool accept-data-loss)"
                if names
                else "has heard enough of the others"
            )

    def term_limit(self, member_id: int) -> int:
        """The highest term that is believed of a member."""
        return self.promises.term_limit(member_id, *self._terms)


def _kept(stored: PromiseStatement) -> StoredPromises:
    known = frozenset((known.member_id, known.promises_id) for known in stored.known)
    return StoredPromises(stored.promises_id, stored.state, stored.candidate_term_id, known)
