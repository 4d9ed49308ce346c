"""Where a replay can begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from cluster.errors import LogPurged
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.snapshots.snapshot_copies import snapshots_of

if TYPE_CHECKING:
    from cluster.reader.snapshots import StoredSnapshot
    from spark_connector.snapshots.snapshot_copies import Snapshots


def begins(options: SourceOptions, log_start: int, position: int) -> Iterator[StoredSnapshot | None]:
    """What a replay that is to be at ``position`` can begin with, best first: snapshots at or before it, the
    newest first, then nothing, at the beginning of a log that is whole.

    One that is fetched from a member is gone when the next is asked for. Raises LogPurged after the last, if
    the log begins at ``log_start`` by then.
    """
    with closing(snapshots_of(options, options.service_id)) as snapshots:
        for at in snapshot_positions(snapshots, log_start, position):
            yield from snapshots.copies(at)
    if log_start > 0:
        raise _gone(options, log_start, position)
    yield None


def check_begin(options: SourceOptions, log_start: int, position: int) -> None:
    """Raise LogPurged when no replay can be at ``position``."""
    if log_start > 0:
        with closing(snapshots_of(options, options.service_id)) as snapshots:
            at = next(snapshot_positions(snapshots, log_start, position), None)
        if at is None:
            raise _gone(options, log_start, position)


def first_begin(options: SourceOptions, log_start: int) -> int:
    """The first position at which a replay can begin: 0, or that of a snapshot. Raises LogPurged."""
    if log_start == 0:
        return 0
    with closing(snapshots_of(options, options.service_id)) as snapshots:
        positions = list(snapshot_positions(snapshots, log_start))
    if not positions:
        raise LogPurged(
            f"the log begins at position {log_start}, and no snapshot of service {options.service_id} is "
            "there to begin with",
            log_start,
        )
    return positions[-1]


def _gone(options: SourceOptions, log_start: int, position: int) -> LogPurged:
    return LogPurged(
        f"the state of {options.service} at position {position} is gone: the log begins at {log_start}, "
        f"and no snapshot of service {options.service_id} that can be read lies between",
        log_start,
    )


def snapshot_positions(snapshots: Snapshots, least: int, most: int | None = None) -> Iterator[int]:
    """Where snapshots are, from ``least`` to ``most``, the newest first. Raises ClusterError."""
    at = snapshots.newest(most)
    while at is not None and at >= least:
        yield at
        at = snapshots.newest(at - 1) if at > 0 else None
