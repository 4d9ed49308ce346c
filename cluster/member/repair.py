"""A damaged member: what is not whole any more is fetched again from the others (I-12).

    damage found ──▶ mended from what others have, and whole (mending.py); or, when nobody gives it:

                     noted, durably ──▶ cut off, set aside ──▶ follows a leader, which fills it up ──▶ whole
                     repair-needed      damaged/               does not stand until then

A member whose log has lost what it had acknowledged must not speak as if it had never had that: others would
take the shorter log for a whole one, and elect a leader without what is committed. So ``repair-needed`` says
how far the log reached; until it does again, the member votes for nobody whose log does not (``Election``).
Where that is not known, or its votes are forgotten, it counts as a wiped member does (``promise_keeper.py``).
"""

import re
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cluster.archive.archive import Archive
from cluster.archive.damage import SET_ASIDE_FOLDER, Damage, drop_set_aside, set_aside
from cluster.archive.files import Files, replace
from cluster.archive.node_state import NodeStateFile
from cluster.archive.recording_log import RecordingLog
from cluster.consensus.cluster_member import LogEnd
from cluster.consensus.context import NULL_POSITION
from cluster.errors import LogDamaged, StorageError
from cluster.member.mending import Mending
from cluster.protocol import streams
from cluster.protocol.catalog import CATALOG_FILE_NAME
from cluster.protocol.node_state import NODE_STATE_FILE_NAME
from cluster.protocol.recording_log import RECORDING_LOG_FILE_NAME, RecordingLogEntry

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent

NOTE_FILE_NAME = "repair-needed"
_HELD = re.compile(r"\nheld: position (\d+) of term (\d+), CRC-32 ([0-9a-f]{8})$")


def _held_line(held: LogEnd) -> str:
    fact = f"held: position {held.log_position} of term {held.leadership_term_id}"
    return f"{fact}, CRC-32 {zlib.crc32(fact.encode()):08x}"


class RepairNote:
    """The note in a cluster directory that this member is not whole, and why; survives restarts."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{NOTE_FILE_NAME}"

    @property
    def is_there(self) -> bool:
        return self._files.exists(self._path)

    def read(self) -> tuple[str, LogEnd | None]:
        """What is missing and why, for people; and where the log ended before, or beyond, if known."""
        try:
            file = self._files.open(self._path)
            try:
                text = file.pread(file.size(), 0).decode("utf-8", "replace").strip()
            finally:
                file.close()
        except OSError as error:
            return f"the note cannot be read: {error.strerror}", None
        match = _HELD.search(text)
        if match is None:
            return text, None
        held = LogEnd(int(match[2]), int(match[1]))
        return text[: match.start()], held if text.endswith(_held_line(held)) else None

    def write(self, text: str, held: LogEnd | None) -> None:
        """Note it, durable when this returns; what an earlier note says stays. Raises StorageError.

        Of several ends that were held the best counts; one that is not known is not known for good.
        """
        if self.is_there:
            earlier, held_earlier = self.read()
            text = f"{earlier}; {text}"
            held = None if held is None or held_earlier is None else max(held, held_earlier)
        if held is not None:
            text = f"{text}\n{_held_line(held)}"
        replace(self._files, self._path, f"{text}\n".encode())

    def drop_set_aside(self) -> None:
        """Remove what was set aside of the cluster directory. Raises StorageError."""
        try:
            drop_set_aside(self._files, self._directory)
        except OSError as error:
            raise StorageError(self._directory, error.errno, "removing what was set aside failed") from error

    def remove(self) -> None:
        """The member is whole. Raises StorageError."""
        try:
            self._files.unlink(self._path)
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise StorageError(self._path, error.errno, "removing the note failed") from error


class MemberFiles(NamedTuple):
    """What a member keeps on its disk, open."""

    archive: Archive
    recording_log: RecordingLog
    node_state: NodeStateFile


def open_files(
    files: Files,
    archive_directory: str,
    cluster_directory: str,
    *,
    file_sync_level: int,
    segment_length: int,
    checksum: str | None,
    is_after_failure: bool,
    is_alone: bool,
    epoch_ms: Callable[[], int],
    tell: Callable[[str], None],
) -> MemberFiles:
    """Open a member's files; what tells how to read the others and is damaged is set aside with them.

    A member that is alone has nobody to fetch them from. Raises LogDamaged then, and what opening raises.
    """

    def opened() -> MemberFiles:
        archive = Archive.open(
            archive_directory,
            files=files,
            file_sync_level=file_sync_level,
            segment_length=segment_length,
            checksum=checksum,
            is_after_failure=is_after_failure,
            may_be_damaged=not is_alone,
            epoch_ms=epoch_ms,
        )
        try:
            recording_log = RecordingLog.open(
                cluster_directory,
                files=files,
                file_sync_level=file_sync_level,
                find_recording=archive.find_recording,
            )
            try:
                node_state = NodeStateFile.open(
                    cluster_directory, files=files, file_sync_level=file_sync_level
                )
            except BaseException:
                recording_log.close()
                raise
        except BaseException:
            archive.abandon()
            raise
        return MemberFiles(archive, recording_log, node_state)

    for _ in range(2):
        try:
            found = opened()
            try:
                if not is_alone:
                    _check_log_is_known(found)
            except LogDamaged:
                found.recording_log.close()
                found.node_state.close()
                found.archive.abandon()
                raise
            for flip in found.archive.put_back:
                tell(str(flip))
            for entry in found.recording_log.changed_by_others:
                tell(f"{found.recording_log.path} at offset {entry.offset}: changed by another program")
            return found
        except LogDamaged as damage:
            if is_alone:
                raise
            _set_aside(files, archive_directory, cluster_directory, damage, tell)
    return opened()


def _check_log_is_known(files: MemberFiles) -> None:
    """Raise LogDamaged when recording.log and the archive do not speak of the same log.

    One that a verification has marked INVALID is looked at again: its good part is as good as before.
    """
    archive, recording_log = files.archive, files.recording_log
    term = recording_log.find_last_term()
    if term is not None:
        if not archive.revive(term.recording_id):
            what = f"the archive has no recording {term.recording_id}"
            raise LogDamaged(recording_log.path, max(term.offset, 0), what)
        archive.check_start(term.recording_id)
    elif not any(entry.is_valid for entry in recording_log.entries):
        for descriptor in archive.recordings():
            if descriptor.stream_id == streams.LOG and descriptor.stop_position > descriptor.start_position:
                what = f"it has no entries, but the archive has a log to position {descriptor.stop_position}"
                raise LogDamaged(recording_log.path, 0, what)


class Repair:
    """What an agent does about its log's damage: ``begin`` at its start, ``finish`` when it follows.

    While there is a ``mending`` the agent does nothing but ``mend``.
    """

    def __init__(self, agent: "ConsensusModuleAgent", distrusts_log: bool) -> None:
        self._agent = agent
        self._distrusts_log = distrusts_log
        self.mending: Mending | None = None
        directory = agent.log.recording_log.path.rpartition("/")[0]
        self._note = RepairNote(agent.archive.files, directory)

    @property
    def is_needed(self) -> bool:
        """The member is not whole, until it holds again what a leader holds."""
        return self._note.is_there

    @property
    def held(self) -> LogEnd | None:
        """Where the log ended before it was cut, or beyond; None when it is whole, and when nobody knows."""
        return self._note.read()[1] if self._note.is_there else None

    def begin(self) -> None:
        """Look for damage, and begin to mend it, or else cut the log there.

        Frames before the newest snapshot are looked at only if damage was met in an earlier life. Raises
        LogDamaged for a member that is alone.
        """
        agent = self._agent
        term = agent.log.recording_log.find_last_term()
        damage = None if term is None else self._find_damage(term)
        if term is None or damage is None:
            return
        if not agent.other_ids:
            raise damage.error
        mender = agent.archive.mender(damage)
        if mender is None:
            self._cut(term, damage)
            return
        agent.tell(f"damaged: {damage.error}; asks the others for what is missing")
        self.mending = Mending(agent, damage.recording_id, mender)

    def mend(self) -> bool:
        """Go on with the mending; whether it is over, with the log mended or cut."""
        agent = self._agent
        assert self.mending is not None
        self.mending.do_work()
        if not self.mending.is_over:
            return False
        self.mending = None
        term = agent.log.recording_log.find_last_term()
        assert term is not None
        agent.archive.forget_files(term.recording_id)
        damage = self._find_damage(term)
        if damage is not None:
            self._cut(term, damage)
        return True

    def _cut(self, term: RecordingLogEntry, damage: Damage) -> None:
        """Cut the log where it is damaged or falls short of its own terms; the rest is for others to give."""
        agent = self._agent
        recording_log = agent.log.recording_log
        position = damage.position
        self._note.write(f"log from position {position} on: {damage.error}", _held(term, damage))
        last: RecordingLogEntry | None
        while (last := recording_log.find_last_term()) is not None and last.term_base_log_position > position:
            recording_log.remove(last)
        if last is not None and not 0 <= last.log_position <= position:
            recording_log.commit_log_position(last.leadership_term_id, position)
        agent.archive.cut_damage(damage)
        held = self.held
        vote = "has no vote until then"
        if held is not None:
            vote = f"votes for logs to {held.log_position} of term {held.leadership_term_id}, or better"
        agent.tell(
            f"damaged: {damage.error}; log cut at position {position}, others are to give the rest; {vote}"
        )

    def set_votes_aside(self, what: str) -> None:
        """node-state.dat does not say what was voted. Raises StorageError."""
        agent = self._agent
        damage = LogDamaged(agent.node_state.path, None, what)
        cluster_directory = agent.log.recording_log.path.rpartition("/")[0]
        _set_aside(agent.archive.files, agent.archive.directory, cluster_directory, damage, agent.tell)

    def _find_damage(self, term: RecordingLogEntry) -> Damage | None:
        agent = self._agent
        snapshot = None if self._distrusts_log else agent.log.recording_log.latest_snapshot()
        from_position = None if snapshot is None else snapshot.log_position
        damage = agent.archive.find_damage(term.recording_id, from_position)
        if damage is not None:
            return damage
        end = agent.archive.recording(term.recording_id).append_position
        if end >= term.term_base_log_position:
            return None
        what = (
            f"term {term.leadership_term_id} begins at {term.term_base_log_position}, "
            f"but the recording ends at {end}"
        )
        return Damage(
            term.recording_id, end, LogDamaged(agent.log.recording_log.path, max(term.offset, 0), what)
        )

    def finish(self, leader_id: int) -> None:
        """The member holds again all that its leader holds: it counts as whole from now on."""
        if not self.is_needed:
            return
        agent = self._agent
        position = 0 if agent.log.recording is None else agent.log.recording.sync()
        told, _ = self._note.read()
        agent.archive.drop_set_aside()
        self._note.drop_set_aside()
        self._note.remove()
        given = "" if leader_id == agent.context.member_id else f", with what member {leader_id} has given"
        agent.tell(f"whole again up to position {position}{given} ({told})")


def _held(term: RecordingLogEntry, damage: Damage) -> LogEnd | None:
    """Where a log ended, or beyond, whose last term is ``term``: not behind a cut that was begun."""
    if damage.held_position is None:
        return None
    end = damage.held_position
    if term.log_position != NULL_POSITION:
        end = min(end, term.log_position)
    return LogEnd(term.leadership_term_id, end)


def _set_aside(
    files: Files,
    archive_directory: str,
    cluster_directory: str,
    damage: LogDamaged,
    tell: Callable[[str], None],
) -> None:
    """Put the damaged file out of the way, and what nobody can read without it."""
    is_vote = (damage.path or "").endswith(NODE_STATE_FILE_NAME)
    what = "its votes are forgotten" if is_vote else "all of the log is to be fetched again"
    tell(f"{damage}: set aside, {what}")
    RepairNote(files, cluster_directory).write(f"{damage}: {what}", None)
    folder = f"{cluster_directory}/{SET_ASIDE_FOLDER}"
    try:
        files.make_directory(folder)
        if is_vote:
            set_aside(files, f"{cluster_directory}/{NODE_STATE_FILE_NAME}", folder)
        elif files.exists(f"{cluster_directory}/{RECORDING_LOG_FILE_NAME}"):
            set_aside(files, f"{cluster_directory}/{RECORDING_LOG_FILE_NAME}", folder)
        files.sync_directory(folder)
        files.sync_directory(cluster_directory)
        if is_vote:
            return
        folder = f"{archive_directory}/{SET_ASIDE_FOLDER}"
        files.make_directory(folder)
        for name in files.list_directory(archive_directory):
            if name == CATALOG_FILE_NAME or name.endswith(".rec") or name.startswith("recording-"):
                set_aside(files, f"{archive_directory}/{name}", folder)
        files.sync_directory(folder)
        files.sync_directory(archive_directory)
    except OSError as error:
        raise StorageError(
            error.filename or folder, error.errno, "setting damaged files aside failed"
        ) from error
