"""The command itself: help, completion, what a shell does with it."""

from __future__ import annotations

import errno
import shlex
import subprocess
from pathlib import Path

import pytest

from cluster.cli.main import main
from tests.cli.command_lines import command_lines
from tests.node.processes import COMMAND, DEADLINE_S, environment
from tests.reader.real import members

GROUPS = ("log", "tool", "archive")


@pytest.mark.conformance("S-127")
@pytest.mark.parametrize("words", [[], *([group] for group in GROUPS)], ids=" ".join)
def test_a_group_without_a_verb_shows_its_help(capsys, words):
    assert main(words) == 0
    without = capsys.readouterr()
    assert main([*words, "--help"]) == 0
    assert (without.out.strip(), without.err) == (capsys.readouterr().out.strip(), "")


@pytest.mark.parametrize("words", [[], *([group] for group in GROUPS), *command_lines()], ids=" ".join)
def test_help_has_a_short_form_everywhere_and_no_word_of_the_library_below(capsys, words):
    assert main([*words, "-h"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(" ".join(["Usage: cluster", *words]))
    for leak in ("list[", "{file}", "{recording_id}", "{name}", "{position}", "[[", "   left open"):
        assert leak not in text
    assert "{" not in text.splitlines()[0]


def test_a_wrong_choice_is_told_without_the_words_of_the_library_that_checks(capsys):
    assert main(["log", "dump", "--dir", "x", "--payload", "rot13"]) == 2
    assert "Invalid value for '--payload': 'rot13' is not one of 'base64'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("up --members three", "'--members': 'three': expected a valid integer"),
        ("top --dir x --interval 0", "'--interval' / '-i': 0: expected a duration such as 1s, at least 50ms"),
        ("tool backup-query soon --dir x", "'DELAY': soon: expected a duration such as 10s, at least 0s"),
    ],
)
def test_a_wrong_number_is_named_with_what_was_expected(capsys, line, said):
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert said in error and "Input" not in error and "unable" not in error


@pytest.mark.parametrize("delay", ["0s", "10s", "5m"])
def test_a_backup_is_asked_after_each_delay_that_the_help_has(capsys, tmp_path, delay):
    assert main(["tool", "backup-query", delay, "--dir", str(tmp_path)]) == 1
    assert "not a member's directory" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["up", "--dir", ""], ["up", "--dir="], ["node", "--config", ""]])
def test_a_place_that_is_empty_is_refused_and_not_the_working_directory(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    option = words[1].removesuffix("=")
    assert capsys.readouterr().err == f"{option} is ''; expected a value\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--dir=~/c1"], ["--dir", "~/c1"]])
def test_the_home_directory_is_where_a_shell_has_it(capsys, tmp_path, monkeypatch, words):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["log", "tail", *words]) == 1
    assert capsys.readouterr().err == f"{tmp_path}/c1: no such directory\n"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("cluster to", ["top", "tool"]), ("cluster tool describe-", ["describe-latest-cm-snapshot"])],
)
def test_a_shell_completes_commands_and_verbs(typed, expected):
    words = str(len(typed.split()) - 1)
    result = subprocess.run(
        COMMAND, capture_output=True, text=True, timeout=DEADLINE_S,
        env=environment() | {"_CLUSTER_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": words},
    )  # fmt: skip
    assert (result.returncode, result.stdout.split()) == (0, expected)


def test_completion_installs_itself(tmp_path):
    # The shell is found among the parents, so it has to stay, and not become the command.
    line = shlex.join([*COMMAND, "--install-completion"])
    result = subprocess.run(
        ["bash", "-c", f"{line}; exit $?"],
        capture_output=True, text=True, timeout=DEADLINE_S, env=environment(HOME=str(tmp_path)),
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    assert "cluster" in (tmp_path / ".bash_completions" / "cluster.sh").read_text()


def test_a_reader_that_has_enough_is_no_failure():
    with subprocess.Popen(
        [*COMMAND, "log", "dump", "--dir", str(members() / "member-0"), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as dump:  # fmt: skip
        assert dump.stdout is not None and dump.stderr is not None
        assert dump.stdout.readline().startswith("{")
        dump.stdout.close()
        assert (dump.wait(DEADLINE_S), dump.stderr.read()) == (0, "")


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("send --endpoints 127.0.0.1:1 --timeout 0.1 <&-", 1, "no session within 0.1 s"),
        ("log dump --dir {} >&-", 0, ""),
        ("log dump --dir nowhere 2>&-", 1, ""),
    ],
)
def test_a_standard_stream_that_is_closed_is_like_one_of_nothing(line, status, says):
    command = " ".join([*COMMAND, line.format(members() / "member-0")])
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S, env=environment()
    )
    assert (result.returncode, result.stdout) == (status, "")
    assert says in result.stderr and "Traceback" not in result.stderr


def test_what_the_system_refuses_is_one_line_with_the_file(tmp_path, monkeypatch, capsys):
    """As where a log belongs to another user; root may read all."""

    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)
    assert main(["events", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{tmp_path}: Permission denied\n"
