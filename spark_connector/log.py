"""The log that options name, as the driver sees it: whose it is, how far it goes, where entries end.

Readers are kept in the module, so that the tasks and micro-batches that one Python process runs share
open files, connections and compiled kernels. The key has the process id: what a process opened is of no
use to one forked from it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster.errors import DataLoss, LogPurged, printable
from cluster.protocol.token import PositionToken, identity_text, other_history
from spark_connector.address_space import check_address_space
from spark_connector.offsets import Offset
from spark_connector.options.cluster_options import SourceOptions

if TYPE_CHECKING:
    from cluster.log.entry_filter import EntryFilter
    from cluster.reader import LogReader

LAG_TIMEOUT_S = 10.0  # how long a member that runs may take to catch up with a checkpoint
IDLE_INTERVAL_S = 0.05  # between two questions to members that had nothing new; Spark asks every 11 ms
READERS_OF_TASKS = 32  # that a process keeps: a worker of Spark may serve reads of ever other sessions

_readers: dict[tuple[object, ...], LogReader] = {}
_logged: dict[tuple[object, ...], int] = {}  # of the reader's warnings
_whose: ContextVar[str] = ContextVar("whose", default="")  # with which words lines begin


def open_reader(options: SourceOptions, entry_filter: EntryFilter | None = None) -> LogReader:
    """The reader of the log, opened once in this process for each filter; the oldest filters are closed."""
    key = _key(options, entry_filter)
    reader = _readers.pop(key, None)
    if reader is None:
        reader = _open(options, entry_filter)
        _logged[key] = 0
    _readers[key] = reader  # the last one now
    of_tasks = [known for known in _readers if known[:1] == key[:1] and known[1] is not None]
    for old in of_tasks[:-READERS_OF_TASKS]:
        _close(old)
    report_warnings(options, entry_filter)
    return reader


def report_warnings(options: SourceOptions, entry_filter: EntryFilter | None = None) -> None:
    """Log what the reader has to say since it was last asked: which of several directories failed."""
    key = _key(options, entry_filter)
    warnings = _readers[key].warnings
    for line in warnings[_logged[key] :]:
        warn(line)
    _logged[key] = len(warnings)


def _open(options: SourceOptions, entry_filter: EntryFilter | None) -> LogReader:
    reader = _open_cluster(options, entry_filter)
    if options.export_dir is None:
        return reader
    from cluster.reader.joined_reader import JoinedReader

    try:
        return JoinedReader(reader, options.export_dir)
    except BaseException:
        reader.close()
        raise


def _open_cluster(options: SourceOptions, entry_filter: EntryFilter | None) -> LogReader:
    from cluster.reader import LogReader

    if options.cluster_dirs is None:
        check_address_space()
    return LogReader.open(**_place(options), entry_filter=entry_filter)


def _place(options: SourceOptions) -> dict[str, Any]:
    """Where the log of the cluster is, and how it is asked for, as ``LogReader.open`` takes it."""
    if options.cluster_dirs is not None:
        dirs, archives = options.cluster_dirs, options.archive_dirs
        if len(dirs) > 1:
            return {"dir": dirs, "archive_dir": archives}
        return {"dir": dirs[0], "archive_dir": archives and archives[0]}
    asking: dict[str, Any] = {"credentials": options.credentials}
    if options.read_preference is not None:
        asking["read_preference"] = options.read_preference
    if options.request_timeout_ms is not None:
        asking["timeout_s"] = options.request_timeout_ms / 1000
    if not options.is_over_aeron:
        return asking | {"endpoints": options.endpoints, "tls": options.tls}
    return asking | {
        "consensus_endpoints": options.consensus_endpoints,
        "aeron_archive": options.aeron_archive,
        "recording_id": options.recording_id,
        "aeron_dir": options.aeron_dir,
        "cluster_id": options.cluster_id,
        "file_io_max_length": options.aeron_file_io_max,
        "rate_max": options.aeron_rate_max,
    }


def forget_reader(options: SourceOptions, entry_filter: EntryFilter | None = None) -> None:
    """Close a reader that failed; the next ``open_reader`` begins again."""
    key = _key(options, entry_filter)
    if key in _readers:
        _close(key)


def _close(key: tuple[object, ...]) -> None:
    del _logged[key]
    _readers.pop(key).close()


def pass_over(error: LogPurged, options: SourceOptions) -> None:
    """Warn of what is lost, where that is to be no failure. Raises ``error`` otherwise."""
    if options.fail_on_data_loss:
        raise error
    warn(f"{error}; failOnDataLoss is false: going on at {error.start_position}")


def warn(line: str, who: str = "source", whose: str | None = None) -> None:
    """Warn whoever looks after the driver or the executor; by default of which of several clusters it is."""
    begin = _whose.get() if whose is None else whose
    print(printable(f"cluster {who}: {begin}{line}"), file=sys.stderr, flush=True)


@contextmanager
def lines_of(cluster_name: str) -> Iterator[None]:
    """Lines logged inside begin with the name of their cluster. Not to be left open by a ``yield``."""
    before = _whose.set(f"cluster {cluster_name}: ")
    try:
        yield
    finally:
        _whose.reset(before)


def _key(options: SourceOptions, entry_filter: EntryFilter | None) -> tuple[object, ...]:
    return os.getpid(), entry_filter, options.export_dir, *_place(options).items()


class SourceLog:
    """What planning asks of a log."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reader = open_reader(options)
        if options.at_least is not None:
            self._reader.await_token(options.at_least)
        self._lagging_since: float | None = None
        self._idle_until = 0.0

    @property
    def cluster(self) -> str | None:
        """The identity of the log as it stands in offsets; None while it has no entry."""
        identity = self._reader.identity
        return None if identity is None else identity_text(*identity)

    @property
    def start_position(self) -> int:
        return self._reader.start_position

    def earliest(self) -> int:
        """Where the log begins, all members having been asked. A log that lacks its head goes on there."""
        position = self._reader.earliest_position()
        report_warnings(self._options)
        return self.retained(position)

    @property
    def term_length(self) -> int:
        return self._reader.term_length

    def committed_end(self) -> int:
        """How far a stream may go now. Waits a moment when there was nothing new a moment ago."""
        time.sleep(max(0.0, self._idle_until - time.monotonic()))
        if self._options.read_uncommitted and not self._reader.is_live:
            return self._reader.end_position()
        position = self._reader.commit_position()
        report_warnings(self._options)
        return position

    @property
    def group(self) -> str | None:
        """The consumer group of the read."""
        return self._options.consumer_group

    def group_position(self) -> int | None:
        """Where it is; None where the cluster has no report of it."""
        from cluster.reader.consumers import REPORTS, reported_groups
        from cluster.reader.remote import RemoteLog

        log = open_reader(self._options, REPORTS).log
        assert isinstance(log, RemoteLog), "a group goes with endpoints"
        try:
            found = reported_groups(log).get(self.group or "")
        finally:
            forget_reader(self._options, REPORTS)  # it is asked for once
        return None if found is None else found.position

    def recorded_end(self) -> int:
        """How far a batch goes."""
        return self._reader.end_position()

    def first_entry(self, column: str, least: int, end: int) -> int | None:
        """Where the first entry before ``end`` starts whose ``column``, ``timestamp`` in microseconds or
        ``leadershipTermId``, is ``least`` or more; None if none is.
        """
        from cluster.reader.search import first_entry

        begin = self.earliest()
        return first_entry(self._reader, column, least, min(begin, end), end)

    def entry_ends(self, begin: int, end: int) -> Iterator[np.ndarray]:
        """Where the entries that begin in the committed range end, in order."""
        for batch in self._reader.batches(begin, end, columns=("endPosition",), is_committed=True):
            yield batch.column(0).to_numpy()

    def first_time_us(self, begin: int, end: int) -> int | None:
        """When the first entry of the committed range was appended, in microseconds since 1970."""
        from cluster.reader.search import first_value

        return first_value(self._reader, "timestamp", begin, end)

    def entry_at(self, position: int, columns: tuple[str, ...]) -> dict[str, Any]:
        """Some columns of the committed entry that starts at ``position``."""
        batches = self._reader.batches(
            position, position + 1, columns=columns, rows_per_batch=1, is_committed=True
        )
        row: dict[str, Any] = next(batches).to_pylist()[0]
        return row

    def entries_around(self, position: int) -> tuple[int, int]:
        """Where the last entry starts before the committed ``position``, and the first one at or after it;
        ``position`` twice if one starts there.
        """
        reader = self._reader
        next_begin = reader.boundary_at_or_after(position, is_committed=True)
        if next_begin == position:
            return position, position
        term_begin = max(position - position % reader.term_length, reader.start_position)
        *_, last = reader.batches(term_begin, position, columns=("position",), is_committed=True)
        return int(last.column(0)[-1].as_py()), next_begin

    def retained(self, position: int) -> int:
        """``position`` if the log still holds it; else as ``after_purge``."""
        start = self._reader.retained_from(position)
        if position >= start:
            return position
        report_warnings(self._options)
        return self.after_purge(f"position {position} of cluster {self.cluster} was asked for", start)

    def after_purge(self, what: str, start: int) -> int:
        """``start``, where the log begins now, with a warning of what is lost. Raises LogPurged if that is a
        failure.
        """
        from cluster.reader.joined_reader import JoinedReader

        has = ""
        if isinstance(self._reader, JoinedReader):
            exported = self._reader.exported
            has = f", and {exported.where} has it only {exported.extent}"
        lost = f"{what}, but the log is purged up to {start}{has}; what lies between is lost to this reader"
        pass_over(LogPurged(lost, start), self._options)
        return start

    def term_before(self, position: int) -> str | None:
        """The leadership term of the last entry before ``position``, as offsets have it; None: not known."""
        return self._reader.term_before(position)

    def other_history(self, place: Offset | PositionToken) -> str | None:
        """Why this log has another history before ``place``, for people; None if that is not known."""
        term = None if place.term is None else self.term_before(place.position)
        return other_history(place.term, place.position, term)

    def check_history(self, offset: Offset) -> None:
        """Raise DataLoss when the log has another history before the place in a checkpoint."""
        if why := self.other_history(offset):
            raise DataLoss(
                f"the checkpoint stands at {why}. Use a new checkpoint; rows that were read after the "
                "position of the restore are of no log any more"
            )

    def rest(self) -> None:
        """There is nothing new: do not ask members over the network again at once."""
        if self._options.cluster_dirs is None:
            self._idle_until = time.monotonic() + IDLE_INTERVAL_S

    def check_not_beyond(self, position: int, tip: int, *, waits: bool = False) -> None:
        """Raise DataLoss when the log ends before ``position``, also after some time to catch up.

        That time passes from call to call, or, where this ``waits``, in this one.
        """
        while position > tip and position > self._reader.end_position():
            now = time.monotonic()
            self._lagging_since = self._lagging_since or now
            if not self._reader.is_live or now - self._lagging_since >= LAG_TIMEOUT_S:
                raise DataLoss(
                    f"the checkpoint stands at position {position} of cluster {self.cluster}, but that log "
                    f"ends at {tip}; entries were lost, or this is an older copy of it"
                )
            if not waits:
                return
            time.sleep(IDLE_INTERVAL_S)
        self._lagging_since = None
