"""The committed log as a streaming table: each run goes on where the last one stopped."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(comment="Entries of the committed log")
def entries() -> DataFrame:
    log = spark.readStream.format("cluster").option("endpoints", spark.conf.get("cluster.endpoints"))
    return log.option("startingOffsets", "earliest").load()
