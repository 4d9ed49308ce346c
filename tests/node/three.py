"""Three members in this process, whose disks are damaged while they run or stand."""

from __future__ import annotations

from contextlib import ExitStack

from cluster import ClusterClient, ClusterNode, LogReader
from tests.node.processes import await_that, free_base_port


class Three:
    """A cluster in threads of this process."""

    def __init__(self, tmp_path, opened: ExitStack, *, host: str = "127.0.0.1", **keys) -> None:
        port = free_base_port(ports=30)
        self.tmp_path = tmp_path
        self.members = [f"{i},{host}:{port + 10 * i}" + f",{host}:{port + 10 * i + 2}" * 4 for i in range(3)]
        self.endpoints = ",".join(f"{i}={host}:{port + 10 * i}" for i in range(3))
        self.nodes = [
            opened.enter_context(self.launch(i, log_term_length=64 * 1024, **keys)) for i in range(3)
        ]

    def launch(self, member_id: int, **keys) -> ClusterNode:
        return ClusterNode.launch(
            members=self.members, member_id=member_id, dir=str(self.tmp_path / "member-{member_id}"), **keys
        )

    def leader(self) -> ClusterNode | None:
        return next((node for node in self.nodes if node.is_leader), None)

    def endpoint_of(self, node: ClusterNode) -> str:
        return self.endpoints.split(",")[node.config.member_id]

    def archive_of(self, node: ClusterNode) -> str:
        return str(node.config.archive_path)


def send(client: ClusterClient, count: int, size: int = 100, *, first: int = 0) -> None:
    """Numbers from ``first`` on that go on where the client's last ended, in messages of ``size`` bytes."""
    for _ in range(count):
        payload = str(first + client.offered).encode().ljust(size)
        while client.offer(payload) < 0:
            assert not client.is_closed, client.why_closed
            client.poll_egress()


def numbers_in(node: ClusterNode) -> list[int]:
    if not (node.config.archive_path / "0-0.rec").exists():
        return []  # its log is to come
    with LogReader.open(dir=str(node.config.path)) as log:
        return [int(entry["payload"]) for entry in log.entries(entry_types=["SESSION_MESSAGE"])]


def said(node: ClusterNode) -> str:
    return (node.config.path / "node.log").read_text()


def check_level(cluster: Three, count: int) -> None:
    """Every member runs and has every message once, in order."""
    for node in cluster.nodes:
        assert node.is_running
        await_that(
            lambda node=node: len(numbers_in(node)) >= count, f"member {node.config.member_id} is level"
        )
        assert numbers_in(node) == list(range(count))


def damage(node: ClusterNode, base: int, checksum: str) -> None:
    """Of a member that does not run: flip a bit in a segment, or lose it where no checksum would tell."""
    path = node.config.archive_path / f"0-{base}.rec"
    if checksum == "none":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[30_000] ^= 4
        path.write_bytes(data)
