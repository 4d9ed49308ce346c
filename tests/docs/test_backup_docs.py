"""docs/backup.md as a person follows it: a backup of a running cluster, and a new cluster of the backup."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.shell import UP, Terminal
from tests.docs.texts import ROOT
from tests.node.processes import await_that

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "backup.md").read_text()
IS_UP = UP.format(".*", ".*")


def line_of(begin: str) -> str:
    """The one line of the page that begins so, without its remark."""
    [line] = {line.strip() for line in PAGE.splitlines() if line.strip().startswith(begin)}
    return line.partition("   ")[0].removesuffix(" &")


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


BACKUP = f"env {line_of('CLUSTER_ENDPOINTS=')}"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    try:
        terminal.run(". .venv/bin/activate")
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def terminal(empty: Terminal) -> Terminal:
    """In it a cluster with one message runs, and a backup of it."""
    (empty.directory / "conf").symlink_to(ROOT / "conf")
    empty.start(line_of("cluster up --dir cluster-data --base-port 9000 &"), empty.here(IS_UP))
    assert empty.run("echo hello | cluster send --endpoints 127.0.0.1:9000") == "hello\n"
    empty.start(BACKUP, ".*\n")
    return empty


def check_that_it_goes_on(terminal: Terminal) -> None:
    """What runs now has the message of the old cluster, and takes another one."""
    assert "hello" in terminal.run("cluster log dump --endpoints 127.0.0.1:9000 --payload utf8")
    assert terminal.run("echo again | cluster send --endpoints 127.0.0.1:9000") == "again\n"


@pytest.mark.timeout(300)
def test_a_backup_is_made_and_restored_by_the_page(terminal: Terminal) -> None:
    await_that(lambda: "BACKING_UP" in terminal.run(line_of("cluster tool backup-query --dir")), "it copies")
    terminal.run(line_of("cluster tool backup-query 0s"))
    await_that(
        lambda: "hello" in terminal.run(line_of("cluster log dump --dir backup") + " --payload utf8"),
        "a copy",
    )
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_tls", [False, True], ids=["in the clear", "through TLS"])
def test_a_standby_serves_members_and_readers_by_the_page(empty: Terminal, is_tls: bool) -> None:
    settings, of_tls = blocks_of("toml")
    certs = "cluster-data/certs"
    tls = f" --tls-ca {certs}/ca.pem" if is_tls else ""
    up = line_of("cluster up --dir cluster-data --base-port 9000 --set") + (" --tls" if is_tls else "")
    empty.start(up, "(?s)leader: member.*next: ")
    assert empty.run(f"echo hello | cluster send --endpoints 127.0.0.1:9000{tls}") == "hello\n"
    if is_tls:
        empty.run(line_of("cluster certs"))
        empty.run(line_of("printf"))
    (empty.directory / "standby.toml").write_text(empty.here(settings + (of_tls if is_tls else "")))
    empty.start(line_of("cluster backup --config standby.toml"), ".*\n")

    empty.run(line_of("cluster tool standby-snapshot"))
    recording_log = line_of("cluster tool recording-log")
    await_that(lambda: "STANDBY_SNAPSHOT" in empty.run(recording_log), "member 0 knows of the snapshot")
    empty.run(line_of("cluster tool replicate-standby-snapshot"))
    assert re.search(r" SNAPSHOT ", empty.run(recording_log))

    read = line_of("cluster log dump --endpoints 127.0.0.1:9100")
    shown = f" --tls-certificate {certs}/client-client.pem --tls-key {certs}/client-client.key"
    assert "hello" in empty.run(f"{read}{tls}{shown if is_tls else ''}")
    assert "STANDBY" in empty.run("cluster top --dir standby --once")
    empty.interrupt("cluster backup")
