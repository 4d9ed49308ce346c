"""Lets Spark find ``format("cluster")``: it looks for ``DefaultSource`` in modules named ``pyspark_*``.

Spark imports every such module of an environment for the first look-up of a Python data source, so
this one imports as little as it can.
"""

from spark_connector.data_source import ClusterDataSource as DefaultSource

__all__ = ["DefaultSource"]
