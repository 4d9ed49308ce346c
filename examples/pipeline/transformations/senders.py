"""Who has sent how much, made from the streaming table."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


@dp.materialized_view(comment="Messages and bytes of each session")
def senders() -> DataFrame:
    messages = spark.read.table("entries").where("entryType = 'SESSION_MESSAGE'")
    return messages.groupBy("clusterSessionId").agg(
        f.count("*").alias("messages"), f.sum(f.octet_length("payload")).alias("bytes")
    )
