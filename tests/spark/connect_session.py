"""A program of one Spark Connect session that writes to a cluster and reads it: REMOTE ENDPOINTS FOLDER.

It is a process of its own, because a process that has a JVM of Spark's cannot have a Connect session, too.
"""

from __future__ import annotations

import sys

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession


def main(remote: str, endpoints: str, folder: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
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
    seen = f"{messages} AND CAST(payload AS STRING) LIKE 'seen row %'"
    print("answered", cluster.load().where(seen).count())

    def copy(batch: DataFrame, batch_id: int) -> None:  # runs in a Python process of the server
        written = batch.selectExpr("concat('copy of ', CAST(payload AS STRING)) AS payload").write
        once = written.format("cluster").mode("append").option("endpoints", endpoints)
        once.option("txnAppId", "copies").option("txnVersion", batch_id).save()
        once.save()  # the batch again: sends nothing

    copies = entries.option("startingOffsets", "earliest").load().where(seen).writeStream.foreachBatch(copy)
    query = copies.option("checkpointLocation", f"{folder}/copies").trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    print("copied", cluster.load().where("CAST(payload AS STRING) LIKE 'copy of %'").count())

    try:
        cluster.option("startingOffsets", '{"position": 1}').load().count()
    except AnalysisException as error:
        print("refused", "which is within an entry" in str(error))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
