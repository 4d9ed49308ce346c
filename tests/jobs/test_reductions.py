"""What entries are reduced to, by Arrow and by Spark over it: rows that a plain reading of them makes."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import pairwise

import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer

from jobs.sessions import sessions_job
from jobs.terms import terms_job
from jobs.timers import timers_job
from spark_connector.schema import ddl
from tests.jobs import expected
from tests.jobs.conftest import naive_rows, rows_by
from tests.jobs.timelines import drawn_timers

pytestmark = pytest.mark.timeout(300)

# Stands for one that was purged.
PURGED_OPENING = {
    "entryType": "SESSION_OPEN", "position": 64, "leadershipTermId": None, "timestamp": None,
    "clusterSessionId": 77, "correlationId": 7, "responseStreamId": 102, "responseChannel": "aeron:udp",
    "encodedPrincipal": b"me",
}  # fmt: skip

SENT_SINCE = {
    "entryType": "SESSION_MESSAGE", "position": 1 << 40, "leadershipTermId": 3, "timestamp": None,
    "clusterSessionId": 77, "payload": b"two", "payloadLength": 3,
}  # fmt: skip

ELSEWHERE = """
import pickle, sys
sys.modules["jobs"] = None
print(len(pickle.load(sys.stdin.buffer).rows_of([])))
"""


@pytest.fixture(params=["sessions", "timers", "timers of snapshots", "terms"])
def case(request, decoded):
    """A table's job, entries, and the rows that they make."""
    match request.param:
        case "sessions":
            assert any(entry.get("clusterSessionId", 0) < 0 for entry in decoded), "a service's own messages"
            rows = expected.sessions([PURGED_OPENING, *decoded, SENT_SINCE])
            rows[77]["openPosition"] = None
            return sessions_job(), [*decoded, PURGED_OPENING, SENT_SINCE], rows
        case "timers":
            return timers_job(), decoded, expected.timers(decoded)
        case "timers of snapshots":
            entries = drawn_timers(3)
            rows = expected.timers(entries)
            assert {row["state"] for row in rows.values()} == {"SCHEDULED", "CANCELLED", "FIRED"}
            return timers_job(), entries, rows
        case "terms":
            return terms_job(), decoded, expected.terms(decoded)


@pytest.mark.parametrize("seed", range(5))
def test_entries_in_any_order_and_in_any_batches_make_the_same_rows(case, seed):
    job, entries, rows = case
    drawn = random.Random(seed)
    shuffled = drawn.sample(entries, len(entries))
    cuts = [0, *sorted(drawn.sample(range(len(entries)), drawn.randrange(9))), len(entries)]
    batches = [pa.RecordBatch.from_pylist(shuffled[start:end], job.schema) for start, end in pairwise(cuts)]
    found = job.reduction.rows_of(job.reduction.parts_of(batches)).to_pylist()
    assert len(found) == len(rows) and {row[job.layout.key]: row for row in found} == rows


@pytest.mark.conformance("P-101")
def test_entries_in_any_partitions_make_the_same_rows(spark, case):
    job, entries, rows = case
    drawn = random.Random(len(entries))
    shuffled = drawn.sample(entries, len(entries))
    values = [tuple(entry.get(column) for column in job.columns) for entry in shuffled]
    log = spark.createDataFrame(values, ddl(job.columns)).repartition(drawn.randrange(2, 5))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 50)
    try:
        found = rows_by(job.rows(log), job.layout.key)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert found == naive_rows(rows)


def test_no_entries_make_no_rows_of_the_table(spark, case):
    job, *_ = case
    rows = job.rows(spark.createDataFrame([], ddl(job.columns)))
    assert rows.count() == len(job.reduction.rows_of([])) == 0
    assert [(f.name, f.dataType) for f in rows.schema] == [(f.name, f.dataType) for f in job.layout.schema]


def test_executors_need_not_have_the_package(spark):
    """What is sent to them, loaded where it cannot be imported."""
    job = terms_job()
    job.rows(spark.createDataFrame([], ddl(job.columns)))
    sent = CloudPickleSerializer().dumps(job.reduction)
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=sent, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"0\n"), done.stderr.decode()
