"""What Spark makes of the flights in the Log: delays per carrier and route, as messages and as tables.

A message of statistics is a JSON object; the newest one of a carrier and route counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.demo.flights import HEADER, MAGIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FLIGHT_COLUMNS = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, "
    "arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, "
    "flight INT, tailnum STRING, origin STRING, dest STRING"
)
STATISTICS_COLUMNS = (
    "carrier STRING, origin STRING, dest STRING, flights BIGINT, cancelled BIGINT, landed BIGINT, "
    "delaySum BIGINT, late BIGINT, worst INT"
)
KEY = ("carrier", "origin", "dest")
LATE_MINUTES = 15


def flights(entries: DataFrame) -> DataFrame:
    """The flights among the Log's ``entries``, one row each with the columns of the airline's CSV."""
    from pyspark.sql import functions as f

    is_flight = f.substring("payload", 1, len(MAGIC)) == f.lit(MAGIC)
    line = f.expr(f"CAST(substring(payload, {HEADER.itemsize + 1}) AS STRING)")
    parsed = f.from_csv(line, FLIGHT_COLUMNS, {"nullValue": "NA"})
    return entries.where(is_flight).select(parsed.alias("flight")).select("flight.*")


def statistics(entries: DataFrame) -> DataFrame:
    """Delays per carrier and route over all flights so far, with ``STATISTICS_COLUMNS``.

    ``delaySum`` is in minutes over the flights that landed; ``late`` of them came over a quarter of an hour
    after schedule, ``worst`` minutes the worst one.
    """
    from pyspark.sql import functions as f

    delay = f.col("arr_delay")
    return (
        flights(entries)
        .groupBy(*KEY)
        .agg(
            f.count("*").alias("flights"),
            f.count_if(f.col("dep_time").isNull()).alias("cancelled"),
            f.count(delay).alias("landed"),
            f.coalesce(f.sum(delay), f.lit(0)).alias("delaySum"),
            f.count_if(delay > LATE_MINUTES).alias("late"),
            f.max(delay).alias("worst"),
        )
    )


def as_messages(rows: DataFrame) -> DataFrame:
    """One JSON object a row, sent by one task, so that the newest of a key is the last in the Log."""
    from pyspark.sql import functions as f

    return rows.select(f.to_json(f.struct("*")).alias("payload")).coalesce(1)


def newest(entries: DataFrame) -> DataFrame:
    """The statistics that came back through the Log: the last message of each carrier and route."""
    from pyspark.sql import functions as f

    texts = entries.where(f.substring("payload", 1, 1) == f.lit(b"{")).select(
        "position", f.from_json(f.col("payload").cast("string"), STATISTICS_COLUMNS).alias("row")
    )
    key = [f.col(f"row.{name}") for name in KEY]
    return texts.groupBy(*key).agg(f.max_by("row", "position").alias("row")).select("row.*")


def per_carrier(rows: DataFrame) -> DataFrame:
    """The statistics of all routes of a carrier together, with the route of the longest mean delay."""
    from pyspark.sql import functions as f

    route = f.concat_ws("-", "origin", "dest")
    mean = f.col("delaySum") / f.col("landed")
    return (
        rows.groupBy("carrier")
        .agg(
            f.sum("flights").alias("flights"),
            f.sum("cancelled").alias("cancelled"),
            (f.sum("delaySum") / f.sum("landed")).alias("meanDelay"),
            (f.sum("late") / f.sum("landed")).alias("lateShare"),
            f.max("worst").alias("worst"),
            f.max_by(route, f.when(f.col("landed") >= 50, mean)).alias("worstRoute"),
        )
        .orderBy(f.desc("flights"))
    )
