"""The Spark connector: the committed Log as a DataFrame, and DataFrames back as ingress.

``source.py`` and ``sink.py`` do the I/O; ``options.py``, ``offsets.py`` and ``planning.py`` only
compute; ``ingress_order.py`` is for rows that were shuffled on their way back. Never here: starting
nodes, the consensus core, Delta tables. Read ``data_source.py`` first.

Importing this package, which every Spark session does that looks for data sources, loads neither
numba nor grpc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_connector.ingress_order import for_ingress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "for_ingress"]


def register(spark: SparkSession) -> None:
    """Make ``format("cluster")`` known to a session that does not discover it by itself.

    Where the package is installed Spark finds the format without this; with ``addPyFile`` it does not.
    """
    from spark_connector.data_source import ClusterDataSource

    spark.dataSource.register(ClusterDataSource)
