"""What ``cluster status`` makes of how members stand; docs/status.md has every name."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.cli import status_document, verdict
from cluster.cli.verdict import Judgement, judge_members
from cluster.errors import AuthenticationRejected
from cluster.reader import standing
from tests.tree import ROOT

NOW = datetime(2026, 11, 27, tzinfo=UTC)
PAGE = (ROOT / "docs" / "status.md").read_text()


def member(member_id, role="FOLLOWER", **known):
    return {
        "memberId": member_id, "isAlive": True, "role": role, "electionState": "CLOSED",
        "moduleState": "ACTIVE", "leadershipTermId": 4, "commitPosition": 1_000, "appendPosition": 1_000,
    } | known  # fmt: skip


def gone(member_id, **known):
    return {"memberId": member_id, "isAlive": False, **known}


def a_cluster(count, **of_last):
    return [member(0, "LEADER"), *map(member, range(1, count - 1)), member(count - 1, **of_last)]


def judged(members, count=None, committed=1_000):
    found = judge_members(members, count or len(members), NOW, committed)
    return found.verdict, found.may_stop, [message.name for message in found.messages]


@pytest.mark.parametrize("count, may_stop", [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (7, 3)])
def test_a_cluster_of_level_members_is_healthy_and_can_spare_what_is_beyond_a_majority(count, may_stop):
    members = [member(0, "LEADER"), *map(member, range(1, count))]
    assert judged(members) == ("healthy", may_stop, [])


def test_one_of_three_gone_puts_the_cluster_at_risk_and_one_of_five_does_not():
    assert judged([*a_cluster(3)[:2], gone(2)]) == ("at-risk", 0, ["not-running"])
    assert judged([*a_cluster(5)[:4], gone(4)]) == ("degraded", 1, ["not-running"])
    assert judged([*a_cluster(5)[:3], gone(3), gone(4)]) == ("at-risk", 0, ["not-running"] * 2)


def test_why_a_member_that_does_not_run_may_not_start_is_said_with_it():
    ended = (NOW - timedelta(hours=1)).isoformat(timespec="minutes")
    late = gone(2, certificateEnds=ended, diskFree=0, diskTotal=1 << 40)
    assert judged([*a_cluster(3)[:2], late])[2] == ["not-running", "disk-low", "certificate-ends"]


def test_a_member_that_nobody_has_heard_of_yet_is_missing_too():
    assert judged(a_cluster(2), count=3)[:2] == ("at-risk", 0)


@pytest.mark.parametrize(
    "what, name",
    [
        ({"electionState": "CANVASS"}, "in-election"),
        ({"waitsFor": [0, 1], "electionState": "CANVASS"}, "waits"),
        ({"commitPosition": 600, "appendPosition": 600}, "lags"),
        ({"commitPosition": None, "appendPosition": None}, "log-unknown"),
    ],
)
def test_a_member_that_runs_and_cannot_replace_the_leader_is_not_counted(what, name):
    assert judged(a_cluster(3, **what)) == ("at-risk", 0, [name])


def test_of_a_member_that_waits_it_is_not_said_that_it_has_lost_what_a_new_one_never_had():
    [message] = judge_members(a_cluster(3, waitsFor=[0], electionState="CANVASS"), 3, NOW).messages
    assert message.text == "member 2 waits for member 0: it is new, or has lost its promises"


def test_a_member_that_lacks_only_what_was_committed_since_a_moment_ago_is_level():
    members = [member(0, "LEADER", commitPosition=9_000), member(1), member(2, commitPosition=5_000)]
    assert judged(members, committed=1_000) == ("healthy", 1, [])


def test_of_members_of_which_nothing_is_known_it_is_not_said_how_many_may_be_lost():
    refused = [gone(None, error="db0:9000: Connection refused")]
    assert judge_members(refused, 1, NOW).may_be_lost is None
    assert judge_members([gone(0, commitPosition=96), gone(1)], 2, NOW).may_be_lost == 0


@pytest.mark.parametrize(
    "known, fix",
    [
        ({"error": "db0:9000: Connection refused"}, "Check that its process runs, its host is reachable"),
        ({"error": "process 7 is stopped", "dir": "d"}, "See d/node.log"),
        ({"dir": "d"}, "cluster node --config FILE; that of `cluster up` is d/node.toml"),
    ],
)
def test_what_to_do_about_a_member_goes_by_what_is_known_of_it(known, fix):
    found = judge_members([*a_cluster(3)[:2], gone(2, **known)], 3, NOW)
    assert fix in found.messages[0].fix


def test_of_a_member_that_its_full_disk_holds_up_the_disk_is_named_too():
    held_up = gone(2, error="process 7 takes no turns", dir="d", diskFree=3 << 20, diskTotal=1 << 40)
    assert judged([*a_cluster(3)[:2], held_up]) == ("at-risk", 0, ["no-answer", "disk-low"])


@pytest.mark.parametrize(
    "offset_ms, verdict", [(-499, "healthy"), (500, "degraded"), (-3_600_000, "degraded")]
)
def test_a_clock_that_is_half_a_second_from_the_others_degrades_the_cluster(offset_ms, verdict):
    found = judge_members(a_cluster(3, clockOffsetMs=offset_ms), 3, NOW)
    assert found.verdict == verdict
    if offset_ms == -3_600_000:
        assert found.messages[0].text == "the clock of member 2 shows 3,600.0 s less than those of a majority"


def test_a_leader_whose_log_is_full_takes_no_messages_and_a_follower_may_be_full():
    leader, *others = a_cluster(3)
    assert judged([leader | {"logRoom": 0}, *others]) == ("unavailable", 1, ["log-full"])
    assert judged(a_cluster(3, logRoom=0)) == ("degraded", 1, ["log-full"])
    stale = member(2, "LEADER", leadershipTermId=3, logRoom=0)  # it has not yet heard of the next term
    assert judged([leader, others[0], stale]) == ("at-risk", 0, ["log-full"])


def test_damage_is_said_though_no_member_runs():
    stopped = {"memberId": 0, "isAlive": False, "dir": "c/member-0"}
    found = judge_members(
        [stopped, {**stopped, "memberId": 1, "damage": "recording.log at offset 0"}], 2, NOW
    )
    assert [(m.name, m.member) for m in found.messages] == [("no-leader", None), ("not-readable", 1)]


def test_who_refuses_is_answered_by_what_to_do_about_that():
    fix = AuthenticationRejected.fix
    refused = {"memberId": None, "isAlive": False, "error": "reader failed authentication", "errorFix": fix}
    [message] = judge_members([refused], 1, NOW).messages
    assert (message.name, message.fix) == ("no-leader", fix)


@pytest.mark.parametrize(
    "known, where", [({"dir": "c/member-2"}, " --dir c/member-2"), ({}, ", on its host")]
)
def test_errors_are_looked_for_at_the_member_that_counted_them(known, where):
    [message] = judge_members(a_cluster(3, errors=1, **known), 3, NOW).messages
    assert message.text == "member 2 has counted 1 error since its start"
    assert message.fix == f"See them: cluster tool errors{where}."


def test_members_that_were_closed_are_not_to_be_started():
    [message] = judge_members([gone(0, isClosed=True), gone(1, isClosed=True), gone(2)], 3, NOW).messages
    assert message.text == "no member runs, and members 0, 1 were closed: they do not start again"
    assert message.fix == "Start the members that `cluster tool make-members` makes from them."


def test_without_a_leader_the_cluster_is_unavailable_and_the_reason_says_why():
    canvass = {"electionState": "CANVASS"}
    texts = [
        judge_members(members, 3, NOW).messages[0].text
        for members in (
            [gone(0), gone(1), gone(2)],
            [member(0, **canvass), gone(1), gone(2)],
            [member(0, **canvass), member(1, **canvass), gone(2)],
        )
    ]
    assert texts == [
        "no member runs",
        "no member leads: 1 of 3 run, a majority is 2",
        "no member leads, though 2 of 3 run",
    ]
    assert judge_members([gone(0)], 1, NOW).verdict == "unavailable"


def test_of_one_member_s_directory_it_is_said_why_it_is_held_up_and_that_the_others_are_not_known():
    held_up = gone(2, error="process 7 was stopped by a signal", dir="d")
    [message] = judge_members([held_up], 3, NOW).messages
    assert message.text == (
        "no member answers: process 7 was stopped by a signal; of 2 others nothing is known here"
    )
    assert message.fix == "See d/node.log. Ask the others with --endpoints."


def test_an_election_names_the_links_that_are_missing():
    links = [a_link(0), a_link(1), a_link(2, isConnecting=True), a_link(4, isUp=True)]
    found = judge_members(a_cluster(4, electionState="CANVASS", links=links), 4, NOW)
    assert found.messages[0].text == ("member 3 is in an election: CANVASS; it has no link to members 0, 1")
    assert "certificate" in found.messages[0].fix


def a_link(peer, **known):
    return {"peer": peer, "isUp": False, "isConnecting": False, "refusedCertificate": ""} | known


def with_cut_links(count, *pairs, **known):
    """Whose second ones see it, too, or see ``known``."""
    members = {member["memberId"]: member | {"links": []} for member in a_cluster(count)}
    for one, other in pairs:
        members[one]["links"].append(a_link(other))
        members[other]["links"].append(a_link(one, **known))
    return list(members.values())


@pytest.mark.parametrize(
    ("count", "pairs", "verdict", "may_stop"),
    [
        (3, [(1, 2)], "at-risk", 0),  # without member 0 nobody leads
        (5, [(1, 2)], "degraded", 2),
        (5, [(1, 2), (1, 3), (2, 3)], "degraded", 1),  # without 0 and 4
        (7, [(1, 2)], "degraded", 3),
    ],
)
def test_a_link_that_is_cut_between_members_that_take_part_is_named_and_counted(
    count, pairs, verdict, may_stop
):
    members = with_cut_links(count, *pairs)
    assert judged(members) == (verdict, may_stop, ["link-down"] * len(pairs))
    message = judge_members(members, count, NOW).messages[0]
    assert message.text == "members 1 and 2 cannot reach each other" and "network" in message.fix


@pytest.mark.parametrize(
    ("count", "down", "verdict"),
    [
        (3, 1, "at-risk"),
        (3, 2, "unavailable"),
        (5, 2, "at-risk"),
        (5, 3, "unavailable"),
        (2, 1, "unavailable"),
    ],
)
def test_a_leader_without_a_majority_commits_nothing_though_it_has_not_yet_stood_down(count, down, verdict):
    peers = range(1, count)
    links = [a_link(peer, isUp=peer < count - down) for peer in peers]
    members = [member(0, "LEADER", links=links), *map(member, range(1, count - down))]
    members += map(gone, range(count - down, count))
    found = judge_members(members, count, NOW, 1_000)
    assert (found.verdict, found.may_stop) == (verdict, 0)
    assert (found.messages[0].name == "no-majority") == (verdict == "unavailable")


def test_a_leader_that_is_looked_at_alone_has_a_majority_by_its_own_links():
    leader = member(0, "LEADER", links=[a_link(1, isUp=True), a_link(2)])
    assert judged([leader]) == ("healthy", 0, [])
    lost = leader | {"links": [a_link(1), a_link(2)]}
    [message] = judge_members([lost], 1, NOW).messages
    assert message.text.startswith("member 0 leads, but has lost 2 of 2 others")


@pytest.mark.parametrize(
    ("ages_ms", "verdict", "may_stop"), [((None, 900), "at-risk", 0), ((0, 2_100), "healthy", 1)]
)
def test_a_link_that_one_side_has_is_cut_if_what_both_say_is_new(ages_ms, verdict, may_stop):
    members = with_cut_links(3, (1, 2), isUp=True)
    for member, age_ms in zip(members[1:], ages_ms, strict=True):
        member["heartbeatAgeMs"] = age_ms
    assert judged(members)[:2] == (verdict, may_stop)
    texts = [message.text for message in judge_members(members, 3, NOW).messages]
    assert texts == (["nothing comes from member 2 to member 1, though both run"] if may_stop == 0 else [])


def test_a_member_that_nobody_hears_is_not_one_that_may_replace_another():
    members = with_cut_links(3, (0, 2), (1, 2), isUp=True)
    assert judged(members) == ("at-risk", 0, ["link-down", "link-down"])


@pytest.mark.parametrize("known", [{"isConnecting": True}, {"refusedCertificate": "theirs"}])
def test_a_link_that_is_being_made_or_lacks_a_certificate_is_not_a_cut_one(known):
    assert "link-down" not in judged(with_cut_links(3, (1, 2), **known))[2]
    assert judged([*with_cut_links(3, (1, 2))[:2], gone(2)])[2] == ["not-running"]


def test_a_member_whose_certificate_others_refuse_is_named_once_by_what_both_sides_say():
    def links(**refused):
        return [
            a_link(int(peer[1:]), isUp=not whose, refusedCertificate=whose) for peer, whose in refused.items()
        ]

    members = [
        member(0, "LEADER", links=links(m1="theirs", m2="")),
        member(1, electionState="CANVASS", links=links(m0="ours", m2="ours")),
        member(2, links=links(m0="", m1="")),
    ]
    found = [m for m in judge_members(members, 3, NOW).messages if m.name == "certificate-refused"]
    assert [(m.member, m.text) for m in found] == [
        (1, "member 1 has no link to members 0, 2: its certificate is refused there")
    ]


def test_of_two_members_that_say_they_lead_the_one_of_the_newer_term_does():
    found = judge_members([member(0, "LEADER", leadershipTermId=3), member(1, "LEADER"), member(2)], 3, NOW)
    assert found.leader is not None and found.leader["memberId"] == 1
    assert found.may_stop == 0  # the other one follows nobody


def test_a_suspended_cluster_is_unavailable_and_says_how_it_goes_on():
    members = [member(0, "LEADER", moduleState="SUSPENDED"), member(1), member(2)]
    found = judge_members(members, 3, NOW)
    assert (found.verdict, found.messages[0].name, found.messages[0].fix) == (
        "unavailable", "suspended", "cluster tool resume"
    )  # fmt: skip


def test_what_may_be_lost_are_the_disks_beside_one_that_has_all_that_was_acknowledged():
    stopped = {"isAlive": False, "role": None}
    of_all = [member(id_, **stopped) for id_ in range(3)]
    assert judge_members(of_all, 3, NOW).may_be_lost == 2
    assert judge_members([*of_all[:2], member(2, appendPosition=900, **stopped)], 3, NOW).may_be_lost == 1
    assert judge_members([*of_all[:2], of_all[2] | {"damage": "x"}], 3, NOW).may_be_lost == 1
    assert judge_members([of_all[0], gone(1), gone(2)], 3, NOW).may_be_lost == 0
    # A leader has a majority that holds what is committed, whatever this look at them has missed.
    assert judge_members([member(0, "LEADER"), gone(1), gone(2)], 3, NOW).may_be_lost == 1


def test_what_will_keep_a_member_from_its_part_degrades_the_cluster():
    soon = (NOW + timedelta(days=3)).isoformat()
    for what, name in (
        ({"diskFree": 1 << 29, "diskTotal": 1 << 40}, "disk-low"),
        ({"diskFree": 40 << 30, "diskTotal": 1 << 40}, "disk-low"),
        ({"logRoom": 0}, "log-full"),
        ({"certificateEnds": soon}, "certificate-ends"),
        ({"serviceLag": 600}, "service-lags"),
        ({"serviceStandstillsMs": [0, 12_300], "serviceLag": 600}, "service-stands-still"),
    ):
        assert judged(a_cluster(3, **what)) == ("degraded", 1, [name])
    for free, total, found in (
        (1 << 30, 20 << 30, []),
        ((1 << 30) - 1, 20 << 30, ["disk-low"]),
        (1 << 28, 1 << 30, []),
        ((1 << 28) - 1, 1 << 30, ["disk-low"]),
    ):
        assert judged(a_cluster(3, diskFree=free, diskTotal=total))[2] == found
    assert judged(a_cluster(3, diskFree=100 << 30, diskTotal=1 << 40, serviceLag=0)) == ("healthy", 1, [])


def test_which_service_stands_still_is_said_and_for_how_long():
    [message] = judge_members(a_cluster(3, serviceStandstillsMs=[0, 12_300]), 3, NOW).messages
    assert message.text.startswith(
        "service 1 of member 2 stands still: for 12 s its process has not answered"
    )
    assert "`service 1 runs in process PID`" in message.fix


def test_remarks_come_last_and_change_no_verdict():
    assert judged(a_cluster(3, errors=2, replayBytes=2 << 30)) == ("healthy", 1, ["errors", "long-replay"])
    assert judged([member(0, "LEADER", errors=1), member(1), gone(2)])[2] == ["not-running", "errors"]


def test_a_member_that_does_not_answer_is_named_with_the_reason():
    found = judge_members([*a_cluster(3)[:2], gone(None, error="127.0.0.1:9: refused")], 3, NOW)
    assert found.messages[0].text == "a member does not answer: 127.0.0.1:9: refused"


def test_every_message_and_every_key_is_in_the_page():
    source = (ROOT / "cluster/cli/verdict.py").read_text()
    names = set(re.findall(r'Finding\(\s*"([a-z-]+)"', source))
    assert len(names) > 10
    assert names == set(re.findall(r"^\| `([a-z-]+)` \| (?:error|warning|info)", PAGE, re.MULTILINE))
    keys = {key for name in ("status_document", "top") for key in keys_in(f"cluster/cli/{name}.py")}
    keys |= set(standing.KEYS) | set(standing.OF_LINK)
    not_in_it = {"counters", "typeId", "label", "value"}  # with --counters, of cluster top alone
    not_in_it |= {"logIdentity"}  # is said once, of the cluster
    assert keys - not_in_it - {"error"} - set(re.findall(r"`([a-zA-Z]+)`", PAGE)) == set()
    assert all(f"`{word}`" in PAGE for word in (verdict.HEALTHY, verdict.DEGRADED, verdict.AT_RISK))
    assert f'"v": {status_document.STATUS_VERSION}' in PAGE


def keys_in(source):
    return re.findall(r'"([a-zA-Z]+)":', (ROOT / source).read_text())


@pytest.mark.parametrize(
    ("of_members", "of_all"), [("healthy", "degraded"), ("degraded", "degraded"), ("at-risk", "at-risk")]
)
def test_a_backup_that_does_not_run_makes_no_verdict_better(monkeypatch, of_members, of_all):
    member = {"isAlive": True, "memberId": 0}
    seen = SimpleNamespace(
        members=[member], backups=[{"isAlive": False, "dir": "backup"}], member_count=1, cluster_id=0,
        identity=None,
    )  # fmt: skip
    monkeypatch.setattr(status_document, "_seen", lambda *_: seen)
    monkeypatch.setattr(status_document, "with_missing_entries", lambda *_: None)
    judged = Judgement(of_members, 0, 0, None, [])
    monkeypatch.setattr(status_document, "judge_members", lambda *_: judged)
    made = status_document.status_document(None, "localhost:1")

    assert made["verdict"] == of_all
    assert [message["name"] for message in made["messages"]] == ["backup-not-running"]


@pytest.mark.parametrize(
    ("how", "word", "names"),
    [
        ({"backupState": "BACKING_UP", "lag": 1 << 20, "minutes": 0}, "healthy", []),
        ({"backupState": "BACKUP_QUERY", "minutes": 1}, "healthy", []),
        ({"backupState": "BACKUP_QUERY", "minutes": 3}, "degraded", ["backup-not-level"]),
        ({"backupState": "SNAPSHOT_RETRIEVE", "nextQuery": None}, "degraded", ["backup-not-level"]),
        ({"backupState": "LIVE_LOG_REPLAY", "lag": 64 << 20}, "degraded", ["backup-lags"]),
        ({"backupState": "RESET_BACKUP", "lag": 64 << 20}, "degraded", ["backup-interrupted"]),
        ({"isAlive": False}, "unavailable", ["backup-not-running"]),
    ],
)
def test_a_backup_is_healthy_while_it_keeps_up(monkeypatch, how, word, names):
    """``minutes``: so long ago it was to ask the members for a snapshot."""
    backup = {"isAlive": True, "dir": "backup", "lag": None} | how
    if (minutes := how.get("minutes")) is not None:
        backup["nextQuery"] = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    seen = SimpleNamespace(members=[], backups=[backup], member_count=0, cluster_id=0, identity=None)
    monkeypatch.setattr(status_document, "_seen", lambda *_: seen)
    made = status_document.status_document(Path("backup"))
    assert (made["verdict"], [message["name"] for message in made["messages"]]) == (word, names)
