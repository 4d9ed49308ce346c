"""This release beside the one before: members of both in a cluster, its directories, its jobs' tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyarrow.parquet import read_table

from cluster import ClusterClient
from tests.node.processes import await_that, free_base_port
from tests.releases.previous import Members, Release, unpacked

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

THIS = Release(None)


@pytest.fixture(scope="module")
def previous(tmp_path_factory) -> Release:
    return unpacked(tmp_path_factory.mktemp("release"))


@pytest.fixture
def members(tmp_path):
    shutil.copy(Path(__file__).with_name("ledger.py"), tmp_path)
    keys = {"services": ["ledger:Ledger"], "log_term_length": "64k", "session_timeout": "60s"}
    with Members(tmp_path, free_base_port(ports=30), **keys) as members:
        yield members


class Talk:
    """One session that asks and waits for each answer."""

    def __init__(self, endpoints: str) -> None:
        self._answers: list[bytes] = []
        self.client = ClusterClient.connect(
            endpoints, lambda session_id, time, payload: self._answers.append(bytes(payload))
        )
        self.session_id = self.client.cluster_session_id

    def ask(self, payload: bytes) -> bytes:
        before = len(self._answers)
        while self.client.offer(payload) < 0:
            assert not self.client.is_closed, self.client.why_closed
            self.client.poll_egress()

        def is_answered() -> bool:
            self.client.poll_egress()
            return len(self._answers) > before

        await_that(is_answered, f"an answer to {payload!r}")
        assert len(self._answers) == before + 1
        return self._answers[-1]


def dumped(release: Release, directory: Path, cwd: Path) -> list[dict[str, object]]:
    told = release.run("log", "dump", "--json", "--dir", str(directory), cwd=cwd)
    return [json.loads(line) for line in told.splitlines()]


def test_a_cluster_is_upgraded_member_by_member_under_an_open_session(previous, members):
    for member_id in range(3):
        members.start(member_id, previous)
    members.await_level()
    talk = Talk(members.endpoints)
    talk.ask(b"never 7")
    leader = members.leader()
    order = [member for member in range(3) if member != leader] + [leader]
    for step, member_id in enumerate(order):
        assert talk.ask(b"before %d" % step) == b"%d kept, last before %d, fired []" % (2 * step + 1, step)
        members.restart(member_id, THIS)
        assert talk.ask(b"after %d" % step) == b"%d kept, last after %d, fired []" % (2 * step + 2, step)
        sent = previous.run(
            "send", "--endpoints", members.endpoints, "-", text="tell\n", cwd=members.directory
        )
        assert f"{2 * step + 2} kept" in sent, "a client of the release before"
    assert talk.client.cluster_session_id == talk.session_id
    talk.ask(b"later 5")
    await_that(lambda: talk.ask(b"tell").endswith(b"fired [5]"), "a timer of this release fires")
    members.await_level()
    members.kill_all()
    logs = [dumped(THIS, members.member_dir(member_id), members.directory) for member_id in range(3)]
    assert logs[0] == logs[1] == logs[2]
    assert sum(entry["entryType"] == "SESSION_MESSAGE" for entry in logs[0]) > 12


def test_this_release_starts_on_directories_of_the_one_before(previous, members):
    """Snapshot, log after it, timers and log of kills: read alike by both, and gone on with."""
    for member_id in range(3):
        members.start(member_id, previous)
    members.await_level()
    talk = Talk(members.endpoints)
    for number in range(200):
        talk.ask(b"in the snapshot %d" % number)
    talk.ask(b"later 5")
    previous.run("tool", "snapshot", "--dir", str(members.directory), cwd=members.directory)
    assert talk.ask(b"after the snapshot").startswith(b"201 kept")
    members.await_level()
    members.kill_all()

    folders = [members.member_dir(member_id) for member_id in range(3)]
    before = [dumped(previous, folder, members.directory) for folder in folders]
    assert [dumped(THIS, folder, members.directory) for folder in folders] == before
    for verb in ("recovery-plan", "recording-log", "describe-latest-cm-snapshot"):
        asked = ("tool", verb, "--json", "--dir", str(folders[0]))
        said, said_before = (json.loads(release.run(*asked, cwd=folders[0])) for release in (THIS, previous))
        if verb == "recovery-plan":  # the one before knew no end of a recording that was never stopped
            said, said_before = (
                plan | {"appendedLogPosition": 0, "log": None} for plan in (said, said_before)
            )
        assert said == said_before

    for member_id in range(3):
        members.start(member_id, THIS)
    members.await_level()
    assert Talk(members.endpoints).ask(b"tell") == b"201 kept, last after the snapshot, fired [5]"


def test_a_job_goes_on_in_the_table_and_checkpoint_of_the_release_before(previous, members):
    for member_id in range(3):
        members.start(member_id, previous)
    members.await_level()
    talk = Talk(members.endpoints)
    table = members.directory / "table"
    asked = ("--endpoints", members.endpoints, "--table", str(table))
    talk.ask(b"before")
    previous.job("log_to_delta", *asked, cwd=members.directory)
    first = positions_in(table)
    for member_id in range(3):
        members.restart(member_id, THIS)
    talk.ask(b"after")
    THIS.job("log_to_delta", *asked, cwd=members.directory)
    entries = dumped(THIS, members.member_dir(0), members.directory)
    assert positions_in(table) == [entry["position"] for entry in entries]
    assert 0 < len(first) < len(entries)
    offsets = sorted(int(file.name) for file in (table / "_checkpoint" / "offsets").glob("[0-9]*"))
    assert len(offsets) > 1, "the same checkpoint"


def positions_in(table: Path) -> list[int]:
    """Of a table to which rows were only ever appended."""
    files = table.glob("*.parquet")
    return sorted(
        row for file in files for row in read_table(file, columns=["position"])["position"].to_pylist()
    )
