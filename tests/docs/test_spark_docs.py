"""docs/spark.md, its reference, and the examples of the jobs' help, run as they stand."""

import json
import os
import re
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import ClusterClient, LogReader
from jobs.demo.cluster_process import ClusterProcess
from tests.node.processes import free_base_port

ROOT = Path(__file__).resolve().parents[2]
TEXT = "\n".join((ROOT / "docs" / name).read_text() for name in ("spark.md", "spark-reference.md"))
PYTHON, OTHERS = [], {}
for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
    PYTHON.append(block) if language == "python" else OTHERS.setdefault(language, []).append(block)
ADDRESS = re.compile(r"127\.0\.0\.1:90(\d\d)")  # of members at the ports that ``cluster up`` takes by default

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Place:
    """A folder with ``c1`` in it, the cluster that the text speaks of, and one session that said hello."""

    def __init__(self, folder: Path, base_port: int) -> None:
        self.folder = folder
        self.base_port = base_port

    def here(self, text: str) -> str:
        """``text`` with the ports that the cluster has here."""
        return ADDRESS.sub(lambda match: f"127.0.0.1:{self.base_port + int(match[1])}", text)

    def entries(self) -> list[dict]:
        with LogReader.open(dir=str(self.folder / "c1" / "member-0")) as reader:
            return list(reader.entries())

    def payloads(self) -> list[bytes]:
        return [entry["payload"] for entry in self.entries() if "payload" in entry]


@contextmanager
def a_place(folder: Path) -> Iterator[Place]:
    base_port = free_base_port()
    with ClusterProcess(folder / "c1", "echo", base_port) as cluster:
        with ClusterClient.connect(cluster.endpoints) as client:
            client.offer(b"hello")
            client.await_committed(20)
        yield Place(folder, base_port)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Of the text's blocks."""
    with a_place(tmp_path_factory.mktemp("docs")) as place:
        yield place


@pytest.fixture(scope="module")
def place_of_jobs(tmp_path_factory):
    """Of the jobs' examples, which may run before the blocks and write into the log."""
    with a_place(tmp_path_factory.mktemp("jobs")) as place:
        yield place


def test_the_blocks_of_the_text_run_one_after_another_and_do_what_it_says(place):
    """One program, in a new process, which finds what it needs as a user's does in an active environment."""
    (export,) = re.findall(r"^    cluster (log export .*)$", TEXT, re.MULTILINE)
    subprocess.run(
        [sys.executable, "-m", "cluster", *export.split()], check=True, cwd=place.folder, env=environment()
    )
    script = place.folder / "blocks.py"
    script.write_text(place.here("\n".join(PYTHON)))
    done = subprocess.run(
        [sys.executable, script.name],
        capture_output=True, text=True, check=False, timeout=300, cwd=place.folder, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]

    streamed, shown, counted = re.findall(r"^\+-.*?^(?=\s*$)", done.stdout, re.MULTILINE | re.DOTALL)
    assert cells(streamed)[0] == ["position", "entryType", "timestamp", "payload"]
    types = [row[1] for row in cells(streamed)[1:]]
    assert types[:3] == ["NEW_LEADERSHIP_TERM", "SESSION_OPEN", "SESSION_MESSAGE"]
    assert [row[3] for row in cells(streamed)[1:] if row[1] == "SESSION_MESSAGE"] == ["hello"]
    assert cells(shown)[0] == ["position", "payload"] and len(cells(shown)) == 2
    assert cells(counted)[0] == ["entryType", "entries"] and ["SESSION_MESSAGE", "1"] in cells(counted)

    assert "[Row(name='seven')]" in done.stdout
    assert re.search(r"\[Row\(clusterName='eu', count=\d+\)\]", done.stdout)
    opened = (e["clusterSessionId"] for e in place.entries() if e["entryType"] == "SESSION_OPEN")
    expected = {b"hello", b"from SQL", b"welcome, session %d" % next(opened), b"row 0", b"row 1", b"row 2"}
    assert expected <= set(place.payloads())
    assert place.payloads().count(b"from SQL") == 1
    assert place.payloads().count(b"hello") == 2, "written back by its account"
    assert place.payloads().count(b"seen: hello") == 1


def test_an_offset_of_a_checkpoint_is_as_the_text_shows_it(place):
    (shown,) = OTHERS["json"]
    offsets = place.folder / "checkpoints" / "welcome" / "offsets"
    kept = (offsets / "0").read_text().splitlines()[-1]
    assert without_values(json.loads(kept)) == without_values(json.loads(shown))


def test_no_block_is_left_out():
    assert len(PYTHON) == 12 and list(OTHERS) == ["json"]


@pytest.mark.parametrize("job", ["log_to_delta", "sessions", "timers", "terms", "tables", "respond"])
def test_the_example_of_a_jobs_help_runs_as_it_stands(spark, place_of_jobs, monkeypatch, capfd, job):
    place = place_of_jobs
    monkeypatch.chdir(place.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    command = example_of(job, capfd)
    name, arguments = re.fullmatch(r"python -m jobs\.(\w+) (.*)", place.here(command)).groups()
    assert name == job
    entries = place.entries()
    monkeypatch.setattr(sys, "argv", [f"jobs/{job}.py", *arguments.split()])
    runpy.run_module(f"jobs.{job}", run_name="__main__")

    told = capfd.readouterr().err.splitlines()
    assert re.match(rf"{job}: reading from 0 to [\d,]+$", told[0])
    assert any(re.match(rf"{job}: done, [\d,]+ rows", line) for line in told), told
    if job == "respond":
        opened = [entry["clusterSessionId"] for entry in entries if entry["entryType"] == "SESSION_OPEN"]
        assert {b"welcome, session %d" % session for session in opened} <= set(place.payloads())
        return
    table = re.search(r"--tables? (\S+)", arguments)[1] + ("/log" if job == "tables" else "")
    rows = spark.read.format("delta").load(str(place.folder / table)).count()
    counted = {
        "log_to_delta": None,
        "tables": None,
        "sessions": "SESSION_OPEN",
        "timers": "TIMER",
        "terms": "NEW_LEADERSHIP_TERM",
    }
    wanted = counted[job]
    before, after = (
        sum(wanted in (None, entry["entryType"]) for entry in read) for read in (entries, place.entries())
    )
    assert before <= rows <= after, "the cluster goes on meanwhile"


def example_of(job, capfd):
    """The example command of a job's help; what it needs beside it is written to the present folder."""
    with pytest.raises(SystemExit), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [job, "--help"])
        runpy.run_module(f"jobs.{job}", run_name="__main__")
    text = capfd.readouterr().out.partition("example:\n")[2]
    command, _, rest = text.partition("\n")
    for name, body in re.findall(r"^with (\S+):\n((?:  .*\n)+)", rest, re.MULTILINE):
        Path(name).write_text(textwrap.dedent(body))
    return command.strip()


def environment():
    """As where the environment is active, and this checkout is installed in it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")} | {"PATH": path}


def cells(table):
    """The rows of a table as Spark prints it, the head first."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[0] == "|"
    ]


def without_values(value):
    """The keys of an object, in their order, and the types of what they name."""
    if isinstance(value, dict):
        return [(key, without_values(inner)) for key, inner in value.items()]
    return type(value)
