"""What users call to replay a service: DataFrames over the format ``cluster-replay``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.errors import MembersApart
from spark_connector.log import warn
from spark_connector.options.directory_options import ReplayOptions
from spark_connector.options.replay_options import REPLAY_KINDS
from spark_connector.replay.replay_columns import NOT_COMPARED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_DIFFERENCES = 5


@dataclass(frozen=True, slots=True)
class ReplayedService:
    """What ``replay_service`` gives. A DataFrame replays the log each time it is used: cache it for more."""

    spark: SparkSession
    options: dict[str, str]

    def rows(self, *kinds: str) -> DataFrame:
        """The rows of some kinds (default: all); the comments of the schema say what is in them."""
        options = {**self.options, "kinds": ",".join(kinds or REPLAY_KINDS)}
        return self.spark.read.format("cluster-replay").options(**options).load()

    @property
    def egress(self) -> DataFrame:
        """What clients are answered: position, clusterSessionId, payload."""
        return self.rows("EGRESS")

    @property
    def service_messages(self) -> DataFrame:
        """What the service sends to its own cluster."""
        return self.rows("SERVICE_MESSAGE")

    @property
    def timers(self) -> DataFrame:
        """Timers that the service sets, with their deadlines, and takes back."""
        return self.rows("SCHEDULE_TIMER", "CANCEL_TIMER")

    @property
    def state(self) -> DataFrame:
        """What the service saves at the end of each interval, a row a record."""
        return self.rows("STATE")

    @property
    def snapshots(self) -> DataFrame:
        """How that compares with the snapshots of the members, a row a member and snapshot."""
        return self.rows("SNAPSHOT")

    @property
    def errors(self) -> DataFrame:
        """What callbacks raised."""
        return self.rows("ERROR")

    def verify(self) -> int:
        """Compare all snapshots; returns how many are equal, names silent members. Raises MembersApart."""
        # Spark would replay once more to sort them.
        rows = sorted(self.snapshots.collect(), key=lambda row: (row["position"], row["directory"]))
        for row in rows:
            if (row["message"] or "").startswith(NOT_COMPARED):
                warn(f"the snapshot at position {row['position']} is {row['message']}")
        compared = [row for row in rows if row["isEqual"] is not None]
        differing = [row for row in compared if not row["isEqual"]]
        lines = [
            f"member {row['memberId']} ({row['directory']}) at position {row['position']}, replayed from "
            f"{row['beginPosition']}: {row['message']}"
            for row in differing[:SHOWN_DIFFERENCES]
        ]
        if differing:
            raise MembersApart(
                f"{len(differing)} of {len(compared)} snapshots are not what "
                f"{self.options['service']} saves: {'; '.join(lines)}"
            )
        return len(compared)


def replay_service(
    spark: SparkSession,
    service: str,
    *,
    cluster_dir: str | None = None,
    archive_dir: str | None = None,
    endpoints: str | None = None,
    service_id: int = 0,
    whole: bool = False,
    options: Mapping[str, str] | None = None,
) -> ReplayedService:
    """Replay ``module:ClassName`` over the log in a member's directory, or a cluster's, as Spark tasks; or
    over that of the running members at ``endpoints``, which send log and snapshots.

    There is a task for each interval between two snapshots that members keep. ``whole`` replays all in one,
    for a service that is another than the one that saved them. ``options`` are further ones of the format
    ``cluster-replay``, such as ``tlsCaFile``. Nothing is read until a DataFrame of the result is used.
    Raises ConfigurationError.
    """
    from spark_connector.replay.replay_source import ReplayDataSource

    spark.dataSource.register(ReplayDataSource)
    given = {
        "service": service,
        "clusterDir": cluster_dir,
        "archiveDir": archive_dir,
        "endpoints": endpoints,
        "serviceId": str(service_id),
        "whole": str(whole).lower(),
        **(options or {}),
    }
    known = {name: value for name, value in given.items() if value is not None}
    ReplayOptions.parse(known)
    return ReplayedService(spark, known)
