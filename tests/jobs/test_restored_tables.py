"""Tables that somebody brings back to an earlier version: no position outlives the rows that it describes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil

import deltalake
import pytest

from cluster import ConfigurationError, LogReader
from jobs import delta_rs, verify
from jobs.command import JobOptions
from jobs.delta_table import read
from jobs.history import Recent, gap, position_of, replaced_by
from jobs.keeping import keep
from jobs.tables import tables_in
from tests.jobs.without_spark import IN_THREE, rows, run

pytestmark = pytest.mark.timeout(600)


def said(number, operation="WRITE", position=None, begin=None, **parameters):
    token = {"v": 2, "cluster": None, "position": position} | ({} if begin is None else {"from": begin})
    return Recent(number, operation, parameters, None if position is None else json.dumps(token))


def test_a_position_holds_until_a_restore_and_from_then_on_that_of_the_restored_version():
    commits = [said(2, position=200), said(1, position=100), said(0, "CREATE TABLE")]
    assert position_of([said(3, "OPTIMIZE"), *commits]) == 200
    assert position_of([said(4, "OPTIMIZE"), said(3, "RESTORE", version="1"), *commits]) == 100
    assert position_of([said(3, "RESTORE", version="0"), *commits]) is None
    twice = [said(4, "RESTORE", version="3"), said(3, "RESTORE", version="1"), *commits]
    assert position_of(twice) == 100
    for unknown in (
        said(3, "RESTORE", timestamp="2026-01-01"),
        said(3, "CLONE", sourceVersion="7"),
        said(3, "CREATE OR REPLACE TABLE AS SELECT"),
        said(3, mode="Overwrite"),
    ):
        assert position_of([unknown, *commits]) is None
        assert replaced_by([unknown, *commits]) == f"{unknown.operation} (version 3)"
    assert position_of([said(3, position=150, mode="Overwrite"), *commits]) == 150, "rebuilt by a job"
    assert replaced_by([said(3, "OPTIMIZE"), *commits]) == "", "the rows are the same"


def test_a_commit_that_did_not_know_of_a_restore_before_it_left_a_gap():
    restored = [said(3, "RESTORE", version="1"), said(2, position=200), said(1, position=100)]
    assert gap([said(4, position=300, begin=200), *restored]) == (100, 200)
    assert gap([said(4, position=300, begin=100), *restored]) is None
    assert gap([said(3, position=300, begin=200), *restored[1:]]) is None
    assert gap([said(4, position=300), *restored]) is None, "an earlier release does not say where it began"


@pytest.mark.parametrize("name", ["log", "sessions", "timers", "leadership_terms"])
@pytest.mark.parametrize("to", ["a version", "the empty one", "a time"])
def test_after_a_restore_delta_rs_goes_on_where_the_restored_rows_end(small, member_dir, tmp_path, name, to):
    shutil.copytree(small / name, tmp_path / name)
    table = deltalake.DeltaTable(str(tmp_path / name))
    if to == "a time":
        at = next(commit["timestamp"] for commit in table.history() if commit["version"] == 1)
        table.restore(dt.datetime.fromtimestamp((at + 1) / 1000, dt.UTC))
    else:
        table.restore(1 if to == "a version" else 0)
    assert len(rows(tmp_path / name)) < len(rows(small / name)) or name != "log"
    run(member_dir, tmp_path / name, *IN_THREE)
    run(member_dir, tmp_path / name)
    assert rows(tmp_path / name) == rows(small / name)


@pytest.mark.parametrize("name", ["log", "sessions"])
def test_a_restore_while_delta_rs_writes_leaves_no_gap(small, member_dir, tmp_path, monkeypatch, name):
    calls, function = [], "_append" if name == "log" else "_merge"
    write = getattr(delta_rs, function)

    def restored_meanwhile(*arguments):
        calls.append(1)
        if len(calls) == 3:
            deltalake.DeltaTable(str(tmp_path / name)).restore(1)
        return write(*arguments)

    monkeypatch.setattr(delta_rs, function, restored_meanwhile)
    run(member_dir, tmp_path / name, *IN_THREE)
    assert len(calls) == 5, "the third commit is excluded, and two are made from where the table goes to"
    assert rows(tmp_path / name) == rows(small / name)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["between two batches", "at the commit of a batch"])
def test_a_restore_while_sparks_job_runs_ends_it_and_refuses_later_starts(spark, member_dir, tmp_path, when):
    place = str(tmp_path)
    table = next(table for table, job in tables_in(place).items() if job.layout.name == "log")
    job = tables_in(place)[table]
    restore = f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 1"

    def update(entries, table, commit, found):
        if commit.batch == 2 and when == "at the commit of a batch":
            spark.sql(restore).collect()  # behind the job's last look at the table
        job.update(entries, table, commit, found)
        if commit.batch == 1 and when == "between two batches":
            spark.sql(restore).collect()

    def keep_three(tables):
        source = {"clusterDir": member_dir, "maxEntriesPerTrigger": "300"}
        keep(spark, "tables", tables, JobOptions.over(source, place, lambda _: None))

    jobs = {table: dataclasses.replace(job, update=update)}
    wrong = r"had its rows replaced by RESTORE \(version 3\)"
    if when == "between two batches":
        with pytest.raises(Exception, match=wrong):
            keep_three(jobs)
        assert read(spark, table).count() == 300, "the batch after it was not taken"
    else:
        keep_three(jobs)
        wrong = "lacks .* of the Log, since a RESTORE between two batches; expected a table without a gap"
    with pytest.raises(ConfigurationError, match=wrong):
        keep_three({table: job})
    shutil.rmtree(f"{place}/_checkpoint")
    if when == "between two batches":
        keep_three({table: job})
        assert read(spark, table).count() == 761
        with LogReader.open(dir=member_dir) as reader:
            assert verify.differences(spark, table, "log", reader) == []
        return
    with pytest.raises(ConfigurationError, match=wrong):
        keep_three({table: job})
    with LogReader.open(dir=member_dir) as reader:
        assert any("rows is 461" in line for line in verify.differences(spark, table, "log", reader))
