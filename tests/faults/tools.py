"""What tests of faults need beside Python: programs of the system, and what its kernel allows."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def require(program: str, package: str) -> str:
    """The program's path; installed by apt where it is missing and can be, as set-up does with Java."""
    path = shutil.which(program)
    if path is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", package]):
            subprocess.run(command, check=False, env=environment, capture_output=True, timeout=90)
        path = shutil.which(program)
    assert path is not None, f"{program} is needed for this test: apt install {package}"
    return path


def kernel(*command: str) -> str:
    """Run what the kernel may refuse; the test then ends as XFAIL with its words, in sight and not passed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        pytest.xfail(f"not possible here: {' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
