"""The table of the log by delta-rs: without Spark, each entry once, and read alike by Spark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import deltalake
import pytest

from cluster import ConfigurationError, LogReader, TimedOut, parse_token
from jobs import as_of, delta_rs, verify
from jobs.command import add_table, options_of, parser
from jobs.delta_rs import APPLICATION, IDENTITY, keep_log
from jobs.delta_table import delta_table, open_table, read
from jobs.log_table import COLUMNS, DELTA_RS, SPARK, WRITER
from jobs.schemas import LOG

# Imports of Spark fail in a process that begins so.
WITHOUT_SPARK = """
import runpy, sys
sys.modules.update(pyspark=None, delta=None, py4j=None)
sys.argv[0] = "log_to_delta"
runpy.run_module("jobs.log_to_delta", run_name="__main__")
"""
IN_THREE = ("--max-bytes-per-trigger", "100k")

pytestmark = pytest.mark.timeout(600)  # Spark starts, on a machine that may be busy


def options(member_dir, table, *arguments):
    made = parser("log_to_delta", "", "")
    add_table(made)
    made.add_argument("--writer", default=DELTA_RS)
    return options_of(made, ["--cluster-dir", member_dir, "--table", str(table), *arguments])


def run(member_dir, table, *arguments):
    keep_log("log_to_delta", options(member_dir, table, *arguments))


def positions(table):
    return deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["position"])["position"].to_pylist()


@pytest.fixture(scope="module")
def small(member_dir, tmp_path_factory):
    """The table after three commits, by a process that has no Spark."""
    table = tmp_path_factory.mktemp("small") / "log"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "--writer", "delta-rs", "--cluster-dir", member_dir,
         "--table", str(table), *IN_THREE],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stderr.splitlines() == [
        "log_to_delta: reading from 0 to 250,144",
        "log_to_delta: version 1, 289 rows, log position 102,528",
        "log_to_delta: version 2, 319 rows, log position 205,088",
        "log_to_delta: version 3, 153 rows, log position 250,144",
        "log_to_delta: done, 761 rows",
    ]
    return table


@pytest.fixture
def table(small, tmp_path) -> Path:
    shutil.copytree(small, tmp_path / "log")
    return tmp_path / "log"


def test_spark_reads_what_delta_rs_wrote_as_it_reads_its_own(spark, small, kept, member_dir):
    ours, sparks = read(spark, str(small)), read(spark, f"{kept}/log")
    assert ours.schema.json() == sparks.schema.json(), "types and comments"
    assert ours.exceptAll(sparks).isEmpty() and ours.count() == sparks.count() == 761
    assert as_of(spark, str(small), 205_088).count() == 289 + 319
    with LogReader.open(dir=member_dir) as reader:
        assert verify.differences(spark, str(small), "log", reader) == []

    detail = delta_table(spark, str(small)).detail().collect()[0]
    assert detail.properties[WRITER] == DELTA_RS
    assert (detail.minReaderVersion, detail.minWriterVersion) == (1, 2), "no table features"
    statistics = json.loads(
        next(
            action["add"]["stats"]
            for line in (small / "_delta_log" / f"{1:020}.json").read_text().splitlines()
            if "add" in (action := json.loads(line))
        )
    )
    assert set(statistics["minValues"]) <= set(LOG.properties["delta.dataSkippingStatsColumns"].split(","))


def test_each_writer_refuses_the_table_of_the_other(spark, small, kept, member_dir):
    with pytest.raises(ConfigurationError, match="is kept by delta-rs; expected one that Spark keeps"):
        open_table(spark, str(small), LOG)
    with pytest.raises(ConfigurationError, match="is kept by spark; expected one that --writer delta-rs"):
        run(member_dir, f"{kept}/log")
    for name in ("log", "sessions"):
        assert delta_table(spark, f"{kept}/{name}").detail().collect()[0].properties[WRITER] == SPARK


def test_a_job_that_dies_at_a_commit_goes_on_where_the_table_ends(member_dir, tmp_path, decoded, monkeypatch):
    table = tmp_path / "log"
    write = deltalake.write_deltalake
    for is_done in (False, True):

        def dying(*arguments, is_done=is_done, **keys):
            if is_done:
                write(*arguments, **keys)
            raise MemoryError("the process is killed here")

        with monkeypatch.context() as patch, pytest.raises(MemoryError):
            patch.setattr(deltalake, "write_deltalake", dying)
            run(member_dir, table, *IN_THREE)
    assert deltalake.DeltaTable(str(table)).transaction_version(APPLICATION) == 102_528
    run(member_dir, table)
    run(member_dir, table)
    assert sorted(positions(table)) == [entry["position"] for entry in decoded]
    assert deltalake.DeltaTable(str(table)).version() == 2, "nothing new is no commit"


def test_of_two_jobs_that_append_the_same_entries_one_has_the_commit(
    member_dir, tmp_path, decoded, monkeypatch
):
    table, write = tmp_path / "log", deltalake.write_deltalake
    others = [None]

    def after_another(*arguments, **keys):
        if others:
            others.pop()
            run(member_dir, table, *IN_THREE)
        write(*arguments, **keys)

    monkeypatch.setattr(deltalake, "write_deltalake", after_another)
    run(member_dir, table, *IN_THREE)
    assert sorted(positions(table)) == [entry["position"] for entry in decoded]


def test_a_table_of_another_log_and_one_beyond_the_log_are_refused(member_dir, table, monkeypatch):
    monkeypatch.setattr(delta_rs, "BEHIND_TIMEOUT_S", 0)
    metadata = deltalake.DeltaTable(str(table))
    identity = metadata.metadata().configuration[IDENTITY]
    metadata.alter.set_table_properties({IDENTITY: "7:1:1"}, raise_if_not_exists=False)
    with pytest.raises(ConfigurationError, match=f"is of cluster 7:1:1, this log of {identity}"):
        run(member_dir, table)

    metadata.alter.set_table_properties({IDENTITY: identity}, raise_if_not_exists=False)
    beyond = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(APPLICATION, 250_176)])
    nothing = metadata.to_pyarrow_table().slice(0, 0)
    deltalake.write_deltalake(metadata, nothing, mode="append", commit_properties=beyond)
    with pytest.raises(TimedOut, match=r"position 250176 .* committed up to 250144"):
        run(member_dir, table)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--checkpoint", "c"), "--checkpoint is given; --writer delta-rs has none"),
        (("--conf", "a=b"), "--conf is given; --writer delta-rs has none"),
        (
            ("--option", "entryTypes=TIMER"),
            "option entryTypes is not one of --writer delta-rs; expected endpoints,",
        ),
        (("--max-entries-per-trigger", "5"), "option maxEntriesPerTrigger is not one of --writer delta-rs"),
        (("--table", "a.b"), "--table is a.b, a name of Spark's catalog; --writer delta-rs takes a path"),
    ],
)
def test_what_only_spark_can_do_is_refused(member_dir, table, arguments, said):
    with pytest.raises(ConfigurationError) as refused:
        run(member_dir, table, *arguments)
    assert said in str(refused.value)


def test_the_missing_package_is_named_with_the_extra(member_dir, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pyspark-cluster\[delta-rs\]'"):
        run(member_dir, tmp_path / "log")


def test_with_an_interval_it_goes_on_until_it_is_stopped(member_dir, tmp_path, monkeypatch):
    waited = []

    class Interrupted:
        def is_set(self):
            return len(waited) == 3

        def wait(self, seconds):
            waited.append(seconds)
            return self.is_set()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(delta_rs, "interrupts", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(member_dir, tmp_path / "log", "--trigger", "200 ms")
    assert waited == [0.2, 0.2, 0.2]
    assert len(positions(tmp_path / "log")) == 761


def test_commits_say_how_far_they_go_and_columns_have_comments(small):
    table = deltalake.DeltaTable(str(small))
    tokens = [parse_token(commit["userMetadata"]) for commit in table.history() if "userMetadata" in commit]
    assert [token.position for token in tokens] == [250_144, 205_088, 102_528]
    assert {token.cluster for token in tokens} == {table.metadata().configuration[IDENTITY]}
    assert {field.name: field.metadata["comment"] for field in table.schema().fields} == COLUMNS
