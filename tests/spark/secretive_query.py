"""A program: a query reads the log into rows, and a task writes rows back, as whom a file of a token names.

    python -m tests.spark.secretive_query ENDPOINTS TOKEN_FILE FOLDER

It leaves a checkpoint, an event log and the plans in FOLDER, and stops when its standard input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.session import spark_session


def main(endpoints: str, token_file: str, folder: Path) -> None:
    events = folder / "events"
    events.mkdir()
    spark = spark_session(
        "secretive query",
        master="local[1]",
        extra={"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()},
    )
    query_and_write(spark, endpoints, token_file, folder)
    print("done", flush=True)
    sys.stdin.read()
    spark.stop()


def query_and_write(spark: SparkSession, endpoints: str, token_file: str, folder: Path) -> None:
    """What it does; also for a session that there is already."""
    options = {"endpoints": endpoints, "authTokenFile": token_file}
    log = spark.readStream.format("cluster").options(**options).load()
    writer = log.select("position", "payload").writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "rows"))
    query.awaitTermination()
    rows = spark.createDataFrame([("a row",)], ["payload"])
    rows.write.format("cluster").mode("append").options(**options).save()
    read = spark.read.format("cluster").options(**options).load()
    (folder / "plans").write_text(read._jdf.queryExecution().toString() + query.lastProgress.json)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
