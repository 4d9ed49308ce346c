"""A program: queries that read a cluster as one consumer group, each begun where the last one was stopped.

python -m tests.faults.soak_query ENDPOINTS CHECKPOINT
"""

from __future__ import annotations

import sys
from contextlib import suppress

from pyspark.errors import StreamingQueryException

from jobs.session import spark_session
from spark_connector import register

QUERY_S = 60
JVM = {  # it has all of its heap from the begin
    "spark.driver.memory": "512m",
    "spark.driver.defaultJavaOptions": "-Xms512m -XX:+AlwaysPreTouch",
}


def main(endpoints: str, checkpoint: str) -> None:
    spark = spark_session("soak", master="local[1]", extra=JVM)
    register(spark)
    log = spark.readStream.format("cluster").option("endpoints", endpoints).option("consumerGroup", "soak")
    # The group keeps a half of what the log may take; what is purged of the other half is no error here.
    rows = log.option("failOnDataLoss", "false").load().select("position", "payload")
    while True:
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        with suppress(StreamingQueryException):  # a busy machine: it is started again
            query.awaitTermination(QUERY_S)
        query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
