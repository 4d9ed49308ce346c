"""A standby in a thread of the test, and a member that takes its snapshots."""

from __future__ import annotations

import contextlib
import threading

from cluster import ClusterClient
from cluster.node.backup_config import BackupConfig
from cluster.node.backup_process import BackupProcess
from cluster.node.node import ClusterNode
from tests.node.processes import await_that, endpoints_of, free_base_port, keys_of, tool


def member(tmp_path, files=None, **keys):
    """One that takes standbys' snapshots."""
    if files is not None:
        keys |= {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key}
    return ClusterNode.launch(**keys_of(tmp_path, accept_standby_snapshots=True, **keys))


@contextlib.contextmanager
def standby(tmp_path, node, files=None, **keys):
    """A standby of the echo service that turns in a thread; its endpoint is at ``process.config``."""
    if files is not None:
        keys |= {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key}
    (tmp_path / "rights").write_text("member-0.cluster-0: read\nalice: read\n")
    config = BackupConfig(
        endpoints=endpoints_of(node, "grpc"),
        dir=str(tmp_path / "standby"),
        endpoint=f"127.0.0.1:{free_base_port(1)}",
        services=["echo"],
        response_timeout="2s",
        cool_down_interval="300ms",
        **keys,
    )
    with BackupProcess(config) as process:
        thread = threading.Thread(target=process.run)
        thread.start()
        try:
            yield config
        finally:
            process.stop()
            thread.join()


def take_snapshot(node, tls=None, credentials=b""):
    """Send a message, and have the standby take a snapshot behind it that the member knows of."""
    await_that(lambda: node.is_leader, "a leader")
    with ClusterClient.connect(endpoints_of(node, "grpc"), tls=tls, credentials=credentials) as client:
        assert client.offer(b"1") > 0
        client.await_committed()
    assert tool(node, "standby-snapshot").returncode == 0
    await_that(
        lambda: "STANDBY_SNAPSHOT" in tool(node, "recording-log").stdout, "the member knows of the snapshot"
    )
