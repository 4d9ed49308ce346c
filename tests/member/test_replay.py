"""A recorded log, processed again by the module and its services."""

import pytest

from cluster.protocol import decode, streams
from cluster.protocol.enums import ElectionState, Role
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.session import SessionMessageHeader
from cluster.service.channel import ServiceChannel
from tests.member.cluster_steps import a_busy_cluster, send, take_snapshot, wiped
from tests.member.in_memory.cluster import SECOND, SimulatedCluster

MAX_POSITION = 2**63 - 1


@pytest.fixture
def joins(monkeypatch):
    """(JoinLog, log) that any service was told of, in order."""
    told = []
    original = ServiceChannel.join_log

    def join_log(channel, message, log):
        told.append((decode(message), log))
        original(channel, message, log)

    monkeypatch.setattr(ServiceChannel, "join_log", join_log)
    return told


def restarted(members=3, messages=300, seed=1):
    """A cluster whose members have all started again over a log, in INIT."""
    cluster = SimulatedCluster(members, seed)
    cluster.await_leader()
    client = cluster.add_client()
    for number in range(messages):
        client.send(b"0:%d:" % number + bytes(1000))
    cluster.await_settled()
    cluster.await_level()
    for member in cluster.members:
        member.kill()
    return cluster


def in_state(cluster, state):
    """Step until some member is in the state; returns it."""
    while True:
        cluster.step()
        for member in cluster.members:
            if member.election_state is state:
                return member


@pytest.mark.conformance("C-104", "C-107", "C-109", "C-315", "C-316")
def test_services_are_told_to_replay_as_followers_what_is_recorded(joins):
    cluster = restarted()
    end = cluster._commit_positions[0]
    joins.clear()
    for member in cluster.members:
        member.start()
    cluster.await_leader()
    cluster.await_level()

    replays = [join for join, _ in joins if join.log_stream_id == streams.REPLAY]
    assert len(replays) == 3
    for join in replays:
        assert (join.log_position, join.max_log_position) == (0, end)
        assert (join.role, join.is_startup, join.log_channel) == (Role.FOLLOWER, True, "aeron:ipc")
    live = [join for join, _ in joins if join.log_stream_id == streams.LOG]
    assert sorted(join.role for join in live) == [Role.FOLLOWER, Role.FOLLOWER, Role.LEADER]
    assert {(join.log_position, join.max_log_position) for join in live} == {(end, MAX_POSITION)}


@pytest.mark.conformance("C-105", "C-241")
def test_a_replay_reads_the_own_recording_and_records_nothing(joins):
    cluster = restarted(members=1)
    member = cluster.members[0]
    joins.clear()
    member.start()
    before = member.append_position
    in_state(cluster, ElectionState.LEADER_INIT)

    assert [log for join, log in joins if join.log_stream_id == streams.REPLAY] == [member.recording]
    assert member.append_position == before


@pytest.mark.conformance("C-106")
def test_a_replay_reads_the_recording_that_is_the_log_among_those_of_an_archive(joins):
    cluster = a_busy_cluster()
    take_snapshot(cluster)
    cluster.await_level()
    victim = cluster.followers[0]
    wiped(victim)
    send(cluster, 40)
    for member in cluster.members:
        member.kill()
    joins.clear()
    for member in cluster.members:
        member.start()
    cluster.await_leader()
    cluster.await_level()

    assert [member.recording.recording_id for member in cluster.members if member is not victim] == [0, 0]
    assert victim.recording.recording_id == 3, "the first three are a snapshot and what the log was before"
    replays = [(join, log) for join, log in joins if join.log_stream_id == streams.REPLAY]
    assert {id(log) for _, log in replays} == {id(member.recording) for member in cluster.members}
    cluster.check()
    cluster.check_promises()


@pytest.mark.conformance("C-105")
def test_others_see_nothing_of_a_replay(monkeypatch):
    cluster = restarted()
    sent = []
    for member in cluster.members:
        member.start()
        send = member.links.send
        member.links.send = lambda to, *frames, _send=send: sent.extend(frames) or _send(to, *frames)
    in_state(cluster, ElectionState.LEADER_INIT)

    stream_ids = {int.from_bytes(bytes(frame[16:20]), "little") for frame in sent}
    assert sent
    assert stream_ids <= {streams.CONSENSUS, streams.LINK}


@pytest.mark.conformance("C-126", "C-125")
def test_a_replay_is_over_when_module_and_services_have_read_it_to_its_end():
    cluster = restarted(members=1)
    member = cluster.members[0]
    end = cluster._commit_positions[0]
    member.start()
    in_state(cluster, ElectionState.LEADER_REPLAY)
    cluster.run_until(lambda: member.service_agent.adapter.has_log)
    member.stall_service()
    in_state(cluster, ElectionState.LEADER_INIT)
    cluster.run(1 * SECOND)
    adapter = member.service_agent.adapter
    assert not member.is_replaying, "the module has read it"
    assert adapter.has_log and adapter.position < end, "the service holds it still"
    assert member.election_state is ElectionState.LEADER_INIT, "and has not joined what comes after it"

    member.release_service()
    while adapter.position < end:
        cluster.step()
    cluster.await_leader()
    cluster.await_level()
    cluster.check()


@pytest.mark.conformance("C-108", "C-124")
def test_nothing_is_processed_before_the_services_have_acknowledged():
    cluster = restarted(members=1)
    member = cluster.members[0]
    member.start()
    in_state(cluster, ElectionState.LEADER_REPLAY)
    member.stall_service()
    cluster.run(5 * SECOND)
    assert member.election_state is ElectionState.LEADER_REPLAY
    assert member.commit_position == 0

    member.release_service()
    cluster.await_leader()
    assert member.commit_position > 0


@pytest.mark.conformance("C-111", "C-125", "C-242")
def test_commit_pos_goes_with_the_module_and_gates_the_services_that_may_lag():
    cluster = restarted(members=1, messages=800)
    member = cluster.members[0]
    member.start()
    seen = set()
    while member.is_electing or not member.is_leading:
        cluster.step()
        assert member.counters.commit_position.get() == member.commit_position
        assert member.service_agent.joined_position <= member.commit_position
        seen.add(member.commit_position)

    assert len(seen) > 3, "processed in parts"
    cluster.await_level()


@pytest.mark.conformance("C-113")
def test_a_replay_is_not_over_within_a_snapshot():
    from cluster.protocol.enums import ConsensusModuleState

    cluster = restarted(members=1)
    member = cluster.members[0]
    member.start()
    in_state(cluster, ElectionState.LEADER_REPLAY)
    member.replica.module.change(ConsensusModuleState.SNAPSHOT)
    cluster.run(2 * SECOND)
    assert member.election_state is ElectionState.LEADER_REPLAY

    member.replica.module.change(ConsensusModuleState.ACTIVE)
    cluster.await_leader()


@pytest.mark.conformance("C-110", "C-219", "S-61")
def test_services_answer_nobody_while_they_replay():
    cluster = restarted()
    sent = []
    for member in cluster.members:
        member.start()
        member.clients.send = lambda *frames: sent.append(frames) or 1
    cluster.await_leader()
    cluster.await_level()

    template_ids = [frame[HEADER_LENGTH + 2] for _, frame in sent]
    assert SessionMessageHeader.TEMPLATE_ID not in template_ids


@pytest.mark.conformance("C-114", "C-115")
def test_after_the_replay_the_module_stands_at_its_end_and_the_service_reads_on():
    cluster = restarted(members=1)
    member = cluster.members[0]
    end = cluster._commit_positions[0]
    member.start()
    in_state(cluster, ElectionState.LEADER_INIT)

    assert member.processed_position == end == member.commit_position
    assert member.counters.commit_position.get() == end
    assert member.election.log_position == member.election.append_position == end
    assert not member.is_replaying
    cluster.await_leader()
    cluster.await_level()
    assert member.service_agent.joined_position == member.commit_position


@pytest.mark.conformance("C-231", "S-65")
def test_a_cluster_that_starts_again_closes_the_sessions_that_it_finds():
    cluster = restarted()
    for member in cluster.members:
        member.start()
    cluster.await_leader()
    cluster.run(1 * SECOND)
    cluster.await_level()

    for member in cluster.members:
        assert member.sessions == {}
        assert len(member.replica.sessions.table) == 0


@pytest.mark.conformance("C-318", "C-319")
def test_a_service_that_fails_to_start_ends_the_member():
    from cluster.errors import AgentTermination
    from cluster.protocol.service import ServiceAck

    cluster = SimulatedCluster(1, is_started=False)
    member = cluster.members[0]
    member.start()
    member.stall_service()
    channel = member.service_channels[0]
    channel.offer_to_consensus_module(ServiceAck(0, 0, 0, -1, 0).encode())
    with pytest.raises(AgentTermination, match="a service failed to start"):
        member.take_turn()


@pytest.mark.conformance("C-295", "C-319")
@pytest.mark.parametrize(
    ("ack_id", "service_id", "told"),
    [
        (0, 0, "out of sequence: ack 0 of service 0, expected"),
        (7, 0, "out of sequence: ack 7 of service 0, expected"),
        (1, 3, "an ack of service 3, but there are 1 services"),
    ],
)
def test_an_ack_that_is_not_the_next_one_is_an_error(ack_id, service_id, told):
    from cluster.errors import ClusterError
    from cluster.protocol.service import ServiceAck

    cluster = SimulatedCluster(1)
    cluster.await_leader()
    member = cluster.members[0]
    acked = member.expected_ack_id
    wrong = ack_id if ack_id != 1 else acked
    ack = ServiceAck(0, 0, wrong, -1, service_id)
    member.service_channels[0].offer_to_consensus_module(ack.encode())

    with pytest.raises(ClusterError, match=told):
        member.take_turn()
