"""The jobs' command lines: what they accept, and what they say before Spark is even started."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.errors import ConfigurationError, DataLoss
from jobs import as_of, command, rebuild, session, sessions, streaming, verify
from jobs.progress import QueryProgress
from jobs.session import DELTA_COORDINATE, DELTA_JARS, WantedLines, conf_dir, defaults
from tests.spark.logs import open_log

ROOT = Path(__file__).resolve().parents[2]
JOBS = ["log_to_delta", "sessions", "timers", "terms", "tables", "respond"]
UPKEEP = ["verify", "rebuild", "maintenance"]


# Runs each job that is named with --help, one after another, as ``python -m`` does.
ALL_HELP = """
import contextlib, runpy, sys
for job in sys.argv[1:]:
    sys.argv = [job, "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_module(f"jobs.{job}", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def all_help():
    """What a process says, and what it imports, that is asked for the help of every job."""
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-c", ALL_HELP, *JOBS, *UPKEEP, "demo"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("job", [*JOBS, *UPKEEP, "demo"])
def test_help_comes_with_an_example(all_help, job):
    assert f"example:\n  python -m jobs.{job} " in all_help.stdout


def test_help_comes_without_spark(all_help):
    imported = {line.rpartition("|")[2].strip() for line in all_help.stderr.splitlines()}
    assert "jobs.command" in imported and not {"pyspark", "numba"} & imported


def test_a_job_reads_what_commands_read_where_no_option_says_which_log(monkeypatch, tmp_path):
    made = command.parser("log_to_delta", "", "")

    def read(*arguments):
        return command.source_of(made.parse_args(arguments))

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLUSTER_ENDPOINTS", raising=False)
    monkeypatch.delenv("CLUSTER_DIR", raising=False)
    with pytest.raises(ConfigurationError, match="none is given"):
        read()
    (tmp_path / "cluster-data").mkdir()
    assert read() == {"clusterDir": f"{tmp_path}/cluster-data"}
    monkeypatch.setenv("CLUSTER_DIR", "elsewhere")
    assert read() == {"clusterDir": f"{tmp_path}/elsewhere"}
    monkeypatch.setenv("CLUSTER_ENDPOINTS", "a:1")
    assert read() == {"endpoints": "a:1"}
    assert read("--dir", "d") == read("--cluster-dir", "d") == {"clusterDir": f"{tmp_path}/d"}
    assert read("--option", "archiveDir=x", "--dir", "d").keys() == {"clusterDir", "archiveDir"}


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "none is given"),
        (["--endpoints", "0=a:1", "--cluster-dir", "d"], "both are given"),
        (["--cluster-dir", "d", "--option", "minPartition=2"], "did you mean minPartitions"),
        (["--cluster-dir", "d", "--option", "minPartitions"], "expected NAME=VALUE"),
        (["--option", "endpoints.eu=a:1"], "'endpoints.eu' names one of several clusters, and here is one"),
        (["--cluster-dir", "d", "--starting-offsets", "soon"], "startingOffsets"),
        (["--cluster-dir", "d", "--trigger", "hourly"], "--trigger is 'hourly'"),
        (["--cluster-dir", "d", "--table", " "], "--table is ' '; expected a path"),
        (["--cluster-dir", "d", "--option", "ENTRYtypes=TIMER"], "option entryTypes is 'TIMER', and a table"),
        (["--cluster-dir", "d", "--option", "endingOffsets=latest"], "a table has all that the Log says"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(monkeypatch, capsys, arguments, said):
    monkeypatch.setattr(sys, "argv", ["jobs/sessions.py", "--table", "t", *arguments])
    with pytest.raises(SystemExit) as ended:
        command.run_main(sessions.main)
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert said in errors and errors.count("\n") == 1


def test_a_shortened_option_is_wrong_usage(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["jobs/verify.py", "--dir", "d", "--tables", "all", "--table", "t"])
    with pytest.raises(SystemExit) as ended:
        command.run_main(verify.main)
    assert ended.value.code == 2
    assert "unrecognized arguments: --table t" in capsys.readouterr().err


def options(*arguments):
    made = command.parser("sessions", "", "")
    command.add_table(made)
    return command.options_of(made, ["--cluster-dir", "d", "--table", "delta/t/", *arguments])


def test_options_become_those_of_the_source(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = options("--max-bytes-per-trigger", "8m", "--option", "minPartitions=3", "--conf", "a.b=c=d")
    assert given.source == {"clusterDir": f"{tmp_path}/d", "maxBytesPerTrigger": "8m", "minPartitions": "3"}
    assert options("--cluster-dir", "d, e").source["clusterDir"] == f"{tmp_path}/d,{tmp_path}/e"
    assert given.settings == {"a.b": "c=d"}
    assert given.table == f"{tmp_path}/delta/t", "Delta's SQL takes no relative paths"
    assert given.checkpoint == f"{tmp_path}/delta/t/_checkpoint"
    assert given.trigger == {"availableNow": True}


@pytest.mark.parametrize("path", ["s3a://bucket/t", "hdfs:///t", "dbfs:/t", "/srv/delta/t"])
def test_paths_with_a_scheme_and_absolute_ones_stay_as_they_are(path):
    given = options("--table", path, "--checkpoint", path)
    assert (given.table, given.checkpoint) == (path, path)


def test_the_home_directory_is_where_a_shell_has_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    given = options("--table=~/delta/t", "--cluster-dir=~/c1/member-0,~/c1/member-1")
    assert given.table == f"{tmp_path}/delta/t"
    assert given.source["clusterDir"] == f"{tmp_path}/c1/member-0,{tmp_path}/c1/member-1"


@pytest.mark.parametrize(
    "given, table",
    [
        ("delta.log", "delta.log"),
        ("spark_catalog.delta.log", "delta.log"),
        ("./delta.log", "{here}/delta.log"),
        ("log", "{here}/log"),
        ("v1.5", "{here}/v1.5"),
    ],
)
def test_a_name_of_the_catalog_is_no_path(monkeypatch, tmp_path, given, table):
    monkeypatch.chdir(tmp_path)
    assert options("--table", given, "--checkpoint", "c").table == table.format(here=tmp_path)


def test_a_table_of_the_catalog_needs_a_checkpoint_and_the_catalog_of_the_session():
    with pytest.raises(ConfigurationError, match=r"--checkpoint is not given, and the catalog's delta\.log"):
        options("--table", "delta.log")
    with pytest.raises(ConfigurationError, match=r"'unity\.a\.log'; expected schema\.table of"):
        options("--table", "unity.a.log", "--checkpoint", "c")


@pytest.fixture
def told(monkeypatch, tmp_path):
    """A function: what a job over a log of 42 entries says before it starts Spark."""
    monkeypatch.setattr("jobs.session.spark_session", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    log, session_id = open_log(tmp_path / "member-0")
    log.lines(session_id, 0, 40)
    log.stop()

    def say(**changes):
        said = []
        made = command.JobOptions.over({"clusterDir": "member-0"}, str(tmp_path / "t"), said.append)
        command.start("terms", dataclasses.replace(made, **changes))
        (line,) = said
        return line.removeprefix("terms: reading from ")

    say.at = lambda where: {"source": {"clusterDir": "member-0", "startingOffsets": where}}
    return say


def test_a_job_says_first_what_it_is_going_to_read(told, tmp_path):
    assert told() == "0 to 4,032"
    assert told(trigger={"processingTime": "1 second"}) == "0 to 4,032 and on"
    assert told(**told.at("latest")) == "4,032 to 4,032"
    assert told(**told.at('{"position": 96}')) == "96 to 4,032"
    assert told(checkpoint="s3a://b/c") == "where it left off to 4,032"
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    assert told() == "the end of its table to 4,032"
    assert told(table=str(tmp_path)) == "the end of its table to 4,032", "the folder of several"
    assert told(table="delta.log") == "the end of its table to 4,032"


def test_a_job_with_a_checkpoint_says_where_it_goes_on(told, tmp_path):
    checkpoint = tmp_path / "t" / "_checkpoint"
    shutil.copytree(ROOT / "tests" / "data" / "spark-checkpoint-1", checkpoint)
    assert told() == "2,880 to 4,032", "its last batch was not committed"
    (checkpoint / "commits" / "1").touch()
    assert told(**told.at("earliest")) == "4,032 to 4,032"

    for offsets in (checkpoint / "offsets").iterdir():
        offsets.write_text(offsets.read_text().replace('"cluster": "', '"cluster": "1'))
    with pytest.raises(DataLoss, match="the checkpoint is of cluster 1"):
        told()


@pytest.mark.parametrize("left", [b"", b'v1\n{"batchWatermarkMs":0', b"\xff\xfe", b"v1\n"], ids=repr)
def test_a_checkpoint_that_a_power_cut_damaged_is_named(told, tmp_path, left):
    checkpoint = tmp_path / "t" / "_checkpoint"
    shutil.copytree(ROOT / "tests" / "data" / "spark-checkpoint-1", checkpoint)
    (checkpoint / "offsets" / "7").write_bytes(left)
    (checkpoint / "offsets" / "8.tmp").touch()
    with pytest.raises(ConfigurationError, match=r"offsets/7 is damaged \(.*another --checkpoint"):
        told(checkpoint=str(checkpoint))


@pytest.mark.parametrize(
    "interval, milliseconds",
    [
        ("5 seconds", 5000),
        ("1 minute", 60_000),
        ("200 ms", 200),
        ("0.5 s", 500),
        ("1.5 Minutes", 90_000),
        ("2h", 7_200_000),
    ],
)
def test_a_trigger_may_be_an_interval_and_spark_gets_one_that_it_takes(interval, milliseconds):
    trigger = options("--trigger", interval).trigger
    assert trigger == {"processingTime": f"{milliseconds} milliseconds"}, (
        "Spark refuses ms, s, h, 1.5 minutes"
    )


def test_a_folder_of_tables_is_no_table_and_a_table_no_folder(tmp_path):
    """A VACUUM of the outer table would delete the files of the inner ones."""
    (tmp_path / "all" / "log" / "_delta_log").mkdir(parents=True)
    (tmp_path / "all" / "terms" / "_delta_log").mkdir(parents=True)
    folder = str(tmp_path / "all")
    with pytest.raises(ConfigurationError, match="a folder with the tables log, terms; expected a table"):
        command.check_is_no_folder(folder)
    command.check_is_no_folder(f"{folder}/log")
    with pytest.raises(ConfigurationError, match="log, a table; expected a folder of tables, or a new one"):
        command.check_is_no_table(f"{folder}/log")
    command.check_is_no_table(folder)


def test_a_folder_with_files_of_others_becomes_no_table(tmp_path):
    """A VACUUM would delete them."""
    folder, file = tmp_path / "src", tmp_path / "src" / "main.py"
    folder.mkdir()
    command.check_is_no_folder(str(folder))
    for name in ("_checkpoint", "part-00000-1.parquet"):
        (folder / name).touch()
        command.check_is_no_folder(str(folder))  # left by a job that died before its first commit
    file.touch()
    with pytest.raises(ConfigurationError, match=r"other files, such as main\.py; expected a table, or"):
        command.check_is_no_folder(str(folder))
    with pytest.raises(ConfigurationError, match=r"main\.py, a file; expected a table, or a new folder"):
        command.check_is_no_folder(str(file))
    (folder / "_delta_log").mkdir()
    command.check_is_no_folder(str(folder))


def test_options_compare_without_case():
    assert options("--option", "STARTINGoffsets=latest").source["startingOffsets"] == "latest"


@pytest.mark.parametrize("module", [rebuild, verify])
@pytest.mark.parametrize("option", ["entryTypes=TIMER", "FAILondataLOSS=false", "startingTimestamp=5"])
def test_a_table_is_never_made_again_of_a_part_of_the_log(monkeypatch, module, option):
    monkeypatch.setattr(sys, "argv", ["job", "--cluster-dir", "d", "--tables", "t", "--option", option])
    with pytest.raises(ConfigurationError, match="and a table has all that the Log says; expected none"):
        module.main()


@pytest.mark.parametrize("position", [None, -1, 1.5])
def test_a_table_as_of_what_is_no_position_is_refused(position):
    with pytest.raises(ConfigurationError, match=f"position is {position}; expected a number from 0 on"):
        as_of(None, "t", position)


SPARK_MESSAGE = """[STREAM_FAILED] Query [id = 1] terminated: Traceback (most recent call last):
  File "source.py", line 3, in latestOffset
cluster.errors.DataLoss: the log ends at 96, the checkpoint is at 960
 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: sessions
"""


def test_an_error_that_crossed_spark_is_told_in_our_own_words():
    assert command.one_line(SPARK_MESSAGE) == "the log ends at 96, the checkpoint is at 960"
    assert command.one_line("\n[PATH_NOT_FOUND] Path does not exist: x\n at y") == (
        "[PATH_NOT_FOUND] Path does not exist: x"
    )
    assert command.one_line(
        "An error occurred while calling o72.execute.\n: java.io.IOException: no\n\tat x"
    ) == ("java.io.IOException: no")


def test_a_python_process_that_came_up_too_late_is_told_with_what_to_do():
    assert command.one_line(LATE) == (
        "Python worker failed to connect back within its ten seconds. "
        "Nothing was lost: start the job again, when less else runs"
    )


def test_a_failed_job_ends_with_its_errors_own_status(capsys):
    def fail():
        raise DataLoss("the log ends at 96")

    with pytest.raises(SystemExit) as ended:
        command.run_main(fail)
    assert ended.value.code == DataLoss.exit_status == 1
    assert capsys.readouterr().err == "the log ends at 96\n"


@pytest.mark.parametrize("module", ["pyspark.errors.exceptions.captured", "delta.exceptions.captured"])
def test_an_error_of_spark_or_delta_is_a_line(module, capsys):
    def fail():
        raise type("ConcurrentAppendException", (Exception,), {"__module__": module})(
            "[CONFLICT] once more\n at x"
        )

    with pytest.raises(SystemExit) as ended:
        command.run_main(fail)
    assert (ended.value.code, capsys.readouterr().err) == (1, "[CONFLICT] once more\n")


def test_a_jvm_that_is_killed_while_the_job_starts_is_told(capsys):
    def fail():
        raise type("Py4JNetworkError", (Exception,), {"__module__": "py4j.protocol"})("Error while sending")

    with pytest.raises(SystemExit):
        command.run_main(fail)
    assert capsys.readouterr().err == command.JVM_ENDED + "\n"


NOISE = """WARNING: Using incubator modules: jdk.incubator.vector
Traceback (most recent call last):
Traceback (most recent call last):
  File "/venv/pyspark.zip/pyspark/daemon.py", line 262, in manager
  File "/venv/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
  File "/venv/pyspark.zip/pyspark/daemon.py", line 262, in manager
BrokenPipeError: [Errno 32] Broken pipe
Traceback (most recent call last):
  File "/venv/site-packages/pyspark/daemon.py", line 95, in worker
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
Exception in thread "stream execution thread for terms [id = 1]" org.apache.spark.SparkException: thrown
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.rpc.RpcEnvStoppedException: RpcEnv already stopped.
\tat org.apache.spark.rpc.netty.Dispatcher.postMessage(Dispatcher.scala:179)
\t... 8 more
"""
NEWS = """12:00:00 ERROR SparkContext: no more disk
Traceback (most recent call last):
  File "job.py", line 3, in f
    out.flush()
BrokenPipeError: [Errno 32] Broken pipe
Exception in thread "stream execution thread for terms [id = 1]" java.lang.OutOfMemoryError: heap space
\tat org.apache.spark.sql.Some.thing(Some.scala:1)
"""


def test_sparks_noise_is_left_out_and_nothing_else():
    wanted = WantedLines()
    lines = [*NOISE.splitlines(), *NEWS.splitlines(), *NOISE.splitlines()]
    assert [shown for line in lines for shown in wanted.of(line)] + wanted.rest() == NEWS.splitlines()


def test_a_trace_of_a_query_is_shown_at_the_end_too():
    wanted = WantedLines()
    lines = NEWS.splitlines()
    assert [shown for line in lines for shown in wanted.of(line)] + wanted.rest() == lines


def test_spark_defaults_are_read_as_spark_reads_them():
    assert defaults("# a comment\n\nspark.a   b c\nspark.d e\n") == {"spark.a": "b c", "spark.d": "e"}


def test_the_jars_are_those_that_delta_spark_asks_for():
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    asked = configure_spark_with_delta_pip(SparkSession.builder)._options["spark.jars.packages"]
    configured = defaults((conf_dir() / "spark-defaults.conf").read_text())["spark.jars.packages"]
    assert asked == configured == DELTA_COORDINATE
    group, artifact, version = asked.split(":")
    assert DELTA_JARS[0] == f"{group}_{artifact}-{version}.jar"
    assert {jar for jar in DELTA_JARS if "io.delta" in jar} == {
        jar for jar in DELTA_JARS if jar.endswith(f"-{version}.jar")
    }


class Query:
    """A query that has ended after batches of so many (rows, milliseconds)."""

    runId = uuid.UUID(int=7)

    def __init__(self, *batches):
        self.recentProgress = [
            {
                "name": "log_to_delta",
                "runId": str(self.runId),
                "batchId": number,
                "numInputRows": rows,
                "durationMs": {"triggerExecution": milliseconds},
                "sources": [{"endOffset": {"position": 96 * number}}],
            }
            for number, (rows, milliseconds) in enumerate(batches)
        ]

    def awaitTermination(self, seconds):
        return True

    def report_to(self, listener):
        """What Spark reports of it, and of another one that runs beside."""
        other = Query((7, 7))
        other.recentProgress[0]["runId"] = "another"
        listener.onQueryStarted(SimpleNamespace(name="log_to_delta", runId=self.runId))
        listener.onQueryStarted(SimpleNamespace(name="another", runId="another"))
        for progress in (*self.recentProgress, *other.recentProgress):
            listener.onQueryProgress(SimpleNamespace(progress=progress))
        listener.onQueryTerminated(SimpleNamespace(runId=self.runId))


def lines_of(*batches):
    said = []
    progress = QueryProgress("log_to_delta", said.append)
    Query(*batches).report_to(progress)
    progress.await_end()
    return [*said, progress.closing_line("done")]


@pytest.mark.conformance("P-110", "P-111")
def test_each_batch_with_rows_has_a_line_however_many_there_are():
    """Spark itself remembers a hundred."""
    lines = lines_of(*[(1000, 100), (0, 5)] * 150)
    assert len(lines) == 151
    assert lines[1] == "log_to_delta: batch 2, 1,000 rows in 0.1 s (10,000 rows/s), log position 192"


def test_the_closing_line_tells_the_rate_after_the_first_batch_in_which_spark_starts():
    line = lines_of((1000, 10_000), (0, 5), (3000, 1000), (3000, 1000))[-1]
    assert line == "log_to_delta: done, 7,000 rows (583 rows/s), after the first batch (3,000 rows/s)"
    assert lines_of((1000, 10_000))[-1] == "log_to_delta: done, 1,000 rows (100 rows/s)"
    assert lines_of() == ["log_to_delta: done, 0 rows"]


class Failing(Query):
    """A query that fails, before or after its first batch."""

    def __init__(self, says, *batches):
        super().__init__(*batches)
        self.says = says

    def awaitTermination(self, seconds):
        raise RuntimeError(self.says)


class Writer:
    """What starts the queries given, one after another; and the session that reports them to listeners."""

    def __init__(self, *queries):
        self.queries = list(queries)
        self.stopped = []
        self.streams = self.sparkContext = self._jsc = self
        self.listeners = []
        for query in queries:
            query.stop = lambda query=query: self.stopped.append(query)

    def sc(self):
        return self

    def isStopped(self):
        return False

    def option(self, *_):
        return self

    def queryName(self, _):
        return self

    def trigger(self, **_):
        return self

    def addListener(self, listener):
        self.listeners.append(listener)

    def removeListener(self, listener):
        self.listeners.remove(listener)

    def start(self):
        query = self.queries.pop(0)
        for listener in self.listeners:
            query.report_to(listener)
        return query


LATE = "[STREAM_FAILED] terminated with exception: Python worker failed to connect back."


def job_that_says(lines):
    return command.JobOptions.over({}, "table", say=lines.append)


def test_a_query_whose_python_process_came_up_too_late_is_started_again():
    writer = Writer(Failing(LATE), Failing(LATE), Query((1000, 10_000)))
    said = []

    streaming.run(writer, writer, "log_to_delta", job_that_says(said))

    assert len(writer.stopped) == 3 and not writer.listeners
    assert ["once more" in line for line in said] == [True, True, False, False]


@pytest.mark.parametrize(
    "queries",
    [
        [Failing(LATE), Failing(LATE), Failing(LATE)],
        [Failing(LATE, (1000, 10_000)), Query((1, 1))],
        [Failing("no more disk"), Query((1, 1))],
    ],
    ids=["three times", "after a batch", "another failure"],
)
def test_a_query_that_fails_otherwise_or_too_often_is_not_started_again(queries):
    writer = Writer(*queries)

    with pytest.raises(RuntimeError):
        streaming.run(writer, writer, "log_to_delta", job_that_says([]))

    assert len(writer.queries) == (0 if len(queries) == 3 else 1)


def a_java(folder: Path, version: str) -> Path:
    """A program that says a version as Java does where JAVA_TOOL_OPTIONS is set."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    lines = f'Picked up JAVA_TOOL_OPTIONS: -Da=b\nopenjdk version "{version}" 2025-04-15'
    java.write_text(f"#!/bin/sh\necho '{lines}' >&2\n")
    java.chmod(0o755)
    return java


def test_that_there_is_no_new_java_is_said_before_spark_is_started(tmp_path, monkeypatch):
    old, installed = a_java(tmp_path / "old", "11.0.2"), tmp_path / "jvm"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{old.parent}:/bin")
    monkeypatch.setattr(session, "_INSTALLED", installed)
    with pytest.raises(ConfigurationError, match="Spark needs Java 17 or newer") as raised:
        session.java_home()
    assert f"JAVA_HOME is '{tmp_path}', the java of the search path is {old}" in str(raised.value)
    a_java(installed / "17", "17.0.15")
    assert session.java_home() == str(installed / "17")


@pytest.mark.parametrize(("version", "status"), [("17.0.15", 0), ("11.0.2", 1)])
def test_setup_knows_java_whatever_it_says_before_its_version(tmp_path, version, status):
    setup = (ROOT / ".ci/setup").read_text()
    begin = setup.index("java_is_new_enough() {")
    function = setup[begin : setup.index("\n}", begin) + 2]
    java = a_java(tmp_path, version)
    assert subprocess.run(["bash", "-c", f"{function}; java_is_new_enough {java}"]).returncode == status


def test_that_java_was_lost_after_set_up_is_said_in_one_line(tmp_path):
    setup = tmp_path / ".ci" / "setup"
    setup.parent.mkdir()
    setup.write_text((ROOT / ".ci/setup").read_text().replace("/usr/lib/jvm", str(tmp_path / "jvm")))
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("dirname", "sed"):
        (tools / tool).symlink_to(str(shutil.which(tool)))

    def said() -> tuple[int, str]:
        command = [str(shutil.which("bash")), str(setup), "java"]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env={"PATH": str(tools)})
        return done.returncode, done.stderr

    status, line = said()
    assert (status, line.count("\n")) == (1, 1) and line.startswith("setup: Java 17 or newer is needed"), line
    a_java(tmp_path / "jvm" / "17", "17.0.15")
    assert said() == (0, "")


def test_make_asks_for_java_before_it_runs_tests_of_spark():
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    def planned(*words: str) -> str:
        make = ["make", "--dry-run", *words]
        return subprocess.run(make, capture_output=True, text=True, check=True, cwd=ROOT, env=env).stdout

    for target in ("test", "slow", "interop", "faults"):
        lines = planned(target)
        assert 0 <= lines.find(".ci/setup java") < lines.index("pytest"), target
    assert ".ci/setup java" not in planned("test", "ARGS=tests/consensus"), "which needs packages alone"
