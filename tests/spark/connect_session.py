"""A program of one Spark Connect session that writes to a cluster and reads it: ENDPOINTS FOLDER.

It is a process of its own, because a process that has a JVM of Spark's cannot have a Connect session, too.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession


def main(endpoints: str, folder: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert isinstance(spark, ConnectSession)
    cluster = spark.read.format("cluster").option("endpoints", endpoints)
    messages = "entryType = 'SESSION_MESSAGE'"

    rows = spark.range(100, numPartitions=2).selectExpr("concat('row ', id) AS payload")
    rows.write.format("cluster").mode("append").option("endpoints", endpoints).save()
    print("written", cluster.load().where(messages).count())

    entries = spark.readStream.format("cluster").option("endpoints", endpoints)
    answers = entries.option("startingOffsets", "earliest").load().where(messages)
    query = (
        answers.selectExpr("concat('seen ', CAST(payload AS STRING)) AS payload")
        .writeStream.format("cluster")
        .option("endpoints", endpoints)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    print(
        "answered", cluster.load().where(f"{messages} AND CAST(payload AS STRING) LIKE 'seen row %'").count()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
