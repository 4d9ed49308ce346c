"""The log that options name, as the driver sees it: whose it is, how far it goes, where entries end.

Readers are kept in the module, so that the tasks and micro-batches that one Python process runs share
open files, connections and compiled kernels. The key has the process id: what a process opened is of no
use to one forked from it.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from cluster.errors import ConfigurationError, DataLoss
from cluster.reader.token import identity_text, is_one_log
from spark_connector.offsets import Offset
from spark_connector.options import EARLIEST, LATEST, SourceOptions

if TYPE_CHECKING:
    from cluster.reader import LogReader

BEHIND_TIMEOUT_S = 10.0  # how long a member that runs may take to catch up with a checkpoint
IDLE_INTERVAL_S = 0.05  # between two questions to members that had nothing new; Spark asks every 11 ms

_readers: dict[tuple[object, ...], LogReader] = {}


def open_reader(options: SourceOptions) -> LogReader:
    """The reader of the log that ``options`` name, opened once in this process."""
    key = _key(options)
    reader = _readers.get(key)
    if reader is None:
        from cluster.reader import LogReader

        if options.endpoints is not None:
            reader = LogReader.open(
                endpoints=options.endpoints, tls=options.tls, credentials=options.credentials
            )
        else:
            reader = LogReader.open(dir=options.cluster_dir, archive_dir=options.archive_dir)
        for line in reader.warnings:
            print(f"cluster source: {line}", file=sys.stderr, flush=True)
        _readers[key] = reader
    return reader


def forget_reader(options: SourceOptions) -> None:
    """Close a reader that failed; the next ``open_reader`` begins again."""
    reader = _readers.pop(_key(options), None)
    if reader is not None:
        reader.close()


def _key(options: SourceOptions) -> tuple[object, ...]:
    where = options.endpoints, options.tls, options.cluster_dir, options.archive_dir
    return os.getpid(), *where, options.auth_token_file, options.user, options.password_file


class SourceLog:
    """What planning asks of a log."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reader = open_reader(options)
        if options.at_least is not None:
            self._reader.await_token(options.at_least)
        self._behind_since: float | None = None
        self._idle_until = 0.0

    @property
    def cluster(self) -> str | None:
        """The identity of the log as it stands in offsets; None while it has no entry."""
        identity = self._reader.identity
        return None if identity is None else identity_text(*identity)

    @property
    def start_position(self) -> int:
        return self._reader.start_position

    def committed_end(self) -> int:
        """How far a stream may go now. Waits a moment when there was nothing new a moment ago."""
        time.sleep(max(0.0, self._idle_until - time.monotonic()))
        if self._options.read_uncommitted and not self._reader.is_live:
            return self._reader.end_position()
        return self._reader.commit_position()

    def recorded_end(self) -> int:
        """How far a batch goes."""
        return self._reader.end_position()

    def resolve(self, option: str, wanted: Offset, end: int) -> int:
        """The position that ``earliest``, ``latest`` or a place given by an option stands for.

        Raises ConfigurationError for one of another cluster, beyond ``end`` or within an entry, DataLoss for
        one that was purged.
        """
        self._check_cluster(option, wanted)
        position = wanted.position
        if position == EARLIEST.position:
            return min(self.start_position, end)
        if position == LATEST.position:
            return end
        if position > end:
            raise ConfigurationError(
                f'option {option} is {{"position": {position}}}, beyond the end of the log, which is {end} '
                f"(cluster {self.cluster or 'without any entry'})"
            )
        self.check_retained(position)
        self._check_entry_begin(option, position)
        return position

    def _check_cluster(self, option: str, wanted: Offset) -> None:
        """Raise ConfigurationError when the place that an option gives is of another cluster's log."""
        cluster = self.cluster
        if wanted.cluster is not None and (cluster is None or not is_one_log(wanted.cluster, cluster)):
            raise ConfigurationError(
                f"option {option} is of cluster {wanted.cluster}, but what is read is cluster "
                f"{cluster or 'without any entry'}"
            )

    def _check_entry_begin(self, option: str, position: int) -> None:
        """Raise ConfigurationError when ``position``, given by an option, lies within an entry."""
        reader = self._reader
        next_begin = reader.boundary_at_or_after(position, is_committed=True)
        if next_begin == position:
            return
        term_begin = max(position - position % reader.term_length, reader.start_position)
        before = reader.batches(term_begin, position, columns=("position",), is_committed=True)
        *_, last = before
        raise ConfigurationError(
            f'option {option} is {{"position": {position}}}, which is within an entry; '
            f"around it entries start at {last.column(0)[-1]} and {next_begin}"
        )

    def check_retained(self, position: int) -> None:
        """Raise DataLoss when the log does not hold ``position`` any more."""
        if position < self.start_position:
            raise DataLoss(
                f"position {position} of cluster {self.cluster} was asked for, but the log is purged up to "
                f"{self.start_position}; what lies between is lost to this reader"
            )

    def rest(self) -> None:
        """There is nothing new: do not ask members over the network again at once."""
        if self._options.endpoints is not None:
            self._idle_until = time.monotonic() + IDLE_INTERVAL_S

    def check_not_beyond(self, position: int, tip: int) -> None:
        """Raise DataLoss when a stream stands at ``position`` and the log ends before.

        A member that runs may be behind the one that was read before; it gets some time to catch up.
        A member that crashed may not know that what was read is committed.
        """
        if position <= tip or position <= self._reader.end_position():
            self._behind_since = None
            return
        if self._reader.is_live:
            now = time.monotonic()
            self._behind_since = self._behind_since or now
            if now - self._behind_since < BEHIND_TIMEOUT_S:
                return
        raise DataLoss(
            f"the checkpoint stands at position {position} of cluster {self.cluster}, but that log ends at "
            f"{tip}; entries were lost, or this is an older copy of it"
        )

    def admitted_end(self, begin: int, tip: int) -> int:
        """The end of a micro-batch that begins at ``begin``, by the options' limits: the end of an entry.

        At least one entry is admitted, however long.
        """
        options = self._options
        end = min(tip, begin + options.max_bytes_per_trigger)
        if end < tip:
            end = self._aligned_down(begin, end, tip)
        if options.max_entries_per_trigger is not None:
            end = self._end_of_entries(begin, end, options.max_entries_per_trigger)
        return end

    def _aligned_down(self, begin: int, end: int, tip: int) -> int:
        """The last end of an entry at or before ``end``, at least the end of the first one."""
        term_begin = end - end % self._reader.term_length
        if term_begin > begin:
            return term_begin  # a little early, and nothing has to be read to know it
        first, last = 0, 0
        for batch in self._reader.batches(begin, end, columns=("endPosition",), is_committed=True):
            ends = batch.column(0).to_numpy()
            first = first or int(ends[0])
            within = ends[ends <= end]
            last = int(within[-1]) if len(within) else last
        return last or first or min(tip, term_begin + self._reader.term_length)

    def _end_of_entries(self, begin: int, end: int, count: int) -> int:
        """The end of the ``count``-th entry after ``begin``, or ``end`` when there are no more than that."""
        for batch in self._reader.batches(begin, end, columns=("endPosition",), is_committed=True):
            if batch.num_rows >= count:
                return int(batch.column(0)[count - 1].as_py())
            count -= batch.num_rows
        return end
