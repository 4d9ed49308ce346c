"""What a backup copies, from whom, and what it does when something is wrong."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cluster.backup import agent
from cluster.backup.copied_log import CopiedLog
from cluster.consensus.context import NULL_POSITION
from cluster.errors import ConfigurationError, DirectoryInUse, RemoteProtocolError
from cluster.protocol.enums import ClusterBackupState as State
from cluster.protocol.link import RecordingStatus, TermEntry
from cluster.protocol.recording_log import TERM, RecordingLogEntry
from cluster.reader.supplier import SourceType
from tests.backup.in_memory import CONTEXT, DIRECTORY, MS, SEGMENT_BYTES, Backup, committed
from tests.member.cluster_steps import SEGMENT, a_busy_cluster, send, take_snapshot
from tests.member.in_memory.cluster import SECOND, SimulatedCluster

ARCHIVE = f"{DIRECTORY}/archive"


def requests_for(backup, what):
    return [request for supplier in backup.suppliers for request in supplier.requests if request[0] == what]


def leader_of(backup):
    return next(supplier for supplier in backup.suppliers if supplier.member.is_leading)


def asked_members(backup):
    return {supplier.member.member_id for supplier in backup.suppliers if supplier.requests}


def check_copy(backup):
    """It is level with the leader, byte by byte."""
    backup.await_level()
    start = backup.directory.log.recording.start_position
    assert backup.log_bytes() == committed(backup.cluster.leader, start, backup.position)


@pytest.mark.conformance("S-155")
def test_a_new_backup_takes_the_newest_snapshot_then_the_log_and_is_level():
    cluster = a_busy_cluster()
    position = take_snapshot(cluster)
    send(cluster, 10)
    backup = Backup(cluster)
    check_copy(backup)

    assert backup.states == [
        State.BACKUP_QUERY,
        State.SNAPSHOT_RETRIEVE,
        State.LIVE_LOG_RECORD,
        State.LIVE_LOG_REPLAY,
        State.UPDATE_RECORDING_LOG,
        State.BACKING_UP,
    ]
    assert backup.snapshots() == [(0, position), (-1, position)]
    assert [entry[1:4] for entry in backup.entries() if entry[0] == "TERM"] == [
        (term.leadership_term_id, term.term_base_log_position, term.log_position)
        for term in cluster.leader.recording_log.entries
        if term.entry_type.name == "TERM"
    ]
    assert backup.counters.state.get() == State.BACKING_UP
    assert backup.counters.snapshots_retrieved.get() == 1
    assert backup.counters.live_log_position.get() == backup.counters.commit_position.get() == backup.position
    send(cluster, 10)
    check_copy(backup)
    assert backup.errors == []


@pytest.mark.conformance("S-156")
def test_its_log_never_passes_the_commit_position():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    before = backup.position
    for follower in cluster.followers:
        follower.pause()
    for _ in range(20):
        cluster.clients[0].send(b"0:%d:" % len(cluster.clients[0].sent))
    leader = cluster.leader
    cluster.run(100 * MS)
    assert leader.published_position > leader.commit_position
    for _ in range(20):
        backup.turn()
    assert backup.position == leader.commit_position == before


@pytest.mark.conformance("S-157", "S-158")
def test_a_snapshot_is_fetched_once_and_one_that_is_new_with_the_next_query():
    cluster = a_busy_cluster()
    first = take_snapshot(cluster)
    backup = Backup(cluster)
    backup.await_level()
    fetched = len(requests_for(backup, "snapshot"))
    backup.await_query()
    assert len(requests_for(backup, "snapshot")) == fetched
    assert backup.counters.snapshots_retrieved.get() == 1

    send(cluster, 5)
    second = take_snapshot(cluster)
    assert backup.snapshots() == [(0, first), (-1, first)]
    backup.await_query()
    backup.run_until(lambda: backup.counters.snapshots_retrieved.get() == 2)
    assert backup.snapshots() == [(0, first), (-1, first), (0, second), (-1, second)]
    check_copy(backup)
    assert backup.errors == []


@pytest.mark.conformance("S-159")
@pytest.mark.parametrize("source_type", [SourceType.FOLLOWER, SourceType.LEADER])
def test_a_source_type_says_who_is_copied_from_also_after_a_change_of_leaders(source_type):
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    backup = Backup(cluster, replace(CONTEXT, source_type=source_type))
    backup.await_level()
    for supplier in backup.suppliers:
        wanted = source_type.accepts(is_leader=supplier.member.is_leading)
        assert wanted or not supplier.requests

    cluster.leader.kill()
    cluster.await_leader()
    for supplier in backup.suppliers:
        supplier.requests.clear()
    send_on(cluster, 5)
    check_copy(backup)
    for supplier in backup.suppliers:
        wanted = source_type.accepts(is_leader=supplier.member.is_leading)
        assert wanted or not [request for request in supplier.requests if request[0] == "log"]


def send_on(cluster, messages):
    client = cluster.clients[0]
    for _ in range(messages):
        client.send(b"0:%d:" % len(client.sent))
    cluster.await_settled()


@pytest.mark.conformance("S-160")
def test_who_does_not_answer_in_time_is_passed_over():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.suppliers[0].is_silent = backup.suppliers[2].is_silent = True
    begun = backup.now_ms
    backup.await_level()
    assert backup.now_ms - begun < 3 * 500 + 1_000
    assert asked_members(backup) == {1}
    assert backup.errors == []


def test_a_backup_that_nobody_answers_rests_before_it_asks_again():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    for supplier in backup.suppliers:
        supplier.is_silent = True
    backup.run_until(lambda: backup.agent.state is State.RESET_BACKUP)
    [error] = backup.errors
    assert re.fullmatch("no member will do, the last: member .: no answer to the backup query", str(error))
    begun, asked = backup.now_ms, backup.asked
    backup.run_until(lambda: backup.asked > asked)
    assert backup.now_ms - begun >= 1_000
    for supplier in backup.suppliers:
        supplier.is_silent = False
    check_copy(backup)


@pytest.mark.conformance("S-161")
@pytest.mark.parametrize("phase", [State.SNAPSHOT_RETRIEVE, State.LIVE_LOG_REPLAY, State.BACKING_UP])
def test_when_its_supplier_is_killed_another_one_goes_on_and_nothing_is_missing(phase):
    cluster = a_busy_cluster(messages=200)
    take_snapshot(cluster)
    backup = Backup(cluster)
    backup.run_until(lambda: backup.agent.state is phase)
    backup.turn()
    victim = backup.agent._supplier
    victim.member.kill()
    send_on(cluster, 20)
    check_copy(backup)

    assert State.RESET_BACKUP in backup.states
    assert "does not run" in str(backup.errors[0]) or "is gone" in str(backup.errors[0])
    assert backup.counters.errors.get() == len(backup.errors)
    assert len(backup.snapshots()) == 2
    assert len(backup.directory.archive.recordings()) == 3, "what was half retrieved is gone"


def test_a_supplier_that_is_cut_off_from_its_cluster_is_left_for_one_that_is_not():
    """The backup reaches it as before, and it says that it commits nothing more."""
    cluster = a_busy_cluster()
    backup = Backup(cluster, replace(CONTEXT, source_type=SourceType.FOLLOWER, interval_ns=3_600_000 * MS))
    check_copy(backup)
    cut_off = backup.agent._supplier
    for other in cluster.members:
        if other is not cut_off.member:
            cluster.links.block(cut_off.member.member_id, other.member_id)
            cluster.links.block(other.member_id, cut_off.member.member_id)
    send_on(cluster, 20)
    check_copy(backup)

    assert f"{cut_off.name} knows no leader" in backup.events
    assert State.RESET_BACKUP not in backup.states and backup.errors == []


def test_a_backup_waits_while_the_cluster_elects_a_leader():
    cluster = a_busy_cluster()
    backup = Backup(cluster, replace(CONTEXT, response_timeout_ns=30_000 * MS))
    check_copy(backup)
    supplier = backup.agent._supplier
    backup.cluster.leader.kill()
    cluster.await_leader()
    send_on(cluster, 5)
    check_copy(backup)
    assert backup.agent._supplier is supplier or not supplier.member.is_running


@pytest.mark.conformance("S-162")
@pytest.mark.parametrize("delay_ms", [200, 2_500])
def test_the_counter_of_the_next_query_says_when_that_is(delay_ms):
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    deadline_ms = backup.counters.next_query_deadline_ms.get()
    assert 0 < deadline_ms - backup.now_ms <= 2_000
    asked = backup.asked
    backup.counters.next_query_deadline_ms.set(backup.now_ms + delay_ms)  # as a tool does
    backup.run_until(lambda: backup.asked > asked)
    assert delay_ms <= backup.now_ms - (deadline_ms - 2_000) < delay_ms + 1_800


def test_a_clock_that_is_set_back_does_not_put_off_the_next_query():
    """A host that starts with its clock a year ahead of the time that it is told later."""
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    cluster.members[0].clock.jump(365 * 86_400 * SECOND)  # by which the backup goes
    backup.await_level()
    cluster.members[0].clock.jump(-365 * 86_400 * SECOND)
    asked = backup.asked
    backup.run_until(lambda: backup.asked > asked)


@pytest.mark.conformance("S-165")
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("phase", [State.SNAPSHOT_RETRIEVE, State.LIVE_LOG_REPLAY, State.BACKING_UP])
def test_a_backup_that_starts_again_goes_on_where_it_was(phase, is_killed):
    cluster = a_busy_cluster(messages=400)
    take_snapshot(cluster)
    backup = Backup(cluster)
    backup.run_until(lambda: backup.agent.state is phase)
    backup.turn()
    before = backup.position
    backup.kill() if is_killed else backup.stop()
    send(cluster, 20)
    backup.start()
    assert backup.position == before
    for supplier in backup.suppliers:
        supplier.requests.clear()
    check_copy(backup)
    positions = [position for _, position in requests_for(backup, "log")]
    assert min(positions[1:] if before else positions) >= before  # the first one compares the logs
    assert len(backup.snapshots()) == 2
    assert len(backup.directory.archive.recordings()) == 3


def test_terms_are_recorded_as_the_copy_comes_to_them():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    for _ in range(3):
        backup.await_level()
        cluster.leader.kill()
        cluster.await_leader(timeout_ns=90_000 * MS)
        send_on(cluster, 3)
        for member in cluster.members:
            if not member.is_running:
                member.start()
        cluster.await_level()
    check_copy(backup)
    terms = [entry[1:3] for entry in backup.entries() if entry[0] == "TERM"]
    assert terms == [
        (term.leadership_term_id, term.term_base_log_position)
        for term in cluster.leader.recording_log.entries
        if term.entry_type.name == "TERM"
    ]
    assert len(terms) > 3


def test_frames_that_rot_on_their_way_are_refused_and_another_member_sends_them_whole():
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    backup = Backup(cluster)
    spoiled = backup.agent._suppliers[0]

    def spoil(frames):
        frames[-20] ^= 1

    spoiled.spoil = spoil
    check_copy(backup)
    assert f"{spoiled.name}: " in str(backup.errors[0])
    assert len(backup.snapshots()) == 2


def test_a_log_that_is_purged_beyond_the_copy_is_begun_anew_with_its_snapshot_in_one_step():
    cluster = SimulatedCluster(3, 1, log_retained_snapshots=1)
    cluster.await_leader()
    cluster.add_client()
    send(cluster, 40)
    backup = Backup(cluster)
    backup.await_level()
    old = backup.entries()
    backup.stop()
    for _ in range(3):
        send(cluster, 4 * SEGMENT // 256)
        position = take_snapshot(cluster)
    cluster.run_until(lambda: all(m.recording.start_position > backup.position for m in cluster.members))

    backup.start()
    backup.run_until(lambda: backup.agent.state is State.LIVE_LOG_REPLAY)
    assert backup.entries() == old, "the old copy stays until the new one is of use"
    end = backup.counters.live_log_position.get()
    backup.turn()
    assert backup.agent.state is not State.BACKING_UP and backup.position > end
    assert backup.counters.live_log_position.get() == backup.counters.commit_position.get() == end
    check_copy(backup)
    assert backup.snapshots() == [(0, position), (-1, position)]
    recording = backup.directory.log.recording
    assert recording.start_position == max(0, recording.start_position) > 0
    assert recording.first_frame() == cluster.leader.recording.first_frame()
    [first, *_] = [entry for entry in backup.entries() if entry[0] == "TERM"]
    assert first[2] <= recording.start_position
    assert any("begins anew" in event for event in backup.events)
    assert len(backup.directory.archive.recordings()) == 3
    backup.kill()
    backup.start()
    check_copy(backup)
    assert backup.errors == []


def test_a_cluster_of_another_history_is_refused_before_a_byte_of_it_is_taken():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    other = a_busy_cluster(seed=2)
    send(other, 100)
    check_is_refused(backup, other)


def check_is_refused(backup, other):
    """What ``backup`` has, it does not go on with after another cluster."""
    backup.stop()
    stranger = Backup(other)
    stranger.stop()
    stranger.disk, stranger.files = backup.disk, backup.files
    stranger.start()
    position = stranger.position
    stranger.run_until(lambda: stranger.errors)
    [error] = stranger.errors
    assert isinstance(error, ConfigurationError)
    assert "of another cluster, or of another history; begin a new backup in an empty directory" in str(error)
    assert stranger.position == position


def test_a_cluster_that_was_restored_to_within_the_last_term_of_the_backup_is_refused():
    """One of the same seed has the same log up to where its next term begins."""
    cluster = a_busy_cluster()
    send(cluster, 10)
    backup = Backup(cluster)
    backup.await_level()
    restored = a_busy_cluster()
    restored.leader.kill()
    restored.await_leader(timeout_ns=90_000 * MS)
    send_on(restored, 100)
    assert restored.leader.commit_position > backup.position
    check_is_refused(backup, restored)


def test_a_backup_goes_on_in_a_term_of_a_few_bytes():
    """What is compared with a member's log ends where the copy does: there may be no more."""
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    backup.stop()
    cluster.leader.kill()
    cluster.await_leader(timeout_ns=90_000 * MS)
    send_on(cluster, 1)
    backup.start()
    check_copy(backup)
    backup.stop()
    send_on(cluster, 1)
    backup.start()
    check_copy(backup)
    assert backup.errors == []


def test_snapshots_stay_by_count_and_age_and_the_log_from_the_oldest_of_them():
    cluster = a_busy_cluster()
    kept = [
        ({}, 3),
        ({"retained_snapshots": 2}, 2),
        ({"retained_for_ns": 1}, 1),
        ({"retained_for_ns": 3_600_000 * MS}, 3),
        ({"retained_snapshots": 1, "retained_for_ns": 3_600_000 * MS}, 3),
    ]
    backups = [Backup(cluster, replace(CONTEXT, **retained)) for retained, _ in kept]
    positions = []
    for _ in range(3):
        send(cluster, 300)
        positions.append(take_snapshot(cluster))
        for backup in backups:
            backup.await_query()
            backup.await_level()
    for backup, (_, count) in zip(backups, kept, strict=True):
        oldest = positions[-count]
        assert [at for service, at in backup.snapshots() if service == -1] == positions[-count:]
        recording = backup.directory.log.recording
        assert recording.start_position == (0 if count == 3 else oldest - oldest % recording.segment_length)
        assert len(backup.directory.archive.recordings()) == 1 + 2 * count
        assert backup.errors == []
    backups[1].kill()
    backups[1].start()
    check_copy(backups[1])


@pytest.mark.parametrize(("retained", "count"), [({}, 1), ({"retained_snapshots": 2}, 2)])
def test_on_a_short_disk_the_oldest_snapshots_go_but_where_somebody_has_said_how_many_stay(retained, count):
    cluster = a_busy_cluster()
    backup = Backup(cluster, replace(CONTEXT, **retained))
    positions = []
    for _ in range(3):
        send(cluster, 300)
        positions.append(take_snapshot(cluster))
        backup.await_query()
        backup.await_level()
    backup.disk.faults.free_bytes = 4 << 30
    for _ in range(300):
        backup.turn()
    assert len({at for _, at in backup.snapshots()}) == (count if retained else 3)
    backup.disk.faults.free_bytes -= 1
    for _ in range(300):
        backup.turn()
    assert sorted({at for _, at in backup.snapshots()}) == positions[-count:]
    begin = backup.directory.log.recording.start_position
    assert begin == positions[-count] - positions[-count] % SEGMENT_BYTES > 0
    assert retained or f"the log begins at {begin} now: the disk is short of room" in backup.events
    check_copy(backup)
    assert backup.errors == []


def test_log_that_somebody_reads_stays_though_its_snapshots_go():
    cluster = a_busy_cluster()
    backup = Backup(cluster, replace(CONTEXT, retained_snapshots=1), needed_position=lambda: 64)
    for _ in range(2):
        send(cluster, 300)
        take_snapshot(cluster)
        backup.await_query()
        backup.await_level()
    assert len(backup.snapshots()) == 2
    assert backup.directory.log.recording.start_position == 0


def test_a_query_that_is_refused_is_told_and_tried_again_after_the_pause():
    cluster = a_busy_cluster()
    for member in cluster.members:
        member.replica.sessions.admission._authorisation = Nobody()
    backup = Backup(cluster)
    backup.run_until(lambda: len(backup.errors) == 2)
    assert "AUTHENTICATION_REJECTED: no right to read, which it takes to make a backup" in str(
        backup.errors[0]
    )
    assert backup.position == 0
    assert requests_for(backup, "log") == requests_for(backup, "snapshot") == []


class Nobody:
    """An authorisation service that permits nothing."""

    def is_authorised(self, schema_id, action_id, request_type, encoded_principal):
        return False


def test_a_directory_is_one_backups_and_of_one_cluster():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    with pytest.raises(DirectoryInUse):
        backup.start()
    backup.kill()
    backup.context = replace(CONTEXT, cluster_id=7)
    with pytest.raises(ConfigurationError, match="holds a backup of cluster 0, expected one of cluster 7"):
        backup.start()


def test_the_directory_of_a_member_is_not_taken_for_a_backups():
    cluster = a_busy_cluster()
    cluster.leader.kill()
    backup = Backup(cluster)
    backup.stop()
    for path, data in cluster.members[0].backup().items():
        path = path.replace("member/", f"{DIRECTORY}/", 1)
        if path.endswith("cluster-mark.dat"):
            backup.files.open(path, write=True).pwrite(data, 0)
    with pytest.raises(ConfigurationError, match="holds the files of a consensus module of member 0"):
        backup.start()


def test_a_term_that_was_named_and_whose_first_entry_was_lost_is_named_again_when_it_comes():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    before = backup.position
    cluster.leader.kill()
    cluster.await_leader(timeout_ns=90_000 * MS)
    recording = backup.directory.log.recording

    def die():
        raise KeyboardInterrupt

    recording.sync = die
    with pytest.raises(KeyboardInterrupt):
        for _ in range(1_000):
            backup.turn()
    named = [entry[2] for entry in backup.entries() if entry[0] == "TERM"]
    assert named[-1] == before, "the term is named before its first entry is safe"
    backup.kill()
    backup.disk.power_cut()
    backup.start()
    if backup.position == before:
        terms = [entry for entry in backup.entries() if entry[0] == "TERM"]
        assert len(terms) == len(named) - 1
        assert terms[-1][3] == NULL_POSITION, "more of it may come"
    check_copy(backup)
    assert [entry[2] for entry in backup.entries() if entry[0] == "TERM"] == named


def test_a_snapshot_is_named_when_the_log_has_reached_it_and_not_before(monkeypatch):
    monkeypatch.setattr(agent, "BLOCKS_PER_TURN", 1)
    cluster = a_busy_cluster(messages=400)
    position = take_snapshot(cluster)
    backup = Backup(cluster)
    waited = 0
    while not backup.snapshots():
        backup.turn()
        waited += 0 < backup.position < position
    assert backup.position >= position
    assert waited > 5


def test_a_frame_whose_checksum_is_wrong_is_not_taken():
    cluster = a_busy_cluster()
    backup = Backup(cluster)
    backup.await_level()
    stored = backup.directory.log.recording
    frames = np.array(stored.read(0, 4096))
    assert stored.checksum is not None
    status = RecordingStatus(
        0, 0, 0, -1, stored.session_id, stored.stream_id, stored.initial_term_id, stored.term_length,
        stored.mtu, checksum="crc32c",
    )  # fmt: skip
    log = Backup(cluster).directory.log
    log.start(status)
    frames[64] ^= 1
    with pytest.raises(RemoteProtocolError, match="member 0: checksum mismatch in the frame at position 0"):
        log.append("member 0", status, frames)
    assert log.position == 0
    frames[64] ^= 1
    log.append("member 0", status, frames)
    assert log.position == len(frames)


def test_a_backup_that_ends_while_a_snapshot_comes_keeps_nothing_of_it():
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    backup = Backup(cluster)
    backup.run_until(lambda: any(name.endswith(".rec") for name in backup.files.list_directory(ARCHIVE)))
    assert backup.agent.is_retrieving
    backup.stop()

    assert not any(name.endswith(".rec") for name in backup.files.list_directory(ARCHIVE))


def test_a_term_without_bytes_tells_no_two_logs_apart():
    """It may have been filled in, at another place."""
    log = CopiedLog.__new__(CopiedLog)
    terms = [(0, 0, 960), (1, 960, 960), (2, 960, NULL_POSITION)]
    entries = [RecordingLogEntry(0, id_, base, end, 0, -1, TERM) for id_, base, end in terms]
    log._recording_log = SimpleNamespace(entries=entries)
    there = [TermEntry(id_, base, NULL_POSITION, 0) for id_, base in ((0, 0), (1, 1920), (2, 960))]
    log.check_terms("member 1", there)

    there[2] = TermEntry(2, 1920, NULL_POSITION, 0)
    with pytest.raises(ConfigurationError, match="term 2 begins at 1920 there, at 960 in this backup"):
        log.check_terms("member 1", there)
