"""``cluster sim``: which services are found not to be deterministic, and what is said of them."""

from __future__ import annotations

import json
import re
import sys

import pytest

from cluster.cli.main import main
from tests.node.forked import Forked
from tests.node.processes import run

HERE = "tests.testing.services"
SHORT = "4"  # a seed of few messages, with kills and a snapshot
ONE = ("--seeds", "1", "--from", SHORT)


def sim(*arguments):
    return run("sim", *arguments, timeout_s=240)


@pytest.fixture
def sim_here(monkeypatch, capsys):
    """Run it in this process, and what plays forked, so that strings have one hash: not for all services."""
    monkeypatch.setattr(
        "cluster.cli.sim._worker", lambda hash_seed, command: Forked(["cluster.testing.worker", *command])
    )

    def run_here(*arguments):
        status = main(["sim", *arguments])
        return status, *capsys.readouterr()

    return run_here


def test_a_sound_service_goes_well():
    done = sim(*ONE, f"{HERE}:Counter")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 of 1 histories passed: ")


@pytest.mark.slow
def test_a_seed_alone_shows_what_happened_in_the_order_of_time(sim_here):
    status, said, _ = sim_here("--seed", SHORT, f"{HERE}:Counter")
    *story, last = said.splitlines()

    times = [float(line.split()[0]) for line in story]
    assert (status, len(story) > 20, times) == (0, True, sorted(times))
    assert last.startswith("1 of 1 histories passed: ")


@pytest.mark.slow
def test_a_seed_that_goes_well_is_a_page_with_all_messages_too(sim_here, tmp_path):
    path = tmp_path / "story.html"
    status, said, _ = sim_here("--seed", SHORT, f"{HERE}:Counter", "--story", str(path))
    assert (status, said.count("\n")) == (0, 1)
    (story,) = re.findall(r"^const STORY = (.*);$", path.read_text(), re.MULTILINE)
    lines = json.loads(story)["lines"]
    assert json.loads(story)["title"] == f"Seed {SHORT} passes"
    assert {"SessionConnectRequest", "RequestVote", "ServiceAck"} <= {
        line["text"].split()[0] for line in lines
    }
    assert lines[-1]["sentence"] == "All members have the same state, and all clients its answers."
    assert sim_here("--story", str(path), "echo")[0] == 2


@pytest.mark.parametrize(
    "service",
    [
        "ForgetsItsState",
        "GoesByChance",
        pytest.param("GoesByTheClock", marks=pytest.mark.slow),
        pytest.param("GoesByItsMember", marks=pytest.mark.slow),
        pytest.param("SharesBetweenMembers", marks=pytest.mark.slow),
    ],
)
def test_what_is_not_deterministic_is_found_by_one_seed(sim_here, service):
    status, said, errors = sim_here(*ONE, f"{HERE}:{service}")

    assert status == 1
    assert f"  again: cluster sim --seed {SHORT} {HERE}:{service}\n" in said
    assert "Traceback" not in said + errors


@pytest.mark.slow
def test_what_goes_by_hashes_is_found_and_the_command_that_is_printed_shows_what_happened_again():
    done = sim(*ONE, f"{HERE}:GoesByHash")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    failure, command = done.stdout.splitlines()[:2]
    words = command.removeprefix("  again: cluster sim ").split()
    assert words == ["--seed", SHORT, f"{HERE}:GoesByHash"]

    again = sim(*words)

    assert again.returncode == 1
    assert failure.startswith(f"seed {SHORT} fails: ") and failure in again.stdout
    assert "It goes by hash() or the order of a set: " in failure
    assert failure.partition(". First ")[2].startswith("record 0 of the snapshot of service 0 is b'")
    assert "member 0" in again.stdout


@pytest.mark.slow
def test_messages_come_from_a_file_or_a_function(tmp_path, monkeypatch, sim_here):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lines.txt").write_bytes(b"only this\n")
    (tmp_path / "mine.py").write_text(
        "from cluster import ClusteredService\n"
        "def make(random):\n"
        "    return b'made'\n"
        "class Keeps(ClusteredService):\n"
        "    def on_start(self, cluster, image):\n"
        "        self.seen = set(image or ())\n"
        "    def on_session_message(self, session, timestamp, buffer):\n"
        "        self.seen.add(bytes(buffer))\n"
        "        assert self.seen <= {b'made'} or self.seen <= {b'only this'}, self.seen\n"
        "    def on_take_snapshot(self, publication):\n"
        "        for seen in sorted(self.seen):\n"
        "            publication.offer(seen)\n"
    )
    for source in ("lines.txt", "mine:make"):
        status, said, errors = sim_here(*ONE, "mine:Keeps", "--messages", source)
        assert (status, errors) == (0, "")
        assert "raised" not in said
    monkeypatch.delitem(sys.modules, "mine")


@pytest.mark.slow
def test_callbacks_that_raise_are_counted(sim_here):
    status, said, _ = sim_here(*ONE, f"{HERE}:Raises")

    assert status == 0
    assert said.startswith("callbacks raised ")
    assert "KeyError" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere:Nothing"], "no module nowhere"),
        (["echo", "--messages", "absent.txt"], "messages absent.txt: No such file"),
        (["echo", "--messages", "json:nothing"], "messages json:nothing: "),
        (["echo", "--messages", "os:getpid"], "messages os:getpid: "),
    ],
)
def test_what_cannot_be_played_is_said_in_one_line(arguments, words):
    done = sim(*arguments)

    assert done.returncode != 0
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
