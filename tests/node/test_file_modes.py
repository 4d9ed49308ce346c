"""A member's files are its user's to write and its group's to read, and nobody else's."""

import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.node.processes import Up, await_that, run

FILES, DIRECTORIES, SOCKETS = 0o640, 0o750, 0o600


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    """A cluster that has sent, taken a snapshot, and stopped nothing; the umask keeps nothing back."""
    before = os.umask(0)
    try:
        with Up(tmp_path_factory.mktemp("modes") / "below" / "cluster") as up:
            assert run("send", "--endpoints", up.endpoints, text="one\n").returncode == 0
            assert run("tool", "snapshot", "--dir", str(up.member_dir(up.leader))).returncode == 0
            yield up
    finally:
        os.umask(before)


def modes(directory: Path) -> dict[Path, int]:
    found = {}
    for path in [directory, *directory.rglob("*")]:
        with suppress(FileNotFoundError):  # a running member removes files
            found[path] = path.stat().st_mode
    return found


def test_whatever_a_cluster_makes_is_closed_to_other_users(up):
    found = modes(up.directory.parent)
    wrong = {
        str(path): oct(mode)
        for path, mode in found.items()
        if stat.S_IMODE(mode)
        != (DIRECTORIES if stat.S_ISDIR(mode) else SOCKETS if stat.S_ISSOCK(mode) else FILES)
    }
    assert wrong == {}
    names = {path.name for path in found}
    assert {"cnc.dat", "node.log", "recording.log", "node-state.dat", "archive.catalog"} <= names


def bound_to(path: Path) -> int:
    """How many sockets of this host have the path."""
    return sum(line.endswith(str(path)) for line in Path("/proc/net/unix").read_text().splitlines())


def test_members_on_one_host_are_linked_by_sockets_in_their_directories(up):
    for member_id in range(3):
        (link,) = (up.member_dir(member_id) / "driver").glob("link-*.sock")
        is_linked = partial(lambda path: bound_to(path) == 3, link)
        await_that(is_linked, "one that listens, and one that each of the others dialled")


def test_no_socket_has_an_abstract_name(up):
    """Which has no permissions: any process of the host may connect to it."""
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    name_of = {fields[6]: fields[7] for fields in sockets if len(fields) > 7}
    names = []
    for member_id in range(3):
        for fd in Path(f"/proc/{up.pid(member_id)}/fd").iterdir():
            with suppress(FileNotFoundError):  # a running member closes files
                names.append(name_of.get(os.readlink(fd).removeprefix("socket:[").rstrip("]"), ""))
    assert any(name.endswith("ingress.sock") for name in names)
    assert not any(name.startswith("@") for name in names)
