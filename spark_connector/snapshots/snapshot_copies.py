"""The snapshots that options name: in directories, or of members over the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_connector.log import warn
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.options.directory_options import PlaceOptions

if TYPE_CHECKING:
    from cluster.reader.member_snapshots import MemberSnapshots
    from cluster.reader.snapshots import DirectorySnapshots

    Snapshots = MemberSnapshots | DirectorySnapshots


def snapshots_of(options: SourceOptions | PlaceOptions, service_id: int | None = None) -> Snapshots:
    """Of one service, or all; close it. Raises NotAClusterDirectory, LogDamaged, StorageError, TimedOut."""
    if options.endpoints is None:
        from cluster.reader.snapshots import DirectorySnapshots

        return DirectorySnapshots(options.cluster_dirs or (), service_id, archive_dirs=options.archive_dirs)
    from cluster.reader.member_snapshots import MemberSnapshots
    from cluster.transport.member_status import TIMEOUT_S

    return MemberSnapshots(
        options.endpoints,
        service_id,
        tls=options.tls,
        credentials=options.credentials,
        timeout_s=TIMEOUT_S if options.request_timeout_ms is None else options.request_timeout_ms / 1000,
    )


def warn_of_silent(snapshots: Snapshots) -> None:
    """Name the members whose snapshots are in no comparison."""
    for member in snapshots.silent:
        warn(f"{member}; its snapshots are not compared")
