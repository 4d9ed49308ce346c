"""What an operator wants to know of a cluster, out of how its members stand: one verdict, and its reasons.

FoundationDB's status is the model: a verdict of four words, two numbers (how many members may stop without
stopping the cluster, how many may lose their disks without losing what was acknowledged), and messages that
name a cause and what to do about it. docs/status.md has every key and every message.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any, NamedTuple

HEALTHY, DEGRADED, AT_RISK, UNAVAILABLE = "healthy", "degraded", "at-risk", "unavailable"
ERROR, WARNING, INFO = "error", "warning", "info"  # an INFO is a remark: it changes no verdict

DISK_FREE_MIN = 1 << 30  # bytes, or a twentieth of the disk, or of a small one a quarter
REPLAY_BYTES_MAX = 1 << 30  # after the last snapshot: about ten seconds of a start
CERTIFICATE_DAYS_MIN = 14
CLOCK_OFFSET_MS_MIN = 500
HEARTBEAT_AGE_MS_MAX = 2_000  # of what is written each second
BACKUP_LAG_MAX = 64 << 20  # bytes, as of the alert ClusterBackupLags
BACKUP_QUERY_MAX = timedelta(minutes=2)  # from its query until it is level again

STOPPED = {"no-leader", "suspended", "not-active", "no-majority", "log-full"}  # as errors
TAKES_MESSAGES = ("ACTIVE", "SNAPSHOT", None)  # None: a real Aeron Cluster does not say it

Member = dict[str, Any]  # as ``cluster top --json`` has it; what is not known is None or missing


class Finding(NamedTuple):
    """A reason: ``name`` is kept from release to release, ``member`` None where it is about all."""

    name: str
    severity: str
    member: int | None
    text: str
    fix: str


class Judgement(NamedTuple):
    """``may_stop`` and ``may_be_lost`` count members: without stopping the cluster, without losing data.

    ``may_be_lost`` is None where no member is known to have any log.
    """

    verdict: str
    may_stop: int
    may_be_lost: int | None
    leader: Member | None
    messages: list[Finding]


def judge_members(
    members: Sequence[Member], member_count: int, now: datetime, committed_before: int | None = None
) -> Judgement:
    """Judge a cluster of ``member_count`` members, of which ``members`` are known.

    ``committed_before``: what was committed a moment ago, in bytes. A member that has not come so far lags;
    one that has not yet what was committed since then does not.
    """
    quorum = member_count // 2 + 1
    leader = _leader(members)
    messages = _about_all(members, leader, member_count)
    about_each = [m for member in members for m in _about(member, leader, now, committed_before)]
    if not any(member["isAlive"] for member in members):  # that each of them does not run is said
        about_each = [message for message in about_each if message.name == "not-readable"]
    messages += about_each + _about_certificates(members) + _about_links(cut := cut_links(members))
    level_ids = [member["memberId"] for member in members if _is_level(member, leader, committed_before)]
    may_stop = _may_stop(level_ids, cut, quorum) if leader else 0
    copies = sum(_has_all(member, members, committed_before) for member in members)
    is_known = any(member.get("commitPosition") is not None for member in members)
    may_be_lost = max(copies, quorum if leader else 0, 1) - 1 if is_known else None
    if any(message.name in STOPPED and message.severity == ERROR for message in messages):
        verdict = UNAVAILABLE
    elif may_stop == 0 < member_count - quorum:
        verdict = AT_RISK
    elif any(message.severity != INFO for message in messages):
        verdict = DEGRADED
    else:
        verdict = HEALTHY
    order = (ERROR, WARNING, INFO)
    messages.sort(key=lambda message: order.index(message.severity))
    return Judgement(verdict, may_stop, may_be_lost, leader, messages)


def why_not_ready(member: Member) -> list[str]:
    """Why a member takes no part in its cluster, or its cluster takes no message; empty while it does."""
    if not member["isAlive"]:
        return [member.get("error") or member.get("damage") or "the member takes no turns"]
    reasons = [
        finding.text
        for finding in _about_its_part(member, f"member {member['memberId']}", None)
        if finding.severity != INFO
    ]
    if not reasons and (member.get("leaderMemberId") or 0) < 0:
        reasons.append("no leader is known")
    if member.get("moduleState") not in ("ACTIVE", "SNAPSHOT"):
        reasons.append(f"the module's state is {member.get('moduleState')}")
    return reasons


def judge_backups(backups: Sequence[Member], now: datetime) -> list[Finding]:
    """What is to be said of backups and standbys; they have no part in what the members can do."""
    return [finding for backup in backups for finding in _about_backup(backup, now)]


def _about_backup(backup: Member, now: datetime) -> list[Finding]:
    who = f"the backup in {backup['dir']}"
    if not backup["isAlive"]:
        fix = "Start it: cluster backup --config FILE."
        return [Finding("backup-not-running", WARNING, None, f"{who} does not run", fix)]
    if backup.get("backupState") == "RESET_BACKUP":
        text = f"{who} has lost its member, and asks another one after a pause (cool_down_interval)"
        return [Finding("backup-interrupted", WARNING, None, text, f"See {backup['dir']}/backup.log.")]
    if (lag := backup.get("lag") or 0) >= BACKUP_LAG_MAX:
        text = f"{who} lacks {lag:,} bytes of what the members have committed"
        fix = "Wait while it fetches them; if it falls further behind, see its disk and its network."
        return [Finding("backup-lags", WARNING, None, text, fix)]
    next_query = backup.get("nextQuery")  # set when it is level
    is_asking = next_query is None or now - datetime.fromisoformat(next_query) > BACKUP_QUERY_MAX
    if backup.get("backupState") != "BACKING_UP" and is_asking:
        since = "since it was started" if next_query is None else f"since its query of {next_query}"
        text = f"{who} has not been level with the members {since}"
        fix = f"Wait while it fetches a snapshot and the log; see {backup['dir']}/backup.log."
        return [Finding("backup-not-level", WARNING, None, text, fix)]
    return []


def _leader(members: Sequence[Member]) -> Member | None:
    """Who leads the newest term; one of an older term has not yet noticed."""
    leaders = [member for member in members if _takes_part(member) and member["role"] == "LEADER"]
    return max(leaders, key=lambda member: member["leadershipTermId"] or -1, default=None)


def _takes_part(member: Member) -> bool:
    return bool(member["isAlive"] and member.get("electionState") == "CLOSED")


def _is_level(member: Member, leader: Member | None, committed_before: int | None) -> bool:
    """Whether the member can replace the leader at once."""
    return (
        leader is not None
        and _takes_part(member)
        and not member.get("waitsFor")
        and member["leadershipTermId"] == leader["leadershipTermId"]
        and member.get("commitPosition") is not None
        and not _lags(member, "commitPosition", committed_before)
    )


def _has_all(member: Member, members: Sequence[Member], committed_before: int | None) -> bool:
    """Whether the member's disk has all that was acknowledged."""
    committed = committed_before
    if committed is None:
        committed = max((other.get("commitPosition") or 0 for other in members), default=0)
    position = member.get("appendPosition")
    is_lost = member.get("waitsFor") or member.get("damage")
    return position is not None and position >= committed and not is_lost


def _lags(member: Member, key: str, committed_before: int | None) -> bool:
    position = member.get(key)
    return committed_before is not None and position is not None and position < committed_before


def _about_all(members: Sequence[Member], leader: Member | None, member_count: int) -> list[Finding]:
    messages = []
    alive = [member for member in members if member["isAlive"]]
    quorum = member_count // 2 + 1
    if leader is None:
        if not alive:
            silent = [member for member in members if "error" in member]
            text = "no member runs"
            fix = "Start the members as before: `cluster up`, or `cluster node --config FILE` for each."
            if closed := [str(member["memberId"]) for member in members if member.get("isClosed")]:
                text = f"no member runs, and members {', '.join(closed)} were closed: they do not start again"
                fix = "Start the members that `cluster tool make-members` makes from them."
            if silent:
                text = f"no member answers: {'; '.join(str(member['error']) for member in silent)}"
                fix = " ".join(dict.fromkeys(_fix_of(member) for member in silent))
            if unknown := member_count - len(members):
                text += f"; of {unknown} other{'s' * (unknown != 1)} nothing is known here"
                fix += " Ask the others with --endpoints."
        elif len(alive) < quorum:
            text = f"no member leads: {len(alive)} of {member_count} run, a majority is {quorum}"
            fix = "Start the members that do not run."
        else:
            text = f"no member leads, though {len(alive)} of {member_count} run"
            fix = "Wait for the election; if it does not end, see the links between members in node.log."
        messages.append(Finding("no-leader", ERROR, None, text, fix))
    elif leader["moduleState"] == "SUSPENDED":
        text = "the cluster is suspended: it takes no message and fires no timer"
        messages.append(Finding("suspended", ERROR, leader["memberId"], text, "cluster tool resume"))
    elif leader["moduleState"] not in TAKES_MESSAGES:
        text = f"the leader's state is {leader['moduleState']}: it takes no message"
        messages.append(Finding("not-active", ERROR, leader["memberId"], text, "Wait, or see node.log."))
    elif 2 * (lost := _lost(leader)) > (others := max(member_count - 1, len(leader.get("links", ())))):
        text = (
            f"member {leader['memberId']} leads, but has lost {lost} of {others} others: without a majority "
            "nothing is committed"
        )
        fix = "Start the members that do not run. If they run, check the network between the hosts."
        messages.append(Finding("no-majority", ERROR, leader["memberId"], text, fix))
    return messages


def _lost(leader: Member) -> int:
    """To how many others it says to have no link."""
    return sum(not (link["isUp"] or link["isConnecting"]) for link in leader.get("links", ()))


def _about_certificates(members: Sequence[Member]) -> list[Finding]:
    """Whose certificate keeps members without links to others, by what both sides of each say."""
    refusing: dict[int, set[int]] = {}  # by whose it is
    for member in members:
        for link in member.get("links", ()):
            pair = {"theirs": (link["peer"], member["memberId"]), "ours": (member["memberId"], link["peer"])}
            if not link["isUp"] and (found := pair.get(link.get("refusedCertificate", ""))):
                refusing.setdefault(found[0], set()).add(found[1])
    fix = "See why: cluster events --level warning. Renew it, or give all the same authorities."
    return [
        Finding(
            "certificate-refused",
            WARNING,
            member_id,
            f"member {member_id} has no link to member{'s' * (len(others) > 1)} "
            f"{', '.join(map(str, sorted(others)))}: its certificate is refused there",
            fix,
        )
        for member_id, others in sorted(refusing.items())
    ]


def _about_links(cut: Mapping[frozenset[int], str]) -> list[Finding]:
    fix = "Check the network between their hosts, both ways. Until then neither can be elected by the other."
    return [Finding("link-down", WARNING, None, text, fix) for _, text in sorted(cut.items(), key=_pair)]


def _pair(cut: tuple[frozenset[int], str]) -> list[int]:
    return sorted(cut[0])


def cut_links(members: Sequence[Member]) -> dict[frozenset[int], str]:
    """Which members that take part have lost their link to each other, and how, if no reason is known.

    Who is not heard any more may have the link as before. It is believed if its word is new: what a member
    says whose disk or service has just halted it is old.
    """
    said = {
        (member["memberId"], link["peer"]): link
        for member in members
        if _takes_part(member)
        for link in member.get("links", ())
    }
    is_new = {m["memberId"] for m in members if (m.get("heartbeatAgeMs") or 0) < HEARTBEAT_AGE_MS_MAX}
    cut = {}
    for (one, other), link in said.items():
        back = said.get((other, one))
        if back is None or not _is_cut(link):
            continue
        if _is_cut(back):
            text = f"members {min(one, other)} and {max(one, other)} cannot reach each other"
        elif back["isUp"] and is_new.issuperset((one, other)):
            text = f"nothing comes from member {other} to member {one}, though both run"
        else:
            continue
        cut[frozenset((one, other))] = text
    return cut


def _is_cut(link: dict[str, Any]) -> bool:
    return not (link["isUp"] or link["isConnecting"] or link["refusedCertificate"])


def _may_stop(level_ids: Sequence[int], cut: Collection[frozenset[int]], quorum: int) -> int:
    """How many of those, whichever they are, while one of the others still has links to a majority."""

    def can_lead(gone: tuple[int, ...]) -> bool:
        left = set(level_ids).difference(gone)
        return any(sum(frozenset((one, other)) not in cut for other in left) >= quorum for one in left)

    counts = range(1, len(level_ids) - quorum + 1)
    return next((n - 1 for n in counts if not all(map(can_lead, combinations(level_ids, n)))), len(counts))


def _about(
    member: Member, leader: Member | None, now: datetime, committed_before: int | None
) -> list[Finding]:
    member_id = member["memberId"]
    who = "a member" if member_id is None else f"member {member_id}"
    if not member["isAlive"]:
        if error := member.get("error"):
            text = f"{who} does not answer: {error}"
            why = Finding("no-answer", WARNING, member_id, text, _fix_of(member))
            return [why, *_about_its_host(member, leader, who, now)]
        if damage := member.get("damage"):
            text = f"the log of {who} cannot be read: {damage}"
            return [Finding("not-readable", ERROR, member_id, text, "See docs/damage.md.")]
        fix = "Start it: cluster node --config FILE"
        if "dir" in member:
            fix += f"; that of `cluster up` is {member['dir']}/node.toml"
        why = Finding("not-running", WARNING, member_id, f"{who} does not run", f"{fix}.")
        return [why, *_about_its_host(member, leader, who, now)]
    return [
        *_about_its_part(member, who, committed_before),
        *_about_its_services(member, who, committed_before),
        *_about_its_host(member, leader, who, now),
    ]


def _fix_of(member: Member) -> str:
    """What to do about the error with which a member was asked."""
    if "dir" in member:
        return f"See {member['dir']}/node.log."
    unnamed = "Check that its process runs, its host is reachable, and you have the right `read`."
    return str(member.get("errorFix", unnamed))


def _about_its_part(member: Member, who: str, committed_before: int | None) -> list[Finding]:
    """What keeps a member that runs from doing its part."""
    messages = []
    member_id = member["memberId"]
    if waits_for := member.get("waitsFor"):
        others = f"member{'s' * (len(waits_for) > 1)} {', '.join(map(str, waits_for))}"
        text = f"{who} waits for {others}: it is new, or has lost its promises"
        messages.append(Finding("waits", WARNING, member_id, text, "Start those members."))
    elif not _takes_part(member):
        text = f"{who} is in an election: {member.get('electionState')}"
        fix = "Wait; a member that fetches a long log shows its progress in node.log."
        links = member.get("links", ())
        if cut := [str(link["peer"]) for link in links if not link["isUp"] and not link["isConnecting"]]:
            text += f"; it has no link to member{'s' * (len(cut) > 1)} {', '.join(cut)}"
            fix = "Start what does not run. If all run, node.log says why: the network, or a certificate."
        messages.append(Finding("in-election", WARNING, member_id, text, fix))
    elif member.get("commitPosition") is None:
        text = f"what {who} has of the log is not known: {member.get('error', 'its archive does not say')}"
        fix = "Check that its archive can be reached from here."
        messages.append(Finding("log-unknown", WARNING, member_id, text, fix))
    elif _lags(member, "commitPosition", committed_before):
        text = f"{who} lags by {committed_before - member['commitPosition']:,} bytes or more"  # type: ignore[operator]
        messages.append(Finding("lags", WARNING, member_id, text, "See its disk and its network."))
    if errors := member.get("errors"):
        text = f"{who} has counted {errors:,} error{'s' * (errors != 1)} since its start"
        where = f" --dir {member['dir']}" if "dir" in member else ", on its host"
        messages.append(Finding("errors", INFO, member_id, text, f"See them: cluster tool errors{where}."))
    return messages


def _about_its_services(member: Member, who: str, committed_before: int | None) -> list[Finding]:
    """Which of its services do not come along with the log."""
    messages, member_id = [], member["memberId"]
    for service_id, stands_ms in enumerate(member.get("serviceStandstillsMs") or ()):
        if stands_ms:
            text = (
                f"service {service_id} of {who} stands still: for {stands_ms / 1_000:,.0f} s its process has "
                "not answered, has been in one callback, or has not come up"
            )
            fix = (
                f"The last `service {service_id} runs in process PID` in node.log names it; lines after that "
                "say how it ended. If it runs: was it stopped (kill -CONT PID)? Else see what it waits for "
                "(py-spy dump --pid PID)."
            )
            messages.append(Finding("service-stands-still", WARNING, member_id, text, fix))
    service_lag = member.get("serviceLag")
    if (
        not messages
        and service_lag
        and _lags({"at": member["commitPosition"] - service_lag}, "at", committed_before)
    ):
        text = f"a service of {who} lags by {service_lag:,} bytes"
        fix = "Find what its callbacks wait for, or why its process ends: node.log, cluster tool errors."
        messages.append(Finding("service-lags", WARNING, member_id, text, fix))
    return messages


def _about_its_host(member: Member, leader: Member | None, who: str, now: datetime) -> list[Finding]:
    """What will keep a member from doing its part."""
    messages = []
    member_id = member["memberId"]
    free, total = member.get("diskFree"), member.get("diskTotal")
    if free is not None and total and free < min(max(DISK_FREE_MIN, total // 20), total // 4):
        text = f"the disk of {who} has {free / (1 << 20):,.0f} MiB free, {free / total:.0%} of it"
        fix = "Make room: cluster snapshot lets old log go. Or bound the log: log_bytes_max."
        messages.append(Finding("disk-low", WARNING, member_id, text, fix))
    if member["isAlive"] and member.get("logRoom") == 0:
        text = f"{who} has used all that log_bytes_max and disk_free_min allow; as leader it takes no input"
        fix = "Make room, or end what keeps the log: readers, an export, a member that lags, no snapshot."
        severity = ERROR if member is leader else WARNING
        messages.append(Finding("log-full", severity, member_id, text, fix))
    if end := member.get("certificateEnds"):
        left = datetime.fromisoformat(end) - now
        if left < timedelta(days=CERTIFICATE_DAYS_MIN):
            in_time = f"in {left.days} days" if left.days > 1 else "in less than two days"
            text = f"the certificate of {who} ends on {end}, {in_time}"
            if left < timedelta():
                text = f"the certificate of {who} has ended on {end}"
            fix = "Replace it with a new one; the member takes it without a restart."
            messages.append(Finding("certificate-ends", WARNING, member_id, text, fix))
    offset_ms = member.get("clockOffsetMs") or 0
    if abs(offset_ms) >= CLOCK_OFFSET_MS_MIN:
        shows = f"{abs(offset_ms) / 1_000:,.1f} s {'more' if offset_ms > 0 else 'less'}"
        text = f"the clock of {who} shows {shows} than those of a majority"
        fix = "Check the NTP client of its host, and set the clock; no member needs a restart."
        messages.append(Finding("clock-off", WARNING, member_id, text, fix))
    replay = member.get("replayBytes")
    if replay is not None and replay > REPLAY_BYTES_MAX:
        text = f"a start of {who} replays {replay:,} bytes after its last snapshot"
        fix = "Take one: cluster snapshot. Or set snapshot_every_bytes."
        messages.append(Finding("long-replay", INFO, member_id, text, fix))
    return messages
