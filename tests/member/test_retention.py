"""What of the log a member keeps: as much as its snapshots and whoever still reads it need, and no more."""

import pytest

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.export_watermark import FILE_NAME, read_export_watermark, write_export_watermark
from cluster.archive.files import OsFiles
from cluster.consensus.context import DAY
from cluster.errors import LogDamaged
from cluster.protocol.consumer import Consumer, with_consumer
from cluster.protocol.enums import EventCode
from tests.member.cluster_steps import entries_of, send, take_snapshot, toggle
from tests.member.in_memory.cluster import MS, SECOND, SimulatedCluster
from tests.member.in_memory.stranger import Stranger

SEGMENT = 64 * 1024


def a_cluster(retained, members=3, seed=1, **settings):
    cluster = SimulatedCluster(members, seed, log_retained_snapshots=retained, **settings)
    cluster.await_leader()
    cluster.add_client()
    return cluster


def write_and_snapshot(cluster, messages=400):
    """Some two segments of log, and a snapshot behind them; returns its position."""
    send(cluster, messages)
    position = take_snapshot(cluster)
    cluster.run(2 * SECOND)
    return position


def segments_of(member):
    recording_id = member.recording.recording_id
    names = member.files.list_directory("member/archive")
    return sorted(
        int(name.removesuffix(".rec").split("-")[1]) for name in names if name.startswith(f"{recording_id}-")
    )


def start_of(member):
    return member.start_position


@pytest.mark.conformance("S-186")
def test_whole_segments_before_the_last_snapshot_go_and_the_catalog_says_so():
    cluster = a_cluster(retained=1)
    position = write_and_snapshot(cluster, messages=700)
    assert position > 2 * SEGMENT

    for member in cluster.members:
        expected = position // SEGMENT * SEGMENT
        assert start_of(member) == segments_of(member)[0] == expected
        catalog = CatalogFile.open(member.files, "member/archive")
        assert catalog.descriptor(member.recording.recording_id).start_position == expected
        assert member.recording.first_frame() != b""
    send(cluster, 10)
    for member in cluster.members:
        member.kill()
        member.start()
    cluster.await_leader()
    cluster.await_level()
    assert len({member.service.chain for member in cluster.members}) == 1
    cluster.check_promises()


def test_by_default_everything_is_kept():
    cluster = a_cluster(retained=0)
    write_and_snapshot(cluster)
    write_and_snapshot(cluster)
    for member in cluster.members:
        assert start_of(member) == segments_of(member)[0] == 0
        assert len(entries_of(member)) == 4


def test_with_two_kept_the_log_reaches_down_to_the_one_before_the_last():
    cluster = a_cluster(retained=2)
    first = write_and_snapshot(cluster)
    assert [start_of(member) for member in cluster.members] == [0, 0, 0]
    second = write_and_snapshot(cluster)
    third = write_and_snapshot(cluster)
    for member in cluster.members:
        assert start_of(member) == second // SEGMENT * SEGMENT > first
        assert [position for service, position in entries_of(member) if service < 0] == [second, third]
        recordings = [d.recording_id for d in member.archive.recordings()]
        assert len(recordings) == 1 + 2 * 2


def test_the_disk_does_not_grow_with_the_log():
    cluster = a_cluster(retained=1)
    for _ in range(6):
        write_and_snapshot(cluster)
        for member in cluster.members:
            assert len(segments_of(member)) <= 2
            assert len(member.archive.recordings()) == 3
            assert len([d for d in member.recording_log.entries if d.entry_type.name == "SNAPSHOT"]) == 2
    assert cluster.leader.commit_position > 9 * SEGMENT


def test_nothing_is_dropped_that_a_reader_or_an_exporter_still_needs():
    cluster = a_cluster(retained=1)
    reading, free = cluster.members[0], cluster.members[1]
    reading.needed_position = SEGMENT + 32
    position = write_and_snapshot(cluster)
    assert (start_of(reading), start_of(free)) == (SEGMENT, position // SEGMENT * SEGMENT)
    reading.needed_position = None
    cluster.run(2 * SECOND)
    assert start_of(reading) == start_of(free)


def report(cluster, group, position):
    stranger = Stranger(cluster.leader)
    stranger.connects(credentials=with_consumer(b"", Consumer(group, position)))
    cluster.run_until(lambda: stranger.heard)
    (event,) = stranger.heard
    stranger.connection.close()
    return event


@pytest.mark.conformance("S-234", "S-235")
def test_what_a_consumer_group_has_not_read_is_kept_and_goes_once_it_has():
    cluster = a_cluster(retained=1)
    assert report(cluster, "billing", 64).code is EventCode.OK
    write_and_snapshot(cluster)
    position = write_and_snapshot(cluster)
    assert [start_of(member) for member in cluster.members] == [0, 0, 0]
    for member in cluster.members:
        member.kill()
        member.start()
    cluster.await_leader()
    cluster.await_level()
    cluster.run(2 * SECOND)
    assert [start_of(member) for member in cluster.members] == [0, 0, 0]

    assert report(cluster, "billing", position).code is EventCode.OK
    cluster.run(2 * SECOND)
    expected = position // SEGMENT * SEGMENT
    assert [start_of(member) for member in cluster.members] == [expected] * 3


@pytest.mark.parametrize("limit", [{"consumer_hold_bytes": 0}, {"consumer_retention_ns": SECOND}])
def test_a_group_that_is_not_used_any_more_keeps_no_log(limit):
    cluster = a_cluster(retained=1, **limit)
    report(cluster, "billing", 64)
    position = write_and_snapshot(cluster)
    send(cluster, 1)  # followers know the time by the log
    cluster.run(2 * SECOND)
    for member in cluster.members:
        assert start_of(member) == position // SEGMENT * SEGMENT > 0


def test_a_jump_of_the_clocks_forgets_no_consumer_group_and_drops_none_of_its_log():
    """Nor does the next leader, which has seen it, too."""
    cluster = a_cluster(retained=1)
    report(cluster, "billing", 64)
    before = cluster.leader.replica.cluster_time
    for member in cluster.members:
        member.clock.jump(30 * DAY)
    cluster.run(12 * SECOND)  # until all clocks are heard again
    write_and_snapshot(cluster)
    assert min(m.replica.cluster_time for m in cluster.members) > before + 30 * DAY // MS
    cluster.leader.kill()
    cluster.await_leader()
    assert report(cluster, "audit", 64).code is EventCode.OK
    assert report(cluster, "billing", 32).code is EventCode.ERROR
    cluster.run(2 * SECOND)
    for member in cluster.members:
        if member.is_running:
            assert start_of(member) == 0
            assert set(member.replica.sessions.consumers.positions()) == {"audit", "billing"}


def test_a_month_in_which_all_members_were_down_forgets_no_consumer_group():
    cluster = a_cluster(retained=1)
    report(cluster, "billing", 64)
    for member in cluster.members:
        member.kill()
        member.clock.jump(30 * DAY)
        member.start()
    cluster.await_leader()
    assert report(cluster, "audit", 64).code is EventCode.OK
    cluster.run(SECOND)
    for member in cluster.members:
        assert set(member.replica.sessions.consumers.positions()) == {"audit", "billing"}


def test_nothing_is_dropped_that_is_on_its_way_to_another_member():
    cluster = a_cluster(retained=1)
    send(cluster, 10)
    leader = cluster.leader
    late = cluster.followers[0]
    late.kill()
    send(cluster, 400)
    leader.log_streams.start(late.member_id, 1, 4096, 8192)
    leader.log_streams.suspend(late.member_id)
    take_snapshot(cluster)
    cluster.run(2 * SECOND)
    assert start_of(leader) == 0
    leader.log_streams.stop(late.member_id)
    cluster.run(2 * SECOND)
    assert start_of(leader) > 0


def test_nothing_is_dropped_while_a_member_fetches_its_state_from_here():
    cluster = a_cluster(retained=1)
    send(cluster, 400)
    leader = cluster.leader
    leader.snapshot_server.last_request_ns = leader.clock.monotonic_ns(cluster.world.now_ns)
    take_snapshot(cluster)
    cluster.run(2 * SECOND)
    assert start_of(leader) == 0
    cluster.run(10 * SECOND)
    assert start_of(leader) > 0


def test_a_wiped_member_and_one_that_was_away_for_long_come_back_to_a_purged_cluster():
    cluster = a_cluster(retained=1)
    send(cluster, 10)
    away, wiped = cluster.followers
    away.kill()
    write_and_snapshot(cluster)
    write_and_snapshot(cluster)
    away.start()
    cluster.await_level()
    cluster.run(500 * MS)
    wiped.kill()
    wiped.wipe()
    send(cluster, 50)
    wiped.start()
    cluster.await_level()
    assert len({member.service.chain for member in cluster.members}) == 1
    send(cluster, 10)
    cluster.check_promises()


def test_a_follower_whose_link_was_down_for_seconds_only_comes_back_to_a_log_that_was_purged():
    """It hears its leader as before, and would follow it for ever without a byte of log."""
    cluster = a_cluster(retained=1)
    send(cluster, 10)
    leader, away = cluster.leader, cluster.followers[0]
    client = cluster.clients[0]
    cluster.links.block(leader.member_id, away.member_id)
    cluster.links.block(away.member_id, leader.member_id)
    cluster.links.reset(leader.member_id, away.member_id)
    for _ in range(700):
        client.send(b"0:%d:" % len(client.sent) + bytes(200))
    cluster.await_settled()
    toggle(cluster)
    cluster.run_until(lambda: start_of(leader) > away.append_position)
    assert away.is_following
    cluster.links.heal()

    cluster.await_level()

    assert len({member.service.chain for member in cluster.members}) == 1
    assert cluster.leader is leader
    send(cluster, 10)
    cluster.check_promises()


def test_the_export_watermark_is_a_number_in_a_file(tmp_path):
    files = OsFiles()
    assert read_export_watermark(files, str(tmp_path)) is None
    write_export_watermark(files, str(tmp_path), 4096)
    write_export_watermark(files, str(tmp_path), 1 << 40)
    assert read_export_watermark(files, str(tmp_path)) == 1 << 40
    (tmp_path / FILE_NAME).write_text("soon\n")
    with pytest.raises(LogDamaged, match="'soon' is no log position"):
        read_export_watermark(files, str(tmp_path))
