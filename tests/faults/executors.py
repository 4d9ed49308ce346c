"""Spark sessions whose executors are processes of their own, and the end of one of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.session import spark_session
from spark_connector import register


def executors_session(name: str, master: str, rows_per_batch: int, **more: str) -> SparkSession:
    """With two executors at ``master``, a core each. Python functions get ``rows_per_batch`` rows at once."""
    settings = {
        "spark.executor.cores": "1",
        "spark.executor.memory": "1g",
        "spark.cores.max": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows_per_batch),
    }
    spark = spark_session(name, master=master, extra=settings | more)
    register(spark)
    return spark


def own_executor() -> int:
    """The process of the executor that this Python worker serves: the parent of what forks the workers."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def kill_own_executor() -> None:
    """Kill it, and never return."""
    os.kill(own_executor(), signal.SIGKILL)
    signal.pause()
