"""Tables that are verified, rebuilt and compacted."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from pyspark.sql import functions as f

import jobs.delta_table
from benchmarks.real_members import await_that
from cluster import ClusterError, ConfigurationError, LogReader
from jobs import as_of, maintenance, rebuild, upkeep, verify
from jobs.delta_table import Commit, append, delta_table, latest_version, merge, overwrite, read, retried
from jobs.history import newest_version, versions
from jobs.log_to_delta import log_job
from jobs.maintenance import retained
from jobs.sessions import ON_MATCH
from jobs.tables import TABLES, tables_in
from tests.jobs.conftest import keep_all, rows_by

pytestmark = pytest.mark.timeout(600)  # queries that start, on a machine that may be busy

SESSION = "clusterSessionId"


@pytest.fixture
def reader(member_dir):
    with LogReader.open(dir=member_dir) as reader:
        yield reader


@pytest.fixture
def run_main(spark, monkeypatch, capsys):
    """A function: what the main of a job says, and to which status it comes."""
    monkeypatch.setattr("jobs.session.spark_session", lambda *_: spark)

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", ["job", *arguments])
        try:
            module.main()
        finally:
            said.extend(capsys.readouterr().err.splitlines())

    said = run.said = []
    return run


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_its_job_kept_is_as_the_log_says(spark, kept, reader, name):
    table = f"{kept}/{name}"
    assert verify.differences(spark, table, tables_in(kept)[table], reader) == []


@pytest.mark.parametrize(
    "name, change",
    [
        ("log", {"payload": "CASE WHEN position = 960 THEN X'00' ELSE payload END"}),
        pytest.param(
            "log",
            {"clusterTime": "clusterTime + CASE WHEN position = 0 THEN 1 ELSE 0 END"},
            marks=pytest.mark.slow,
        ),
        pytest.param("sessions", {"openPosition": "openPosition + 32"}, marks=pytest.mark.slow),
        ("sessions", {"closePosition": "closePosition + 32"}),
        ("timers", {"firedPosition": "firedPosition + 32"}),
        ("leadership_terms", {"leaderMemberId": "leaderMemberId + 1"}),
        pytest.param("leadership_terms", {"startPosition": "startPosition + 32"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_one_wrong_value_makes_another_hash(spark, kept, decoded, name, change):
    first = next(entry["position"] for entry in decoded if entry["entryType"] == "SESSION_MESSAGE")
    wrong = {column: f.expr(value.replace("960", str(first))) for column, value in change.items()}
    rows = read(spark, f"{kept}/{name}")
    right, found = verify.of_table(name, rows, 0), verify.of_table(name, rows.withColumns(wrong), 0)
    assert {figure for figure in right if right[figure] != found[figure]} == {"hash"}


def test_a_table_is_compared_as_far_as_it_went_when_its_job_goes_on(spark, kept, reader, monkeypatch):
    table = f"{kept}/log"
    before, _ = versions(spark, table)
    monkeypatch.setattr(verify, "latest_version", lambda *_: before.version)
    assert verify.differences(spark, table, log_job(), reader) == []


def test_a_table_of_another_log_is_not_compared_and_named(kept, member_dir, run_main, monkeypatch):
    monkeypatch.setattr("spark_connector.log.SourceLog.cluster", "7:1:1")
    with pytest.raises(ConfigurationError, match=rf"table {kept}/log is of .* what is read is cluster 7:1:1"):
        run_main(verify, "--cluster-dir", member_dir, "--tables", kept)


def test_a_table_of_another_log_is_not_rebuilt_and_named(spark, place, member_dir, monkeypatch):
    monkeypatch.setattr("spark_connector.log.SourceLog.cluster", "7:1:1")
    table = f"{place}/timers"
    with pytest.raises(ConfigurationError, match=rf"table {table} is of .* what is read is cluster 7:1:1"):
        rebuild.rebuild(spark, table, tables_in(place)[table], {"clusterDir": member_dir})


def test_rows_that_are_missing_or_doubled_are_found_and_end_the_job_with_an_error(
    kept, member_dir, run_main, monkeypatch
):
    def damaged(spark, table, *version):
        rows = read(spark, table, *version)
        if table == f"{kept}/log":
            return rows.union(rows.where("entryType = 'TIMER'"))
        return rows.where(f"{SESSION} != 1") if table == f"{kept}/sessions" else rows

    monkeypatch.setattr(verify, "read", damaged)
    with pytest.raises(ClusterError, match=r"figures of the tables are not as the Log says"):
        run_main(verify, "--cluster-dir", member_dir, "--tables", kept, "--only", "log,sessions,timers")
    (line,) = (line for line in run_main.said if line.startswith(f"{kept}/log: rows is "))
    assert ", in the Log up to 250,144 " in line
    assert any(line.startswith(f"{kept}/sessions: opened is ") for line in run_main.said)
    assert f"{kept}/timers: as the Log says" in run_main.said


@pytest.mark.slow
@pytest.mark.conformance("P-105")
@pytest.mark.parametrize("names", [["timers"], [*TABLES]], ids=len)
def test_a_rebuilt_table_is_as_before_and_its_job_goes_on(
    spark, place, kept_rows, member_dir, run_main, names
):
    """That of timers has some columns and entries, and what only snapshots say."""
    tables = {f"{place}/{name}": tables_in(place)[f"{place}/{name}"] for name in names}
    for table in tables:
        delta_table(spark, table).delete()
    run_main(rebuild, "--cluster-dir", member_dir, "--tables", place, "--only", ",".join(names))

    assert run_main.said == [f"{place}/{name}: rebuilt up to log position 250,144" for name in names]
    for table, job in tables.items():
        rebuilt = as_of(spark, table, 250_144)
        assert rows_by(rebuilt, job.layout.key) == kept_rows[job.layout.name]
        assert newest_version(spark, table).version == latest_version(spark, table)
    timers = f"{place}/timers"
    said = keep_all(spark, member_dir, place, {timers: tables[timers]})
    assert said == ["tables: done, 0 rows"]


@pytest.mark.slow
def test_a_table_that_is_written_to_while_it_is_rebuilt_is_an_error(spark, place, member_dir, monkeypatch):
    table = f"{place}/timers"
    job = tables_in(place)[table]

    def not_alone(rows, table, token):
        append(read(spark, table).limit(0), table, Commit("its job", 0, token))
        overwrite(rows, table, token)

    monkeypatch.setattr(rebuild, "overwrite", not_alone)
    with pytest.raises(ClusterError, match="was written to while it was rebuilt: stop its job"):
        rebuild.rebuild(spark, table, job, {"clusterDir": member_dir})


@pytest.mark.slow
@pytest.mark.parametrize("names", [["log"], ["log", "sessions"]], ids=len)
def test_maintenance_makes_few_files_of_many_and_changes_no_row(spark, place, run_main, names):
    before = {name: read(spark, f"{place}/{name}").count() for name in names}
    assert len(read(spark, f"{place}/log").inputFiles()) == 2
    run_main(maintenance, "--tables", place, "--only", ",".join(names))
    assert run_main.said[0] == f"{place}/log: 2 files made into 1, versions older than 168 hours deleted"
    assert {name: read(spark, f"{place}/{name}").count() for name in before} == before
    assert len(read(spark, f"{place}/log").inputFiles()) == 1
    assert newest_version(spark, f"{place}/log").position == 250_144


@pytest.mark.conformance("P-106")
@pytest.mark.parametrize(
    "excluded", ["ConcurrentDeleteReadException", "MetadataChangedException", "ProtocolChangedException"]
)
def test_a_commit_that_another_one_excludes_is_made_again_a_few_times(excluded):
    from delta import exceptions

    error = getattr(exceptions, excluded)

    def commit():
        attempts.append(1)
        if len(attempts) < fails_until:
            raise error("another commit was first")
        return "done"

    attempts, fails_until = [], 3
    assert retried(commit) == "done" and len(attempts) == 3
    attempts, fails_until = [], 100
    with pytest.raises(error):
        retried(commit)
    assert len(attempts) == 5


class Compacting(threading.Thread):
    """Runs OPTIMIZE over a table once a file says that a merge is under way; another says that it is done."""

    def __init__(self, spark, table, folder):
        super().__init__()
        self.spark, self.table = spark, table
        self.merging, self.compacted = folder / "merging", folder / "compacted"

    def run(self):
        await_that(self.merging.exists, "the merge reads its rows", within_s=120)
        delta_table(self.spark, self.table).optimize().executeCompaction()
        self.compacted.touch()

    def delaying(self):
        """What hands rows on once the table is compacted."""
        merging, compacted = self.merging, self.compacted

        def handed_on(batches):
            merging.touch()
            until = time.monotonic() + 240
            while not compacted.exists() and time.monotonic() < until:
                time.sleep(0.05)
            yield from batches

        return handed_on


@pytest.mark.slow
@pytest.mark.conformance("P-106")
def test_a_merge_during_which_its_table_is_compacted_is_made_again(spark, place, tmp_path, monkeypatch):
    """It adds three messages to each session."""
    table, merges = f"{place}/sessions", []
    read(spark, table).repartition(3).write.format("delta").mode("overwrite").save(table)
    assert delta_table(spark, table).detail().first().numFiles > 1, "there is nothing to compact"
    known = read(spark, table)
    expected = {key: row | {"messages": row["messages"] + 3} for key, row in rows_by(known, SESSION).items()}
    more = known.withColumns({"messages": f.lit(3).cast("bigint"), "bytes": f.lit(0).cast("bigint")})
    compacting = Compacting(spark, table, tmp_path)
    original = jobs.delta_table._merge
    monkeypatch.setattr(jobs.delta_table, "_merge", lambda *given: (merges.append(1), original(*given)))

    compacting.start()
    updates = more.coalesce(1).mapInArrow(compacting.delaying(), more.schema)
    merge(updates, table, SESSION, ON_MATCH, Commit("its job", 7, "{}"))
    compacting.join()

    commits = [row.operation for row in delta_table(spark, table).history(2).select("operation").collect()]
    assert commits == ["MERGE", "OPTIMIZE"]
    assert len(merges) == 2, "the first one met the other's commit"
    assert rows_by(read(spark, table), SESSION) == expected


@pytest.mark.parametrize("hours", ["1", "167.9", "-200", "a week", ""])
def test_versions_that_are_still_read_are_kept(hours):
    with pytest.raises(ConfigurationError, match=rf"--retain-hours is '{hours}'; expected 168 at least"):
        retained(hours)


def test_tables_that_are_not_there_are_named(spark, tmp_path):
    made = upkeep.parser("verify", "", "")
    here = ["--tables", str(tmp_path)]
    with pytest.raises(ConfigurationError, match=f"none of the Delta tables log, timers in {tmp_path}"):
        upkeep.tables_meant(spark, made.parse_args([*here, "--only", "log,timers"]))
    with pytest.raises(ConfigurationError, match="--only names 'logs'; expected some of log, sessions"):
        upkeep.tables_meant(spark, made.parse_args([*here, "--only", "logs"]))
