"""Batches of a real log, merged into tables: what a plain reading of the same log makes."""

from __future__ import annotations

import itertools

import pytest

from jobs import sessions, terms, timers
from jobs.delta_table import Commit, merge, open_table, read
from jobs.schemas import SESSIONS, TERMS, TIMERS
from tests.jobs import expected
from tests.jobs.conftest import naive_rows, rows_by

pytestmark = pytest.mark.timeout(300)


@pytest.mark.slow
@pytest.mark.conformance("P-101", "P-105")
def test_sessions_and_timers_are_the_same_however_the_log_is_cut_into_batches(spark, log, decoded, table):
    wanted = {"sessions": expected.sessions(decoded), "timers": expected.timers(decoded)}
    for job in (sessions.sessions_job(), timers.timers_job()):
        path = f"{table}-{job.layout.key}"
        open_table(spark, path, job.layout)
        for number, batch in enumerate(batches(log, decoded, [3, 101, 400])):
            job.update(batch, path, Commit("a query", number, "{}"), [])
        assert rows_by(read(spark, path), job.layout.key) == naive_rows(wanted[job.name])


@pytest.mark.slow
@pytest.mark.conformance("P-102")
def test_a_session_whose_close_is_merged_before_its_open_is_closed_and_has_both(spark, log, decoded, table):
    """Its messages cut in two, and the end merged first; ``test_delta_rs_tables`` has more cuts."""
    middle = 200
    opening, close = (
        next(n for n, entry in enumerate(decoded) if entry["entryType"] == f"SESSION_{what}")
        for what in ("OPEN", "CLOSE")
    )
    assert (
        opening < middle < close
        and decoded[opening]["clusterSessionId"] == decoded[close]["clusterSessionId"]
    )
    open_table(spark, table, SESSIONS)
    job = sessions.sessions_job()
    for number, batch in enumerate(reversed(batches(log, decoded, [middle]))):
        job.update(batch, table, Commit("a query", number, "{}"), [])

    found = rows_by(read(spark, table), SESSIONS.key)
    assert found == naive_rows(expected.sessions(decoded))
    closed = found[decoded[close]["clusterSessionId"]]
    assert closed["state"] == "CLOSED" and closed["openPosition"] is not None


@pytest.mark.conformance("P-99")
def test_a_batch_that_is_merged_again_changes_nothing(spark, log, decoded, table):
    open_table(spark, table, SESSIONS)
    for _ in range(2):
        merge(
            sessions.sessions_job().rows(log),
            table,
            SESSIONS.key,
            sessions.ON_MATCH,
            Commit("a query", 0, "a token"),
        )
    assert rows_by(read(spark, table), SESSIONS.key) == naive_rows(expected.sessions(decoded))
    for setting in ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata"):
        assert spark.conf.get(f"spark.databricks.delta.{setting}", None) is None


@pytest.mark.slow
def test_another_query_is_not_taken_for_the_one_whose_batch_numbers_it_repeats(spark, log, decoded, table):
    first, second = batches(log, decoded, [100])
    job = timers.timers_job()
    open_table(spark, table, job.layout)
    job.update(first, table, Commit("a query", 0, "{}"), [])
    job.update(second, table, Commit("its successor", 0, "{}"), [])
    assert rows_by(read(spark, table), TIMERS.key) == naive_rows(expected.timers(decoded))


@pytest.mark.conformance("P-105")
@pytest.mark.parametrize("cuts", [[1], pytest.param([100, 101, 400, 700], marks=pytest.mark.slow)], ids=str)
def test_terms_are_the_same_however_the_log_is_cut_into_batches(spark, log, decoded, cuts):
    known = spark.createDataFrame([], TERMS.schema)
    for batch in batches(log, decoded, cuts):
        known = spark.createDataFrame(terms.terms_job().rows(batch, known).collect(), TERMS.schema)
    assert rows_by(known, "leadershipTermId") == naive_rows(expected.terms(decoded))


def batches(log, decoded, cuts):
    """The log cut before the entries of the given indexes."""
    positions = [0, *(decoded[index]["position"] for index in cuts), decoded[-1]["endPosition"]]
    return [
        log.where((log.position >= start) & (log.position < end))
        for start, end in itertools.pairwise(positions)
    ]
