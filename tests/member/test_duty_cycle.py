"""The order of a turn, and what happens in it by role and state."""

import pytest

from cluster.consensus.context import NULL_VALUE
from cluster.errors import StorageError
from cluster.member.log import publication
from cluster.protocol import decode, streams
from cluster.protocol.consensus import CommitPosition
from cluster.protocol.enums import (
    AdminRequestType,
    ClusterControlToggle,
    ConsensusModuleState,
    ElectionState,
    EventCode,
    NodeControlToggle,
    Role,
)
from cluster.protocol.frame import HEADER_LENGTH, frame
from cluster.protocol.log import TimerEvent
from cluster.protocol.session import (
    AdminRequest,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionKeepAlive,
    SessionMessageHeader,
)
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from tests.member.cluster_steps import AllowAll, a_cluster, entries
from tests.member.in_memory.cluster import MS, SECOND, US, SimulatedCluster, SparingContext
from tests.member.spy import Spy


@pytest.fixture
def spy(monkeypatch):
    return Spy(monkeypatch)


@pytest.mark.conformance("C-1", "C-7", "C-9", "C-40")
def test_a_turn_of_an_established_member_goes_in_the_seeds_order(spy):
    cluster = a_cluster()
    for member in (cluster.leader, cluster.followers[0]):
        agent = member.agent
        spy.on(agent._tracker, "measure_and_update")
        spy.on(agent, "_slow_tick", "slow tick")
        spy.on(agent.parts.links, "poll", "consensus")
        spy.on(agent.phase, "do_work", "consensus work")
        spy.on(agent.parts.services, "poll", "services")

        assert spy.turn(member, 20 * MS) == [
            "measure_and_update",
            "slow tick",
            "consensus",
            "consensus work",
            "services",
        ]


@pytest.mark.conformance("C-8")
def test_a_turn_with_an_election_has_its_cycle_and_no_consensus_work(spy):
    cluster = SimulatedCluster(3, 1)
    cluster.run(5 * MS)
    member = cluster.members[0]
    agent = member.agent
    spy.on(agent.phase.election, "do_work", "election")
    spy.on(agent.parts.clients, "poll", "ingress")
    spy.on(agent.replica.sessions, "process_pending")
    spy.on(agent.replica.sessions, "check_sessions")
    calls = spy.turn(member, 20 * MS)

    assert calls == ["election"]


@pytest.mark.conformance("C-26")
def test_slow_ticks_of_an_election_redirect_and_reject_but_do_nothing_else(spy):
    cluster = a_cluster()
    member = cluster.followers[0]
    agent = member.agent
    answers = []
    connection = member.dial(answers.append)
    connection.send(connect_request(9, version=CLIENT_PROTOCOL_VERSION))
    while not member.replica.sessions.has_pending_work:
        cluster.step()
    member.enter_election("test")
    member.counters.node_control_toggle.set(NodeControlToggle.VALIDATE_RECORDING_LOG)
    for method in ("send_redirects", "send_rejections", "process_pending", "check_sessions"):
        spy.on(agent.replica.sessions, method)
    spy.on(agent.parts.backups, "send_rejections", "rejected backups")
    spy.on(agent.parts.backups, "process_pending", "pending backups")

    calls = spy.turn(member, 20 * MS)

    assert calls == ["send_redirects", "send_rejections", "rejected backups"]
    assert member.is_electing
    assert member.counters.node_control_toggle.get() == NodeControlToggle.VALIDATE_RECORDING_LOG
    cluster.run(1 * MS)
    assert [decode(data, HEADER_LENGTH, len(data) - HEADER_LENGTH).code for data in answers] == [
        EventCode.REDIRECT
    ]


@pytest.mark.conformance("C-134")
def test_no_ingress_is_taken_before_the_election_is_over(spy):
    cluster = SimulatedCluster(3, 1)
    for member in cluster.members:
        spy.on(member.agent.parts.clients, "poll", "ingress")
        spy.on(member.agent, "_establish", "completed")
    cluster.await_leader(timeout_ns=90 * SECOND)
    cluster.run(1 * MS)

    assert spy.calls[0] == "completed"
    assert "ingress" in spy.calls


@pytest.mark.conformance("C-5")
def test_slow_ticks_without_work_are_10_ms_apart(spy, monkeypatch):
    monkeypatch.delattr(SparingContext, "slow_tick_interval_ns")
    cluster = a_cluster()
    leader = cluster.leader
    cluster.run(50 * MS)
    spy.on(leader.agent, "_slow_tick", "slow tick")
    spy.turn(leader, 20 * MS)

    assert spy.turn(leader, 30 * MS - 1) == []
    assert spy.turn(leader, 30 * MS) == ["slow tick"]


@pytest.mark.conformance("C-6")
def test_a_slow_tick_with_work_is_followed_by_another_in_the_next_turn(spy):
    cluster = a_cluster()
    leader = cluster.leader
    leader.counters.control_toggle.set(ClusterControlToggle.SUSPEND)
    spy.on(leader.agent, "_slow_tick", "slow tick")

    assert spy.turn(leader, 20 * MS) == ["slow tick"]
    assert spy.turn(leader, 20 * MS + 1) == ["slow tick"]


@pytest.mark.conformance("C-11")
def test_the_mark_file_is_refreshed_once_a_second():
    class MarkFile:
        times = []

        def update_activity(self, now_ms):
            self.times.append(now_ms)

    cluster = a_cluster(1)
    member = cluster.members[0]
    member.agent._upkeep._mark_file = MarkFile()
    cluster.run(5 * SECOND)

    gaps = [b - a for a, b in zip(MarkFile.times, MarkFile.times[1:], strict=False)]
    assert len(gaps) >= 3
    assert min(gaps) >= 1000


@pytest.mark.conformance("C-13", "C-14", "C-15", "C-16")
def test_a_slow_tick_of_the_leader_goes_in_the_seeds_order(spy):
    cluster = a_cluster()
    leader = cluster.leader
    agent = leader.agent
    spy.on(agent.replica.sessions, "send_redirects")
    spy.on(agent.replica.sessions, "send_rejections")
    spy.on(agent.parts.control, "do_work", "toggle")
    spy.on(agent.replica.sessions, "process_pending")
    spy.on(agent.parts.backups, "send_rejections", "rejected backups")
    spy.on(agent.parts.backups, "process_pending", "pending backups")
    spy.on(agent.replica.sessions, "check_sessions")
    spy.on(agent.phase.leader, "has_active_quorum")
    cluster.add_client()
    # A request that is pending: the loop below finds the tick in which it is.
    for _ in range(2000):
        cluster.step()
        if "process_pending" in spy.calls:
            break
        spy.calls.clear()
    spy.calls = spy.calls[spy.calls.index("send_redirects") :]

    assert spy.calls == [
        "send_redirects",
        "send_rejections",
        "rejected backups",
        "toggle",
        "process_pending",
        "pending backups",
        "check_sessions",
        "has_active_quorum",
    ]


@pytest.mark.conformance("C-30")
def test_a_risen_commit_position_is_told_at_the_begin_of_the_next_turn(spy):
    """Aeron's leader tells it in the cycle of the rise (C-30); here services and clients come first."""
    cluster = a_cluster()
    agent = cluster.leader.agent
    client = cluster.add_client()
    cluster.await_settled()
    spy.on(agent.phase, "do_work", "turn")
    spy.on(agent.log, "commit", "shown")
    spy.on(agent.phase, "_send_commit", "told")
    client.send(b"0:a message")
    cluster.run_until(lambda: "shown" in spy.calls)
    cluster.run_until(lambda: "told" in spy.calls[spy.calls.index("shown") :])
    shown = spy.calls.index("shown")

    assert spy.calls[shown : shown + 3] == ["shown", "turn", "told"]


@pytest.mark.conformance("C-17")
def test_a_leader_whose_followers_are_silent_for_10_s_enters_an_election():
    cluster = a_cluster()
    leader = cluster.leader
    for follower in cluster.followers:
        follower.pause()
    cluster.run(9 * SECOND)
    assert leader.is_leading
    cluster.run(2 * SECOND)

    assert not leader.is_leading
    assert any("inactive follower quorum" in line for line in cluster.events)


@pytest.mark.conformance("C-22")
def test_a_follower_whose_leader_is_silent_for_10_s_enters_an_election():
    cluster = a_cluster()
    cluster.leader.pause()
    cluster.run(9 * SECOND)
    assert len(cluster.followers) == 2
    cluster.run(2 * SECOND)

    assert any("leader heartbeat timeout" in line for line in cluster.events)


@pytest.mark.conformance("C-24")
@pytest.mark.parametrize("has_the_log", [True, False])
def test_a_follower_that_comes_to_its_end_without_a_leader_looks_for_none(has_the_log):
    """Stricter than Aeron, where one that lacks a part of the log waits for ever."""
    cluster = a_cluster()
    client = cluster.add_client()
    cluster.await_settled()
    follower = cluster.followers[0]
    agent = follower.agent
    agent.parts.processing.process = lambda *_: 0  # it takes its time
    client.send(b"x")
    cluster.await_settled()
    cluster.run(300 * MS)
    end = follower.append_position
    assert follower.commit_position < end
    agent.parts.termination.position = end if has_the_log else end + 32
    elections = follower.counters.election_count.get()
    cluster.leader.pause()
    cluster.run(15 * SECOND)

    assert (follower.counters.election_count.get() == elections) == has_the_log


@pytest.mark.conformance("C-25")
def test_the_node_toggle_is_looked_at_on_every_member():
    cluster = a_cluster()
    for member in cluster.members:
        member.counters.node_control_toggle.set(NodeControlToggle.VALIDATE_RECORDING_LOG)
    cluster.run(100 * MS)

    for member in cluster.members:
        assert member.counters.node_control_toggle.get() == NodeControlToggle.NEUTRAL


@pytest.mark.conformance("C-27", "C-28", "C-41")
def test_timers_come_before_service_messages_and_those_before_ingress_then_the_position(spy):
    cluster = a_cluster()
    leader = cluster.leader
    agent = leader.agent
    agent.replica.timers.schedule(1, 0)
    agent.replica.trackers[0].enqueue(SessionMessageHeader(0, 0, 0).encode() + b"offered")
    spy.on(agent.replica.timers, "poll", "timers")
    spy.on(agent.replica.trackers[0], "poll", "service messages")
    spy.on(agent.parts.clients, "poll", "ingress")
    spy.on(agent.phase.leader, "update", "position")
    spy.on(agent.parts.services, "poll", "services")

    assert spy.turn(leader) == ["timers", "service messages", "ingress", "position", "services"]


@pytest.mark.conformance("C-29")
def test_the_leaders_own_position_is_that_of_its_recording_after_each_turn():
    cluster = a_cluster()
    leader = cluster.leader
    client = cluster.add_client()
    for _ in range(20):
        client.send(b"x" * 100)
        cluster.run(1 * MS)
        own = leader.reports[leader.member_id]
        assert own.report_position == leader.synced_position


@pytest.mark.conformance("C-33", "C-34", "C-35", "C-242")
def test_a_follower_processes_no_more_than_is_committed_and_recorded():
    cluster = a_cluster()
    follower = cluster.followers[0]
    client = cluster.add_client()
    seen = 0
    for number in range(300):
        client.send(b"%d" % number + bytes(200))
        cluster.run(20 * US)
        assert follower.commit_position <= min(follower.notified_commit_position, follower.append_position)
        assert follower.counters.commit_position.get() == follower.processed_position
        assert follower.service_agent.joined_position <= follower.commit_position
        seen += follower.append_position > follower.commit_position
    assert seen, "the follower never had anything uncommitted: this proves nothing"


@pytest.mark.conformance("C-34")
def test_a_commit_position_beyond_its_own_recording_takes_a_follower_no_further():
    cluster = a_cluster()
    follower, leader_id = cluster.followers[0], cluster.leader.member_id
    end = follower.append_position
    follower.receive(leader_id, CommitPosition(follower.leadership_term_id, end + 32 * 1024, leader_id))
    for _ in range(5):
        follower.take_turn()

    assert follower.notified_commit_position == end + 32 * 1024
    assert follower.commit_position == follower.processed_position == end


@pytest.mark.conformance("C-23")
def test_a_leader_of_whom_only_the_log_is_heard_is_silent():
    cluster = a_cluster()
    leader = cluster.leader
    client = cluster.add_client()
    cluster.await_settled()
    send = leader.links.send

    def without_heartbeats(to, *buffers):
        kinds = [bytes(memoryview(buffer)[16:20].cast("B")) for buffer in buffers]
        is_log = all(int.from_bytes(kind, "little") == streams.LOG for kind in kinds)
        return send(to, *buffers) if is_log else 1

    leader.links.send = without_heartbeats
    before = cluster.followers[0].append_position
    for number in range(12):
        client.send(b"0:%d" % number)
        cluster.run(1 * SECOND)
        if number == 8:
            assert len(cluster.followers) == 2
            assert cluster.followers[0].append_position > before
    assert sum("leader heartbeat timeout" in line for line in cluster.events) == 2
    assert all(member.leader_member_id != leader.member_id for member in cluster.followers)


@pytest.mark.conformance("C-36")
def test_a_follower_looks_at_the_log_before_ingress(spy):
    cluster = a_cluster()
    follower = cluster.followers[0]
    agent = follower.agent
    client = cluster.add_client()
    cluster.await_settled()
    client.send(b"x")
    spy.on(agent.phase, "do_work", "turn")
    spy.on(agent.parts.processing, "process", "log")
    spy.on(agent.parts.clients, "poll", "ingress")
    while "log" not in spy.calls or "turn" not in spy.calls[spy.calls.index("log") :]:
        cluster.step()

    log = spy.calls.index("log")
    assert spy.calls[log - 1 : log + 3] == ["turn", "log", "ingress", "turn"]


def connect_request(correlation_id, version):
    request = SessionConnectRequest(correlation_id, 102, version, "test")
    return frame(request.encode(), session_id=0, stream_id=streams.INGRESS)


@pytest.mark.conformance("C-37")
def test_what_clients_send_to_a_follower_has_no_effect():
    cluster = a_cluster()
    follower = cluster.followers[0]
    client = cluster.add_client()
    cluster.await_settled()
    cluster.await_level()
    before = [m.append_position for m in cluster.members]
    leader = cluster.leader
    leader.authorise(AllowAll())
    follower.authorise(AllowAll())
    answers = []
    connection = follower.dial(answers.append)
    term_id = cluster.leader.leadership_term_id
    for message in (
        SessionMessageHeader(term_id, client.session_id, 0).encode() + b"x",
        SessionKeepAlive(term_id, client.session_id).encode(),
        SessionCloseRequest(term_id, client.session_id).encode(),
        AdminRequest(term_id, client.session_id, 9, AdminRequestType.SNAPSHOT).encode(),
    ):
        connection.send(frame(message, session_id=0, stream_id=streams.INGRESS))
    cluster.run(50 * MS)

    assert [m.append_position for m in cluster.members] == before
    assert client.session_id in cluster.leader.sessions
    assert answers == []
    assert follower.counters.control_toggle.get() == ClusterControlToggle.INACTIVE


@pytest.mark.conformance("C-42", "C-272", "C-286", "C-287", "C-288", "C-254", "S-134")
def test_a_suspended_leader_appends_nothing_but_goes_on_committing():
    cluster = a_cluster()
    leader = cluster.leader
    client = cluster.add_client()
    cluster.await_settled()
    toggle = leader.counters.control_toggle
    assert toggle.get() == ClusterControlToggle.NEUTRAL
    toggle.set(ClusterControlToggle.SUSPEND)
    cluster.run(100 * MS)
    assert [m.module_state for m in cluster.members] == 3 * [ConsensusModuleState.SUSPENDED]
    assert toggle.get() == ClusterControlToggle.SUSPEND

    end = leader.published_position
    leader.timers.schedule(9, 0)
    client.send(b"wait")
    cluster.run(15 * SECOND)
    assert leader.published_position == end == leader.commit_position
    assert len(cluster.followers) == 2, "commit positions went on"

    toggle.set(ClusterControlToggle.RESUME)
    cluster.run(100 * MS)
    assert toggle.get() == ClusterControlToggle.NEUTRAL
    cluster.await_settled()
    assert client.acknowledged == 1
    assert [m.module_state for m in cluster.members] == 3 * [ConsensusModuleState.ACTIVE]
    assert [e.correlation_id for e in entries(leader) if isinstance(e, TimerEvent)] == [9]


def test_a_log_that_is_full_takes_no_more_input_but_is_committed(monkeypatch):
    """Its last position lies 2^31 terms away; here it is put within reach."""
    monkeypatch.setattr(publication, "RESERVED_BYTES", 0)
    monkeypatch.setattr(publication, "RESERVED_TERMS", 2**31 - 1)
    cluster = a_cluster()
    leader = cluster.leader
    client = cluster.add_client()
    for _ in range(100):
        client.send(bytes(1000))
        cluster.run(1 * MS)
    cluster.run(100 * MS)
    end = leader.published_position
    assert cluster.term_length <= end < cluster.term_length + 2_000
    leader.timers.schedule(1, 0)
    client.send(b"too late")
    cluster.run(5 * SECOND)

    assert leader.published_position == end
    assert [member.commit_position for member in cluster.members] == 3 * [end]
    assert sum("takes no more input" in line for line in cluster.events) == 1


@pytest.mark.conformance("C-43")
def test_a_follower_in_a_snapshot_reads_nothing_but_goes_on_reporting(spy):
    cluster = a_cluster()
    client = cluster.add_client()
    cluster.await_settled()
    follower = cluster.followers[0]
    follower.replica.module.change(ConsensusModuleState.SNAPSHOT)
    spy.on(follower.agent.parts.clients, "poll", "ingress")
    spy.on(follower.agent.parts.processing.adapter, "poll", "log")
    before = follower.commit_position
    client.send(b"x")
    cluster.await_settled()
    cluster.run(1 * SECOND)

    assert follower.commit_position == before
    assert spy.calls == []
    leader = cluster.leader
    assert leader.reports[follower.member_id].report_position == leader.append_position


@pytest.mark.conformance("C-309")
def test_a_suspension_that_is_not_committed_is_undone_with_the_leadership():
    cluster = a_cluster()
    leader = cluster.leader
    for follower in cluster.followers:
        follower.pause()
    leader.counters.control_toggle.set(ClusterControlToggle.SUSPEND)
    cluster.run(100 * MS)
    assert leader.module_state is ConsensusModuleState.SUSPENDED
    leader.enter_election("test")

    assert leader.module_state is ConsensusModuleState.ACTIVE


@pytest.mark.conformance("C-45")
def test_a_disk_that_fails_ends_the_life_of_the_member(monkeypatch):
    cluster = a_cluster()
    leader = cluster.leader
    client = cluster.add_client()
    cluster.await_settled()

    def fails(*_):
        raise StorageError("recording", 28)

    monkeypatch.setattr(leader.recording, "append", fails)
    client.send(b"x")
    cluster.run(10 * MS)

    assert leader.life is None
    [told] = [line for line in cluster.events if "ends a life" in line]
    assert "No space left" in told


@pytest.mark.conformance("C-45")
def test_a_disk_that_fails_in_an_election_ends_the_life_and_not_the_election_alone(monkeypatch):
    cluster = a_cluster()
    leader = cluster.leader

    def fails(*_):
        raise StorageError("recording.log", 28)

    monkeypatch.setattr(leader.agent.log, "record_term", fails)
    leader.enter_election("test")
    cluster.run_until(lambda: leader.life is None)

    [told] = [line for line in cluster.events if "ends a life" in line]
    assert "No space left" in told


@pytest.mark.conformance("C-97", "S-172")
def test_each_election_is_counted():
    cluster = a_cluster()
    follower = cluster.followers[0]
    assert follower.counters.election_count.get() == 1
    follower.enter_election("test")
    cluster.await_level()

    assert follower.counters.election_count.get() == 2
    assert follower.counters.election_state.get() == ElectionState.CLOSED


@pytest.mark.conformance("C-96")
def test_the_election_state_counter_is_that_of_the_election_at_all_times():
    cluster = SimulatedCluster(3, 1)
    seen = set()
    while cluster.leader is None or len(cluster.followers) < 2:
        cluster.step()
        for member in cluster.members:
            election = member.election
            if election is not None:
                assert member.counters.election_state.get() == election.state
                assert member.counters.leader_member_id.get() == NULL_VALUE
                seen.add(election.state)
    assert len(seen) > 6
    leader_id = cluster.leader.member_id
    assert {m.counters.leader_member_id.get() for m in cluster.members} == {leader_id}
    assert {m.counters.election_state.get() for m in cluster.members} == {ElectionState.CLOSED}


@pytest.mark.conformance("S-167")
@pytest.mark.parametrize("members", [1, 3, 5])
def test_the_counters_of_a_settled_cluster_show_one_leader_and_closed_elections(members):
    cluster = a_cluster(members)

    found = [
        (member.counters.file.find(201, 0).get(), member.counters.file.find(207, 0).get())
        for member in cluster.members
    ]
    assert sorted(found) == [(0, 17)] * (members - 1) + [(2, 17)]


@pytest.mark.conformance("C-134", "C-135")
def test_the_toggle_is_neutral_on_the_leader_and_inactive_on_followers():
    cluster = a_cluster()

    for member in cluster.members:
        is_leader = member is cluster.leader
        toggle = member.counters.control_toggle.get()
        assert toggle == (ClusterControlToggle.NEUTRAL if is_leader else ClusterControlToggle.INACTIVE)
        assert member.counters.node_role.get() == (Role.LEADER if is_leader else Role.FOLLOWER)
