"""A follower behind in the term, brought level while clients go on."""

import pytest

from cluster.protocol import decode, streams
from cluster.protocol.consensus import AppendPosition, CatchupPosition, StopCatchup
from cluster.protocol.enums import AppendPositionFlags, ElectionState
from cluster.protocol.frame import HEADER_LENGTH, align
from cluster.protocol.link import LogImage, ReplicationRequest
from tests.member.in_memory.cluster import MS, SECOND, US, SimulatedCluster


def a_busy_cluster(*, every_us, size, seed=1, **settings):
    """A cluster with a client that sends without a break, and a follower that was killed."""
    cluster = SimulatedCluster(3, seed, **settings)
    cluster.await_leader(timeout_ns=90 * SECOND)
    client = cluster.add_client()
    cluster.run(500 * MS)
    victim = cluster.followers[0]
    victim.kill()

    def send():
        client.send(b"0:%d:" % len(client.sent) + bytes(size))
        cluster.after(every_us * US, send)

    send()
    cluster.run(300 * MS)
    return cluster, victim


@pytest.mark.slow
@pytest.mark.parametrize(("every_us", "size"), [(50, 100), (100, 1000)])
def test_a_catch_up_ends_under_a_load_that_never_does(every_us, size):
    """With a commit position in each of its turns a follower is never level before it has processed it."""
    cluster, victim = a_busy_cluster(every_us=every_us, size=size)
    victim.turns_apart_ns = 2 * MS  # in each of them something has come
    victim.start()
    states = set()
    began_ns = cluster.world.now_ns
    while not victim.is_following:
        cluster.step()
        if victim.is_electing:
            states.add(victim.election_state)
        assert cluster.world.now_ns - began_ns < SECOND

    assert ElectionState.FOLLOWER_CATCHUP in states
    assert len(cluster.followers) == 2


class Wire:
    """What one member sends to another, decoded, log bytes as (position, end)."""

    def __init__(self, sender, receiver):
        self.messages = []
        send = sender.links.send

        def spied(to, *buffers):
            if to == receiver.member_id:
                for buffer in buffers:
                    self._note(bytes(memoryview(buffer).cast("B")))
            return send(to, *buffers)

        sender.links.send = spied

    def _note(self, data):
        offset = 0
        while offset < len(data):
            length = int.from_bytes(data[offset : offset + 4], "little")
            if data[offset + 16] != streams.LOG:
                self.messages.append(decode(data, offset + HEADER_LENGTH, length - HEADER_LENGTH))
            offset += align(length)

    def of(self, kind):
        return [message for message in self.messages if isinstance(message, kind)]


@pytest.mark.conformance("C-149", "C-151", "C-152", "C-158")
def test_one_catch_up_is_served_at_a_time_and_stopped_when_level_or_when_its_follower_canvasses():
    # A history in which both are asked for by CatchupPosition: some would replicate the rest of the term.
    cluster, victim = a_busy_cluster(every_us=1000, size=500, seed=6)
    leader = cluster.leader
    victim.start()
    wire, answers = Wire(victim, leader), Wire(leader, victim)
    cluster.run_until(lambda: leader.log_streams.get(victim.member_id) is not None)
    stream = leader.log_streams.get(victim.member_id)
    assert stream.is_catchup
    [request] = wire.of(CatchupPosition)

    # Asked again while it is served: nothing changes.
    leader.receive(victim.member_id, request)
    assert leader.log_streams.get(victim.member_id) is stream
    assert len(answers.of(LogImage)) == 1

    cluster.run_until(lambda: victim.is_following)
    reports = [report for report in wire.of(AppendPosition) if report.flags == AppendPositionFlags.CATCHUP]
    assert reports[-1].log_position >= stream.merge_position
    assert answers.of(StopCatchup)

    # It canvasses again: what it got is cut off at once, and its next request is served anew.
    victim.enter_election("test")
    cluster.run_until(lambda: stream.is_suspended)
    sent_to = stream.position
    cluster.run(500 * US)
    assert stream.position == sent_to < leader.append_position
    cluster.run_until(lambda: victim.is_following)
    assert leader.log_streams.get(victim.member_id) is not stream
    requests = wire.of(CatchupPosition) + wire.of(ReplicationRequest)
    assert len(requests) == len(answers.of(LogImage)) == 2


@pytest.mark.slow
@pytest.mark.conformance("C-153", "C-150")
def test_the_live_log_joins_on_where_the_recorded_one_ends():
    """Aeron adds the live destination within min(a quarter term, 32 MiB) of the target; here at it."""
    cluster, victim = a_busy_cluster(every_us=100, size=1000)
    leader = cluster.leader
    victim.start()
    on_batch = leader.log_streams.on_batch
    lags = []

    def spied(position, end_position, batch):
        stream = leader.log_streams.get(victim.member_id)
        before = None if stream is None else stream.position
        on_batch(position, end_position, batch)
        if stream is not None and stream.position != before:
            lags.append(position - before)

    leader.log_streams.on_batch = spied
    cluster.run_until(lambda: victim.is_following)
    cluster.run(50 * MS)

    assert lags, "the live log was never joined"
    assert set(lags) == {0}
    assert max(lags) <= min(cluster.term_length // 4, 32 * 1024 * 1024)
    cluster.check()


@pytest.mark.slow
@pytest.mark.conformance("C-148")
def test_a_log_that_comes_before_its_request_is_known_to_be_sent_is_taken():
    """A slow member finds request taken and answer there in one turn."""
    cluster, victim = a_busy_cluster(every_us=200, size=100, delay_ns=(1 * US, 2 * US))
    victim.turns_apart_ns = 5 * MS
    victim.start()
    cluster.run_until(lambda: victim.is_following, timeout_ns=SECOND)


@pytest.mark.parametrize("is_needed", [False, True])
def test_a_follower_that_hears_its_leader_and_gets_no_log_asks_for_it_anew(is_needed):
    """Its link was full when the leader announced the log. Without it nothing may be committed at all."""
    cluster = SimulatedCluster(3, 1)
    cluster.await_leader()
    client = cluster.add_client()
    cluster.await_settled()
    leader, (follower, other) = cluster.leader, cluster.followers
    if is_needed:
        other.kill()
    send = leader.links.send
    refused = []

    def refuse_the_announcement(member_id, *buffers):
        frames = b"".join(bytes(buffer) for buffer in buffers)
        is_one = frames[HEADER_LENGTH + 2 : HEADER_LENGTH + 4] == LogImage.TEMPLATE_ID.to_bytes(2, "little")
        if is_one and not refused and frames[16:20] == streams.LINK.to_bytes(4, "little"):
            refused.append(member_id)
            return -2
        return send(member_id, *buffers)

    leader.links.send = refuse_the_announcement
    cluster.links.reset(leader.member_id, follower.member_id)
    cluster.run_until(lambda: refused)
    for _ in range(20):
        client.send(b"0:%d:" % len(client.sent))
    cluster.await_settled()
    elections = leader.counters.election_count.get()

    cluster.await_level()

    assert cluster.leader is leader
    assert leader.counters.election_count.get() == elections
    cluster.check_promises()
