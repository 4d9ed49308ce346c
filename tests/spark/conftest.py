"""What many of these tests read: a log that grows as they write it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.logs import LiveLog, open_log


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveLog]:
    """With one session open, ``session_id``."""
    log, log.session_id = open_log(tmp_path / "member-0")
    yield log
    log.stop()
