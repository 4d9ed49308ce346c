"""BackupQuery, HeartbeatRequest and StandbySnapshot: one answer each, from any established member."""

import pytest

from cluster.archive.recording_log import RecordingLog
from cluster.member.clients.backup_source import snapshot_to_back_up
from cluster.protocol.backup import (
    BackupQuery,
    BackupResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    StandbySnapshot,
    StandbySnapshotRecording,
)
from cluster.protocol.enums import ClusterControlToggle, EventCode
from cluster.protocol.session import Challenge, ChallengeResponse, SessionEvent
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from tests.archive.faulty_files import FaultyDisk
from tests.archive.logs import append_term
from tests.member.asker import Asker
from tests.member.challenges import Challenges
from tests.member.cluster_steps import a_busy_cluster, entries, take_snapshot, toggle
from tests.member.in_memory.cluster import MS

LATEST = 2**63 - 1
QUERY = BackupQuery(5, 108, CLIENT_PROTOCOL_VERSION, LATEST, "backup", b"sesame")
HEARTBEAT = HeartbeatRequest(6, 108, "standby", b"sesame")
STANDBY = StandbySnapshot(
    7, CLIENT_PROTOCOL_VERSION, 108, (StandbySnapshotRecording(1, 0, 0, 64, 0, -1, "a:1"),), "standby"
)


class Nobody:
    """An authorisation service that permits nothing."""

    def is_authorised(self, schema_id, action_id, request_type, encoded_principal):
        return False


def asked(cluster, member, message):
    asker = Asker(member).asks(message)
    cluster.run(100 * MS)
    return asker


@pytest.mark.conformance("C-21", "C-328", "C-329", "C-330")
def test_leader_and_followers_answer_a_backup_query_once_and_leave_nothing_of_it():
    cluster = a_busy_cluster()
    position = take_snapshot(cluster)
    cluster.await_level()
    log_before = [type(entry) for entry in entries(cluster.leader)]
    sessions_before = set(cluster.leader.sessions)
    for member in (cluster.leader, *cluster.followers):
        asker = asked(cluster, member, QUERY)

        [response] = asker.answers
        assert isinstance(response, BackupResponse)
        assert asker.is_closed
        assert (response.correlation_id, response.member_id) == (5, member.member_id)
        assert response.leader_member_id == cluster.leader.member_id
        term = member.recording_log.find_last_term()
        assert response.log_recording_id == term.recording_id
        assert response.last_leadership_term_id == term.leadership_term_id
        assert response.last_term_base_log_position == term.term_base_log_position
        assert response.commit_position_counter_id == member.counters.commit_position.counter_id
        assert [(s.service_id, s.log_position) for s in response.snapshots] == [(0, position), (-1, position)]
        for snapshot in response.snapshots:
            assert member.archive.has_recording(snapshot.recording_id)
    cluster.await_level()
    assert [type(entry) for entry in entries(cluster.leader)] == log_before
    assert set(cluster.leader.sessions) == sessions_before


@pytest.mark.conformance("C-13", "C-26")
def test_a_backup_that_is_refused_hears_of_it_in_an_election_too():
    cluster = a_busy_cluster()
    follower = cluster.followers[0]
    asker = Asker(follower).asks(QUERY.replace(version=9 << 16))
    cluster.run_until(lambda: follower.agent.parts.backups._rejected)
    follower.enter_election("test")
    cluster.run(1 * MS)
    assert follower.is_electing
    assert [answer.code for answer in asker.answers] == [EventCode.ERROR]
    assert asker.is_closed


@pytest.mark.conformance("C-330")
def test_a_member_in_an_election_answers_no_backup():
    cluster = a_busy_cluster()
    follower, other = cluster.followers
    cluster.leader.kill()
    other.kill()
    cluster.run_until(lambda: not follower.is_following)
    asker = asked(cluster, follower, QUERY)
    assert asker.answers == []
    other.start()
    cluster.await_leader()
    cluster.run(1_000 * MS)
    assert [type(answer) for answer in asker.answers] == [BackupResponse]


def test_a_backup_waits_for_a_suspended_cluster():
    cluster = a_busy_cluster()
    toggle(cluster, ClusterControlToggle.SUSPEND)
    cluster.run(500 * MS)
    askers = [asked(cluster, member, QUERY) for member in cluster.members]
    assert [asker.answers for asker in askers] == [[], [], []]
    toggle(cluster, ClusterControlToggle.RESUME)
    cluster.run(500 * MS)
    assert [type(answer) for asker in askers for answer in asker.answers] == [BackupResponse] * 3


@pytest.mark.conformance("C-331")
@pytest.mark.parametrize(
    ("asked_position", "found"),
    [(None, 900), (LATEST, 900), (900, 900), (899, 500), (500, 500), (499, 100), (100, 100), (99, 100)],
)
def test_the_newest_complete_snapshot_up_to_the_asked_position_is_chosen_else_the_oldest(
    asked_position, found
):
    log = RecordingLog.open("cluster", files=FaultyDisk(), file_sync_level=0)
    append_term(log, 0, 0, 0, 0)
    for recording_id, position in enumerate((100, 500, 900)):
        log.append_snapshot(10 + recording_id, 0, 0, position, 0, 0)
        log.append_snapshot(20 + recording_id, 0, 0, position, 0, -1)
    log.append_snapshot(30, 0, 0, 1000, 0, -1)  # its service's part is missing

    chosen = snapshot_to_back_up(log, 1, asked_position)
    assert [(entry.service_id, entry.log_position) for entry in chosen] == [(0, found), (-1, found)]
    assert list(snapshot_to_back_up(log, 2, asked_position)) == []


@pytest.mark.conformance("C-332")
def test_a_heartbeat_request_is_answered_under_its_correlation_id():
    cluster = a_busy_cluster()
    for member in cluster.members:
        asker = asked(cluster, member, HEARTBEAT)
        assert asker.answers == [HeartbeatResponse(6)]
        assert asker.is_closed


@pytest.mark.conformance("C-333")
def test_a_standby_snapshot_is_refused_with_an_error():
    cluster = a_busy_cluster()
    asker = asked(cluster, cluster.leader, STANDBY)
    [event] = asker.answers
    assert (event.code, event.correlation_id) == (EventCode.ERROR, 7)
    assert event.detail == "standby snapshots are not accepted"
    assert asker.is_closed


@pytest.mark.conformance("C-335", "S-164")
@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (QUERY, "to make a backup"),
        (HEARTBEAT, "to have a heartbeat"),
        (STANDBY, "to offer standby snapshots"),
    ],
)
def test_who_may_not_read_is_rejected_and_told_nothing_else(request_, what):
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    for member in cluster.members:
        member.replica.sessions.admission._authorisation = Nobody()
        asker = asked(cluster, member, request_)
        [event] = asker.answers
        assert isinstance(event, SessionEvent)
        assert event.code is EventCode.AUTHENTICATION_REJECTED
        assert event.detail == f"no right to read, which it takes {what}"
        assert asker.is_closed


@pytest.mark.conformance("C-336")
@pytest.mark.parametrize("request_", [QUERY, STANDBY])
def test_another_major_version_is_refused_with_an_error(request_):
    cluster = a_busy_cluster()
    asker = asked(cluster, cluster.leader, request_.replace(version=1 << 16))
    [event] = asker.answers
    assert event.code is EventCode.ERROR
    assert event.detail == "invalid client version 1.0.0, cluster is 0.3.0"


@pytest.mark.parametrize(("word", "answer"), [(b"sesame", BackupResponse), (b"wrong", SessionEvent)])
def test_a_backup_is_challenged_as_a_client_is_by_a_follower_too(word, answer):
    cluster = a_busy_cluster()
    for member in cluster.members:
        member.replica.sessions.admission._authenticator = Challenges()
        asker = asked(cluster, member, QUERY)
        [challenge] = asker.answers
        assert isinstance(challenge, Challenge)
        asker.asks(ChallengeResponse(9, challenge.cluster_session_id, word))
        cluster.run(100 * MS)
        assert isinstance(asker.answers[1], answer)
        assert asker.answers[1].correlation_id == 9
        assert asker.is_closed


def test_a_connection_has_so_many_requests_at_most_and_each_waits_no_longer_than_a_session():
    cluster = a_busy_cluster()
    cluster.leader.replica.sessions.admission._authenticator = Challenges()
    asker = Asker(cluster.leader)
    for number in range(9):
        asker.asks(QUERY.replace(correlation_id=number))
        cluster.run(20 * MS)
    assert [type(answer) for answer in asker.answers] == [*[Challenge] * 8, SessionEvent]
    assert "connection_sessions_max" in asker.answers[-1].detail
    assert not asker.is_closed
    cluster.run(11_000 * MS)
    assert asker.is_closed
