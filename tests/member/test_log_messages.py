"""What is written to the log, and who acts on it when."""

import pytest

from cluster.consensus.context import ConsensusModuleContext
from cluster.protocol.log import NewLeadershipTermEvent, SessionOpenEvent, TimerEvent
from cluster.protocol.session import SessionMessageHeader
from tests.member.cluster_steps import a_cluster, entries
from tests.member.in_memory.cluster import SECOND


@pytest.mark.conformance("C-130", "C-251", "C-257", "C-258")
def test_each_term_begins_with_its_event():
    cluster = a_cluster()
    first = cluster.leader
    first.kill()
    cluster.await_leader()
    first.start()
    cluster.await_level()
    events = [e for e in entries(cluster.members[0]) if isinstance(e, NewLeadershipTermEvent)]

    assert [event.leadership_term_id for event in events] == [0, 1]
    assert [event.leader_member_id for event in events] == [cluster.leader_of_term[t] for t in (0, 1)]
    assert [event.term_base_log_position for event in events] == [0, 96]
    assert [event.log_position for event in events] == [96, 192]
    for member in cluster.members:
        assert member.leadership_term_id == 1
        assert member.counters.leadership_term_id.get() == 1


@pytest.mark.conformance("C-215", "C-225", "C-239", "C-241", "C-245", "C-275")
def test_all_members_record_and_apply_the_same_log():
    cluster = a_cluster()
    client = cluster.add_client()
    client.send(b"one")
    client.send(b"again two")
    client.send(b"timer 7")
    cluster.await_settled()
    cluster.run(1 * SECOND)
    cluster.await_level()
    cluster.check()

    kinds = [type(entry) for entry in entries(cluster.members[0])]
    assert kinds == [
        NewLeadershipTermEvent,
        SessionOpenEvent,
        SessionMessageHeader,
        SessionMessageHeader,
        SessionMessageHeader,
        SessionMessageHeader,
        TimerEvent,
    ]
    for member in cluster.members:
        assert member.service.applied == [b"one", b"again two", b"timer 7", b"two"]
        assert member.service.timers == [7]
        assert client.session_id in member.sessions


@pytest.mark.conformance("C-238")
def test_two_clients_that_send_at_once_are_both_served():
    cluster = a_cluster()
    clients = [cluster.add_client() for _ in range(2)]
    for client in clients:
        for number in range(200):
            client.send(b"%d:%d" % (client.client_id, number))
    cluster.await_settled()
    cluster.await_level()
    cluster.check_promises()


@pytest.mark.conformance("C-259")
@pytest.mark.parametrize("what", ["time unit", "app version"])
def test_a_log_of_another_kind_ends_the_member(what):
    from cluster.protocol.enums import ClusterTimeUnit

    cluster = a_cluster(1)
    member = cluster.members[0]
    member.kill()
    other = {"time_unit": ClusterTimeUnit.NANOS} if what == "time unit" else {"app_version": 1 << 16}
    context = cluster.context_of(0)
    cluster.context_of = lambda member_id: ConsensusModuleContext(  # type: ignore[method-assign]
        member_ids=context.member_ids, log_term_length=context.log_term_length, **other
    )
    member.start()
    cluster.run(1 * SECOND)

    assert not member.is_running
    assert "AgentTermination" in member.death
