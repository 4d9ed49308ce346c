"""A release: what is in the wheel, and that the workflow calls targets that there are."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest

from tests.tree import ROOT


def test_the_workflow_runs_commands_that_there_are() -> None:
    commands = re.findall(r"- run: (\S+) ?(\S*)", (ROOT / ".ci" / "release.yml").read_text())
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = [argument for command, argument in commands if command == "make"]
    assert made == ["setup", "release"] and set(made) <= targets
    assert (".ci/run", "") in commands


def test_a_wheel_has_the_configuration_that_texts_name_and_no_tools_of_ours() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    shipped = {path for path in wheel["force-include"] if path.startswith("conf/")}
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "conf").iterdir()}
    ours = {"conf/site.lock", "conf/site.yml", *(f"conf/member-{member_id}.toml" for member_id in range(3))}
    assert shipped == there - ours


def test_checkers_read_the_types_of_both_packages_that_users_import() -> None:
    assert all((ROOT / package / "py.typed").exists() for package in ("cluster", "spark_connector"))


@pytest.mark.interop
def test_a_release_is_built_and_passes_its_checks() -> None:
    done = subprocess.run(["make", "release", "TAG=v0"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0 and "v0 is not the version" in done.stdout
    done = subprocess.run(["make", "release"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.suffix for path in (ROOT / "dist").iterdir()} == {".whl", ".gz", ".json"}
