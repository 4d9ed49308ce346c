"""Counter 1115 of each consumer group, for `cluster top` and others that look."""

from cluster.consensus.consumers import ConsumerTable
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.member import counters as counters_module
from cluster.member.counters import ConsumerCounters
from cluster.protocol.consumer import Consumer, ConsumerPrincipal
from cluster.protocol.counter_types import CounterTypeId, consumer_group_of
from cluster.testing.world import SECOND
from tests.member.in_memory.cluster import SimulatedCluster


class Groups:
    def __init__(self):
        self.file = CountersFile.in_memory()
        self.table = ConsumerTable(ConsensusModuleContext())
        self.counters = ConsumerCounters(self.file, 3)

    def report(self, group, position, *, at=0, retention=1_000):
        principal = ConsumerPrincipal(b"", Consumer(group, position), retention).encode()
        self.table.on_open(principal, at)

    def shown(self):
        self.counters.update(self.table)
        return {
            consumer_group_of(record.label): record.value
            for record in self.file.counters()
            if record.is_allocated and record.type_id == CounterTypeId.CONSUMER_POSITION
        }


def test_each_group_has_a_counter_that_goes_with_it_and_ends_with_it():
    groups = Groups()
    assert groups.shown() == {}
    groups.report("billing", 64)
    groups.report("audit", 0)
    assert groups.shown() == {"billing": 64, "audit": 0}
    groups.report("billing", 640, at=10)
    assert groups.shown() == {"billing": 640, "audit": 0}
    groups.report("billing", 704, at=1_005)
    assert groups.shown() == {"billing": 704}, "the other one is forgotten"


def test_a_name_that_is_not_ascii_is_escaped_and_the_longest_is_whole():
    groups = Groups()
    groups.report("größe", 1)
    groups.report("x" * 256, 2)
    assert groups.shown() == {r"gr\xf6\xdfe": 1, "x" * 256: 2}


def test_so_many_groups_have_one_and_room_is_used_again(monkeypatch):
    monkeypatch.setattr(counters_module, "CONSUMER_COUNTERS_MAX", 2)
    groups = Groups()
    groups.report("a", 1, retention=5)
    groups.report("b", 1)
    groups.report("c", 1)
    assert groups.shown() == {"a": 1, "b": 1}
    groups.report("c", 2, at=100, retention=5)
    assert groups.shown() == {"b": 1, "c": 2}


def test_a_member_says_in_its_log_that_four_fifths_of_the_groups_are_there():
    cluster = SimulatedCluster(1, consumers_max=5)
    table = cluster.await_leader().replica.sessions.consumers
    for group in "abcd":
        table.on_open(ConsumerPrincipal(b"", Consumer(group, 0), 1_000_000).encode(), 0)
    cluster.run(SECOND)
    told = [line for line in cluster.events if "_max" in line]
    assert told == ["member 0: consumers_max: 4 of 5 are taken"]
