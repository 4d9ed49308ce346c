"""One stream of orders over several clusters: each customer's orders go to one of them, a query reads all.

One log is written by one leader. Who needs more has several clusters, and a key that says which of them has
what. Orders of one customer keep their order; those of different customers may be in different logs.

Start some clusters, with ``cluster up --dir eu --base-port 9100`` and the like, and give their endpoints:
``python -m examples.many_clusters eu=127.0.0.1:9100 us=127.0.0.1:9200``
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

ORDERS, CUSTOMERS = 10_000, 1_000


def orders(spark: SparkSession, rows: int = ORDERS) -> DataFrame:
    """Rows ``customer, payload``."""
    return spark.range(rows).selectExpr(
        f"id % {CUSTOMERS} AS customer", "concat('order ', id, ' of customer ', customer) AS payload"
    )


def write(rows: DataFrame, endpoints: Mapping[str, str], application: str, version: int) -> None:
    """Send the rows, each to the cluster of its customer, each once however often this is called."""
    named = {f"endpoints.{name}": place for name, place in endpoints.items()}
    writer = rows.write.format("cluster").mode("append").options(**named).option("routeBy", "customer")
    writer.option("txnAppId", application).option("txnVersion", version).save()


def read(spark: SparkSession, endpoints: Mapping[str, str]) -> DataFrame:
    """The orders in all logs: ``clusterName``, ``customer``, ``payload``."""
    named = {f"endpoints.{name}": place for name, place in endpoints.items()}
    entries = spark.read.format("cluster").options(**named).option("entryTypes", "SESSION_MESSAGE").load()
    rows = entries.selectExpr("clusterName", "position", "CAST(payload AS STRING) AS payload")
    customer = "CAST(element_at(split(payload, ' '), -1) AS BIGINT) AS customer"
    return rows.where("startswith(payload, 'order ')").selectExpr("clusterName", customer, "payload")


def main() -> None:
    from jobs.session import spark_session

    endpoints = dict(word.split("=", 1) for word in sys.argv[1:])
    if not endpoints:
        sys.exit(__doc__)
    spark = spark_session("many clusters")
    write(orders(spark), endpoints, "examples", 1)
    read(spark, endpoints).groupBy("clusterName").count().orderBy("clusterName").show()


if __name__ == "__main__":
    main()
