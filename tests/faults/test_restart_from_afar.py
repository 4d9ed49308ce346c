"""``cluster restart --endpoints`` under load, to a service whose snapshots have another format."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise

import pytest

from cluster import ClusterClient, TokenCredentials
from cluster.security.principals import put, token_digest
from tests.node.processes import DEADLINE_S, Up, await_that, dump, run

pytestmark = pytest.mark.faults

# Counts what each session has sent. Version 2 keeps more in its snapshots, and reads those of version 1.
SERVICE = """
import json

from cluster import ClusteredService

VERSION = {version}


class Counts(ClusteredService):
    def on_start(self, cluster, snapshot_image):
        self.counts = {{}}
        if snapshot_image is not None:
            read = json.loads(b"".join(bytes(part) for part in snapshot_image))
            self.counts = read["counts"] if "v" in read else read

    def on_session_message(self, session, timestamp, buffer):
        name = bytes(buffer).decode().partition(" ")[0]
        self.counts[name] = self.counts.get(name, 0) + 1
        session.offer(b"%s %d %d" % (bytes(buffer), self.counts[name], VERSION))

    def on_take_snapshot(self, snapshot_publication):
        state = {{"v": 2, "counts": self.counts}} if VERSION == 2 else self.counts
        snapshot_publication.offer(json.dumps(state).encode())
"""
GAP_MAX_S = 10.0  # leader_heartbeat_timeout: nobody waits for one


class Sender:
    """One client in a thread, which numbers its messages and keeps each answer with its time."""

    def __init__(self, name: str, endpoints: str, credentials: TokenCredentials, *, supervised: bool) -> None:
        self.answers: list[tuple[float, bytes]] = []
        self._name = name
        self.client = ClusterClient.connect(
            endpoints, self._on_answer, credentials=credentials, supervised=supervised
        )
        self.session_id = self.client.cluster_session_id
        self.sent = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _on_answer(self, session_id: int, timestamp: int, payload: memoryview) -> None:
        self.answers.append((time.monotonic(), bytes(payload)))

    def _send(self) -> None:
        while not self._is_over.wait(0.005):
            self.sent += self.client.offer(f"{self._name} {self.sent}".encode()) > 0
            self.client.poll_egress()

    def finish(self) -> None:
        self._is_over.set()
        self._thread.join()
        self.client.await_committed(DEADLINE_S)
        if self._name == "supervised":
            await_that(lambda: self.client.poll_egress() < 0 or len(self.answers) >= self.sent, "all answers")
        self.client.close()

    @property
    def gap_s(self) -> float:
        """The longest without an answer."""
        times = [at for at, _ in self.answers]
        return max(after - before for before, after in pairwise(times))


@pytest.mark.timeout(400)
def test_members_of_any_hosts_take_another_version_of_a_service_and_clients_lose_and_double_nothing(
    tmp_path, record_property
):
    for name in ("operator", "feed"):
        put(str(tmp_path / "tokens"), name, token_digest(name.encode()))
        (tmp_path / f"{name}.token").write_text(name)
    (tmp_path / "rights").write_text("operator: read, admin\nfeed: read, write\n")
    (tmp_path / "counts.py").write_text(SERVICE.format(version=1))
    keys = {
        "authenticator": "token",
        "authenticator_file": tmp_path / "tokens",
        "authorisation": tmp_path / "rights",
        "service_mode": "inline",
    }
    options = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    up = Up(
        tmp_path / "c", "--service", "counts:Counts", *options, cwd=tmp_path,
        CLUSTER_TOKEN_FILE=str(tmp_path / "operator.token"),
    )  # fmt: skip
    with up:
        feed = TokenCredentials(str(tmp_path / "feed.token"))
        senders = [
            Sender(name, up.tcp, feed, supervised=name == "supervised") for name in ("plain", "supervised")
        ]
        operator = ("--endpoints", up.endpoints.split(",")[0].partition("=")[2])
        operator += ("--token-file", str(tmp_path / "operator.token"))
        snapshot = run("snapshot", *operator)
        assert snapshot.returncode == 0, snapshot.stderr
        (tmp_path / "counts.py").write_text(SERVICE.format(version=2))
        try:
            restarted = run("restart", *operator, timeout_s=4 * DEADLINE_S)
            versions = run("status", *operator, "--json")
        finally:
            for sender in senders:
                sender.finish()
        assert restarted.returncode == 0, restarted.stdout + restarted.stderr
        lines = restarted.stdout.splitlines()
        assert sorted(lines) == [f"member {i} restarted" for i in range(3)]
        assert lines[-1] == f"member {up.leader} restarted", "one answered for all; the leader came last"
        assert json.loads(versions.stdout)["cluster"]["leader"] != up.leader
        for sender in senders:
            gap = f"{sender._name}: {sender.sent} sent, longest gap {sender.gap_s:.2f} s"
            print(gap)
            record_property(sender._name, gap)
            assert sender.client.cluster_session_id == sender.session_id and sender.gap_s < GAP_MAX_S
            assert sender.answers[-1][1].endswith(b" 2"), "the new version answers"
        plain, supervised = ([answer.split() for _, answer in sender.answers] for sender in senders)
        expected = [(str(n), str(n + 1)) for n in range(senders[1].sent)]
        assert [(a[1].decode(), a[2].decode()) for a in supervised] == expected, "each answer once"
        assert len({a[1] for a in plain}) == len(plain) <= senders[0].sent
        for member in range(3):
            audited = (up.member_dir(member) / "audit.log").read_text().splitlines()
            assert ("operator", "RESTART", "done") in [
                (line["principal"], line["what"], line.get("outcome")) for line in map(json.loads, audited)
            ]
        assert up.stop()[0] == 0
    for member in range(3):
        messages = [e["payload"] for e in dump(up.member_dir(member)) if e["entryType"] == "SESSION_MESSAGE"]
        for sender in senders:
            own = [payload for payload in messages if payload.startswith(sender._name + " ")]
            assert own == [f"{sender._name} {n}" for n in range(sender.sent)], "0 lost, 0 doubled, in order"
