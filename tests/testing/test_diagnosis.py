"""``cluster.testing.diagnosis``: each mistake of a service has its sentence, and the entry that shows it."""

import pytest

from cluster.errors import MembersApart
from cluster.service.service_context import ServiceContext
from cluster.testing import SimulatedCluster
from cluster.testing.diagnosis import BATCHES, BUFFER, CHANCE, MEMBER, SNAPSHOT, why_apart
from tests.testing import services


@pytest.fixture(scope="module")
def log():
    """Of some messages, a snapshot, and some more, and how far it goes."""
    cluster = SimulatedCluster(services.Counter)
    alice = cluster.connect("alice")
    for _ in range(2):
        for number in range(4):
            alice.offer(b"message %d" % number)
        cluster.take_snapshot()
    alice.offer(b"the last one")
    cluster.settle()
    return cluster._committed_log()


def why(service, log):
    return why_apart(service, *log, ServiceContext(client_id=1))


@pytest.mark.parametrize(
    ("service", "sentence", "where"),
    [
        (services.GoesByTheClock, CHANCE, "'message 0': record 0 of its snapshot is"),
        (services.SharesBetweenMembers, CHANCE, "it sends an answer to a client"),
        (services.GoesByItsMember, MEMBER, "'message 0': record 0 of its snapshot is '0', or '1'"),
        (services.KeepsBuffers, BUFFER, "record 0 of its snapshot is"),
        (services.ForgetsItsState, SNAPSHOT, "'message 0': it sends an answer to a client"),
        (services.SetsTimersByMemory, SNAPSHOT, "it sends a timer set, or set again correlation_id=5"),
        (services.GoesByItsBatches, BATCHES, "'message 1': record 0 of its snapshot is '2', or '4'"),
    ],
)
def test_each_mistake_is_named_with_the_first_entry_that_shows_it(log, service, sentence, where):
    found = why(service, log)
    assert found.startswith(f"{sentence}. First after the entry that ends at ") and where in found


def test_of_a_sound_service_nothing_is_said(log):
    assert why(services.Counter, log) == ""


def test_who_finds_members_apart_says_why():
    cluster = SimulatedCluster(services.GoesByItsMember)
    cluster.connect("alice").offer(b"hello")
    cluster.settle()
    with pytest.raises(MembersApart, match=MEMBER[:40]):
        cluster.check()
