"""The snapshots that a replay of a stream can begin with, and the one that it does begin with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cluster.errors import ClusterError, LogDamaged, LogPurged, NotAClusterDirectory, StorageError
from spark_connector.options import SourceOptions

if TYPE_CHECKING:
    from cluster.reader.snapshots import StoredSnapshot

UNREADABLE = (LogDamaged, NotAClusterDirectory, StorageError)


def begins(options: SourceOptions, log_start: int, position: int) -> Iterator[StoredSnapshot | None]:
    """What a replay that is to be at ``position`` can begin with, best first: snapshots at or before it, the
    newest first, then nothing, at the begin of a log that is whole.

    Raises LogPurged after the last, if the log begins at ``log_start`` by then.
    """
    yield from (one for one in reversed(_stored(options)) if log_start <= one.log_position <= position)
    if log_start > 0:
        raise LogPurged(
            f"the state of {options.service} at position {position} is gone: the log begins at {log_start}, "
            f"and no snapshot of service {options.service_id} that can be read lies between",
            log_start,
        )
    yield None


def first_begin(options: SourceOptions, log_start: int) -> int:
    """The first position at which a replay can begin: 0, or that of a snapshot. Raises LogPurged."""
    positions = (one.log_position for one in _stored(options) if one.log_position >= log_start)
    if log_start == 0:
        return 0
    if (first := next(positions, None)) is None:
        raise LogPurged(
            f"the log begins at position {log_start}, and no snapshot of service {options.service_id} is "
            "there to begin with",
            log_start,
        )
    return first


def _stored(options: SourceOptions) -> list[StoredSnapshot]:
    """The snapshots of the service by position. Those of a directory that cannot be read are passed over."""
    from cluster.archive.files import OsFiles
    from cluster.reader.snapshots import stored_snapshots

    dirs = options.cluster_dirs or ()
    found, errors = [], []
    for dir, archive_dir in zip(dirs, options.archive_dirs or [None] * len(dirs), strict=True):
        try:
            found += stored_snapshots(OsFiles(), dir, archive_dir)
        except UNREADABLE as error:
            errors.append(error)
    if len(errors) == len(dirs):
        raise ClusterError("; ".join(map(str, errors)))
    return sorted(
        (one for one in found if one.service_id == options.service_id), key=lambda one: one.log_position
    )
