"""A program that sends a cluster's rows round, with the package as a file: PACKAGE ENDPOINTS FOLDER [MASTER].

With a master it adds the package by ``addPyFile``; without one it was submitted with ``--py-files``.
"""

from __future__ import annotations

import importlib.util
import sys

from pyspark.sql import SparkSession


def main(package: str, endpoints: str, folder: str, master: str = "") -> None:
    if master:
        assert importlib.util.find_spec("spark_connector") is None, "it is installed"
        spark = SparkSession.builder.master(master).getOrCreate()
        spark.sparkContext.addPyFile(package)
    else:
        spark = SparkSession.builder.getOrCreate()
    import spark_connector

    assert ".zip" in str(spark_connector.__file__)
    spark_connector.register(spark)
    messages = "entryType = 'SESSION_MESSAGE'"

    rows = spark.range(100, numPartitions=2).selectExpr("concat('row ', id) AS payload")
    rows.write.format("cluster").mode("append").option("endpoints", endpoints).save()
    log = spark.readStream.format("cluster").option("endpoints", endpoints)
    query = (
        log.option("startingOffsets", "earliest")
        .load()
        .where(messages)
        .selectExpr("concat('seen ', CAST(payload AS STRING)) AS payload")
        .writeStream.format("cluster")
        .option("endpoints", endpoints)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    seen = f"{messages} AND CAST(payload AS STRING) LIKE 'seen row %'"
    print("seen", spark.read.format("cluster").option("endpoints", endpoints).load().where(seen).count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
