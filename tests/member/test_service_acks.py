"""All services of a member are waited for, each with the next ack and at the position that was asked for."""

from types import SimpleNamespace

import pytest

from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.timers import PriorityHeapTimerService
from cluster.errors import ClusterError
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.protocol.enums import Role
from cluster.protocol.service import ServiceAck
from cluster.service.channel import ServiceChannel


class Services:
    """The adapter over services that the test plays."""

    def __init__(self, count=2):
        self.channels = [ServiceChannel() for _ in range(count)]
        context = ConsensusModuleContext(service_count=count)
        replica = SimpleNamespace(timers=PriorityHeapTimerService())
        self.adapter = ServiceAdapter(context, replica, tuple(self.channels), None, lambda: 0)
        self.acked = []

    def wait_for(self, position, what):
        self.adapter.await_acks(position, lambda acks: self.acked.append((what, len(acks))))

    def join(self, position):
        self.adapter.join_log(
            None,
            log_position=position,
            max_log_position=1 << 40,
            log_session_id=1,
            log_stream_id=100,
            is_startup=False,
            role=Role.FOLLOWER,
            on_acked=lambda acks: self.acked.append(("join", len(acks))),
        )

    def ack(self, service_id, ack_id, position):
        self.channels[service_id].offer_to_consensus_module(
            ServiceAck(position, 0, ack_id, -1, service_id).encode()
        )
        self.adapter.poll(commit_position=position)


@pytest.mark.conformance("S-104")
def test_nothing_goes_on_before_every_service_has_acknowledged():
    services = Services()
    services.wait_for(4096, "snapshot")
    services.ack(1, 0, 4096)
    assert services.acked == []
    services.ack(0, 0, 4096)
    assert services.acked == [("snapshot", 2)]


@pytest.mark.conformance("S-105", "C-295")
@pytest.mark.parametrize(("ack_id", "position"), [(1, 4096), (0, 4064), (0, 4128)])
def test_another_id_or_another_position_is_out_of_sequence(ack_id, position):
    services = Services(count=1)
    services.wait_for(4096, "snapshot")
    with pytest.raises(ClusterError, match="out of sequence"):
        services.ack(0, ack_id, position)
    assert services.acked == []


@pytest.mark.conformance("S-106")
def test_a_second_first_ack_is_out_of_sequence_while_the_service_lives():
    services = Services(count=1)
    services.wait_for(4096, "snapshot")
    services.ack(0, 0, 4096)
    services.wait_for(8192, "snapshot")
    with pytest.raises(ClusterError, match="out of sequence"):
        services.ack(0, 0, 8192)
    services.ack(0, 1, 8192)
    assert services.acked == [("snapshot", 1), ("snapshot", 1)]


def test_an_ack_that_nobody_asked_for_is_out_of_sequence():
    with pytest.raises(ClusterError, match="nobody asked for"):
        Services(count=1).ack(0, 0, 4096)


def test_a_join_that_an_election_has_overtaken_is_acknowledged_to_nobody_and_a_snapshot_still_is():
    services = Services(count=1)
    services.join(0)
    services.wait_for(4096, "snapshot")
    services.adapter.close_log(4096)
    services.join(4096)
    for ack_id, position in enumerate([0, 4096, 4096]):
        services.ack(0, ack_id, position)
    assert services.acked == [("snapshot", 1), ("join", 1)]
