"""The Spark connector: the committed Log as a DataFrame, and DataFrames back as ingress.

``data_source.py`` is the format: what Spark makes of a name and options. Read it first.

=================== =====================================================================================
``options/``        what users may give, and what each value means; pure
``source/``         the Log as rows: planned on the driver, read by tasks
``sink/``           rows as ingress, each once in the Log
``decoding/``       payloads as columns; pure
``snapshots/``      what members keep beside the Log, as rows
``replay/``         the Log given to a service once more
``many_clusters/``  one read or write over several clusters
=================== =====================================================================================

``offsets.py``, ``planning.py``, ``schema.py`` and ``values.py`` only compute, for all of them. ``log.py`` is
the Log as the driver sees it, ``task.py`` the process that a task runs in. Never here: starting nodes, the
consensus core, Delta tables.

Importing this package, which every Spark session does that looks for data sources, loads neither
numba nor grpc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_connector.replay.replayed_service import replay_service
from spark_connector.sink.ingress_order import for_ingress
from spark_connector.starting import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "for_ingress", "replay_service", "start_query"]


def register(spark: SparkSession) -> None:
    """Make the formats ``cluster``, ``cluster-snapshot`` and ``cluster-replay`` known to a session.

    Where the package is installed Spark finds ``cluster`` without this; with ``addPyFile`` it does not.
    """
    from spark_connector.data_source import ClusterDataSource
    from spark_connector.replay.replay_source import ReplayDataSource
    from spark_connector.shipped_files import give_streams_the_files
    from spark_connector.snapshots.snapshot_source import SnapshotDataSource

    for source in (ClusterDataSource, SnapshotDataSource, ReplayDataSource):
        spark.dataSource.register(source)
    give_streams_the_files(spark)
