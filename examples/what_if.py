"""What if prices had been in steps of five? The order book once more over the log of the one that ran.

``CoarseTicks`` is the order book with another rule. Spark replays both over the same log: the book that ran
in a task for each interval between snapshots, the other one from the first order on. Side by side stand the
trades, quantity and turnover of each month as they were, and as they would have been.

Run it on the directory of ``cluster up --dir c1 --service examples.order_book:OrderBook``:
``python -m examples.what_if c1``
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cluster import ClientSession
from examples.order_book import BUY, OrderBook

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TICK = 5
AS_IT_WAS = "examples.order_book:OrderBook"
WHAT_IF = "examples.what_if:CoarseTicks"


class CoarseTicks(OrderBook):
    """Prices are multiples of TICK: rounded so that no buyer pays more and no seller gets less than said."""

    def _enter(self, session: ClientSession, side: bytes, quantity: int, price: int, force: bytes) -> None:
        rounded = price // TICK * TICK if side == BUY else -(-price // TICK) * TICK
        super()._enter(session, side, quantity, rounded, force)


def trades(egress: DataFrame) -> DataFrame:
    """The trades of each month in what a book has answered: month, trades, quantity, turnover."""
    from pyspark.sql import functions as f

    words = f.split(f.col("payload").cast("string"), " ")
    told = egress.select("clusterTime", words.alias("words")).where("words[0] = 'trade'")
    return (
        told.selectExpr(
            "date_format(timestamp_millis(clusterTime), 'yyyy-MM') AS month",
            "CAST(words[2] AS BIGINT) AS quantity",
            "CAST(words[3] AS BIGINT) AS price",
        )
        .groupBy("month")  # both sides of a trade are told of it
        .agg(
            (f.count("*") / 2).cast("bigint").alias("trades"),
            (f.sum("quantity") / 2).cast("bigint").alias("quantity"),
            (f.sum(f.col("quantity") * f.col("price")) / 2).cast("bigint").alias("turnover"),
        )
    )


def side_by_side(spark: SparkSession, cluster_dir: str, other: str = WHAT_IF) -> DataFrame:
    """A row a month: trades, quantity and turnover as they were, and with another book."""
    from spark_connector import replay_service

    was = trades(replay_service(spark, AS_IT_WAS, cluster_dir=cluster_dir).egress)
    would_be = trades(replay_service(spark, other, cluster_dir=cluster_dir, whole=True).egress)
    for name in ("trades", "quantity", "turnover"):
        would_be = would_be.withColumnRenamed(name, f"{name}WhatIf")
    columns = ("trades", "tradesWhatIf", "quantity", "quantityWhatIf", "turnover", "turnoverWhatIf")
    return was.join(would_be, "month", "full").na.fill(0).select("month", *columns).orderBy("month")


def main() -> None:
    from pyspark.sql import SparkSession

    side_by_side(SparkSession.builder.getOrCreate(), sys.argv[1]).show()


if __name__ == "__main__":
    main()
