"""The committed log of one cluster, as blocks of frames, as rows, as Arrow: from a directory or from a
member.

    with LogReader.open(dir="member-0") as reader:
        for entry in reader.entries():
            print(entry["position"], entry["entryType"])

``blocks`` and the positions are what a medium provides; everything else is made from them here. A range of
positions is half-open, and an entry belongs to the range in which its first frame begins.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from cluster.archive.clock import pause
from cluster.errors import ConfigurationError, DataLoss, LogDamaged

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_LENGTH = 4 * 1024 * 1024
FOLLOW_INTERVAL_S = 0.02

Wait = Callable[[float], object]
OnDamage = Callable[[LogDamaged], object]


class LogIdentity(NamedTuple):
    """What tells one cluster's log from another's, the same on every member.

    Timestamp and log session id of the first NewLeadershipTermEvent; both are None when the log's head was
    purged by a real Aeron archive, which does not keep them.
    """

    cluster_id: int
    first_term_timestamp: int | None
    log_session_id: int | None


class LogReader(ABC):
    """Reads one log. Raises the errors of ``cluster.errors``; not to be shared between threads.

    ``warnings`` holds, one line each, what whoever reads should know: where a log that was not stopped in
    order is proven to be committed, and that a member's counters are gone.
    """

    warnings: list[str]

    @staticmethod
    def open(
        *,
        dir: str | None = None,
        archive_dir: str | None = None,
        cluster_dir: str | None = None,
        aeron_dir: str | None = None,
        endpoints: str | None = None,
        **options: Any,
    ) -> "LogReader":
        """A reader of a member's directory on this host, or of a running cluster by its endpoints.

        ``dir`` is a member's folder, ours or a real Aeron Cluster's, or the folder of a whole cluster, whose
        first member that runs is read then; ``cluster_dir`` and ``archive_dir`` name the two when they lie
        apart, ``aeron_dir`` the folder of cnc.dat when it is not where the mark file says.
        """
        directories = (dir, archive_dir, cluster_dir)
        if endpoints is not None:
            if any(directory is not None for directory in directories):
                raise ConfigurationError("give endpoints or a directory, not both")
            from cluster.reader.remote import RemoteLogReader

            return RemoteLogReader(endpoints, **options)
        if all(directory is None for directory in directories):
            raise ConfigurationError("give endpoints, or the directory of a member")
        from cluster.archive.files import OsFiles
        from cluster.reader.directory import DirectoryLogReader
        from cluster.reader.member_directory import serving_member

        if dir is not None and archive_dir is None and cluster_dir is None:
            dir = serving_member(OsFiles(), dir)
        return DirectoryLogReader(
            dir, archive_dir=archive_dir, cluster_dir=cluster_dir, aeron_dir=aeron_dir, **options
        )

    # ---- what a medium provides

    @property
    @abstractmethod
    def identity(self) -> LogIdentity | None:
        """None while the log has no entry."""

    @property
    @abstractmethod
    def start_position(self) -> int:
        """First position that is still there."""

    @property
    @abstractmethod
    def term_length(self) -> int:
        """Bytes of a term buffer: no entry crosses a multiple of it."""

    @property
    @abstractmethod
    def time_unit(self) -> int:
        """Of the log's timestamps: 0 milliseconds, 1 microseconds, 2 nanoseconds."""

    @property
    @abstractmethod
    def is_live(self) -> bool:
        """Whether the member runs, so that the log may grow."""

    @abstractmethod
    def commit_position(self) -> int:
        """End of what is known to be committed: how far a stream may read now."""

    @abstractmethod
    def end_position(self) -> int:
        """End of what a batch reads: the commit position of a live member, else all that is recorded."""

    @abstractmethod
    def blocks(
        self,
        from_position: int | None = None,
        to_position: int | None = None,
        *,
        max_bytes: int = BLOCK_LENGTH,
        is_committed: bool = False,
        on_damage: OnDamage | None = None,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Runs of whole messages, each with the position it begins at; together they hold every entry whose
        first frame lies in [``from_position``, ``to_position``).

        ``from_position`` is a frame's begin (default: the start), ``to_position`` any position (default:
        ``end_position()``, which bounds it anyway unless the caller knows that the range ``is_committed``). A
        block is longer than ``max_bytes`` only for one message that is. Damage raises LogDamaged where it is
        reached, or is handed to ``on_damage`` and skipped. Raises DataLoss when ``from_position`` was purged,
        and when a range that ``is_committed`` is not here as far as ``to_position``.
        """

    @abstractmethod
    def close(self) -> None: ...

    # ---- what follows from it

    def boundary_at_or_after(
        self,
        position: int,
        *,
        known: int | None = None,
        is_committed: bool = False,
        on_damage: OnDamage | None = None,
    ) -> int:
        """The first position at or after ``position`` where an entry or padding begins; ``position`` itself
        beyond the end.

        Frames can be told apart only from where one begins: from ``known`` (default: the log's start) or from
        the start of the term, which no entry crosses, whichever is nearer. What lies between is read. Raises
        DataLoss when it was purged.
        """
        if known is None:
            known = self.start_position
            if position < known:
                raise DataLoss(f"position {position} was purged, the log begins at {known}")
        assert known <= position
        begin = max(position - position % self.term_length, known)
        for at, block in self.blocks(begin, position, is_committed=is_committed, on_damage=on_damage):
            begin = at + len(block)
        if begin < position:  # damage lies there, or the log ends before
            begin = next((at for at, _ in self.blocks(begin, on_damage=on_damage)), position)
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
        """The entries of the range as Arrow record batches with the columns of ``ROW_SCHEMA``, or of some."""
        blocks = self.blocks(
            from_position,
            to_position,
            max_bytes=max_bytes,
            is_committed=is_committed,
            on_damage=on_damage,
        )
        for position, block in blocks:
            yield from self._decode(
                position, block, to_position, columns, entry_types, rows_per_batch, on_damage
            )

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
    ) -> Iterator[dict[str, Any]]:
        """The entries of the range, each a dict of the columns that it has.

        ``follow`` goes on with what is committed while this runs, up to ``to_position`` if one is given;
        between two looks it calls ``wait`` with seconds.
        """
        source = (
            self.follow(
                from_position,
                to_position,
                columns=columns,
                entry_types=entry_types,
                wait=wait,
                on_damage=on_damage,
            )
            if follow
            else self.batches(
                from_position, to_position, columns=columns, entry_types=entry_types, on_damage=on_damage
            )
        )
        for batch in source:
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
        """As ``batches``, going on behind the commit position as it moves."""
        position = self.start_position if from_position is None else from_position
        while to_position is None or position < to_position:
            bound = self.commit_position()
            if to_position is not None:
                bound = min(bound, to_position)
            before = position
            for begin, block in self.blocks(position, bound, on_damage=on_damage) if bound > position else ():
                yield from self._decode(begin, block, to_position, columns, entry_types, None, on_damage)
                position = begin + len(block)
            if position == before:
                wait(FOLLOW_INTERVAL_S)

    def _decode(
        self,
        position: int,
        block: np.ndarray,
        to_position: int | None,
        columns: Iterable[str] | None,
        entry_types: Iterable[str] | None,
        rows_max: int | None,
        on_damage: OnDamage | None,
    ) -> "Iterator[pa.RecordBatch]":
        """Decode a block of whole messages; one that is no entry is damage."""
        from cluster.log.columns import log_to_record_batch

        offset = 0
        while offset < len(block) and (to_position is None or position + offset < to_position):
            try:
                decoded = log_to_record_batch(
                    block,
                    offset,
                    len(block),
                    position + offset,
                    to_position,
                    columns=columns,
                    entry_types=entry_types,
                    time_unit=self.time_unit,
                    rows_max=rows_max,
                )
            except LogDamaged as damage:
                assert damage.offset is not None
                told = self.locate(damage, position + damage.offset)
                if on_damage is None:
                    raise told from None
                on_damage(told)
                offset = message_end(block, damage.offset)
                continue
            if decoded.record_batch.num_rows:
                yield decoded.record_batch
            if decoded.next_position <= position + offset:
                return
            offset = decoded.next_position - position

    def locate(self, damage: LogDamaged, position: int) -> LogDamaged:
        """The damage told with what holds the bytes at ``position``."""
        return LogDamaged(None, None, f"{damage.what} (log position {position})")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.entries()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def rows(batch: "pa.RecordBatch") -> Iterator[dict[str, Any]]:
    """The rows of a record batch, each without the columns that it does not have."""
    names = [
        name for name, column in zip(batch.schema.names, batch.columns) if column.null_count < batch.num_rows
    ]
    values = [batch.column(name).to_pylist() for name in names]
    for row in zip(*values):
        yield {name: value for name, value in zip(names, row) if value is not None}


def message_end(block: np.ndarray, offset: int) -> int:
    """End of the message that begins at ``offset``."""
    from cluster.log.scan import split

    return max(int(split(block, offset, len(block), [offset + 1])[0]), offset + 32)
