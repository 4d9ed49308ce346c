"""Tables that somebody brings back to an earlier version: no position outlives the rows that it describes."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from types import SimpleNamespace

import deltalake
import pytest

from cluster import ConfigurationError, LogReader
from jobs import delta_rs, history, verify
from jobs.command import JobOptions, checkpoint_in
from jobs.delta_table import read
from jobs.history import RECENT, Recent, replaced_by, token_of, unseen, versions
from jobs.keeping import keep
from jobs.log_to_delta import log_job
from jobs.tables import tables_in
from tests.jobs.conftest import rows_of, updated_by
from tests.jobs.without_spark import IN_THREE, rows, run
from tests.spark.logs import open_log

pytestmark = pytest.mark.timeout(600)


def said(number, operation="WRITE", position=None, seen=None, **parameters):
    token = {"v": 2, "cluster": None, "position": position} | ({} if seen is None else {"seen": seen})
    return Recent(number, operation, parameters, None if position is None else json.dumps(token))


def position_of(commits):
    token = token_of(commits)
    return None if token is None else token.position


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


def test_a_commit_that_did_not_know_of_what_came_before_it_is_found():
    before = [said(2, position=200, seen=1), said(1, position=100, seen=0), said(0, "CREATE TABLE")]
    for operation, parameters in {
        "RESTORE": {"timestamp": "2026-01-01"},
        "CLONE": {"sourceVersion": "7"},
        "CREATE OR REPLACE TABLE AS SELECT": {},
        "WRITE": {"mode": "Overwrite"},
        "MERGE": {"position": 250, "seen": 2},
    }.items():
        others = [said(3, operation, **parameters), *before]
        assert unseen([said(4, position=300, seen=3), *others]) == ""
        wrong = [said(4, position=300, seen=2), *others]
        assert unseen(wrong) == unseen([said(5, "OPTIMIZE"), *wrong]) == f"{operation} (version 3)"
        assert unseen([said(5, position=400, seen=4), *wrong]) == "", "which the look before it has refused"
        assert unseen([said(5, "RESTORE", version="2"), *wrong]) == "", "as it was before"
        assert unseen([said(5, "RESTORE", version="4"), *wrong]) == f"{operation} (version 3)"
    assert unseen([said(4, position=300, seen=2), said(3, "OPTIMIZE"), *before]) == ""
    assert unseen([said(4, position=300), said(3, "RESTORE", version="1"), *before]) == "", "it does not say"


def test_what_replaced_rows_is_found_through_any_number_of_other_commits(monkeypatch):
    commits = [said(n, "OPTIMIZE") for n in range(2 * RECENT, 3, -1)]
    commits += [said(3, "RESTORE", version="1"), said(2, position=200, seen=1), said(1, position=100, seen=0)]
    table = SimpleNamespace(history=lambda count=None: Rows(commits[:count]))
    monkeypatch.setattr(history, "delta_table", lambda *_: table)
    with pytest.raises(ConfigurationError, match=r"had its rows replaced by RESTORE \(version 3\)"):
        history.check_rows_are_its_own(None, "t", 2, 200, "its own rows")
    later = [said(3 * RECENT, position=150), *commits]
    table.history = lambda count=None: Rows(later[:count])
    assert history.newest_version(None, "t").version == 3 * RECENT, "and not one from before the RESTORE"


def test_a_table_that_was_made_anew_under_its_job_is_not_taken_for_the_one_before(monkeypatch):
    """apache/doris#67443: a stream stayed healthy over a table that was dropped and made again."""
    monkeypatch.setattr(history, "recent", lambda *_: [said(0, "CREATE TABLE")])
    assert history.check_rows_are_its_own(None, "t", 0, 0, "its own rows") == (0, 0)
    with pytest.raises(
        ConfigurationError, match="t is another one, at version 0, and was at 1; expected its own"
    ):
        history.check_rows_are_its_own(None, "t", 0, 200, "its own rows", least=1)


class Rows(list):
    """Commits as Delta's history has them."""

    def select(self, *_):
        return self

    def collect(self):
        return [
            SimpleNamespace(
                version=commit.version,
                operation=commit.operation,
                operationParameters=commit.parameters,
                userMetadata=commit.user_metadata,
            )
            for commit in self
        ]


def restore_to_time_of(version, table):
    """Commits of such a RESTORE do not say which version it was."""
    at = next(commit["timestamp"] for commit in table.history() if commit["version"] == version)
    table.restore(dt.datetime.fromtimestamp((at + 1) / 1000, dt.UTC))


@pytest.mark.parametrize("name", ["log", "sessions", "timers", "leadership_terms"])
@pytest.mark.parametrize("to", ["a version", "the empty one", "a time"])
def test_after_a_restore_delta_rs_goes_on_where_the_restored_rows_end(small, member_dir, tmp_path, name, to):
    shutil.copytree(small / name, tmp_path / name)
    table = deltalake.DeltaTable(str(tmp_path / name))
    if to == "a time":
        restore_to_time_of(1, table)
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


def test_a_restore_while_delta_rs_rests_is_seen_at_its_next_look(small, member_dir, tmp_path, monkeypatch):
    class Rests:
        looks = 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def is_set(self):
            return self.looks == 2

        def wait(self, seconds):
            self.looks += 1
            if self.looks == 1:
                restore_to_time_of(1, deltalake.DeltaTable(str(tmp_path / "log")))
            return self.is_set()

    monkeypatch.setattr(delta_rs, "interrupts", Rests)
    with pytest.raises(KeyboardInterrupt):
        run(member_dir, tmp_path / "log", *IN_THREE, "--trigger", "1 s")
    assert rows(tmp_path / "log") == rows(small / "log")


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

    jobs = {table: updated_by(job, update)}
    wrong = r"had its rows replaced by RESTORE \(version 3\)"
    if when == "between two batches":
        with pytest.raises(Exception, match=wrong):
            keep_three(jobs)
        assert read(spark, table).count() == 300, "the batch after it was not taken"
    else:
        keep_three(jobs)
        wrong = r"RESTORE \(version 3\) came while its job made a commit; expected a table that one job keeps"
    with pytest.raises(ConfigurationError, match=wrong):
        keep_three({table: job})
    shutil.rmtree(f"{place}/_checkpoint")
    if when == "between two batches":
        keep_three({table: job})
        assert read(spark, table).count() == 761
        with LogReader.open(dir=member_dir) as reader:
            assert verify.differences(spark, table, log_job(), reader) == []
        return
    with pytest.raises(ConfigurationError, match=wrong):
        keep_three({table: job})
    with LogReader.open(dir=member_dir) as reader:
        assert any("rows is 461" in line for line in verify.differences(spark, table, log_job(), reader))


@pytest.mark.slow
def test_each_batch_is_a_commit_of_each_table_even_where_it_has_nothing_for_it(
    spark, member_dir, tmp_path, kept_rows, decoded
):
    """So a table that goes less far than the batch before has lost it."""
    source = {"clusterDir": member_dir, "maxEntriesPerTrigger": "100"}
    keep(spark, "tables", tables_in(str(tmp_path)), JobOptions.over(source, str(tmp_path), lambda _: None))
    ends = [entry["endPosition"] for entry in [*decoded[99::100], decoded[-1]]]
    for table in tables_in(str(tmp_path)):
        assert [version.position for version in versions(spark, table)] == ends
    assert rows_of(spark, str(tmp_path)) == kept_rows


@pytest.mark.slow
@pytest.mark.parametrize("what", ["table", "checkpoint"])
def test_a_table_and_a_checkpoint_of_different_times_are_refused(spark, tmp_path, what):
    """As of a backup, or after a power cut: Delta passes over batches by their numbers."""
    log, session_id = open_log(tmp_path / "log")
    table, copy = str(tmp_path / "table"), tmp_path / "copy"

    def keep_on(entries):
        source = {"clusterDir": str(log.directory), "maxEntriesPerTrigger": str(entries)}
        keep(spark, "log", {table: log_job()}, JobOptions.over(source, table, lambda _: None))

    def is_other(folder, names):
        return [
            name for name in names if folder == table and (name == "_checkpoint") != (what == "checkpoint")
        ]

    log.lines(session_id, 0, 18)
    keep_on(10)
    shutil.copytree(table, copy, ignore=is_other)
    log.lines(session_id, 18, 20)
    keep_on(5)
    for path in copy.iterdir():
        shutil.rmtree(f"{table}/{path.name}", ignore_errors=True)
    shutil.copytree(copy, table, dirs_exist_ok=True)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    log.lines(session_id, 38, 40)
    log.stop()
    for _ in range(2):
        with pytest.raises(Exception, match=r"goes to position .* of the Log, and its checkpoint on from"):
            keep_on(20)
    shutil.rmtree(checkpoint_in(table))
    keep_on(20)
    with LogReader.open(dir=str(log.directory)) as reader:
        assert verify.differences(spark, table, log_job(), reader) == []
    assert read(spark, table).count() == 80
