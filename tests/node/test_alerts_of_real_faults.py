"""conf/monitoring/alerts.yml where real members and a backup have the fault, by the metrics that they serve.

tests/node/test_metrics_process.py has the alerts of lost members, of clients and of services that fail.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.real_members import RealMembers
from cluster import ClusterClient, ClusteredService, ClusterNode
from cluster.node import node as node_module
from cluster.node.authority import CertificateRequest
from cluster.node.runner import cluster_clock
from cluster.protocol.consumer import Consumer
from cluster.transport.tls import client_context
from tests.cli.promtool import RULES, Page, rule_test, said_of, scrape, scraped
from tests.faults.tools import kernel
from tests.node import test_metrics_process
from tests.node.counting_service import REPEATING, pid_of
from tests.node.processes import Process, await_that, keys_of, run
from tests.node.three import Three
from tests.programs import require
from tests.transport.authorities import Certificates

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

DAY_MS = 86_400_000
METRICS = {"metrics_endpoint": "auto"}
LONG_TERMS = {"log_term_length": "16m", "archive_segment_file_length": "16m", "file_sync_level": 0}
# Alerts whose fault is made nowhere, and why.
NOT_MADE = {"ClusterReplayLong": "8 GiB of log after a snapshot are minutes of writing"}


def await_alerts(folder: Path, before: Page, look: Callable[[], Page], *alerts: str) -> None:
    """None of them fires for what was seen before; each does for what is seen in the end."""
    quiet = rule_test(before, before, dict.fromkeys(alerts, False))
    assert said_of(folder, [quiet]) == ""

    def fire() -> bool:
        return not said_of(folder, [rule_test(before, look(), dict.fromkeys(alerts, True))])

    await_that(fire, f"all of {alerts} fire")


def page_of(members: RealMembers) -> Page:
    pages = (scraped(f"127.0.0.1:{members.ports[i] + 3}") for i in members.ids if members.is_running(i))
    return {series: value for page in pages for series, value in page.items()}


def write(endpoints: str, mebibytes: int) -> None:
    with ClusterClient.connect(endpoints) as client:
        for _ in range(mebibytes):
            while client.offer(bytes(1 << 20)) < 0:
                client.poll_egress()
        client.await_committed()


@contextmanager
def slow_syncs(pid: int, folder: Path) -> Iterator[None]:
    """Each sync of a process takes 300 ms longer."""
    delay = ("-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=300000")
    command = [require("strace", "strace"), "-f", "-p", str(pid), "-o", str(folder / "strace"), *delay]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        if "attached" not in line:
            pytest.xfail(f"not possible here: strace of a process: {line.strip()}")
        yield
        process.terminate()


def test_each_alert_has_its_fault_made_at_a_real_member_or_says_why_not():
    made = "".join(Path(module).read_text() for module in (__file__, test_metrics_process.__file__))
    assert [alert for alert in RULES if f'"{alert}"' not in made] == []
    assert NOT_MADE.keys() <= RULES.keys()


def test_leaders_change_and_a_follower_stands_still_and_then_loses_its_directory(tmp_path):
    with RealMembers(tmp_path, keys=METRICS | LONG_TERMS) as members:
        members.start()
        members.await_leader()
        members.await_level()
        before = page_of(members)
        for _ in range(4):
            leader = members.await_leader()
            run("tool", "transfer-leadership", "--dir", str(members.member_dir(leader)))
            members.await_leader(other_than=leader)
        leader = members.await_leader()
        members.await_level()
        follower = (leader + 1) % 3
        members.pause(follower)
        write(members.ipc, 80)
        stands = ("ClusterMemberTakesNoTurns", "ClusterMemberLags", "ClusterLinkCongested")
        await_alerts(tmp_path, before, lambda: page_of(members), "ClusterElections", *stands)

        count = len(os.listdir(f"/proc/{members.pid(leader)}/fd"))
        resource.prlimit(members.pid(leader), resource.RLIMIT_NOFILE, (count + 4, count + 4))
        await_alerts(tmp_path, before, lambda: page_of(members), "ClusterDescriptorsNearLimit")

        members.kill(*members.ids)
        shutil.rmtree(members.member_dir(follower))
        members.start(follower)
        await_alerts(tmp_path, before, lambda: page_of(members), "ClusterWaitsForMembers")


def test_a_disk_is_slow_and_then_full(tmp_path):
    with RealMembers(tmp_path, 1, keys=METRICS) as members:
        directory = members.member_dir(0)
        directory.mkdir()
        kernel("mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", str(directory))
        try:
            members.start()
            members.await_leader()
            with ClusterClient.connect(members.ipc) as client:

                def commit() -> Page:
                    for _ in range(5):
                        assert client.offer(b"x") > 0
                        client.await_committed()
                    return page_of(members)

                before = commit()
                with slow_syncs(members.pid(0), tmp_path):
                    await_alerts(tmp_path, before, commit, "ClusterSyncsSlow", "ClusterCommitsSlow")
            taken = shutil.disk_usage(directory).free - (40 << 20)
            (directory / "other").write_bytes(bytes(taken))
            await_alerts(tmp_path, before, lambda: page_of(members), "ClusterDiskNearlyFull")
            members.kill(0)
        finally:
            subprocess.run(["umount", "--lazy", str(directory)], check=False)


class SlowSnapshot(ClusteredService):
    """Takes a minute to write nothing."""

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        time.sleep(61)


def test_a_certificate_ends_and_cannot_be_read_and_a_snapshot_is_old_and_slow(tmp_path, monkeypatch):
    """The member's clock is 8 days behind, so that what it has now is old."""
    monkeypatch.setattr(node_module, "cluster_clock", lambda unit: lambda: cluster_clock(unit)() - 8 * DAY_MS)
    certificates = Certificates(tmp_path)
    request = CertificateRequest.of_member(0, 0, ())
    own, context = certificates.issue(request), client_context(certificates.client("prometheus"))
    tls = {"tls_ca": own.ca, "tls_certificate": own.certificate, "tls_key": own.key}
    keys = keys_of(tmp_path, services=[f"{__name__}:SlowSnapshot"], **METRICS, **tls)
    with ClusterNode.launch(**keys) as node:

        def page() -> Page:
            return scraped(node.config.metrics_address, context)

        await_that(lambda: node.is_leader, "it leads")
        before = page()
        for file in (own.certificate, own.key):
            Path(file).unlink()
        certificates.issue(request, days=13)
        await_alerts(tmp_path, before, page, "ClusterCertificateEnds")
        Path(own.certificate).write_text("no certificate")
        await_alerts(tmp_path, before, page, "ClusterErrors")
        run("snapshot", "--dir", str(node.config.path))  # it waits for 30 s
        await_alerts(tmp_path, before, page, "ClusterSnapshotOld", "ClusterSnapshotSlow")


def test_a_clock_is_off(tmp_path, opened, monkeypatch):
    behind_ms = iter((0, 0, 1_000))

    def off(unit: str) -> Callable[[], int]:
        clock, behind = cluster_clock(unit), next(behind_ms)
        return lambda: clock() - behind

    monkeypatch.setattr(node_module, "cluster_clock", off)
    cluster = Three(tmp_path, opened, **METRICS)
    await_that(cluster.leader, "a leader")
    of_member = [node.config.metrics_address for node in cluster.nodes]
    await_alerts(tmp_path, scraped(of_member[0]), lambda: scraped(of_member[2]), "ClusterClockOff")


def test_a_service_a_group_and_a_backup_do_not_keep_up_and_the_backup_finds_no_member(tmp_path):
    config, copy = tmp_path / "backup.toml", tmp_path / "backup"
    with RealMembers(tmp_path, 1, keys={"services": [REPEATING], **METRICS, **LONG_TERMS}) as members:
        members.start()
        members.await_leader()
        config.write_text(f'endpoints = "{members.endpoints}"\ndir = "{copy}"\n')
        with Process("backup", "--config", str(config), "--json") as backup:

            def of_backup() -> Page:
                text = run("tool", "backup-metrics", "--dir", str(copy)).stdout
                return scrape(text, job="c", instance="backup")

            def is_level() -> bool:
                return "is level" in (copy / "backup.log").read_text()

            await_that(is_level, "the backup is level")
            ClusterClient.connect(members.ipc, consumer=Consumer("g", 0)).close()
            before = page_of(members) | of_backup()
            service = pid_of(members.member_dir(0))
            os.kill(service, signal.SIGSTOP)
            with slow_syncs(backup.process.pid, tmp_path):
                write(members.ipc, 1025)
                late = (
                    "ClusterServiceLags",
                    "ClusterServiceStandsStill",
                    "ClusterGroupLags",
                    "ClusterBackupLags",
                )
                await_alerts(tmp_path, before, lambda: page_of(members) | of_backup(), *late)
            os.kill(service, signal.SIGCONT)
            members.kill(0)
            run("tool", "backup-query", "0s", "--dir", str(copy))
            await_alerts(tmp_path, before, of_backup, "ClusterBackupOverdue")
            backup.signal(signal.SIGKILL)
            await_alerts(tmp_path, before, of_backup, "ClusterBackupDown")
