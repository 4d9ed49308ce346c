"""What the jobs compute, on a real log, against a plain reading of the same log."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from jobs import sessions, terms, timers
from jobs.delta_table import Commit, merge, open_table, read
from jobs.schemas import SESSIONS, TERMS, TIMERS
from tests.jobs.conftest import expected_sessions, naive, rows_by

pytestmark = pytest.mark.timeout(300)

CASES = [
    (sessions.sessions, SESSIONS),
    (timers.timers, TIMERS),
]


def of_type(decoded, entry_type):
    return [entry for entry in decoded if entry["entryType"] == entry_type]


@pytest.mark.conformance("P-101")
def test_every_session_of_a_real_log_has_its_row(log, decoded):
    found = rows_by(sessions.sessions(log), "clusterSessionId")
    expected = expected_sessions(decoded)
    assert found.keys() == expected.keys()
    for session_id, row in expected.items():
        assert {column: found[session_id][column] for column in row} == row


def test_messages_of_services_to_their_own_cluster_open_no_session(log, decoded):
    assert any(entry.get("clusterSessionId", 0) < 0 for entry in decoded)
    assert all(row.clusterSessionId >= 0 for row in sessions.sessions(log).collect())


def test_every_timer_that_fired_has_its_row(log, decoded):
    fired = of_type(decoded, "TIMER")
    found = rows_by(timers.timers(log), "correlationId")
    counts = Counter(entry["correlationId"] for entry in fired)
    last = {entry["correlationId"]: entry for entry in fired}
    assert fired and {key: row["firings"] for key, row in found.items()} == counts
    for key, entry in last.items():
        assert found[key]["firedPosition"] == found[key]["lastPosition"] == entry["position"]
        assert found[key]["firedAt"] == naive(entry["timestamp"])
        assert found[key]["firedTermId"] == entry["leadershipTermId"]
        assert (found[key]["state"], found[key]["deadline"]) == ("FIRED", None)


def test_terms_have_leader_length_and_duration(spark, log, decoded):
    known = spark.createDataFrame([], TERMS.schema)
    found = rows_by(terms.terms(known, log), "leadershipTermId")
    openings = of_type(decoded, "NEW_LEADERSHIP_TERM")
    assert len(openings) > 1 and found.keys() == {entry["leadershipTermId"] for entry in openings}
    for entry in openings:
        of_term = [e for e in decoded if e["leadershipTermId"] == entry["leadershipTermId"]]
        row = found[entry["leadershipTermId"]]
        assert row["leaderMemberId"] == entry["leaderMemberId"]
        assert row["termBaseLogPosition"] == entry["termBaseLogPosition"]
        assert row["startPosition"] == entry["position"]
        assert row["length"] == of_term[-1]["endPosition"] - entry["termBaseLogPosition"]
        assert row["durationMs"] == of_term[-1]["clusterTime"] - entry["clusterTime"]
        assert row["entries"] == len(of_term)
        assert row["state"] == ("CURRENT" if entry is openings[-1] else "ENDED")


@pytest.mark.parametrize("transform,layout", CASES, ids=["sessions", "timers"])
def test_a_transform_delivers_the_columns_of_its_table(log, transform, layout):
    made = transform(log).schema
    assert [(f.name, f.dataType) for f in made] == [(f.name, f.dataType) for f in layout.schema]


@pytest.mark.slow
@pytest.mark.conformance("P-101", "P-105")
def test_sessions_and_timers_are_the_same_however_the_log_is_cut_into_batches(spark, log, decoded, table):
    for job in (sessions.sessions_job(), timers.timers_job()):
        path = f"{table}-{job.layout.key}"
        open_table(spark, path, job.layout)
        for number, batch in enumerate(batches(log, decoded, [3, 101, 400])):
            job.update(batch, path, Commit("a query", number, "{}"), [])
        function = dict(zip(("sessions", "timers"), (sessions.sessions, timers.timers)))[job.name]
        assert rows_by(read(spark, path), job.layout.key) == rows_by(function(log), job.layout.key)


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
    assert found == rows_by(sessions.sessions(log), SESSIONS.key)
    closed = found[decoded[close]["clusterSessionId"]]
    assert closed["state"] == "CLOSED" and closed["openPosition"] is not None


@pytest.mark.conformance("P-99")
def test_a_batch_that_is_merged_again_changes_nothing(spark, log, table):
    open_table(spark, table, SESSIONS)
    for _ in range(2):
        merge(sessions.sessions(log), table, SESSIONS.key, sessions.ON_MATCH, Commit("a query", 0, "a token"))
    assert rows_by(read(spark, table), SESSIONS.key) == rows_by(sessions.sessions(log), SESSIONS.key)
    for setting in ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata"):
        assert spark.conf.get(f"spark.databricks.delta.{setting}", None) is None


@pytest.mark.slow
def test_another_query_is_not_taken_for_the_one_whose_batch_numbers_it_repeats(spark, log, decoded, table):
    first, second = batches(log, decoded, [100])
    job = timers.timers_job()
    open_table(spark, table, job.layout)
    job.update(first, table, Commit("a query", 0, "{}"), [])
    job.update(second, table, Commit("its successor", 0, "{}"), [])
    assert rows_by(read(spark, table), TIMERS.key) == rows_by(timers.timers(log), TIMERS.key)


@pytest.mark.conformance("P-105")
@pytest.mark.parametrize("cuts", [[1], pytest.param([100, 101, 400, 700], marks=pytest.mark.slow)], ids=str)
def test_terms_are_the_same_however_the_log_is_cut_into_batches(spark, log, decoded, cuts):
    empty = known = spark.createDataFrame([], TERMS.schema)
    for batch in batches(log, decoded, cuts):
        updated = terms.terms(known, batch).select(*empty.columns)
        known = spark.createDataFrame(updated.collect(), empty.schema)
    assert rows_by(known, "leadershipTermId") == rows_by(
        terms.terms(empty, log).select(*empty.columns), "leadershipTermId"
    )


def batches(log, decoded, cuts):
    """The log cut before the entries of the given indexes."""
    positions = [0, *(decoded[index]["position"] for index in cuts), decoded[-1]["endPosition"]]
    return [
        log.where((log.position >= start) & (log.position < end))
        for start, end in itertools.pairwise(positions)
    ]
