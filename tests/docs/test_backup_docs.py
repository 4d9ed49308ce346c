"""docs/backup.md as a person follows it: a backup of a running cluster, and a new cluster of the backup."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.shell import UP, Terminal
from tests.docs.texts import ROOT
from tests.node.processes import await_that

PAGE = (ROOT / "docs" / "backup.md").read_text()
IS_UP = UP.format(".*", ".*")


def line_of(begin: str) -> str:
    """The one line of the page that begins so, without its remark."""
    [line] = {line.strip() for line in PAGE.splitlines() if line.strip().startswith(begin)}
    return line.partition("   ")[0].removesuffix(" &")


BACKUP = f"env {line_of('CLUSTER_ENDPOINTS=')}"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """In it a cluster with one message runs, and a backup of it."""
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    terminal = Terminal(tmp_path)
    try:
        terminal.run(". .venv/bin/activate")
        terminal.start(line_of("cluster up --dir cluster-data"), terminal.here(IS_UP))
        assert terminal.run("echo hello | cluster send --endpoints 127.0.0.1:9000") == "hello\n"
        terminal.start(BACKUP, ".*\n")
        yield terminal
    finally:
        terminal.close()


def check_that_it_goes_on(terminal: Terminal) -> None:
    """What runs now has the message of the old cluster, and takes another one."""
    assert "hello" in terminal.run("cluster log dump --endpoints 127.0.0.1:9000 --payload utf8")
    assert terminal.run("echo again | cluster send --endpoints 127.0.0.1:9000") == "again\n"


@pytest.mark.timeout(300)
def test_a_backup_is_made_and_restored_by_the_page(terminal: Terminal) -> None:
    await_that(lambda: "BACKING_UP" in terminal.run(line_of("cluster tool backup-query --dir")), "it copies")
    terminal.run(line_of("cluster tool backup-query 0s"))
    await_that(lambda: "hello" in terminal.run(line_of("cluster log dump") + " --payload utf8"), "a copy")
    terminal.interrupt(BACKUP)
    terminal.interrupt("cluster up")

    terminal.run(line_of("cluster tool restore --from"))
    terminal.start(line_of("cluster up --dir restored"), terminal.here(IS_UP))
    check_that_it_goes_on(terminal)


@pytest.mark.timeout(300)
def test_a_backup_is_promoted_by_the_page(terminal: Terminal) -> None:
    has_all = "cluster log dump --dir backup --payload utf8 || true"
    await_that(lambda: "hello" in terminal.run(has_all), "a copy")
    terminal.interrupt("cluster up")
    terminal.interrupt(BACKUP)

    terminal.run(line_of("mkdir promoted"))
    told = terminal.run(line_of("cluster tool promote --dir promoted"))
    assert told.endswith(", lag 0: a new cluster of one member\n")
    terminal.start(line_of("cluster up --dir promoted"), "(?s)leader: member 0\n.*next: ")
    check_that_it_goes_on(terminal)
