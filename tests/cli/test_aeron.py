"""``cluster aeron driver``: what is run, and what is said where that cannot be."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest

from cluster.cli.main import main
from cluster.media.aeron import Aeron


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command with a Java and a jar that are there; what would be run in its place."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    (tmp_path / "aeron-all-1.51.0.jar").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("AERON_JAR", str(tmp_path / "aeron-all-1.51.0.jar"))
    started = []
    monkeypatch.setattr(os, "execv", lambda path, command: started.append(command))

    def run(*arguments):
        status = main(["aeron", "driver", "--aeron-dir", str(tmp_path / "media"), *arguments])
        return status, started

    return run


def test_a_driver_runs_in_place_of_the_command_with_its_settings(run, tmp_path, capsys):
    status, ((java, *command),) = run("-D", "aeron.threading.mode=DEDICATED", "-D", "a=b=c")

    assert (status, java) == (0, str(tmp_path / "jdk" / "bin" / "java"))
    assert f"-Daeron.dir={tmp_path / 'media'}" in command
    assert "-Daeron.threading.mode=DEDICATED" in command and "-Daeron.threading.mode=SHARED" not in command
    assert "-Da=b=c" in command
    assert command[-3:] == ["-cp", str(tmp_path / "aeron-all-1.51.0.jar"), "io.aeron.driver.MediaDriver"]
    assert capsys.readouterr().out == (
        f"media driver of aeron-all-1.51.0.jar in {tmp_path / 'media'}; Ctrl-C ends it\n"
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "status", "says"),
    [
        (("-D", "aeron.dir"), {}, 2, "-D is 'aeron.dir'; expected NAME=VALUE"),
        (("--jar", "absent.jar"), {}, 2, "--jar is absent.jar: no such file"),
        ((), {"JAVA_HOME": "/nowhere"}, 2, "Java 17 or newer is needed"),
        ((), {"JAVA_HOME": "", "PATH": ""}, 2, "Java 17 or newer is needed"),
    ],
)
def test_what_it_needs_and_has_not_is_said(run, monkeypatch, capsys, arguments, variables, status, says):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run(*arguments) == (status, [])
    assert says in capsys.readouterr().err


def test_a_directory_with_a_driver_gets_no_other(run, monkeypatch, capsys):
    monkeypatch.setattr(Aeron, "connect", lambda *_: nullcontext())
    assert run() == (1, [])
    assert "already, or was killed less than 10 s ago" in capsys.readouterr().err


def test_why_a_jar_is_not_fetched_is_what_the_resolver_says_last(run, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("AERON_JAR")
    monkeypatch.setenv("HOME", str(tmp_path))
    said = "\t\t:: io.aeron#aeron-all;9.9.9: not found\n\n\t\t::::::::::\n\n\n"
    (tmp_path / "jdk" / "bin" / "java").write_text(f"#!/bin/sh\ncat << EOF\n{said}EOF\nexit 1\n")
    assert run("--version", "9.9.9") == (2, [])
    assert capsys.readouterr().err.endswith(
        "io.aeron:aeron-all:9.9.9 cannot be fetched: io.aeron#aeron-all;9.9.9: not found\n"
    )
