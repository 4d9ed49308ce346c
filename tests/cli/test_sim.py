"""``cluster sim``: which services are found not to be deterministic, and what is said of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HERE = "tests.testing.services"


def sim(*arguments, cwd=None):
    command = [sys.executable, "-m", "cluster", "sim", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=cwd)


def test_a_sound_service_goes_well():
    done = sim("--seeds", "4", f"{HERE}:Counter")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("4 of 4 histories went well: ")


@pytest.mark.parametrize(
    "service",
    [
        "ForgetsItsState",
        "GoesByChance",
        pytest.param("GoesByTheClock", marks=pytest.mark.slow),
        pytest.param("GoesByHash", marks=pytest.mark.slow),
        pytest.param("GoesByItsMember", marks=pytest.mark.slow),
        pytest.param("SharesBetweenMembers", marks=pytest.mark.slow),
    ],
)
def test_what_is_not_deterministic_is_found_within_a_few_seeds(service):
    done = sim("--seeds", "4", f"{HERE}:{service}")

    assert done.returncode == 1
    assert "  again: cluster sim --seed " in done.stdout
    assert f" {HERE}:{service}\n" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_one_seed_again_shows_what_happened_and_the_same_failure():
    outcome = sim("--seeds", "4", "--json", f"{HERE}:GoesByHash").stdout.splitlines()
    failing = next(row for row in map(json.loads, outcome) if row["failure"])
    again = sim("--seed", str(failing["seed"]), f"{HERE}:GoesByHash")

    assert again.returncode == 1
    assert f"seed {failing['seed']} fails: {failing['failure']}" in again.stdout
    assert "member 0" in again.stdout


def test_messages_come_from_a_file_or_a_function(tmp_path):
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
        done = sim("--seeds", "2", "mine:Keeps", "--messages", source, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "raised" not in done.stdout


def test_callbacks_that_raise_are_counted():
    done = sim("--seeds", "1", f"{HERE}:Raises")

    assert done.returncode == 0
    assert done.stdout.startswith("callbacks raised ")
    assert "KeyError" in done.stdout


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
