"""Record the checkpoint of a query for the releases to come: python -m tests.spark.record_checkpoint FOLDER

A stream over a log of 42 entries, 30 a micro-batch: the first is committed, the second, of 12, is planned and
not committed. tests/data/spark-checkpoint-N is of offsets of version N. A release that changes the version
records another one, and keeps those.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from jobs.session import spark_session
from tests.spark.logs import open_log


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        log, session_id = open_log(Path(scratch) / "member-0")
        log.lines(session_id, 0, 40)
        checkpoint = Path(scratch) / "checkpoint"
        spark = spark_session("record", master="local[2]")
        query = (
            spark.readStream.format("cluster")
            .options(clusterDir=str(log.directory), startingOffsets="earliest", maxEntriesPerTrigger="30")
            .load()
            .writeStream.foreachBatch(lambda rows, batch_id: None)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        log.stop()
        for name in ("metadata", "commits/0", "offsets/0", "offsets/1"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkpoint / name, folder / name)
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
