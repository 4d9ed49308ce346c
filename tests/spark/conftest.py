"""What many of these tests read: a log that grows as they write it, and a query over it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.logs import LiveLog, open_log
from tests.spark.pipeline import Pipeline


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveLog]:
    """With one session open, ``session_id``."""
    log, log.session_id = open_log(tmp_path / "member-0")
    yield log
    log.stop()


@pytest.fixture
def pipeline(spark: SparkSession, live: LiveLog, tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(spark, live, tmp_path / "out")
    yield made
    if made.query is not None:
        made.query.stop()
