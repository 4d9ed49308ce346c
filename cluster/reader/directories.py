"""Reads one log from several directories: those of members of one cluster, and of their backups.

Each holds a part of the log, and they fail one by one: a directory is gone, damaged, purged or late, or has
a tail that no other member ever had. What is read comes from the first in the given order that has it; where
that one ends or fails, the next goes on. A directory that failed is opened again later.

One of them, the tip, says how far the log goes: of the members that run the one that knows the most to be
committed; where none runs, the one with the newest leadership term and then the longest log, as in an
election. Any other is read as far as it knows its log to be committed and has the same terms as the tip.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster.errors import (
    ClusterError,
    ConfigurationError,
    DataLoss,
    LogDamaged,
    LogPurged,
    NotAClusterDirectory,
)
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.recording_log import TERM
from cluster.protocol.token import LogIdentity, identity_text, is_one_log
from cluster.reader.directory import DirectoryLog
from cluster.transport.clock import monotonic_ns
from cluster.transport.committed_log import AS_READ, BlockOptions

REOPEN_INTERVAL_NS = 1_000_000_000

OpenLog = Callable[[str, str | None], DirectoryLog]
Terms = list[tuple[int, int]]  # id and base position of each leadership term with an entry, in order


@dataclass(slots=True)
class DirectoryCopy:
    """One directory's copy of the log. ``log`` is None while it cannot be read; ``error`` says why."""

    dir: str
    archive_dir: str | None
    log: DirectoryLog | None = None
    error: Exception | None = None
    closed_ns: int = 0


class CopyExtent(NamedTuple):
    """What of the log one copy holds now. Only ``[start, limit)`` is known to be of the one log."""

    dir: str
    log: DirectoryLog
    is_live: bool
    start: int
    committed: int
    end: int
    terms: Terms
    limit: int = 0


class JoinedExtent(NamedTuple):
    """What the copies hold together: ``[start, end)`` has no gap."""

    copies: list[CopyExtent]  # in the order in which they are read
    tip: CopyExtent
    start: int

    @property
    def committed(self) -> int:
        return min(max(min(copy.committed, copy.limit) for copy in self.copies), self.tip.end)

    def holder(self, position: int, failed: dict[str, Exception]) -> CopyExtent | None:
        """The first copy that has ``position`` and is not among those that ``failed`` there."""
        return next((c for c in self.copies if c.start <= position < c.limit and c.dir not in failed), None)


class DirectoriesLog:
    """The log in ``dirs``; ``archive_dirs``, where they lie apart, in the same order."""

    def __init__(
        self,
        dirs: Sequence[str],
        *,
        archive_dirs: Sequence[str] | None = None,
        open_log: OpenLog = lambda dir, archive_dir: DirectoryLog(dir, archive_dir=archive_dir),
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        """Raises ConfigurationError for directories of different logs; where none can be read, what is wrong
        with each of them.
        """
        archives = [None] * len(dirs) if archive_dirs is None else archive_dirs
        if len(dirs) != len(archives):
            raise ConfigurationError(f"{len(dirs)} directories, but {len(archives)} archive directories")
        self.warnings: list[str] = []
        self._copies = [DirectoryCopy(*where) for where in zip(dirs, archives, strict=True)]
        self._open_log = open_log
        self._now_ns = now_ns
        self._identity: LogIdentity | None = None
        self._committed = 0
        self._read_last: DirectoryLog | None = None
        try:
            self._extent = self._look()
        except ClusterError:
            self.close()
            raise

    @property
    def identity(self) -> LogIdentity | None:
        if self._identity is None:
            self._extent = self._look()
        return self._identity

    @property
    def start_position(self) -> int:
        return self._extent.start

    def await_start(self) -> int:
        return self.start_position

    def term_before(self, position: int) -> str | None:
        self._extent = self._look()
        return self._extent.tip.log.term_before(position)

    @property
    def term_length(self) -> int:
        return self._extent.tip.log.term_length

    @property
    def time_unit(self) -> ClusterTimeUnit:
        return self._extent.tip.log.time_unit

    @property
    def is_live(self) -> bool:
        """Whether any of the members runs."""
        self._extent = self._look()
        return self._extent.tip.is_live

    @property
    def damage(self) -> list[LogDamaged]:
        return [damage for copy in self._extent.copies for damage in copy.log.damage]

    def commit_position(self) -> int:
        """Never less than before."""
        self._extent = self._look()
        self._committed = max(self._committed, self._extent.committed)
        return self._committed

    def end_position(self) -> int:
        self._extent = self._look()
        return self._extent.tip.end

    def locate(self, damage: LogDamaged, position: int) -> LogDamaged:
        return (self._read_last or self._extent.tip.log).locate(damage, position)

    def close(self) -> None:
        for copy in self._copies:
            if copy.log is not None:
                copy.log.close()
                copy.log = None

    def blocks(
        self, from_position: int | None = None, to_position: int | None = None, how: BlockOptions = AS_READ
    ) -> Iterator[tuple[int, np.ndarray]]:
        """As every reader. What one directory lacks is read from another, and damage is reported, never
        skipped, when no other has what is damaged.
        """
        extent = self._extent = self._look()
        position = extent.start if from_position is None else from_position
        end = extent.tip.end if to_position is None else min(to_position, extent.tip.end)
        if how.is_committed and to_position is not None and end < to_position:
            raise DataLoss(f"the log ends at position {end} here, up to {to_position} was asked for")
        failed: dict[str, Exception] = {}
        while position < end:
            copy = extent.holder(position, failed)
            if copy is None:
                raise _what_is_missing(extent, position, failed)
            begin = position
            try:
                for _, block in copy.log.blocks(position, min(end, copy.limit), BlockOptions(how.max_bytes)):
                    if copy.dir != extent.tip.dir and position + len(block) > copy.limit:
                        break  # its last message ends beyond what is known to be of the log
                    self._read_last = copy.log
                    yield position, block
                    position += len(block)
                    failed.clear()
            except (ClusterError, OSError) as error:
                failed[copy.dir] = error
                self._warn(f"{error}; what lies there is read from another directory, if one has it")
            else:
                if position == begin:
                    if copy.dir == extent.tip.dir and not how.is_committed:
                        return  # the rest of the message is not there yet
                    failed[copy.dir] = DataLoss(
                        f"{copy.dir}: the message at position {position} is not known to be committed"
                    )
            if position < end:
                extent = self._extent = self._look()

    # ---- the directories, as they are now

    def _look(self) -> JoinedExtent:
        """Look at every directory. Raises as the constructor."""
        found = [extent for copy in self._copies if (extent := self._extent_of(copy)) is not None]
        if not found:
            raise _nothing_readable([error for copy in self._copies if (error := copy.error) is not None])
        for extent in found:
            self._observe(extent)
        return join_copies(found)

    def _extent_of(self, copy: DirectoryCopy) -> CopyExtent | None:
        """What a copy holds; None, with its error kept, when it cannot be read now."""
        try:
            if copy.log is None:
                if copy.error is not None and self._now_ns() - copy.closed_ns < REOPEN_INTERVAL_NS:
                    return None
                copy.log = self._open_log(copy.dir, copy.archive_dir)
                copy.error = None
            log = copy.log
            end, committed, _ = log.extent()
            is_live = log.state.live() is not None
            if is_live:
                log.state.read_terms()
        except (ClusterError, OSError) as error:
            if copy.log is not None:
                copy.log.close()
            copy.log, copy.error, copy.closed_ns = None, error, self._now_ns()
            self._warn(f"{copy.dir} cannot be read, another directory is: {error}")
            return None
        for line in log.warnings:
            self._warn(line)
        terms = [
            (entry.leadership_term_id, entry.term_base_log_position)
            for entry in log.state.log_entries
            if entry.entry_type is TERM and entry.term_base_log_position < end
        ]
        return CopyExtent(copy.dir, log, is_live, log.start_position, committed, end, terms)

    def _observe(self, extent: CopyExtent) -> None:
        """Take note of whose log it is; raise ConfigurationError when that is another one."""
        identity = extent.log.identity
        if identity is None:
            return
        if self._identity is not None and not is_one_log(
            identity_text(*identity), identity_text(*self._identity)
        ):
            raise ConfigurationError(
                f"{extent.dir} holds the log of cluster {identity_text(*identity)}, another of the "
                f"directories that of {identity_text(*self._identity)}; expected directories of one cluster"
            )
        if self._identity is None or self._identity.log_session_id is None:
            self._identity = identity

    def _warn(self, line: str) -> None:
        if line not in self.warnings:
            self.warnings.append(line)


def join_copies(copies: list[CopyExtent]) -> JoinedExtent:
    """What copies of one log hold together."""
    live = [copy for copy in copies if copy.is_live]
    tip = max(live, key=lambda c: c.committed) if live else max(copies, key=lambda c: (_last_term(c), c.end))
    limited = [
        copy._replace(
            limit=copy.end
            if copy is tip
            else min(copy.committed, shared_end(copy.terms, tip.terms) or copy.committed)
        )
        for copy in copies
    ]
    tip = limited[copies.index(tip)]
    start = tip.start
    for copy in sorted(limited, key=lambda c: c.start, reverse=True):
        if copy.start < start <= copy.limit:
            start = copy.start
    return JoinedExtent(limited, tip, start)


def _last_term(copy: CopyExtent) -> int:
    """The newest term that has an entry in the copy; -1 where no recording log says it."""
    return max((term for term, _ in copy.terms), default=-1)


def shared_end(terms: Terms, others: Terms) -> int | None:
    """Up to where two logs with these terms are the same, by Raft's log matching; None: no bound is known.

    Two logs that both have an entry of a term are the same up to it. They part at the latest where the first
    of them leaves the newest term that both have.
    """
    shared = {term for term, _ in terms} & {term for term, _ in others}
    if not shared:
        return None
    newest = max(shared)
    return min((base for term, base in (*terms, *others) if term > newest), default=None)


def _nothing_readable(errors: list[Exception]) -> ClusterError:
    what = f"none of the directories can be read: {'; '.join(map(str, errors))}"
    are_wrong = all(isinstance(error, NotAClusterDirectory) for error in errors)
    return NotAClusterDirectory(what) if are_wrong else DataLoss(what)


def _what_is_missing(extent: JoinedExtent, position: int, failed: dict[str, Exception]) -> Exception:
    """Why nobody has ``position``: damage goes before a purge."""
    if any(isinstance(error, LogDamaged) for error in failed.values()):
        why = "; ".join(map(str, failed.values()))
        return LogDamaged(None, None, f"no directory has what is at position {position}: {why}")
    starts = [copy.start for copy in extent.copies if copy.start > position and copy.limit > copy.start]
    if starts:
        what = f"position {position} was purged in every directory, the log begins at {min(starts)} now"
        return LogPurged(what, min(starts))
    why = "; ".join(map(str, failed.values())) or f"the log ends at {extent.tip.end}"
    return DataLoss(f"no directory has what is at position {position}: {why}")
