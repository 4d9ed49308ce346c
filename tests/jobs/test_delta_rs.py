"""The tables by delta-rs: without Spark, each entry once, and read alike by Spark."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import deltalake
import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from cluster import ConfigurationError, LogReader, PositionToken, TimedOut, parse_token
from cluster.errors import LogPurged, StorageError
from jobs import as_of, delta_rs, verify
from jobs.delta_rs import IDENTITY
from jobs.delta_table import delta_table, open_table, read
from jobs.log_to_delta import log_job
from jobs.schemas import DELTA_RS, LOG, SESSIONS, SPARK, WRITER
from tests.jobs.without_spark import IN_THREE, run

pytestmark = pytest.mark.timeout(600)  # Spark starts, on a machine that may be busy


def positions(table):
    return deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["position"])["position"].to_pylist()


@pytest.fixture
def table(small, tmp_path) -> Path:
    shutil.copytree(small / "log", tmp_path / "log")
    return tmp_path / "log"


@pytest.mark.slow
def test_spark_reads_what_delta_rs_wrote_as_it_reads_its_own(spark, small, kept, member_dir):
    small = small / "log"
    ours, sparks = read(spark, str(small)), read(spark, f"{kept}/log")
    assert ours.schema.json() == sparks.schema.json(), "types and comments"
    assert ours.exceptAll(sparks).isEmpty() and ours.count() == sparks.count() == 761
    assert as_of(spark, str(small), 205_088).count() == 289 + 319
    with LogReader.open(dir=member_dir) as reader:
        assert verify.differences(spark, str(small), log_job(), reader) == []

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


@pytest.mark.parametrize("left", ["a file", "a damaged log", "a log without its begin"])
def test_a_table_that_cannot_be_opened_or_made_is_named_in_a_line(member_dir, table, left):
    first = table / "_delta_log" / f"{0:020}.json"
    if left == "a file":
        shutil.rmtree(table)
        table.touch()
    elif left == "a damaged log":
        first.write_text("{bad")
    else:
        first.unlink()
    with pytest.raises(StorageError, match=rf"^{table}: the table cannot be opened or made: ") as said:
        run(member_dir, str(table))
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("name", ["log", "sessions"])
def test_each_writer_refuses_the_table_of_the_other(spark, small, kept, member_dir, name):
    with pytest.raises(ConfigurationError, match="is kept by delta-rs; expected one that Spark keeps"):
        open_table(spark, str(small / name), {"log": LOG, "sessions": SESSIONS}[name])
    with pytest.raises(ConfigurationError, match="is kept by spark; expected one that --writer delta-rs"):
        run(member_dir, f"{kept}/{name}")
    assert delta_table(spark, f"{kept}/{name}").detail().collect()[0].properties[WRITER] == SPARK


@pytest.mark.conformance("P-99")
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
    assert deltalake.DeltaTable(str(table)).transaction_version("cluster.log") == 102_528
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


def test_a_job_that_others_are_always_before_goes_on_after_them(member_dir, tmp_path, decoded, monkeypatch):
    table, write = tmp_path / "log", deltalake.write_deltalake
    depth = [0]

    def after_another(*arguments, **keys):
        if depth[0] == 0:
            depth[0] = 1
            with suppress(KeyboardInterrupt):  # one commit of another job
                run(member_dir, table, *SMALL)
            depth[0] = 0
        write(*arguments, **keys)
        if depth[0] == 1:
            depth[0] = 2
            raise KeyboardInterrupt

    monkeypatch.setattr(deltalake, "write_deltalake", after_another)
    run(member_dir, table, *SMALL)
    assert sorted(positions(table)) == [entry["position"] for entry in decoded]
    assert deltalake.DeltaTable(str(table)).version() > 2 * delta_rs.ATTEMPTS


SMALL = ("--max-bytes-per-trigger", "16k")


@pytest.mark.parametrize("first_by", ["itself", "another job"])
def test_attempts_at_a_part_of_the_log_do_not_count_for_the_next(
    member_dir, tmp_path, decoded, monkeypatch, first_by
):
    table, write, calls = tmp_path / "log", deltalake.write_deltalake, []

    def one_commit(*arguments, **keys):
        write(*arguments, **keys)
        raise KeyboardInterrupt

    def at_the_last_attempt(*arguments, **keys):
        calls.append(1)
        if len(calls) % delta_rs.ATTEMPTS:
            raise CommitFailedError("a commit without entries was first")
        if len(calls) == delta_rs.ATTEMPTS and first_by == "another job":
            with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
                patch.setattr(deltalake, "write_deltalake", one_commit)
                run(member_dir, table, *IN_THREE)
        write(*arguments, **keys)

    monkeypatch.setattr(deltalake, "write_deltalake", at_the_last_attempt)
    run(member_dir, table, *IN_THREE)
    assert sorted(positions(table)) == [entry["position"] for entry in decoded]
    assert len(calls) == 3 * delta_rs.ATTEMPTS


def test_a_table_that_another_job_makes_meanwhile_has_each_entry_once(
    member_dir, tmp_path, decoded, monkeypatch
):
    table, made, others = tmp_path / "log", delta_rs._Keeper._made, [None]

    def after_another(keeper):
        if others:
            others.pop()
            run(member_dir, table, *IN_THREE)
        return made(keeper)

    monkeypatch.setattr(delta_rs._Keeper, "_made", after_another)
    run(member_dir, table)
    assert sorted(positions(table)) == [entry["position"] for entry in decoded]


def test_how_far_a_table_goes_is_known_behind_commits_of_others(member_dir, table, monkeypatch):
    """Its rows do not say the leadership term."""
    deltalake.DeltaTable(str(table)).optimize.compact()
    monkeypatch.setattr(deltalake.DeltaTable, "to_pyarrow_table", None)
    run(member_dir, table)
    assert deltalake.DeltaTable(str(table)).version() == 4


def test_the_commits_of_a_table_are_read_once_to_see_where_it_goes_on(member_dir, table, monkeypatch):
    recent, counts = delta_rs._recent, []
    monkeypatch.setattr(delta_rs, "_recent", lambda *given: counts.append(given[1]) or recent(*given))
    run(member_dir, table)
    assert counts == [1, 1], "where the job says what it is going to read, and where it reads"


@pytest.mark.parametrize("said", ["Concurrent transaction failed.\nHelp: a page of it", "the disk is full"])
def test_a_table_that_cannot_be_written_is_named_in_a_line(member_dir, tmp_path, monkeypatch, said):
    kind = CommitFailedError if "transaction" in said else DeltaError
    table, attempts = tmp_path / "log", []

    def excluded(*arguments, **keys):
        attempts.append(1)
        raise kind(said)

    monkeypatch.setattr(deltalake, "write_deltalake", excluded)
    with pytest.raises(StorageError) as caught:
        run(member_dir, table)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"{table}: ")
    assert len(attempts) == (delta_rs.ATTEMPTS if kind is CommitFailedError else 1)


def test_what_goes_wrong_with_the_log_while_a_table_is_written_is_told_as_it_is(
    member_dir, tmp_path, monkeypatch
):
    def purged(*_):
        raise LogPurged("position 0 was asked for", 960)

    monkeypatch.setattr("jobs.table_job.TableJob.share", purged)
    with pytest.raises(LogPurged, match=r"^position 0 was asked for\n"):
        run(member_dir, tmp_path / "log")


def test_a_table_of_another_log_and_one_beyond_the_log_are_refused(member_dir, table, monkeypatch):
    monkeypatch.setattr(delta_rs, "LAG_TIMEOUT_S", 0)
    metadata = deltalake.DeltaTable(str(table))
    identity = metadata.metadata().configuration[IDENTITY]
    metadata.alter.set_table_properties({IDENTITY: "7:1:1"}, raise_if_not_exists=False)
    is_of = r"log is of cluster 7:1:1 \(position 250144\), but what is read is cluster"
    with pytest.raises(ConfigurationError, match=f"{is_of} {identity}; expected a table of that cluster's"):
        run(member_dir, table)

    metadata.alter.set_table_properties({IDENTITY: identity}, raise_if_not_exists=False)
    token = PositionToken(identity, 250_176).to_text()
    beyond = deltalake.CommitProperties(custom_metadata={"userMetadata": token})
    nothing = metadata.to_pyarrow_table().slice(0, 0)
    deltalake.write_deltalake(metadata, nothing, mode="append", commit_properties=beyond)
    with pytest.raises(TimedOut, match=r"position 250176 .* committed up to 250144"):
        run(member_dir, table)


def test_a_table_of_another_log_that_has_no_rows_yet_is_refused_too(member_dir, tmp_path, monkeypatch):
    def dying(*arguments, **keys):
        raise MemoryError("the process is killed here")

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(deltalake, "write_deltalake", dying)
        run(member_dir, tmp_path / "log")
    metadata = deltalake.DeltaTable(str(tmp_path / "log"))
    metadata.alter.set_table_properties({IDENTITY: "7:1:1"}, raise_if_not_exists=False)
    with pytest.raises(ConfigurationError, match=r"is of cluster 7:1:1 \(position 0\)"):
        run(member_dir, tmp_path / "log")


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
    with pytest.raises(ConfigurationError, match=r"pip install 'pyspark-cluster\[delta\]'"):
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


def test_commits_say_how_far_they_go_and_columns_have_comments(small, member_dir):
    table = deltalake.DeltaTable(str(small / "log"))
    tokens = [parse_token(commit["userMetadata"]) for commit in table.history() if "userMetadata" in commit]
    assert [token.position for token in tokens] == [250_144, 205_088, 102_528]
    with LogReader.open(dir=member_dir) as reader:
        assert [token.term for token in tokens] == [reader.term_before(token.position) for token in tokens]
    assert {token.cluster for token in tokens} == {table.metadata().configuration[IDENTITY]}
    assert {field.name: field.metadata["comment"] for field in table.schema().fields} == {
        name: comment for name, (_, comment) in LOG.columns.items()
    }
