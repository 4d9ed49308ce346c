"""Each field of each entry that a running member writes, on leader, follower and after a replay."""

import pytest

from cluster.consensus.context import NULL_VALUE
from cluster.protocol import decode
from cluster.protocol.enums import CloseReason, ClusterAction, ClusterControlToggle, ClusterTimeUnit
from cluster.protocol.frame import HEADER_LENGTH, align
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.resume import with_resume_hash
from cluster.protocol.session import SessionMessageHeader
from tests.member.in_memory.cluster import MS, SECOND, SimulatedCluster
from tests.member.in_memory.member import log_bytes

SERVICE_SESSION = -(2**63)  # of the services' own messages, plus their number


class Written:
    """A cluster that notes the clock of the member that leads, whenever its log has grown."""

    def __init__(self):
        self.cluster = cluster = SimulatedCluster(3, app_version=5)
        self._after_turn, cluster.after_turn = cluster.after_turn, self.after_turn
        self._end = 0
        self._clock_at = []  # (end of the log, wall clock of the turn that it came in)
        cluster.await_leader(90 * SECOND)

    def after_turn(self, member):
        self._after_turn(member)
        if member.is_leading and member.append_position > self._end:
            self._end = member.append_position
            self._clock_at.append((self._end, member.life.consensus_module.turn.now_ms))

    def clock_at(self, position):
        return next(clock for end, clock in self._clock_at if end >= position)

    def entries(self, member):
        """(entry, payload, position where it begins, and ends, session of its frame) of a member's log."""
        data = log_bytes(member, 0, member.commit_position)
        found, offset = [], 0
        while offset < len(data):
            length = int.from_bytes(data[offset : offset + 4], "little")
            session_id = int.from_bytes(data[offset + 12 : offset + 16], "little", signed=True)
            end = offset + align(length)
            if data[offset + 6]:
                message = decode(data, offset + HEADER_LENGTH, length - HEADER_LENGTH)
                payload = b""
                if isinstance(message, SessionMessageHeader):
                    payload = data[offset + HEADER_LENGTH + 32 : offset + length]
                found.append((message, payload, offset, end, session_id))
            offset = end
        return found


@pytest.fixture(scope="module")
def history():
    """Two terms, and every kind of entry; with what the client asked for."""
    written = Written()
    cluster = written.cluster
    client = cluster.add_client()
    cluster.await_settled()
    correlation_id = client._correlation_id
    for payload in (b"one", b"again two", b"timer 7"):
        client.send(payload)
    cluster.await_settled()
    cluster.run(200 * MS)
    for toggle in (
        ClusterControlToggle.SUSPEND,
        ClusterControlToggle.RESUME,
        ClusterControlToggle.SNAPSHOT,
        ClusterControlToggle.STANDBY_SNAPSHOT,
    ):
        cluster.leader.counters.control_toggle.set(toggle)
        cluster.run(100 * MS)
    first = cluster.leader
    first.kill()
    second = cluster.await_leader()
    first.start()
    cluster.run_until(lambda: client.is_open and client.leadership_term_id == 1)
    client.close()
    cluster.run_until(lambda: not second.sessions)
    cluster.await_level()
    return written, client, correlation_id, (first.member_id, second.member_id)


def what_it_must_be(history):
    """Every entry in order, of nothing but what was asked for, where it stands, and the clocks."""
    written, client, correlation_id, (first, second) = history
    found = written.entries(written.cluster.leader)
    places = [(begin, end, written.clock_at(end), session_id) for _, _, begin, end, session_id in found]
    place = iter(places)

    def term(term_id, leader_id):
        begin, end, clock, session_id = next(place)
        unit = ClusterTimeUnit.MILLIS
        return NewLeadershipTermEvent(term_id, end, clock, begin, leader_id, session_id, unit, 5), b""

    def opened(term_id):
        _, _, clock, _ = next(place)
        channel = with_resume_hash("client-0", client._resume_token)
        return SessionOpenEvent(term_id, correlation_id, client.session_id, clock, 102, channel, b""), b""

    def said(term_id, session_id, payload):
        _, _, clock, _ = next(place)
        return SessionMessageHeader(term_id, session_id, clock), payload

    def timer(term_id, timer_id):
        _, _, clock, _ = next(place)
        return TimerEvent(term_id, timer_id, clock), b""

    def action(term_id, kind, flags=0):
        _, end, clock, _ = next(place)
        return ClusterActionRequest(term_id, end, clock, kind, flags), b""

    def closed(term_id, reason):
        _, _, clock, _ = next(place)
        return SessionCloseEvent(term_id, client.session_id, clock, reason), b""

    expected = [
        term(0, first),
        opened(0),
        said(0, client.session_id, b"one"),
        said(0, client.session_id, b"again two"),
        said(0, client.session_id, b"timer 7"),
        said(0, SERVICE_SESSION + 1, b"two"),
        timer(0, 7),
        action(0, ClusterAction.SUSPEND),
        action(0, ClusterAction.RESUME),
        action(0, ClusterAction.SNAPSHOT),
        action(0, ClusterAction.SNAPSHOT, flags=1),
        term(1, second),
        closed(1, CloseReason.CLIENT_ACTION),
    ]
    assert len(places) == len(expected)
    return expected


def as_it_is(written, member):
    return [(message, payload) for message, payload, *_ in written.entries(member)]


@pytest.mark.conformance("C-245", "C-246", "C-247", "C-248", "C-249", "C-250", "C-251")
@pytest.mark.parametrize("who", ["leader", "followers"])
def test_every_field_of_every_entry_is_what_it_must_be(history, who):
    written, cluster = history[0], history[0].cluster
    members = [cluster.leader] if who == "leader" else cluster.followers
    for member in members:
        assert as_it_is(written, member) == what_it_must_be(history)


@pytest.mark.conformance("C-251")
def test_the_log_session_of_a_term_is_that_of_its_frames_and_of_its_leader(history):
    written = history[0]
    events = [
        (message, session_id)
        for message, *_, session_id in written.entries(written.cluster.leader)
        if isinstance(message, NewLeadershipTermEvent)
    ]
    assert [event.log_session_id for event, _ in events] == [session_id for _, session_id in events]
    assert events[-1][1] == written.cluster.leader.log_session_id
    assert len({session_id for _, session_id in events} - {NULL_VALUE}) == 2


def test_after_a_replay_the_entries_are_the_same_and_services_are_told_the_same(history):
    written, cluster = history[0], history[0].cluster
    before = what_it_must_be(history)
    chains = {member.member_id: member.service.chain for member in cluster.members}
    member = cluster.followers[0]
    member.kill()
    member.start()
    cluster.await_level()

    assert as_it_is(written, member) == before
    assert member.service.chain == chains[member.member_id] == cluster.leader.service.chain
