"""The query that keeps tables, with Spark played: where it begins."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from jobs import history, keeping
from jobs.history import Recent
from jobs.sessions import sessions_job
from jobs.terms import terms_job


class Query:
    """The stream of the log: with which options it is read."""

    @property
    def writeStream(self):
        return self

    def foreachBatch(self, take):
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
