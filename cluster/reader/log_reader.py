"""The committed log of one cluster, as blocks of frames, as rows, as Arrow: from a directory or from a
member.

    with LogReader.open(dir="member-0") as reader:
        for entry in reader.entries():
            print(entry["position"], entry["entryType"])

A medium provides blocks and positions (``committed_log.py``); entries and batches are made from them here. A
range of positions is half-open, and an entry belongs to the range in which its first frame begins. Without a
``from_position`` it begins where the log does or, for a reader with a consumer group, where the group is.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cluster.errors import ClusterError, ConfigurationError, LogDamaged, LogPurged, TimedOut
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.token import (
    LogIdentity,
    PositionToken,
    identity_text,
    is_one_log,
    other_history,
    parse_token,
)
from cluster.reader.arguments import Path, Selection, end_of, path_of, paths_of, start_of
from cluster.reader.entry import Entry, rows
from cluster.transport.clock import monotonic_ns, pause
from cluster.transport.committed_log import BLOCK_LENGTH, BlockOptions, CommittedLog, OnDamage

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.aeron.aeron_recording import AeronRecording
    from cluster.log.entry_filter import EntryFilter
    from cluster.reader.reader_group import ReaderGroup

FOLLOW_INTERVAL_S = 0.02
AT_LEAST_TIMEOUT_S = 20.0

Wait = Callable[[float], object]


class LogReader:
    """Reads one log. Raises the errors of ``cluster.errors``. Threads must not share a reader."""

    def __init__(
        self,
        log: CommittedLog,
        entry_filter: "EntryFilter | None" = None,
        group: "ReaderGroup | None" = None,
        recording: "AeronRecording | None" = None,
    ) -> None:
        """With ``entry_filter`` only what it wants is read; in blocks padding may stand for the rest.

        ``recording`` is the log where that may be a recording of anything.
        """
        self.log = log
        self._recording = recording
        self._reader_group = group
        self.entry_filter = None if entry_filter is None or entry_filter.is_open else entry_filter

    @classmethod
    def open(
        cls,
        *,
        dir: Path | Sequence[Path] | None = None,
        archive_dir: Path | Sequence[Path] | None = None,
        cluster_dir: Path | None = None,
        aeron_dir: Path | None = None,
        endpoints: str | None = None,
        consensus_endpoints: str | None = None,
        aeron_archive: str | None = None,
        recording_id: int | None = None,
        at_least: str | None = None,
        at_least_timeout_s: float = AT_LEAST_TIMEOUT_S,
        consumer_group: str | None = None,
        **options: Any,
    ) -> Self:
        """Open a member's directory on this host, or a running cluster by its endpoints.

        ``dir`` is a member's directory, of this project or of a real Aeron Cluster. For the directory of a
        whole cluster, the first running member is read. Several directories, of members and backups of one
        cluster, are read as one log (``DirectoriesLog``). ``cluster_dir`` and ``archive_dir`` name the two
        folders if they are apart, and ``aeron_dir`` the folder of cnc.dat if the mark file does not.
        ``options`` are those of ``DirectoryLog`` or ``RemoteLog``. Members send only the entries that
        ``entry_filter`` selects.

        ``consensus_endpoints`` are those of a real Aeron Cluster. It is read over Aeron's own medium, by the
        media driver on this host whose directory is ``aeron_dir``; ``options`` are those of ``AeronLog``.

        ``aeron_archive``, ``host:port``, is any Aeron Archive. Its recording ``recording_id`` is read as far
        as it is recorded. If it is not a cluster's log, each fragment is a row with the columns of
        ``FRAGMENT_SCHEMA``, and filters for entries raise ConfigurationError.

        ``at_least`` is a client's ``token()``: the reader opens once the log is committed that far
        (``await_token``). ``consumer_group``, with ``endpoints``, is the group for which this reader reads
        and reports (``processed``).
        """
        if consumer_group is not None and endpoints is None:
            raise ConfigurationError("consumer_group goes with endpoints, which are not given")
        if recording_id is not None and aeron_archive is None:
            raise ConfigurationError("recording_id goes with aeron_archive, which is not given")
        aeron_dir = path_of("aeron_dir", aeron_dir)
        over_aeron = [each for each in (consensus_endpoints, aeron_archive) if each is not None]
        has_directory = any(each is not None for each in (dir, archive_dir, cluster_dir))
        if over_aeron and (has_directory or endpoints is not None or len(over_aeron) > 1):
            places = "consensus_endpoints, aeron_archive, endpoints or a directory"
            raise ConfigurationError(f"give {places}, one of them")
        if has_directory and endpoints is not None:
            raise ConfigurationError("give endpoints or a directory, not both")
        entry_filter: EntryFilter | None = options.pop("entry_filter", None)
        # No medium needs what the others import.
        if aeron_archive is not None:
            from cluster.aeron.aeron_recording import AeronRecording

            recording = AeronRecording(aeron_archive, recording_id, aeron_dir=aeron_dir, **options)
            reader = cls(recording, entry_filter, recording=recording)
        elif consensus_endpoints is not None:
            from cluster.aeron.aeron_log import AeronLog

            reader = cls(AeronLog(consensus_endpoints, aeron_dir=aeron_dir, **options), entry_filter)
        elif endpoints is not None:
            from cluster.reader.remote import RemoteLog

            group = None
            if consumer_group is not None:
                from cluster.reader.reader_group import ReaderGroup

                group = ReaderGroup(consumer_group, endpoints, options)
            reader = cls(RemoteLog(endpoints, entry_filter=entry_filter, **options), entry_filter, group)
        elif has_directory:
            log = _log_in(dir, archive_dir, cluster_dir, aeron_dir, options)
            reader = cls(log, entry_filter)
        else:
            raise ConfigurationError("give endpoints, or the directory of a member")
        if at_least is not None:
            try:
                reader.await_token(at_least, at_least_timeout_s)
            except BaseException:
                reader.close()
                raise
        return reader

    # ---- what the log is, and how far it goes

    @property
    def identity(self) -> LogIdentity | None:
        """The identity of the log; None while it has no entry."""
        return self.log.identity

    @property
    def start_position(self) -> int:
        """The first position that the log still has."""
        return self.log.start_position

    def retained_from(self, position: int) -> int:
        """``position`` if the log still has what follows it, else where the retained log begins."""
        return position if position >= self.start_position else max(position, self.log.await_start())

    def earliest_position(self) -> int:
        """``start_position``, after all members that may have more of the log were asked."""
        return self.log.await_start()

    @property
    def term_length(self) -> int:
        """The length of a term buffer in bytes. No entry crosses a multiple of it."""
        return self.log.term_length

    @property
    def time_unit(self) -> ClusterTimeUnit:
        """The unit of the log's timestamps."""
        return self.log.time_unit

    @property
    def is_live(self) -> bool:
        """Whether the member runs, so that the log may grow."""
        return self.log.is_live

    @property
    def warnings(self) -> list[str]:
        """What a user of this log should know, one line each."""
        return self.log.warnings if self._reader_group is None else self.log.warnings + self._group.warnings

    @property
    def damage(self) -> Sequence[LogDamaged]:
        """What could not be read, while the rest of the log could."""
        return self.log.damage

    def commit_position(self) -> int:
        """The end of what is known to be committed: a stream may read up to here."""
        return self.log.commit_position()

    def term_before(self, position: int) -> str | None:
        """Leadership term of the last entry before ``position``, as in a token; None if unknown."""
        return self.log.term_before(position)

    def end_position(self) -> int:
        """Where a batch ends: the commit position if the member runs, else the end of the recording."""
        return self.log.end_position()

    def close(self) -> None:
        """Send the last report of the consumer group, and close everything. Raises if the report failed."""
        failure = None if self._reader_group is None else self._reader_group.close()
        self.log.close()
        if failure is not None:
            raise failure

    # ---- the consumer group

    @property
    def group_position(self) -> int | None:
        """The last position given to ``processed``, else the cluster's position of the group, or None."""
        return self._group.position

    def processed(self, position: int) -> None:
        """Note that the group needs nothing before ``position``, the end of an entry (``endPosition``).

        A thread reports it to the cluster, at most once in 5 s, and ``close`` reports the rest. If a report
        fails, ``warnings`` gets a line, and the next report includes it. Raises ConfigurationError if an
        entry cannot end at this position.
        """
        self._group.processed(position)

    def report(self) -> None:
        """Report what is ``processed`` to the cluster now; returns when the report is committed.

        Raises what ``ClusterClient.connect`` does: ClusterError if the position is before the group's,
        because another reader has reported more, or beyond the commit position; TimedOut if there is no
        leader.
        """
        self._group.report()

    @property
    def _group(self) -> "ReaderGroup":
        if self._reader_group is None:
            raise ConfigurationError("the reader was opened without consumer_group")
        return self._reader_group

    def _range(self, from_position: int | None, to_position: int | None) -> tuple[int, int | None]:
        """Raises ConfigurationError for what is no position, LogPurged as ``_begin``."""
        end = None if to_position is None else end_of("to_position", to_position)
        return self._begin(from_position), end

    def _begin(self, from_position: int | None) -> int:
        """Where a range begins. Raises LogPurged for a group without a report in a log without its head."""
        if from_position is not None:
            return start_of("from_position", from_position)
        start = self.earliest_position()
        if self._reader_group is None:
            return start
        position = self._group.position
        if position is None and start > 0:
            raise LogPurged(
                f"consumer group {self._group.name} has no report, and the log begins at {start}; "
                "give from_position",
                start,
            )
        return start if position is None else position

    def await_token(
        self,
        token: str,
        timeout_s: float = AT_LEAST_TIMEOUT_S,
        *,
        now_ns: Callable[[], int] = monotonic_ns,
        wait: Wait = pause,
    ) -> None:
        """Wait until the log is committed as far as a client's ``token()``, or an offset, says.

        Raises ConfigurationError if it is not a token, or one of another log, or of this log before it was
        restored to an earlier position. Raises TimedOut, with the position up to which the log is committed
        here.
        """
        wanted = parse_token(token)
        deadline_ns = now_ns() + int(timeout_s * 1e9)
        while True:
            end = self.commit_position() if self.is_live else self.end_position()
            identity = None if self.identity is None else identity_text(*self.identity)
            if wanted.cluster and identity is not None and not is_one_log(wanted.cluster, identity):
                raise ConfigurationError(f"the token is of cluster {wanted.cluster}, this log of {identity}")
            if end >= wanted.position and (identity is not None or wanted.position == 0):
                if wanted.term is not None:
                    self._check_history(wanted)
                return
            if now_ns() > deadline_ns:
                raise TimedOut(
                    f"position {wanted.position} of the token is not committed here within {timeout_s:g} s: "
                    f"the log is committed up to {end}"
                )
            wait(FOLLOW_INTERVAL_S)

    def _check_history(self, token: PositionToken) -> None:
        if why := other_history(token.term, token.position, self.term_before(token.position)):
            raise ConfigurationError(f"the token is of {why}")

    # ---- its entries

    def blocks(
        self,
        from_position: int | None = None,
        to_position: int | None = None,
        *,
        max_bytes: int = BLOCK_LENGTH,
        is_committed: bool = False,
        on_damage: OnDamage | None = None,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield runs of whole messages, each with its position; see ``CommittedLog.blocks``."""
        how = BlockOptions(max_bytes, is_committed, on_damage=on_damage)
        return self._blocks(*self._range(from_position, to_position), how)

    def _blocks(
        self, begin: int, to_position: int | None, how: BlockOptions
    ) -> Iterator[tuple[int, np.ndarray]]:
        blocks = self._from_entry(begin, self.log.blocks(begin, to_position, how))
        if self.entry_filter is None or self.entry_filter.is_by_type:
            return blocks
        applied = self.entry_filter.applied
        return ((position, applied(block)) for position, block in blocks)

    def _from_entry(
        self, begin: int, blocks: Iterator[tuple[int, np.ndarray]]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """``blocks``, unless no entry begins at their beginning, which else looks like damage."""
        try:
            first = next(blocks, None)
        except LogDamaged:
            after = begin
            with contextlib.suppress(ClusterError):
                after = self.boundary_at_or_after(begin)
            if after == begin:
                raise
            why = f"no entry begins there, the next one begins at {after}"
            raise ConfigurationError(f"from_position is {begin}: {why}") from None
        if first is not None:
            yield first
            yield from blocks

    def boundary_at_or_after(
        self,
        position: int,
        *,
        known: int | None = None,
        is_committed: bool = False,
        on_damage: OnDamage | None = None,
    ) -> int:
        """The first position at or after ``position`` where an entry or padding begins.

        Beyond the end of the log it is ``position`` itself. The search begins at ``known``, where an entry is
        known to begin (by default the log's start), or at the start of the term, whichever is nearer, and
        reads all that is between. Over ``endpoints`` the member does this. Raises LogPurged.
        """
        if known is None:
            known = self.start_position
            if position < known:
                raise LogPurged(f"position {position} was purged, the log begins at {known}", known)
        assert known <= position
        begin = max(position - position % self.term_length, known)
        how = BlockOptions(is_committed=is_committed, is_skimmed=True, on_damage=on_damage)
        for at, block in self.log.blocks(begin, position, how):
            begin = at + len(block)
        if begin < position:  # damage lies there, or the log ends before
            how = how._replace(is_committed=False)
            begin = next((at for at, _ in self.log.blocks(begin, None, how)), position)
        return begin

    def batches(
        self,
        from_position: int | None = None,
        to_position: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        entry_types: Iterable[str] | None = None,
        rows_per_batch: int | None = None,
        max_bytes: int = BLOCK_LENGTH,
        is_committed: bool = False,
        on_damage: OnDamage | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Yield the entries as Arrow record batches, with the columns of ``ROW_SCHEMA`` or some of them."""
        selection = Selection.of(columns, entry_types, rows_per_batch)
        how = BlockOptions(max_bytes, is_committed, on_damage=on_damage)
        for _, decoded in self._runs(*self._range(from_position, to_position), selection, how):
            yield from decoded

    @property
    def schema(self) -> "pa.Schema":
        """The schema of the batches if no columns are named."""
        if self._has_fragments:
            from cluster.log.fragments import FRAGMENT_SCHEMA

            return FRAGMENT_SCHEMA
        from cluster.log.columns import ROW_SCHEMA

        return ROW_SCHEMA

    @property
    def _has_fragments(self) -> bool:
        return self._recording is not None and not self._recording.has_messages

    def to_arrow_reader(
        self,
        from_position: int | None = None,
        to_position: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        entry_types: Iterable[str] | None = None,
    ) -> "pa.RecordBatchReader":
        """The entries up to ``end_position`` as one Arrow stream, for DuckDB, polars and pandas."""
        import pyarrow as pa

        from cluster.log.columns import schema_of

        wanted = self.schema.names if columns is None else tuple(columns)
        end = self.end_position() if to_position is None else to_position
        batches = self.batches(from_position, end, columns=wanted, entry_types=entry_types)
        return pa.RecordBatchReader.from_batches(schema_of(wanted), batches)

    def entries(
        self,
        from_position: int | None = None,
        to_position: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        entry_types: Iterable[str] | None = None,
        follow: bool = False,
        wait: Wait = pause,
        on_damage: OnDamage | None = None,
    ) -> Iterator[Entry]:
        """Yield the entries of the range, each as a dictionary of the columns that it has.

        With ``follow`` it also yields entries that are committed meanwhile, up to ``to_position`` if given,
        and calls ``wait`` with a number of seconds between two looks.
        """
        chosen: dict[str, Any] = {"columns": columns, "entry_types": entry_types, "on_damage": on_damage}
        if follow:
            batches = self.follow(from_position, to_position, wait=wait, **chosen)
        else:
            batches = self.batches(from_position, to_position, **chosen)
        for batch in batches:
            yield from rows(batch)

    def follow(
        self,
        from_position: int | None = None,
        to_position: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        entry_types: Iterable[str] | None = None,
        wait: Wait = pause,
        on_damage: OnDamage | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Like ``batches``, but also yields what is committed meanwhile. Each damage is reported once."""
        on_damage = on_damage and _once(on_damage)
        selection, how = Selection.of(columns, entry_types), BlockOptions(on_damage=on_damage)
        position, to_position = self._range(from_position, to_position)
        while to_position is None or position < to_position:
            bound = self.commit_position()
            if to_position is not None:
                bound = min(bound, to_position)
            before = position
            for end, decoded in self._runs(position, bound, selection, how) if bound > position else ():
                yield from decoded
                position = end
            if position == before:
                wait(FOLLOW_INTERVAL_S)

    def _runs(
        self, begin: int, to_position: int | None, selection: Selection, how: BlockOptions
    ) -> "Iterator[tuple[int, Iterator[pa.RecordBatch]]]":
        """The batches of each run of entries, with the position at which the run ends."""
        for position, block in self._blocks(begin, to_position, how):
            yield position + len(block), self._decode(position, block, to_position, selection, how.on_damage)

    def _decode(
        self,
        position: int,
        block: np.ndarray,
        to_position: int | None,
        selection: Selection,
        on_damage: OnDamage | None,
    ) -> "Iterator[pa.RecordBatch]":
        """Decode a block of whole messages; one that is no entry is damage. Of fragments, of those."""
        if self._has_fragments:
            yield from self._decode_fragments(position, block, to_position, selection)
            return
        from cluster.log.columns import log_to_record_batch

        entry_types = selection.entry_types
        if self.entry_filter is not None and entry_types is None:
            entry_types = self.entry_filter.rows
        offset = 0
        while offset < len(block) and (to_position is None or position + offset < to_position):
            try:
                decoded = log_to_record_batch(
                    block,
                    offset,
                    len(block),
                    position + offset,
                    to_position,
                    columns=selection.columns,
                    entry_types=entry_types,
                    time_unit=self.time_unit,
                    rows_max=selection.rows_max,
                )
            except LogDamaged as damage:
                assert damage.offset is not None
                located = self.log.locate(damage, position + damage.offset)
                if on_damage is None:
                    raise located from None
                on_damage(located)
                offset = message_end(block, damage.offset)
                continue
            if decoded.record_batch.num_rows:
                yield decoded.record_batch
            if decoded.next_position <= position + offset:
                raise self.log.locate(LogDamaged(None, None, "a message without its end"), position + offset)
            offset = decoded.next_position - position

    def _decode_fragments(
        self, position: int, block: np.ndarray, to_position: int | None, selection: Selection
    ) -> "Iterator[pa.RecordBatch]":
        from cluster.log.fragments import fragments_to_record_batch

        assert self._recording is not None
        recording = self._recording.recording
        if self.entry_filter is not None or selection.entry_types is not None:
            what = "its fragments have no entry types, sessions or template ids to choose by"
            raise ConfigurationError(f"recording {recording.recording_id} is no log of a cluster: {what}")
        batch = fragments_to_record_batch(block, position, to_position, selection.columns, recording)
        for begin in range(0, batch.num_rows, selection.rows_max or max(batch.num_rows, 1)):
            yield batch.slice(begin, selection.rows_max)

    def __iter__(self) -> Iterator[Entry]:
        return self.entries()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(ClusterError):  # what went wrong first is what to report
            self.close()


def _log_in(
    dir: Path | Sequence[Path] | None,
    archive_dir: Path | Sequence[Path] | None,
    cluster_dir: Path | None,
    aeron_dir: str | None,
    options: dict[str, Any],
) -> CommittedLog:
    """The log in one directory, or in several."""
    dir, archive_dir = paths_of("dir", dir), paths_of("archive_dir", archive_dir)
    cluster_dir = path_of("cluster_dir", cluster_dir)
    if not isinstance(dir, str | None):
        if cluster_dir is not None or aeron_dir is not None or isinstance(archive_dir, str):
            raise ConfigurationError("beside several directories give archive_dir alone, as many")
        from cluster.reader.directories import DirectoriesLog

        return DirectoriesLog(dir, archive_dirs=archive_dir, **options)
    if not isinstance(archive_dir, str | None):
        raise ConfigurationError("several archive directories go with several directories in dir")
    from cluster.archive.files import OsFiles
    from cluster.reader.directory import DirectoryLog
    from cluster.reader.member_directory import serving_member

    if dir is not None and archive_dir is None and cluster_dir is None:
        dir = serving_member(OsFiles(), dir)
    return DirectoryLog(dir, archive_dir=archive_dir, cluster_dir=cluster_dir, aeron_dir=aeron_dir, **options)


def _once(on_damage: OnDamage) -> OnDamage:
    """Passes each damage on once, by its place: the end of what is unreadable moves as the log grows."""
    reported: set[tuple[str | None, int | None]] = set()

    def report(damage: LogDamaged) -> None:
        if (place := (damage.path, damage.offset)) not in reported:
            reported.add(place)
            on_damage(damage)

    return report


def message_end(block: np.ndarray, offset: int) -> int:
    """End of the message that begins at ``offset``."""
    from cluster.log.scan import split

    return max(int(split(block, offset, len(block), [offset + 1])[0]), offset + 32)
