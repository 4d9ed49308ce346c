"""docs/runbooks.md: the fault of each is made, what it says is seen, and what it says to do helps."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import yaml

from cluster.cli.verdict import judge_members
from cluster.member.disk.data_loss import accept_data_loss
from tests.cli.command_lines import command_lines
from tests.docs.runbooks import SECTIONS, SPAN, seen
from tests.docs.texts import exists
from tests.member.cluster_steps import a_cluster, send, set_away
from tests.member.in_memory.cluster import QUICK, SECOND, SimulatedCluster
from tests.member.in_memory.member import DIRECTORY
from tests.transport.name_server import NameServer, hosts, of
from tests.tree import ROOT

NAMES_OF_STATUS = re.compile(r"^\| `([a-z-]+)` \|", re.MULTILINE)


def a_busy_cluster(**settings) -> SimulatedCluster:
    cluster = SimulatedCluster(3, 1, **(QUICK | settings))
    cluster.await_leader()
    cluster.add_client()
    send(cluster, 5)
    return cluster


def goes_on(cluster: SimulatedCluster) -> list[str]:
    """What was said, once the client and all members are served again."""
    cluster.clients[0].send(b"0:goes on")
    cluster.await_settled()
    cluster.await_level()
    return cluster.events


def nobody_leads() -> list[str]:
    cluster = a_busy_cluster()
    gone = cluster.followers
    for member in gone:
        member.kill()
    cluster.run(8 * SECOND)
    assert cluster.leader is None
    for member in gone:
        member.start()
    return goes_on(cluster)


def a_member_is_lost() -> list[str]:
    cluster = a_busy_cluster()
    lost = cluster.followers[0]
    lost.kill()
    lost.wipe()
    cluster.run(SECOND)
    lost.start()
    return goes_on(cluster)


def a_majority_is_lost() -> list[str]:
    cluster = a_busy_cluster()
    lost = cluster.followers
    for member in lost:
        member.kill()
        member.wipe()
        member.start()
    cluster.run(10 * SECOND)
    assert cluster.leader is None
    lost[0].stop()
    accept_data_loss(lost[0].files, f"{DIRECTORY}/cluster", 7)
    lost[0].start()
    return goes_on(cluster)


def they_do_not_reach_each_other() -> list[str]:
    cluster = a_busy_cluster()
    leader = cluster.leader
    for other in cluster.followers:
        cluster.links.block(leader.member_id, other.member_id)
        cluster.links.block(other.member_id, leader.member_id)
    cluster.run(8 * SECOND)
    cluster.links.heal()
    return goes_on(cluster)


def a_name_does_not_resolve() -> list[str]:
    server = NameServer()
    for answer in ({"addresses": ("10.0.0.1",)}, {"why": "no such name"}, {"addresses": ("10.0.0.2",)}):
        server.now_ns += 3600 * SECOND
        hosts(server, of("db0"))
        server.answer(*answer.get("addresses", ()), why=answer.get("why", ""))
    assert hosts(server, of("db0")) == ["10.0.0.2"]
    return server.told


def a_clock_is_off() -> list[str]:
    cluster = a_busy_cluster()
    leader = cluster.leader
    leader.clock.jump(3600 * SECOND)
    cluster.run(5 * SECOND)
    leader.clock.jump(-3600 * SECOND)
    assert cluster.leader is leader
    return goes_on(cluster)


def a_disk_is_full() -> list[str]:
    cluster = a_busy_cluster()
    full = cluster.leader
    full.disk.faults.is_full = True
    for _ in range(120):
        cluster.clients[0].send(b"0:%d:" % len(cluster.clients[0].sent) + bytes(1000))
    cluster.run(5 * SECOND)
    assert cluster.leader is not full
    full.disk.faults.is_full = False
    return goes_on(cluster)


def the_log_has_no_room() -> list[str]:
    cluster = a_busy_cluster(disk_free_min=1 << 20)
    for member in cluster.members:
        member.disk.faults.free_bytes = 1 << 19
    cluster.run(2 * SECOND)
    for member in cluster.members:
        member.disk.faults.free_bytes = 1 << 40
    return goes_on(cluster)


def a_certificate_has_ended() -> list[str]:
    member = {
        "memberId": 0, "isAlive": True, "role": "LEADER", "electionState": "CLOSED",
        "moduleState": "ACTIVE", "commitPosition": 0, "leadershipTermId": 0,
        "certificateEnds": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    found = judge_members([member], 1, datetime(2026, 2, 1, tzinfo=UTC), 0)
    return [message.name for message in found.messages]


def a_service_is_away() -> list[str]:
    cluster = a_cluster(leader_heartbeat_timeout_ns=2 * SECOND)
    cluster.add_client()
    leader, absent = cluster.leader, cluster.followers[0]
    set_away(leader)
    set_away(absent)
    cluster.run_until(lambda: cluster.leader not in (None, leader))
    return goes_on(cluster)


FAULTS: dict[str, Callable[[], list[str]]] = {
    "Nobody leads": nobody_leads,
    "A member is lost": a_member_is_lost,
    "A majority is lost": a_majority_is_lost,
    "Members do not reach each other": they_do_not_reach_each_other,
    "A name does not resolve": a_name_does_not_resolve,
    "A clock is off": a_clock_is_off,
    "A disk is full": a_disk_is_full,
    "The log has no more room": the_log_has_no_room,
    "A certificate has ended": a_certificate_has_ended,
    "A service is slow, or dies": a_service_is_away,
}
ELSEWHERE = {"Spark lags": "tests/cli/test_consumers.py::test_groups_are_shown_with_what_lies_behind_them"}


def like(line: str) -> str:
    """A line whose numbers and ids may be others."""
    return re.sub(r"\d[\d.]*(, \d+)*", "#", line)


def test_each_runbook_is_followed_in_a_test():
    assert [*FAULTS, *ELSEWHERE] == list(SECTIONS)
    assert all(map(exists, ELSEWHERE.values()))


@pytest.mark.parametrize("title", FAULTS)
def test_what_a_runbook_says_is_seen_when_its_fault_is_made_and_the_cluster_goes_on_after_it(title):
    said = FAULTS[title]()
    missing = [line for line in seen(title)[2] if not any(like(line) in like(event) for event in said)]
    assert missing == []


@pytest.mark.parametrize("title", SECTIONS)
def test_alerts_names_and_commands_of_a_runbook_exist_and_its_alerts_lead_to_it(title):
    rules = yaml.safe_load((ROOT / "conf/monitoring/alerts.yml").read_text())["groups"][0]["rules"]
    links = {rule["alert"]: rule["annotations"].get("runbook_url", "") for rule in rules}
    anchor = re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
    alerts, names, _ = seen(title)
    assert all(links[alert].startswith("docs/runbooks.md#") for alert in alerts)
    assert not alerts or anchor in {links[alert].partition("#")[2] for alert in alerts}
    assert set(names) <= set(NAMES_OF_STATUS.findall((ROOT / "docs" / "status.md").read_text()))
    known = {" ".join(line) for line in command_lines()}
    for command in (span for span in SPAN.findall(SECTIONS[title]) if span.startswith("cluster ")):
        words = command.removeprefix("cluster ").split(" ")
        assert " ".join(words[:1]) in known or " ".join(words[:2]) in known, command
