"""A log keeps within ``log_bytes_max`` and ``disk_free_min``: old log goes first, then clients wait."""

from types import SimpleNamespace

import pytest

from cluster.archive.files import DiskSpace
from cluster.archive.recording_log import RecordingLog
from cluster.member.log.room import LogRoom
from tests.archive.faulty_files import FaultyDisk
from tests.member.cluster_steps import a_cluster_with_a_client, send, take_snapshot
from tests.member.in_memory.cluster import SECOND, SimulatedCluster

SEGMENT = 64 * 1024
MAX = 8 * SEGMENT
MIN = 1 << 20
GIB = 1 << 30
WHY = "no input is taken until there is room for more log (log_bytes_max)"


def a_cluster(**settings):
    cluster = SimulatedCluster(3, 1, **settings)
    cluster.await_leader()
    cluster.add_client()
    return cluster


def taken(member):
    return member.recording.append_position - member.start_position


def say_free(cluster, free_bytes):
    """All members' file systems have so many bytes free."""
    for member in cluster.members:
        member.disk.faults.free_bytes = free_bytes
    cluster.run(2 * SECOND)


def has_said(cluster, words):
    return [event for event in cluster.events if words in event]


def test_whatever_is_written_the_log_keeps_within_its_bound_and_no_message_waits():
    cluster = a_cluster(log_bytes_max=MAX)
    for _ in range(12):
        send(cluster, 700)
        cluster.run(2 * SECOND)
        assert all(taken(member) < MAX * 3 // 4 for member in cluster.members)
    assert all(member.start_position >= 2 * MAX for member in cluster.members)
    assert not has_said(cluster, "log_bytes_max")


def test_without_bounds_nothing_goes_and_nothing_is_snapshotted():
    cluster = a_cluster(disk_free_min=0)
    send(cluster, 3000)
    say_free(cluster, 0)
    send(cluster, 10)
    assert all(member.start_position == 0 for member in cluster.members)
    assert cluster.leader.counters.snapshot_count.get() == 0


def test_a_log_that_somebody_needs_stops_the_input_at_its_bound_and_goes_on_when_it_may_go():
    cluster = a_cluster(log_bytes_max=MAX)
    client, leader = cluster.clients[0], cluster.leader
    for member in cluster.members:
        member.needed_position = 0
    for _ in range(4000):
        client.send(b"0:%d:" % len(client.sent) + bytes(200))
    cluster.run(20 * SECOND)
    assert MAX <= taken(leader) < MAX + 4 * SEGMENT, "a turn's input may come after the bound"
    position = leader.recording.append_position
    cluster.run(5 * SECOND)
    assert leader.recording.append_position == position
    assert leader.counters.log_room.get() == 0
    assert has_said(cluster, "takes no more input until there is room")

    late = cluster.add_client()
    cluster.run(3 * SECOND)
    assert client.refusals == [WHY], "who has a session hears it once"
    assert set(late.refusals) == {WHY} and not late.is_open, "who wants one hears it each time"

    for member in cluster.members:
        member.needed_position = None
    cluster.await_settled()
    assert cluster.leader is leader, "it led on, and no session ended"
    assert has_said(cluster, "input is taken again") or has_said(cluster, "there is room again")


def test_bounds_that_change_hold_from_then_on_and_none_takes_input_again():
    cluster = a_cluster(disk_free_min=0)
    for member in cluster.members:
        member.needed_position = 0
    send(cluster, 700)
    client, leader = cluster.clients[0], cluster.leader
    change(cluster, log_bytes_max=taken(leader))
    client.send(b"0:%d:" % len(client.sent) + bytes(200))
    cluster.run(3 * SECOND)
    assert client.refusals == [WHY] and leader.counters.log_room.get() == 0
    change(cluster, log_bytes_max=0)
    cluster.await_settled()
    assert leader.counters.log_room.get() == -1
    assert has_said(cluster, "nothing bounds the log: there is room again")


def change(cluster, **values):
    for member in cluster.members:
        for name, value in values.items():
            setattr(member.context, name, value)


def take_no_snapshots(member):
    def on_take_snapshot(publication):
        raise RuntimeError("no memory left")

    member.service.on_take_snapshot = on_take_snapshot


@pytest.mark.parametrize(
    "settings", [{"log_bytes_max": MAX}, {"disk_free_min": MIN}], ids=lambda s: next(iter(s))
)
def test_a_follower_whose_service_takes_no_snapshots_starts_from_the_leaders_once_its_log_is_full(settings):
    cluster = a_cluster(**settings)
    failing, leader = cluster.followers[0], cluster.leader
    take_no_snapshots(failing)
    if "disk_free_min" in settings:
        send(cluster, 700)
        for member in cluster.members:
            member.disk.faults.free_bytes = 3 * MIN
        failing.disk.faults.free_bytes = MIN - 1
    for _ in range(4):
        send(cluster, 700)
        cluster.run(3 * SECOND)
        assert taken(failing) < MAX + 6 * SEGMENT, "what comes while it fetches may come after the bound"
    assert has_said(cluster, "bytes and no snapshot (log_bytes_max") or "disk_free_min" in settings
    fetched = has_said(cluster, "fetches the snapshot at")
    assert fetched and not any("and the log" in event for event in fetched), "what it has acknowledged stays"
    assert failing.start_position > 0
    assert cluster.leader is leader and not cluster.clients[0].is_lost
    cluster.await_level()
    assert len({member.service.chain for member in cluster.members}) == 1


def test_a_full_follower_whose_leader_takes_no_snapshots_either_goes_on_as_it_is():
    cluster = a_cluster(log_bytes_max=MAX)
    for member in cluster.members:
        take_no_snapshots(member)
    client, leader = cluster.clients[0], cluster.leader
    for _ in range(4000):
        client.send(b"0:%d:" % len(client.sent) + bytes(200))
    cluster.run(25 * SECOND)
    assert leader.is_leading and taken(leader) >= MAX
    assert not has_said(cluster, "fetches the snapshot")
    assert len(has_said(cluster, "takes no more input")) == 3


def test_a_disk_without_free_bytes_stops_the_input_and_free_bytes_let_it_go_on():
    cluster = a_cluster(disk_free_min=MIN)
    send(cluster, 700)
    say_free(cluster, 4 * MIN - 1)
    send(cluster, 700)
    cluster.run(3 * SECOND)
    assert all(member.start_position > 0 for member in cluster.members), "log went as room became short"
    say_free(cluster, 2 * MIN - 1)
    assert has_said(cluster, "there is little room left")

    say_free(cluster, MIN - 1)
    client, leader = cluster.clients[0], cluster.leader
    position = leader.recording.append_position
    for _ in range(10):
        client.send(b"0:%d:" % len(client.sent) + bytes(200))
    cluster.run(15 * SECOND)
    assert leader.recording.append_position - position < 10 * 200, "sessions live, and nothing is taken"

    say_free(cluster, 9 * MIN)
    cluster.await_settled()
    assert has_said(cluster, "there is room again")


@pytest.mark.parametrize(("log_bytes", "free_bytes", "left"), [(900, 10_000, 100), (100, 1_050, 50)])
def test_of_two_bounds_the_nearer_one_says_how_much_may_still_come(log_bytes, free_bytes, left):
    shown = []
    context = SimpleNamespace(log_bytes_max=1_000, disk_free_min=1_000)
    recording = SimpleNamespace(append_position=log_bytes, start_position=0)
    log = SimpleNamespace(recording=recording, recording_log=RecordingLog.open("cluster", files=FaultyDisk()))
    counter, reporter = SimpleNamespace(set=shown.append), SimpleNamespace(warning=lambda text: None)
    LogRoom(context, log, lambda: DiskSpace(free_bytes, 1 << 40), counter, reporter).look()

    assert shown == [left]


@pytest.mark.parametrize(("total", "reserve"), [(320 << 20, 16 << 20), (20 * GIB, GIB), (1 << 44, GIB)])
def test_by_default_a_twentieth_of_a_disk_stays_free_and_at_most_a_gibibyte(total, reserve):
    assert DiskSpace(0, total).reserve == reserve


def test_by_default_a_short_disk_keeps_all_log_of_a_cluster_that_never_took_a_snapshot():
    """A service may write none: then only the log has its state."""
    cluster = a_cluster()
    say_free(cluster, 2 * GIB)
    send(cluster, 3000)
    cluster.run(3 * SECOND)
    assert all(member.start_position == 0 for member in cluster.members)
    assert cluster.leader.counters.snapshot_count.get() == 0
    say_free(cluster, 2 * GIB - 1)
    assert has_said(cluster, f"{2 * GIB - 1} bytes are free (disk_free_min {GIB}): there is little room left")


def test_by_default_one_snapshot_lets_old_log_go_and_later_ones_follow_while_the_disk_is_short():
    cluster = a_cluster()
    send(cluster, 1500)
    take_snapshot(cluster)
    cluster.run(3 * SECOND)
    assert all(member.start_position == 0 for member in cluster.members), "there is room: nothing goes"

    say_free(cluster, 4 * GIB - 1)
    begins = {member.start_position for member in cluster.members}
    assert min(begins) > 0
    for _ in range(4):
        send(cluster, 700)
        cluster.run(2 * SECOND)
    assert all(taken(member) < 6 * SEGMENT for member in cluster.members), "the leader goes on taking them"


def test_by_default_as_many_snapshots_stay_on_a_short_disk_as_are_configured():
    cluster = a_cluster(log_retained_snapshots=3)
    for _ in range(5):
        send(cluster, 700)
        take_snapshot(cluster)
    say_free(cluster, 4 * GIB - 1)
    sets = [list(member.recording_log.snapshot_sets(1)) for member in cluster.members]
    assert all(len(kept) == 3 for kept in sets)


def test_by_default_clients_are_refused_before_the_disk_is_full_and_a_first_snapshot_helps_out():
    cluster, client = a_cluster_with_a_client()
    send(cluster, 700)
    say_free(cluster, GIB - 1)
    client.send(b"0:%d:" % len(client.sent) + bytes(200))
    cluster.run(3 * SECOND)
    assert client.refusals == [WHY.replace("log_bytes_max", "disk_free_min")]
    take_snapshot(cluster)
    cluster.run(10 * SECOND)  # a member that starts may have asked for snapshots
    assert all(member.start_position > 0 for member in cluster.members)
    say_free(cluster, 8 * GIB)
    cluster.await_settled()


def test_a_bound_of_the_log_alone_takes_snapshots_by_its_quarters_whatever_stays_free_by_default():
    cluster = a_cluster(log_bytes_max=4 * MAX)
    for _ in range(9):
        send(cluster, 700)
        cluster.run(SECOND)
    taken_bytes = cluster.leader.recording.append_position
    assert 0 < cluster.leader.counters.snapshot_count.get() <= taken_bytes // MAX


def test_a_leader_without_room_hands_over_to_a_level_member_that_has_some():
    cluster, client = a_cluster_with_a_client()
    leader, (full, roomy) = cluster.leader, cluster.followers
    for member in (leader, full):
        member.disk.faults.free_bytes = GIB - 1
    cluster.run_until(lambda: roomy.is_leading)
    assert has_said(cluster, f"the log has no room here, and has some at member {roomy.member_id}")
    client.send(b"0:goes on")
    cluster.await_settled()
    assert not client.is_lost


def test_a_leader_without_room_leads_on_where_no_member_has_any():
    cluster, _ = a_cluster_with_a_client()
    leader, term_id = cluster.leader, cluster.leader.leadership_term_id
    say_free(cluster, GIB - 1)
    cluster.run(25 * SECOND)
    assert cluster.leader is leader and leader.leadership_term_id == term_id
