"""A damaged member: what is not whole any more is fetched again from the others (I-12).

    damage found ──▶ repaired from what others have, and whole (log_repair.py); or, when nobody gives it:

                     noted, durably ──▶ cut off, set aside ──▶ follows a leader, which fills it up ──▶ whole
                     repair-needed      damaged/               does not stand until then

A member whose log has lost what it had acknowledged must not speak as if it had never had that: others would
take the shorter log for a whole one, and elect a leader without what is committed. So ``repair-needed`` says
how far the log reached; until it does again, the member votes for nobody whose log does not (``Election``).
Where that is not known, or its votes are forgotten, it counts as a wiped member does (``promise_keeper.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.archive.recording_damage import Damage
from cluster.consensus.cluster_member import LogEnd
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.errors import LogDamaged
from cluster.member.disk.log_repair import LogRepair
from cluster.member.disk.member_files import MemberFiles, RepairNote, set_files_aside
from cluster.member.log.member_log import MemberLog
from cluster.member.ports import Peers
from cluster.protocol.recording_log import RecordingLogEntry


@dataclass(eq=False)
class Repair:
    """``begin`` at a start, ``finish`` as a follower; with a ``log_repair`` nothing but ``repair_log``."""

    _context: ConsensusModuleContext
    _files: MemberFiles
    _peers: Peers
    _say: Callable[[str], None]  # gets lines for people
    distrusts_log: bool
    log_repair: LogRepair | None = None

    def __post_init__(self) -> None:
        self._directory = self._files.recording_log.path.rpartition("/")[0]
        self._note = RepairNote(self._files.archive.files, self._directory)

    @property
    def is_needed(self) -> bool:
        """The member is not whole, until it holds again what a leader holds."""
        return self._note.is_there

    @property
    def acknowledged_end(self) -> LogEnd | None:
        """Where the log ended before it was cut, or beyond; None when it is whole, and when nobody knows."""
        return self._note.read()[1] if self._note.is_there else None

    def begin(self, now_ns: int) -> None:
        """Look for damage; repair it, or cut the log. Raises LogDamaged for a member alone."""
        term = self._files.recording_log.find_last_term()
        damage = None if term is None else self._find_damage(term)
        if term is None or damage is None:
            return
        if len(self._context.member_ids) == 1:
            raise damage.error
        mender = self._files.archive.open_repair(damage)
        if mender is None:
            self._cut(term, damage)
            return
        self._say(f"damaged: {damage.error}; asks the others for what is missing")
        self.log_repair = LogRepair(
            self._context,
            self._files,
            self._peers,
            self._say,
            damage.recording_id,
            mender,
            now_ns,
        )

    def repair_log(self, now_ns: int) -> bool:
        """Go on with the repair of the log; whether it is over, with the log repaired or cut."""
        assert self.log_repair is not None
        self.log_repair.do_work(now_ns)
        if not self.log_repair.is_over:
            return False
        self.log_repair = None
        term = self._files.recording_log.find_last_term()
        assert term is not None
        self._files.archive.forget_files(term.recording_id)
        damage = self._find_damage(term)
        if damage is not None:
            self._cut(term, damage)
        return True

    def _cut(self, term: RecordingLogEntry, damage: Damage) -> None:
        """Cut the log where it is damaged or falls short of its own terms; the rest is for others to give."""
        recording_log = self._files.recording_log
        position = damage.position
        self._note.write(f"log from position {position} on: {damage.error}", _acknowledged_end(term, damage))
        last: RecordingLogEntry | None
        while (last := recording_log.find_last_term()) is not None and last.term_base_log_position > position:
            recording_log.remove(last)
        if last is not None and not 0 <= last.log_position <= position:
            recording_log.commit_log_position(last.leadership_term_id, position)
        self._files.archive.cut_damage(damage)
        end = self.acknowledged_end
        vote = "has no vote until then"
        if end is not None:
            vote = f"votes for logs to {end.log_position} of term {end.leadership_term_id}, or better"
        self._say(
            f"damaged: {damage.error}; log cut at position {position}, others are to give the rest; {vote}"
        )

    def set_votes_aside(self, what: str) -> None:
        """node-state.dat does not say what was voted. Raises StorageError."""
        damage = LogDamaged(self._files.node_state.path, None, what)
        archive = self._files.archive
        set_files_aside(archive.files, archive.directory, self._directory, damage, self._say)

    def _find_damage(self, term: RecordingLogEntry) -> Damage | None:
        snapshot = None if self.distrusts_log else self._files.recording_log.latest_snapshot()
        from_position = None if snapshot is None else snapshot.log_position
        damage = self._files.archive.find_damage(term.recording_id, from_position)
        if damage is not None:
            return damage
        end = self._files.archive.recording(term.recording_id).append_position
        if end >= term.term_base_log_position:
            return None
        what = (
            f"term {term.leadership_term_id} begins at {term.term_base_log_position}, "
            f"but the recording ends at {end}"
        )
        return Damage(
            term.recording_id, end, LogDamaged(self._files.recording_log.path, max(term.offset, 0), what)
        )

    def finish(self, leader_id: int, log: MemberLog) -> None:
        """The member holds again all that its leader holds: it counts as whole from now on."""
        if not self.is_needed:
            return
        position = 0 if log.recording is None else log.recording.sync()
        before, _ = self._note.read()
        self._files.archive.drop_set_aside()
        self._note.drop_set_aside()
        self._note.remove()
        given = "" if leader_id == self._context.member_id else f", with what member {leader_id} has given"
        self._say(f"whole again up to position {position}{given} ({before})")


def _acknowledged_end(term: RecordingLogEntry, damage: Damage) -> LogEnd | None:
    """At least the end of a log whose last term is ``term``, but not beyond where a cut was started."""
    if damage.acknowledged_end is None:
        return None
    end = damage.acknowledged_end
    if term.log_position != NULL_POSITION:
        end = min(end, term.log_position)
    return LogEnd(term.leadership_term_id, end)
