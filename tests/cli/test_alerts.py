"""conf/monitoring: each alert is quiet for a member that is well, and fires where its fault was made.

The faults are made in what a member shows and in its directory; the text between is what is served.
"""

import json
import time
from collections.abc import Callable

import pytest

from cluster.backup.counters import BackupCounters
from cluster.cli.metrics import backup_metrics_text, metrics_text
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import Counter, CountersFile
from cluster.member.counters import MemberCounters
from cluster.protocol.counter_types import BUCKETS_NS
from cluster.protocol.counter_types import CounterTypeId as Id
from cluster.protocol.enums import ConsensusModuleState, ElectionState, Role
from tests.cli.promtool import RULES, Page, names_in, rule_test, said_of, scrape
from tests.tree import ROOT

MONITORING = ROOT / "conf" / "monitoring"
GIB = 1 << 30


class Shown:
    """What one member shows: its counters file, and what else is found of it."""

    def __init__(self) -> None:
        self.file = CountersFile.in_memory()
        self.counters = MemberCounters(self.file, ConsensusModuleContext(member_ids=(0, 1, 2)))
        self.counters.module_state.set(ConsensusModuleState.ACTIVE)
        self.counters.election_state.set(ElectionState.CLOSED)
        self.counters.node_role.set(Role.LEADER)
        for peer in (1, 2):
            self.counters.show_link(peer, is_up=True, queued_bytes=0)
        self.of_service = {
            type_id: self.file.allocate_cluster_counter(type_id, 0, service_id=0, **more)
            for type_id, more in (
                (Id.CONTAINER_ERRORS, {}),
                (Id.SERVICE_STANDSTILL, {}),
                (Id.CONTAINER_MAX_CYCLE_TIME, {}),
                (Id.CONTAINER_CYCLE_TIME_EXCEEDED, {"threshold_ns": 1}),
            )
        }
        self.found = {
            "memberId": 0, "isAlive": True, "role": "LEADER", "electionState": "CLOSED", "waitsFor": [],
            "moduleState": "ACTIVE", "leaderMemberId": 0, "commitPosition": GIB, "appendPosition": GIB,
            "leadershipTermId": 1, "logBytes": GIB, "serviceLag": 0,
            "sessions": 1, "clockOffsetMs": 0, "diskFree": 50 * GIB, "diskTotal": 100 * GIB,
            "replayBytes": 0, "snapshotTime": iso(-3_600), "certificateEnds": iso(90 * 86_400),
            "consumers": [{"group": "g", "bytesBehind": 0}],
        }  # fmt: skip
        self.backup_file = CountersFile.in_memory()
        self.backup = BackupCounters(self.backup_file, 0)
        self.backup_found = {
            "isAlive": True, "snapshotTime": iso(-3_600), "nextQuery": iso(3_600), "logBytes": GIB
        }  # fmt: skip
        self.process = {"process_open_fds": 50.0, "process_max_fds": 1024.0}

    def histogram(self, index: int, bucket: int, count: int) -> None:
        self.file.words[index + bucket * 16] += count

    def page(self, instance: str) -> Page:
        counters, of_backup = (
            [
                {"id": c.counter_id, "typeId": c.type_id, "label": c.label, "value": c.value}
                for c in file.counters()
            ]
            for file in (self.file, self.backup_file)
        )
        limits = {"cluster_sessions": 10, "cluster_connections": 10}
        text, _ = metrics_text({**self.found, "counters": counters}, {"version": "1"}, limits, None)
        lines = backup_metrics_text({**self.backup_found, "counters": of_backup})
        lines += "".join(f"{name} {value}\n" for name, value in self.process.items())
        return scrape(text.decode() + lines, job="cluster", instance=instance)


def iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + seconds))


def found(**values) -> Callable[[Shown], None]:
    return lambda shown: shown.found.update(values)


def risen(name: str, count: int) -> Callable[[Shown], None]:
    """A counter of the member."""

    def rise(shown: Shown) -> None:
        counter: Counter = getattr(shown.counters, name)
        counter.get_and_add(count)

    return rise


def of_service(type_id: Id, count: int) -> Callable[[Shown], object]:
    return lambda shown: shown.of_service[type_id].get_and_add(count)


SLOWEST = len(BUCKETS_NS)
FAULTS: dict[str, Callable[[Shown], object]] = {
    "ClusterNoLeader": found(leaderMemberId=-1),
    "ClusterMemberTakesNoTurns": found(isAlive=False),
    "ClusterMemberNotReady": found(electionState="CANVASS"),
    "ClusterWaitsForMembers": found(waitsFor=[1, 2]),
    "ClusterElections": risen("election_count", 4),
    "ClusterMemberLags": found(commitPosition=GIB - (65 << 20)),
    "ClusterServiceStandsStill": of_service(Id.SERVICE_STANDSTILL, 11 * 10**9),
    "ClusterServiceLags": found(serviceLag=65 << 20),
    "ClusterGroupLags": found(consumers=[{"group": "g", "bytesBehind": 2 * GIB}]),
    "ClusterSyncsSlow": lambda shown: shown.histogram(shown.counters.sync_time.index, SLOWEST, 5),
    "ClusterCommitsSlow": lambda shown: shown.histogram(shown.counters.commit_time.index, SLOWEST, 5),
    "ClusterTurnsLate": risen("cycle_time_exceeded", 11),
    "ClusterServiceSlow": of_service(Id.CONTAINER_CYCLE_TIME_EXCEEDED, 11),
    "ClusterDiskNearlyFull": found(diskFree=9 * GIB),
    "ClusterLogFull": lambda shown: shown.counters.log_room.set(0),
    "ClusterLinkDown": lambda shown: shown.counters.show_link(2, is_up=False, queued_bytes=0),
    "ClusterLinkCongested": lambda shown: shown.counters.show_link(1, is_up=True, queued_bytes=9 << 20),
    "ClusterClockOff": found(clockOffsetMs=-600),
    "ClusterCertificateEnds": found(certificateEnds=iso(13 * 86_400)),
    "ClusterErrors": risen("errors", 1),
    "ClusterServiceErrors": of_service(Id.CONTAINER_ERRORS, 1),
    "ClusterSessionsNearLimit": found(sessions=9),
    "ClusterConnectionsNearLimit": risen("client_connections", 9),
    "ClusterClientsSilent": risen("timed_out_clients", 6),
    "ClusterRefusals": risen("refusals", 11),
    "ClusterSnapshotOld": found(snapshotTime=iso(-8 * 86_400)),
    "ClusterSnapshotSlow": risen("max_snapshot_duration_ns", 61 * 10**9),
    "ClusterReplayLong": found(replayBytes=9 * GIB),
    "ClusterBackupDown": lambda shown: shown.backup_found.update(isAlive=False),
    "ClusterBackupLags": lambda shown: shown.backup.members_commit_position.set(65 << 20),
    "ClusterBackupOverdue": lambda shown: shown.backup_found.update(nextQuery=iso(-1_000)),
    "ClusterDescriptorsNearLimit": lambda shown: shown.process.update(process_open_fds=900.0),
}


def pages(fault: Callable[[Shown], object] | None, *, of_all: bool = False) -> tuple[Page, Page]:
    """What two members show before and after a fault of one of them, or of both."""
    members = [Shown(), Shown()]
    before = page_of(members)
    for shown in members:
        for index in (shown.counters.sync_time.index, shown.counters.commit_time.index):
            shown.histogram(index, 3, 10)
    for shown in members if of_all else members[:1]:
        if fault is not None:
            fault(shown)
    return before, page_of(members)


def page_of(members: list[Shown]) -> Page:
    return dict(item for i, shown in enumerate(members) for item in shown.page(f"{i}").items())


@pytest.mark.interop
def test_each_alert_is_quiet_where_all_is_well_and_fires_where_its_fault_was_made(tmp_path):
    assert FAULTS.keys() == RULES.keys()
    tests = [rule_test(*pages(None), dict.fromkeys(RULES, False))]
    for alert, fault in FAULTS.items():
        tests.append(rule_test(*pages(fault, of_all=alert == "ClusterNoLeader"), {alert: True}))
    assert said_of(tmp_path, tests) == ""


def test_every_series_of_alerts_and_of_the_dashboard_exists():
    series = {name for key in Shown().page("0") for name in names_in(key)}
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(expressions) > 12
    for expression in [*expressions, *(rule["expr"] for rule in RULES.values())]:
        named = names_in(expression)
        assert named and named <= series | {"process_resident_memory_bytes", "process_cpu_seconds_total"}


def test_every_alert_is_in_the_page():
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert [alert for alert in RULES if f"| `{alert}` |" not in page] == []
