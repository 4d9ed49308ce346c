"""What clients and members ask for besides messages, and what each member may write."""

import numpy as np
import pytest

from cluster.errors import LogDamaged
from cluster.log.append import append_message
from cluster.log.frames import LogParams
from cluster.log.session_table import SessionTable
from cluster.member.log.adapter import LogAdapter
from cluster.protocol import decode, streams
from cluster.protocol.consensus import AppendPosition, CatchupPosition, NewLeadershipTerm, Vote
from cluster.protocol.enums import AdminRequestType, AdminResponseCode, ClusterAction, EventCode
from cluster.protocol.frame import HEADER_LENGTH, align, frame
from cluster.protocol.link import CommitAck, RecordingFetch, ReplicationRequest
from cluster.protocol.log import ClusterActionRequest, TimerEvent
from cluster.protocol.session import (
    AdminRequest,
    AdminResponse,
    Challenge,
    ChallengeResponse,
    NewLeaderEvent,
    SessionConnectRequest,
    SessionEvent,
    SessionMessageHeader,
)
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from tests.member.challenges import Challenges
from tests.member.cluster_steps import AllowAll, a_cluster_with_a_client, asks, entries, heard
from tests.member.in_memory.cluster import MS, SECOND


def test_a_connection_gets_a_few_of_its_requests_served_in_a_turn():
    cluster, _ = a_cluster_with_a_client()
    leader = cluster.leader
    request = SessionConnectRequest(7, 102, CLIENT_PROTOCOL_VERSION, "test").encode()
    one = frame(request, session_id=0, stream_id=streams.INGRESS)
    buffer = np.frombuffer(one * 10, np.uint8)
    before = leader.replica.sessions.next_session_id
    taken = leader.receive_ingress(99, buffer)

    assert taken == 4 * len(one)
    assert leader.replica.sessions.next_session_id == before + 4


@pytest.mark.conformance("C-211", "C-212", "C-214", "S-72")
def test_an_admin_request_is_refused_by_default_on_the_sessions_own_egress():
    cluster, client = a_cluster_with_a_client()
    messages = heard(client)
    request = AdminRequest(client.leadership_term_id, client.session_id, 9, AdminRequestType.SNAPSHOT)
    asks(client, request)
    cluster.run(10 * MS)

    (response,) = [m for m in messages if isinstance(m, AdminResponse)]
    assert (response.correlation_id, response.cluster_session_id) == (9, client.session_id)
    assert response.response_code is AdminResponseCode.UNAUTHORISED_ACCESS
    assert not any(isinstance(entry, ClusterActionRequest) for entry in entries(cluster.leader))


@pytest.mark.conformance("C-213", "S-169")
def test_an_authorised_request_for_a_snapshot_has_one_taken_unless_the_toggle_is_in_use():
    cluster, client = a_cluster_with_a_client()
    cluster.leader.authorise(AllowAll())
    messages = heard(client)
    request = AdminRequest(client.leadership_term_id, client.session_id, 9, AdminRequestType.SNAPSHOT)
    asks(client, request)
    asks(client, request)
    cluster.run(500 * MS)

    codes = [m.response_code for m in messages if isinstance(m, AdminResponse)]
    assert codes == [AdminResponseCode.OK, AdminResponseCode.ERROR]
    assert [member.counters.snapshot_count.get() for member in cluster.members] == [1, 1, 1]


@pytest.mark.conformance("S-71")
def test_an_admin_request_of_a_type_that_is_not_known_gets_an_error_and_takes_no_snapshot():
    cluster, client = a_cluster_with_a_client()
    cluster.leader.authorise(AllowAll())
    messages = heard(client)
    asks(client, AdminRequest(client.leadership_term_id, client.session_id, 9, 7))
    cluster.run(500 * MS)

    (response,) = [m for m in messages if isinstance(m, AdminResponse)]
    assert (response.response_code, response.request_type) == (AdminResponseCode.ERROR, 7)
    assert response.message == "request type 7 is not known, expected SNAPSHOT"
    assert [member.counters.snapshot_count.get() for member in cluster.members] == [0, 0, 0]


@pytest.mark.parametrize(("term", "session"), [(9, None), (None, 99)])
def test_an_admin_request_of_another_term_or_session_is_not_answered(term, session):
    cluster, client = a_cluster_with_a_client()
    messages = heard(client)
    asks(
        client,
        AdminRequest(
            client.leadership_term_id if term is None else term,
            client.session_id if session is None else session,
            9,
            AdminRequestType.SNAPSHOT,
        ),
    )
    cluster.run(10 * MS)

    assert messages == []


@pytest.mark.conformance("C-194")
def test_a_follower_hands_the_answer_to_a_challenge_to_its_leader():
    cluster, _ = a_cluster_with_a_client()
    leader, follower = cluster.leader, cluster.followers[0]
    leader.replica.sessions.admission._authenticator = Challenges()
    answers = []

    def take(data):
        answers.append(decode(data, HEADER_LENGTH, int.from_bytes(data[:4], "little") - HEADER_LENGTH))

    request = SessionConnectRequest(7, 102, CLIENT_PROTOCOL_VERSION, "test").encode()
    to_leader = leader.dial(take)
    to_leader.send(frame(request, session_id=0, stream_id=streams.INGRESS))
    cluster.run_until(lambda: any(isinstance(answer, Challenge) for answer in answers))
    [challenge] = answers
    response = ChallengeResponse(8, challenge.cluster_session_id, b"sesame").encode()
    to_follower = follower.dial(take)
    to_follower.send(frame(response, session_id=0, stream_id=streams.INGRESS))
    cluster.run_until(lambda: len(answers) == 2)

    assert (answers[1].code, answers[1].correlation_id) == (EventCode.OK, 8)
    assert leader.sessions[challenge.cluster_session_id].encoded_principal == b"someone"


@pytest.mark.conformance("C-220")
def test_module_and_service_of_the_leader_answer_over_one_egress():
    cluster, _ = a_cluster_with_a_client()
    client = cluster.add_client()
    frames = []
    original = client._on_frames
    client._on_frames = lambda data: frames.append(data) or original(data)
    client.send(b"1:echo")
    cluster.await_settled()
    cluster.run(10 * MS)

    sources = {}
    for data in frames:
        offset = 0
        while offset < len(data):
            length = int.from_bytes(data[offset : offset + 4], "little")
            message = decode(data, offset + HEADER_LENGTH, length - HEADER_LENGTH)
            stream_id = int.from_bytes(data[offset + 16 : offset + 20], "little")
            sources.setdefault(type(message), set()).add(stream_id)
            offset += align(length)
    assert sources[SessionMessageHeader] == sources[SessionEvent] == {streams.EGRESS}


@pytest.mark.conformance("C-239")
def test_the_leader_acts_on_its_own_entries_before_they_are_committed():
    cluster, client = a_cluster_with_a_client()
    leader = cluster.leader
    for follower in cluster.followers:
        follower.pause()
    committed = leader.commit_position
    leader.timers.schedule(5, 0)
    client.close()
    cluster.run(100 * MS)

    assert leader.commit_position == committed < leader.published_position
    assert client.session_id not in leader.sessions
    assert len(leader.timers) == 0


@pytest.mark.conformance("C-217", "C-218")
def test_a_client_hears_of_its_session_its_messages_and_its_commits_only():
    cluster, client = a_cluster_with_a_client()
    messages = heard(client)
    for number in range(20):
        client.send(b"0:%d:" % number)
    cluster.await_settled()
    cluster.leader.kill()
    cluster.await_leader()
    client.send(b"0:20:")
    cluster.await_settled()
    cluster.run(100 * MS)

    from cluster.protocol.link import SessionResumed

    kinds = {type(message) for message in messages}
    assert kinds <= {SessionEvent, NewLeaderEvent, SessionMessageHeader, CommitAck, SessionResumed}
    assert SessionMessageHeader in kinds


@pytest.mark.conformance("C-200", "C-201", "S-41")
@pytest.mark.parametrize(("term", "session"), [(9, None), (None, 99)])
def test_a_message_of_another_term_or_session_is_dropped(term, session):
    cluster, client = a_cluster_with_a_client()
    before = cluster.leader.published_position
    header = SessionMessageHeader(
        client.leadership_term_id if term is None else term,
        client.session_id if session is None else session,
        0,
    )
    client._connection.send(frame(header.encode() + b"x", session_id=0, stream_id=streams.INGRESS))
    cluster.run(50 * MS)

    assert cluster.leader.published_position == before


def test_a_message_over_another_clients_connection_is_dropped():
    cluster, client = a_cluster_with_a_client()
    other = cluster.add_client()
    cluster.await_settled()
    cluster.await_level()
    before = cluster.leader.published_position
    header = SessionMessageHeader(client.leadership_term_id, client.session_id, 0)
    other._connection.send(frame(header.encode() + b"stolen", session_id=0, stream_id=streams.INGRESS))
    cluster.run(50 * MS)

    assert cluster.leader.published_position == before


@pytest.mark.conformance("C-216")
def test_a_burst_that_is_larger_than_the_leaders_buffer_is_appended_whole():
    cluster, client = a_cluster_with_a_client()
    for number in range(3000):
        client.send(b"0:%d:" % number + bytes(1200))
    cluster.await_settled(timeout_ns=120 * SECOND)
    cluster.await_level()
    cluster.check()
    cluster.check_promises()


def test_a_message_above_the_maximum_closes_its_session_and_nobody_elses():
    cluster, client = a_cluster_with_a_client()
    other = cluster.add_client()
    cluster.await_settled()
    messages = heard(client)
    leader = cluster.leader
    header = SessionMessageHeader(leader.leadership_term_id, client.session_id, 0).encode()
    too_long = frame(header + bytes(cluster.term_length // 8), session_id=0, stream_id=streams.INGRESS)
    connection_id = leader.sessions[client.session_id].connection_id
    leader.receive_ingress(connection_id, np.frombuffer(too_long, np.uint8))
    other.send(b"1:0:")
    cluster.run(100 * MS)

    assert [m.detail for m in messages if isinstance(m, SessionEvent)] == ["SERVICE_ACTION"]
    assert client.is_lost
    assert other.acknowledged == 1


@pytest.mark.parametrize("garbage", [bytes(8), b"\x18\x00\x01\x00\x6f\x00\x11\x00short", b"\xff" * 40])
def test_garbage_from_a_client_leaves_the_member_and_the_others_alone(garbage):
    cluster, client = a_cluster_with_a_client()
    rude = cluster.add_client()
    cluster.await_settled()
    rude._connection.send(frame(garbage, session_id=0, stream_id=streams.INGRESS))
    cluster.run(10 * MS)
    client.send(b"0:0:")
    cluster.run(50 * MS)

    assert cluster.leader is not None
    assert client.acknowledged == 1


@pytest.mark.parametrize(
    "garbage",
    [
        bytes(8),
        b"\x18\x00\x35\x00\x6f\x00\x11\x00short",
        AppendPosition(0, 1 << 40, 1, 0).encode()[:20],
        b"\xff" * 40,
    ],
)
def test_garbage_from_a_member_is_reported_and_survived(garbage):
    cluster, client = a_cluster_with_a_client()
    rude = cluster.followers[0]
    rude.links.send(cluster.leader.member_id, frame(garbage, session_id=0, stream_id=streams.CONSENSUS))
    cluster.run(10 * MS)
    client.send(b"0:0:")
    cluster.await_settled()

    assert client.acknowledged == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"leadership_term_id": 2**63 - 1},
        {"log_leadership_term_id": -(2**63)},
        {"log_leadership_term_id": 10},
        {"next_leadership_term_id": 7},
        {"term_base_log_position": -1},
        {"term_base_log_position": 0},
        {"log_position": 64},
        {"next_log_position": 64},
        {"next_term_base_log_position": -1},
        {"next_term_base_log_position": 192, "next_log_position": 256},
    ],
)
def test_what_a_leader_cannot_mean_is_reported_and_moves_nobody(changed):
    cluster, _ = a_cluster_with_a_client()
    follower = cluster.followers[0]
    leader_id = cluster.leader.member_id
    follower.enter_election("asked for")
    elections = follower.counters.election_count.get()
    meant = NewLeadershipTerm(0, 1, 96, 128, 3, 128, 160, 0, 0, leader_id, 7, 1, False, 96)

    follower.receive(leader_id, meant.replace(**changed))

    assert follower.counters.errors.get() == 1
    assert follower.election.leader_member_id == -1
    assert follower.election.candidate_term_id == follower.leadership_term_id
    assert follower.counters.election_count.get() == elections
    follower.receive(leader_id, meant)
    assert follower.counters.errors.get() == 1


@pytest.mark.parametrize("position", [-1, -(2**63), 100, 2**63 - 1])
def test_a_position_at_which_no_frame_can_begin_is_sent_nothing(position):
    cluster, _ = a_cluster_with_a_client()
    leader, rude = cluster.leader, cluster.followers[0].member_id
    served = leader.log_streams.get(rude)
    term_id = leader.leadership_term_id

    leader.receive(rude, CatchupPosition(term_id, position, rude))
    leader.receive(rude, ReplicationRequest(1, term_id, position, -1))

    assert leader.counters.errors.get() == 2
    assert leader.log_streams.get(rude) is served


def test_a_position_within_a_frame_is_sent_nothing_and_is_no_damage_of_the_leaders():
    """Read from there the log looks damaged: the leader took its own for that, and began anew."""
    cluster, client = a_cluster_with_a_client()
    client.send(b"long" * 100)
    cluster.await_settled()
    cluster.await_level()
    leader, rude = cluster.leader, cluster.followers[0].member_id
    term_id, end = leader.leadership_term_id, leader.append_position
    recording_id = leader.recording.recording_id

    leader.receive(rude, CatchupPosition(term_id, end - 64, rude))
    leader.receive(rude, ReplicationRequest(1, term_id, end - 64, -1))
    assert leader.counters.errors.get() == 2
    for begin, stop in ((0, end - 64), (end - 64, end), (20, end)):
        leader.receive(rude, RecordingFetch(1, recording_id, begin, stop))
    cluster.run(1 * SECOND)

    assert cluster.leader is leader
    assert leader.is_leading
    assert leader.counters.election_count.get() == 1
    cluster.check()


@pytest.mark.parametrize("asks", [CatchupPosition, ReplicationRequest, RecordingFetch])
def test_damage_of_the_own_log_at_a_position_that_is_asked_for_is_found(asks):
    cluster, client = a_cluster_with_a_client()
    client.send(b"long" * 100)
    cluster.await_settled()
    cluster.await_level()
    leader, member_id = cluster.leader, cluster.followers[0].member_id
    recording = leader.recording
    begin, end = recording.append_position - align(HEADER_LENGTH + 32 + 400), recording.append_position
    assert recording.is_boundary(begin)
    leader.files.open("member/archive/0-0.rec", write=True).pwrite(b"\0\0\0\1", begin + 8)
    request = {
        CatchupPosition: CatchupPosition(leader.leadership_term_id, begin, member_id),
        ReplicationRequest: ReplicationRequest(1, leader.leadership_term_id, begin, -1),
        RecordingFetch: RecordingFetch(1, recording.recording_id, begin, end),
    }[asks]

    with pytest.raises(LogDamaged, match=f"0-0.rec at offset {begin}: term offset"):
        leader.receive(member_id, request)


def test_a_member_that_speaks_for_another_is_not_listened_to():
    cluster, _ = a_cluster_with_a_client()
    leader = cluster.leader
    one, two = (member.member_id for member in cluster.followers)
    leader.receive(one, Vote(99, 0, 0, leader.member_id, two, False))
    leader.receive(one, AppendPosition(0, 1 << 40, two, 0))

    assert leader.is_leading
    assert leader.counters.errors.get() == 2


@pytest.mark.conformance("C-162")
def test_a_leader_of_another_app_version_is_not_followed():
    """Aeron's member ends itself; here no message of another member ends a process."""
    cluster, _ = a_cluster_with_a_client()
    leader, follower = cluster.leader, cluster.followers[0]
    message = NewLeadershipTerm(0, 1, 96, -1, 1, 96, 96, 0, 0, leader.member_id, 7, 2 << 16, False, 96)
    follower.receive(leader.member_id, message)

    assert follower.is_following
    assert follower.leadership_term_id == 0
    assert any("app version 0x20000" in line for line in cluster.events)


@pytest.mark.conformance("C-149")
def test_a_second_request_to_catch_up_is_ignored_while_one_is_served():
    cluster, _ = a_cluster_with_a_client()
    leader = cluster.leader
    follower = cluster.followers[0]
    request = CatchupPosition(leader.leadership_term_id, 96, follower.member_id)
    leader.receive(follower.member_id, request)
    stream = leader.log_streams.get(follower.member_id)
    leader.receive(follower.member_id, request)

    assert leader.log_streams.get(follower.member_id) is stream
    assert stream.is_catchup


@pytest.mark.conformance("C-237", "C-252", "C-253", "C-261", "C-243")
def test_only_the_leader_appends_and_a_timer_fires_once_at_one_position():
    cluster, client = a_cluster_with_a_client()
    for number in range(10):
        client.send(b"timer %d" % number)
    cluster.await_settled()
    cluster.run(5 * MS)
    assert [len(member.timers) for member in cluster.members] == [10, 10, 10]
    cluster.run(1 * SECOND)
    cluster.await_level()

    fired = [entry.correlation_id for entry in entries(cluster.members[0]) if isinstance(entry, TimerEvent)]
    assert fired == list(range(10))
    for member in cluster.members:
        assert len(member.timers) == 0
        assert member.service.timers == fired
        assert member.is_publishing == (member is cluster.leader)
    cluster.check()


@pytest.mark.conformance("C-269")
def test_a_timer_event_that_was_not_committed_fires_under_the_next_leader_once():
    cluster, client = a_cluster_with_a_client()
    client.send(b"timer 1")
    cluster.await_settled()
    cluster.await_level()
    leader = cluster.leader
    for follower in cluster.followers:
        cluster.links.block(leader.member_id, follower.member_id)
    cluster.run(200 * MS)
    assert len(leader.timers._uncommitted) == 1
    leader.kill()
    cluster.await_leader()
    cluster.links.heal()
    cluster.run(1 * SECOND)
    leader.start()
    cluster.await_level()

    for member in cluster.members:
        assert member.service.timers == [1]


def test_a_member_that_replays_timers_that_were_moved_and_expired_keeps_none_of_them():
    """Its module reads the events ahead of its service, which asks for each timer several times."""
    cluster, client = a_cluster_with_a_client()
    for wait in (20, 35, 100):
        for number in range(10):
            client.send(b"timer %d" % number)
        cluster.run(wait * MS)
    follower = cluster.followers[0]
    follower.kill()
    follower.start()
    cluster.run(100 * MS)
    cluster.await_level()
    cluster.run(100 * MS)

    assert sorted(follower.service.timers) == list(range(10))
    assert [dict(member.timers) for member in cluster.members] == [{}, {}, {}]


@pytest.mark.conformance("C-248", "C-249", "C-250", "C-254", "C-255", "C-256", "C-260")
def test_an_action_in_the_log_is_carried_out_by_followers_of_its_term_and_ends_the_poll():
    from cluster.protocol.enums import ConsensusModuleState

    cluster, _ = a_cluster_with_a_client()
    follower = cluster.followers[0]
    term_id = follower.leadership_term_id

    def reads(action, term_id=term_id, flags=0):
        request = ClusterActionRequest(term_id, 0, 0, action, flags)
        return follower.apply(request, 4096)

    assert reads(ClusterAction.SUSPEND, term_id + 1)
    assert follower.module_state is ConsensusModuleState.ACTIVE
    assert reads(ClusterAction.SNAPSHOT, flags=1)
    assert follower.module_state is ConsensusModuleState.ACTIVE
    assert reads(ClusterAction.SUSPEND)
    assert follower.module_state is ConsensusModuleState.SUSPENDED
    assert reads(ClusterAction.RESUME)
    assert follower.module_state is ConsensusModuleState.ACTIVE
    assert reads(ClusterAction.SNAPSHOT)
    assert follower.module_state is ConsensusModuleState.SNAPSHOT


@pytest.mark.conformance("C-260")
def test_what_stands_behind_an_action_waits_for_the_next_cycle():
    class Handler:
        seen: list[int] = []

        def on_log_message(self, message, log_position):
            self.seen.append(log_position)
            return True

    class Bytes:
        def read(self, position, max_length, out=None):
            return data[position : position + max_length]

    params = LogParams(64 * 1024, 1408, 0, 7)
    data = np.zeros(4096, np.uint8)
    ends = [0]
    for _ in range(3):
        action = ClusterActionRequest(0, 0, 0, ClusterAction.SUSPEND, 0).encode()
        ends.append(append_message(data, ends[-1], ends[-1], params, action))
    adapter = LogAdapter(Handler(), SessionTable())
    for end in ends[1:]:
        assert adapter.poll(Bytes(), ends[-1]) > 0
        assert adapter.position == end
        assert adapter.is_stopped
    assert Handler.seen == ends[1:]


@pytest.mark.conformance("C-281", "S-121")
def test_a_service_message_that_was_not_committed_is_appended_by_the_next_leader_once():
    cluster, client = a_cluster_with_a_client(seed=3)
    for number in range(30):
        client.send(b"again %d" % number)
    leader = cluster.leader

    def are_appended_and_not_committed():
        pending = leader.replica.trackers[0].pending_messages()
        return any(position > leader.commit_position for _, position, _ in pending)

    cluster.run_until(are_appended_and_not_committed)
    leader.kill()
    cluster.await_leader()
    cluster.await_settled()
    cluster.run(500 * MS)

    for member in cluster.members:
        if member.is_running:
            offered = [payload for payload in member.service.applied if payload.isdigit()]
            assert offered == [b"%d" % number for number in range(30)]


def test_a_leader_of_aeron_s_names_its_own_term_as_the_next_once_it_is_recorded():
    cluster, _ = a_cluster_with_a_client()
    follower = cluster.followers[0]
    leader_id = cluster.leader.member_id
    follower.enter_election("asked for")

    told = NewLeadershipTerm(3, 3, 128, -1, 3, 128, 128, 0, 0, leader_id, 7, 1, False, 96)
    follower.receive(leader_id, told)

    assert follower.counters.errors.get() == 0
