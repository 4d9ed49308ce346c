"""docs/aeron.md, copied line by line into an empty directory, with a cluster of Aeron's own samples."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.aeron import EACH_VERSION, ROOT, SHARED_MEMORY, VERSION, jar

pytestmark = pytest.mark.interop
SECONDS = 240


@pytest.mark.timeout(SECONDS + 60)  # four processes of Java start one after another, and one of Spark
@pytest.mark.parametrize("version", EACH_VERSION)
def test_the_page_does_what_it_says_with_each_version_of_aeron(tmp_path, version):
    page = (ROOT / "docs" / "aeron.md").read_text().replace(VERSION, version)
    script = ["set -e"]
    for number, (kind, text) in enumerate(re.findall(r"^```(bash|python)\n(.*?)^```$", page, re.M | re.S)):
        if "pyspark" in text and version != VERSION:
            continue
        if kind == "python":
            (tmp_path / f"{number}.py").write_text(text)
            text = f"python {number}.py"
        script.append(text)
    (tmp_path / jar(version).name).symlink_to(jar(version))
    printed = _run("\n".join(script), tmp_path)
    assert "leaderMemberId=" in printed
    assert re.search(r"activeMembers=0=localhost:9002,1=localhost:9102,2=localhost:9202", printed)
    assert version != VERSION or re.search(r"SESSION_MESSAGE\| *\d+\| *5\|", printed), printed
    assert len(re.findall(r"^\d+ SESSION_MESSAGE$", printed, re.M)) == 5
    assert re.search(r"^0 NEW_LEADERSHIP_TERM$", printed, re.M)
    assert "bid 1 8 10000 True" in printed


def _remove_drivers() -> None:
    """For 10 s a driver that was killed seems to run, and none starts in its directory."""
    for directory in [
        *SHARED_MEMORY.glob(f"aeron-{getpass.getuser()}-?-driver"),
        SHARED_MEMORY / "aeron-spark",
    ]:
        shutil.rmtree(directory, ignore_errors=True)


def _run(script: str, folder: Path) -> str:
    """What it prints; it and all that it has started are ended by their group."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    with (folder / "printed").open("w+") as out:
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(SECONDS)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            _remove_drivers()
        out.seek(0)
        printed = out.read()
    assert status == 0, printed
    return printed
