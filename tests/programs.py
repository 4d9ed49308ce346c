"""Programs of the system that tests run beside Python."""

from __future__ import annotations

import shutil
import subprocess

from tests.tree import ROOT

INSTALLED_S = 600.0  # at most: a browser is some 100 MB


def require(program: str, *packages: str) -> str:
    """The program's path; installed by apt where it is missing and can be, as set-up does with Java."""
    command = [str(ROOT / ".ci" / "need"), program, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALLED_S)
    path = shutil.which(program)
    assert path is not None, done.stderr
    return path
