"""The Spark connector: the committed Log as a DataFrame, and DataFrames back as ingress.

``source.py`` and ``sink.py`` do the I/O; ``options.py``, ``directory_options.py``, ``offsets.py`` and
``planning.py`` only compute. ``decoding.py`` makes columns of payloads. ``snapshot_rows.py`` reads what
members keep beside the log; ``replay.py`` gives the log to a service once more. ``ingress_order.py`` is for
rows that were shuffled on their way back, ``starting.py`` for queries that began too slowly. Never here:
starting nodes, the consensus core, Delta tables. Read ``data_source.py`` first.

Importing this package, which every Spark session does that looks for data sources, loads neither
numba nor grpc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_connector.ingress_order import for_ingress
from spark_connector.replayed_service import replay_service
from spark_connector.starting import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "for_ingress", "replay_service", "start_query"]


def register(spark: SparkSession) -> None:
    """Make the formats ``cluster``, ``cluster-snapshot`` and ``cluster-replay`` known to a session.

    Where the package is installed Spark finds ``cluster`` without this; with ``addPyFile`` it does not.
    """
    from spark_connector.data_source import ClusterDataSource
    from spark_connector.replay import ReplayDataSource
    from spark_connector.shipped_files import give_streams_the_files
    from spark_connector.snapshots import SnapshotDataSource

    for source in (ClusterDataSource, SnapshotDataSource, ReplayDataSource):
        spark.dataSource.register(source)
    give_streams_the_files(spark)
