"""Queries whose Python process was not up in time are started again, and no others."""

import pytest

from spark_connector import start_query

LATE = "[STREAM_FAILED] terminated with exception: Python worker failed to connect back."


class Query:
    """One that is at work, or has failed by now, after so many batches."""

    def __init__(self, says=None, batches=0):
        self.says, self.recentProgress = says, [{}] * batches
        self.isActive = says is None

    def exception(self):
        return None if self.says is None else RuntimeError(self.says)


class Writer:
    def __init__(self, *queries):
        self.queries = list(queries)

    def start(self):
        return self.queries.pop(0)


def test_a_query_whose_python_process_came_up_too_late_is_started_again():
    at_work = Query(batches=1)
    assert start_query(Writer(Query(LATE), Query(LATE), at_work)) is at_work


@pytest.mark.parametrize(
    "queries, left",
    [
        ([Query(LATE), Query(LATE), Query(LATE), Query(batches=1)], 1),
        ([Query(LATE, batches=1), Query(batches=1)], 1),
        ([Query("no more disk"), Query(batches=1)], 1),
    ],
    ids=["three times", "after a batch", "another failure"],
)
def test_a_query_that_fails_otherwise_or_too_often_is_not_started_again(queries, left):
    writer = Writer(*queries)
    with pytest.raises(RuntimeError, match=queries[0].says.split("]")[-1].strip()):
        start_query(writer)
    assert len(writer.queries) == left
