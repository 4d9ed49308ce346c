"""The client of examples/node, which has cluster.proto and what docs/formats.md says, and nothing of ours."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.processes import Up

pytestmark = pytest.mark.interop
EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "node"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("cluster")) as up:
        yield up
        up.stop()


@pytest.fixture(scope="module")
def client() -> Path:
    """The example with the libraries that its lock names."""
    assert shutil.which("npm"), "node and npm are needed (apt install nodejs npm)"
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=EXAMPLE, check=True, timeout=100)
    return EXAMPLE / "client.mjs"


@pytest.mark.parametrize("member_id", [0, 1, 2])
def test_it_finds_the_leader_and_reads_its_messages_back_from_the_log(
    cluster: Up, client: Path, member_id: int
) -> None:
    endpoint = f"127.0.0.1:{cluster.base_port + 10 * member_id}"
    node = subprocess.run(
        ["node", str(client), endpoint, "hello", "world"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert node.returncode == 0, node.stderr
    told, session, *rest = node.stdout.splitlines()
    assert told == f"member {member_id} of cluster 0; the leader is member {cluster.leader}"
    assert session.endswith(f" with member {cluster.leader}")
    assert rest == ["answer: hello", "answer: world", "in the log: hello", "in the log: world"]
