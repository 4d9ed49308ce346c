"""The query that keeps tables, with Spark played: where it begins, and what a batch that failed leaves."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from cluster import PositionToken
from jobs import history, keeping
from jobs.history import Recent
from jobs.schemas import SNAPSHOT
from jobs.sessions import sessions_job
from jobs.terms import terms_job
from jobs.timers import timers_job


class Batch:
    """A DataFrame of which nothing is asked."""

    sparkSession = None

    def __getitem__(self, column):
        return 0

    def where(self, condition):
        return self

    def persist(self):
        return self

    unpersist = persist


class Query:
    """The stream of the log: with which options it is read, and what takes its batches."""

    @property
    def writeStream(self):
        return self

    def foreachBatch(self, take):
        self.take = take
        return self

    def option(self, name, value):
        return self


@pytest.fixture
def spark(monkeypatch):
    """Tables by name: how far their rows go, and their commits, newest first."""
    played = SimpleNamespace(rows={}, commits={}, query=Query(), source={})

    def read_log(spark, source, columns):
        played.source |= source
        return played.query

    log = SimpleNamespace(cluster=None, other_history=lambda token: None)
    monkeypatch.setattr(keeping, "SourceLog", lambda options: log)
    monkeypatch.setattr(keeping, "read_log", read_log)
    monkeypatch.setattr(keeping, "_check_none_is_short", lambda *_: None)
    monkeypatch.setattr(keeping, "open_table", lambda spark, table, layout: played.rows[table])
    monkeypatch.setattr(keeping, "latest_version", lambda *_: 1)
    monkeypatch.setattr(history, "recent", lambda spark, table, count=None: played.commits[table])
    return played


def commit(position=None):
    return Recent(1, "MERGE", {}, None if position is None else json.dumps({"v": 2, "position": position}))


def begins(spark, **tables):
    """Where the query begins over tables of which rows and commits go so far."""
    jobs = {"sessions": sessions_job(), "terms": terms_job()}
    spark.rows = {table: rows for table, (rows, _) in tables.items()}
    spark.commits = {table: [commit(goes_to)] for table, (_, goes_to) in tables.items()}
    keeping.keeping(spark, {table: jobs[table] for table in tables}, {"clusterDir": "/log"}, "/checkpoint")
    return spark.source["startingOffsets"]


@pytest.mark.conformance("P-100")
def test_without_a_checkpoint_a_job_begins_where_its_commits_say_that_its_tables_lack_nothing(spark):
    """The newest row is of an entry long before, where only others came since, and the log may be purged."""
    assert begins(spark, sessions=(320, 4096)) == '{"position": 4096}'
    assert begins(spark, sessions=(320, 4096), terms=(96, 2048)) == '{"position": 2048}'
    assert begins(spark, sessions=(None, 4096)) == '{"position": 4096}', "it has no row yet"
    assert begins(spark, sessions=(320, None)) == '{"position": 320}', "as after a RESTORE to a time"
    assert begins(spark, sessions=(None, None)) == "earliest"
    assert begins(spark, sessions=(320, 4096), terms=(None, None)) == "earliest"


def test_a_batch_that_runs_again_after_it_failed_finds_the_timers_of_snapshots_again(spark, monkeypatch):
    positions = [96, 960]

    def pending_timers(snapshots, after, end):
        return [(position, []) for position in positions if after < position <= end]

    found, is_failing = [], True

    def update(self, entries, table, commit, of_snapshots):
        found.append([entry["position"] for entry in of_snapshots if entry["entryType"] == SNAPSHOT])
        if is_failing:
            raise OSError("the disk is full")

    monkeypatch.setattr("spark_connector.snapshots.snapshot_rows.pending_timers", pending_timers)
    monkeypatch.setattr(
        "spark_connector.snapshots.snapshot_copies.snapshots_of",
        lambda options: SimpleNamespace(close=lambda: None),
    )
    monkeypatch.setattr(keeping, "tokens_of_batch", lambda *_: (0, PositionToken(None, 640)))
    monkeypatch.setattr(keeping, "query_id", lambda batch: "q")
    monkeypatch.setattr(keeping, "check_rows_are_its_own", lambda *_: (1, 0))
    monkeypatch.setattr(keeping, "with_entries", lambda entries, found, job: entries)
    monkeypatch.setattr(keeping.TableJob, "update", update)
    spark.rows, spark.commits = {"timers": None}, {"timers": []}
    keeping.keeping(spark, {"timers": timers_job()}, {"clusterDir": "/log"}, "/checkpoint")
    with pytest.raises(OSError, match="disk is full"):
        spark.query.take(Batch(), 0)
    is_failing = False
    spark.query.take(Batch(), 0)
    assert found == [[96], [96]]
    spark.query.take(Batch(), 1)
    assert found[2:] == [[]], "once it is in"
