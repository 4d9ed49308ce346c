"""``cluster tool accept-data-loss``: an operator decides, by a word that is asked for, and leaves a note."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from cluster.archive.files import OsFiles
from cluster.archive.identity_file import read_identity
from cluster.archive.promises_file import read_promises, write_promises
from cluster.protocol.identity import ANY_MEMBER_ID
from cluster.protocol.link import PromiseState, PromiseStatement
from tests.archive.logs import a_log
from tests.archive.members import write_member
from tests.node.processes import COMMAND, DEADLINE_S, environment

GROUP = "tool"
FORGOTTEN = "its votes and what it had acknowledged"
QUESTION = "What no other member holds of that is lost. Its id, to go on:"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A member's that has lost its promises."""
    write_member(tmp_path, a_log())
    statement = PromiseStatement(7, -1, -1, PromiseState.LOST, False)
    write_promises(OsFiles(), str(tmp_path / "cluster"), statement)
    return tmp_path


def state_of(directory: Path) -> PromiseState:
    held = read_promises(OsFiles(), str(directory / "cluster"))
    assert held is not None
    return held.state


def at_a_terminal(directory: Path, typed: str, *options: str) -> tuple[int, str, str]:
    """Run the command at a terminal and type; return its status, its output and what the terminal shows."""
    terminal, theirs = pty.openpty()
    os.write(terminal, typed.encode())
    process = subprocess.Popen(
        [*COMMAND, "tool", "accept-data-loss", "--dir", str(directory), *options],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=environment(),
    )
    os.close(theirs)
    out, _ = process.communicate(timeout=DEADLINE_S)
    shown = b""
    try:
        while data := os.read(terminal, 4096):
            shown += data
    except OSError:  # the other side is closed, and all of it was read
        pass
    os.close(terminal)
    return process.returncode, out.lstrip(" "), shown.decode()  # the question's last blank


def test_the_member_s_id_is_asked_for_at_a_terminal(directory):
    status, out, shown = at_a_terminal(directory, "0\n")

    assert (status, out) == (0, f"member 0 votes with what it has; forgotten: {FORGOTTEN}\n")
    assert f"member 0 has forgotten: {FORGOTTEN}" in shown
    assert QUESTION in shown
    assert state_of(directory) is PromiseState.KEPT


def test_what_is_no_id_is_asked_for_again(directory):
    status, _, shown = at_a_terminal(directory, "yes\n0\n")

    assert status == 0
    assert shown.count(QUESTION) == 2
    assert state_of(directory) is PromiseState.KEPT


@pytest.mark.parametrize(("typed", "expected"), [("1\n", 2), ("\x04", 130)], ids=["another id", "Ctrl-D"])
def test_any_other_answer_changes_nothing(directory, typed, expected):
    status, out, shown = at_a_terminal(directory, typed)

    assert (status, out) == (expected, ""), shown
    assert "Traceback" not in shown
    assert state_of(directory) is PromiseState.LOST
    assert not (directory / "cluster" / "data-loss-accepted").exists()


def test_without_a_terminal_nothing_is_taken_for_an_answer(directory):
    command = [*COMMAND, "tool", "accept-data-loss", "--dir", str(directory)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, env=environment()
    )

    assert done.returncode == 130
    assert state_of(directory) is PromiseState.LOST


def test_accept_data_loss_names_the_member_and_leaves_a_note(run, directory):
    status, _, err = run("accept-data-loss", "--dir", directory, "--member", 9)
    assert status == 2
    assert "not of member 9" in err

    status, out, err = run("accept-data-loss", "--dir", directory, "--member", 0, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {"member": 0, "forgotten": "its votes and what it had acknowledged"}
    assert state_of(directory) is PromiseState.KEPT
    assert (directory / "cluster" / "data-loss-accepted").read_text().endswith("had acknowledged\n")
    assert "data loss accepted" in (directory / "node.log").read_text()

    status, _, err = run("accept-data-loss", "--dir", directory, "--member", 0)
    assert status == 1
    assert "forgotten nothing" in err


def test_who_is_to_go_on_alone_is_asked_in_words_of_its_own(directory):
    status, out, shown = at_a_terminal(directory, "0\n", "--alone")

    assert (status, out.startswith("member 0 is a cluster of one from now on")) == (0, True)
    assert "member 0 is to be the only one of a new cluster, without the other members, and what of" in shown
    assert "No member of the old cluster may run, now or later. Its id, to go on:" in shown
    assert "has forgotten" not in shown and "no other member holds" not in shown


def test_a_member_goes_on_alone_in_a_generation_of_its_own(run, directory):
    status, out, _ = run("accept-data-loss", "--dir", directory, "--alone", "--member", 0)

    assert status == 0
    assert out.startswith("member 0 is a cluster of one from now on; forgotten: the other members, and ")
    found = read_identity(OsFiles(), str(directory / "cluster"), str(directory / "archive"))
    assert found.is_in_both and found.identity is not None
    assert (found.identity.member_ids, found.identity.generation > 0) == ((ANY_MEMBER_ID,), True)
    assert "they alone hold" in (directory / "cluster" / "data-loss-accepted").read_text()
