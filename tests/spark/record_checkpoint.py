"""Record the checkpoint of a query for the releases to come:

    python -m tests.spark.record_checkpoint FOLDER [NAME…]

A stream over a log of 42 entries, 30 a micro-batch: the first is committed, the second, of 12, is planned and
not committed. With names it is over as many logs, which share the 30, so the second has 30, too.
tests/data/spark-checkpoint-N is of offsets of version N, 3 of the names eu and us. A release that changes a
version records another one, and keeps those.
"""

import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from jobs.session import spark_session
from tests.spark.logs import open_log


def main(folder: Path, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as opened:
        places = {}
        for number, name in enumerate(names or [""]):
            log, session_id = open_log(Path(scratch) / f"member-{name}", cluster_id=number)
            opened.callback(log.stop)
            log.lines(session_id, 0, 40)
            places[f"clusterDir.{name}" if name else "clusterDir"] = str(log.directory)
        checkpoint = Path(scratch) / "checkpoint"
        spark = spark_session("record", master="local[2]")
        query = (
            spark.readStream.format("cluster")
            .options(**places, startingOffsets="earliest", maxEntriesPerTrigger="30")
            .load()
            .writeStream.foreachBatch(lambda rows, batch_id: None)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        for name in ("metadata", "commits/0", "offsets/0", "offsets/1"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkpoint / name, folder / name)
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
