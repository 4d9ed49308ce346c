"""One Spark session for the whole run of the tests: starting one takes longer than most of them."""

import pytest

from jobs.session import spark_session


@pytest.fixture(scope="session")
def spark():
    session = spark_session(
        "tests",
        master="local[2]",
        extra={"spark.python.unix.domain.socket.enabled": "true"},
    )
    yield session
    session.stop()
