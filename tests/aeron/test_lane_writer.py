"""One attempt to write a lane's batch into a real cluster: what it reads in the log, and does then."""

from __future__ import annotations

import pytest

from cluster.aeron.lane_index import LaneAlias
from cluster.aeron.lane_writer import STALLED_NS, LaneState, LaneWriter
from cluster.aeron.session_entries import EntryKind, SessionEntry
from cluster.errors import ClientClosed
from cluster.protocol.enums import Offer
from cluster.protocol.lane import Lane

LANE = Lane("orders", 3, 17)


class Session:
    def __init__(self, session_id, term):
        self.session_id, self.leadership_term_id = session_id, term
        self.sent = []
        self.is_closed = False

    def offer(self, payload, leadership_term_id):
        if self.is_closed or leadership_term_id != self.leadership_term_id:
            return Offer.NOT_CONNECTED
        self.sent.append(payload)
        return 96 * len(self.sent)

    def follow_leader(self, leadership_term_id, member_id):
        self.leadership_term_id = leadership_term_id

    def close(self):
        self.is_closed = True


class Cluster:
    """Its log is what a test writes; sessions are opened in it, if it has a leader for them."""

    def __init__(self):
        self.log, self.term, self.now_ns = [], 4, 0
        self.sessions = []
        self.keeps_opens = True

    def append(self, entry_type, **fields):
        end = 64 * len(self.log)
        self.log.append(SessionEntry(entry_type, end, end + 64, self.term, **fields))

    def open(self, alias, session_id):
        channel = f"aeron:udp?endpoint=a:1|alias={alias}"
        self.append(EntryKind.OPEN, session_id=session_id, response_channel=channel)

    def close(self, session_id):
        self.append(EntryKind.CLOSE, session_id=session_id)

    def messages(self, session_id, *payloads):
        for payload in payloads:
            self.append(EntryKind.MESSAGE, session_id=session_id, payload=payload)

    def new_term(self):
        self.term += 1
        self.append(EntryKind.TERM, leader_member_id=2)

    def connect(self, alias):
        session = Session(100 + len(self.sessions), self.term)
        self.sessions.append(session)
        if self.keeps_opens:
            self.open(alias, session.session_id)
        return session

    def entries(self):
        at = 0
        while True:
            if at < len(self.log):
                at += 1
                yield self.log[at - 1]
            else:
                yield None

    def writer(self, *rows):
        writer = LaneWriter(LaneAlias(LANE, "mine"), self.connect, self.entries(), lambda: self.now_ns)
        for row in rows:
            writer.give(row)
        return writer


@pytest.fixture
def cluster():
    return Cluster()


def turn(writer, times=5):
    for _ in range(times):
        writer.do_work()


def other(lane=LANE, attempt="other"):
    return LaneAlias(lane, attempt).text


def test_a_row_is_settled_when_its_message_is_in_the_log(cluster):
    writer = cluster.writer(b"a", b"b")
    turn(writer)
    assert (cluster.sessions[0].sent, writer.unsettled) == ([b"a", b"b"], 2)
    cluster.messages(100, b"a")
    turn(writer)
    assert writer.unsettled == 1
    cluster.messages(100, b"b")
    turn(writer)
    assert (writer.unsettled, writer.end_position, writer.extra_rows) == (0, cluster.log[-1].end_position, 0)


def test_rows_that_earlier_attempts_have_in_the_log_are_not_sent_whatever_their_order(cluster):
    cluster.open(other(), 1)
    cluster.messages(1, b"c", b"a")
    cluster.close(1)
    cluster.open(other(attempt="another"), 2)
    cluster.messages(2, b"a")
    cluster.close(2)
    writer = cluster.writer(b"a", b"b", b"a", b"a", b"c")
    turn(writer)
    assert cluster.sessions[0].sent == [b"b", b"a"]
    writer.give(b"d")
    turn(writer)
    assert cluster.sessions[0].sent == [b"b", b"a", b"d"]


def test_messages_of_the_lane_that_are_no_rows_of_the_task_are_counted(cluster):
    cluster.open(other(), 1)
    cluster.messages(1, b"x", b"a", b"x")
    cluster.close(1)
    writer = cluster.writer()
    turn(writer)
    writer.give(b"a")
    assert (writer.unsettled, writer.extra_rows) == (0, 2)


def test_nothing_is_sent_while_the_session_of_an_earlier_attempt_is_open(cluster):
    cluster.open(other(), 1)
    writer = cluster.writer(b"a", b"b")
    turn(writer)
    assert (writer.state, cluster.sessions[0].sent) == (LaneState.FENCED, [])
    cluster.messages(1, b"a")
    turn(writer)
    assert cluster.sessions[0].sent == []
    cluster.now_ns += 2 * STALLED_NS
    turn(writer)
    cluster.close(1)
    turn(writer)
    assert [session.sent for session in cluster.sessions] == [[b"b"]]


@pytest.mark.parametrize(
    "lane", [Lane("orders", 2, 17), Lane("orders", 3, 16), Lane("other", 3, 17), Lane("orders", -1, 17)]
)
def test_sessions_of_other_lanes_and_batches_are_none_of_its_own(cluster, lane):
    cluster.open(other(lane), 1)
    cluster.messages(1, b"a")
    writer = cluster.writer(b"a")
    turn(writer)
    cluster.open(other(lane), 2)
    turn(writer)
    assert cluster.sessions[0].sent == [b"a"]


def test_an_attempt_gives_up_when_it_sees_a_later_one(cluster):
    writer = cluster.writer(b"a")
    turn(writer)
    cluster.open(other(), 1)
    with pytest.raises(
        ClientClosed, match="another attempt has opened batch 17 of lane orders/3, at position 64"
    ):
        turn(writer)


def test_in_a_new_term_what_is_not_in_the_log_is_sent_again_to_its_leader(cluster):
    writer = cluster.writer(b"a", b"b", b"c")
    turn(writer)
    session = cluster.sessions[0]
    session.leadership_term_id = 5  # its egress has said so
    session.sent.clear()
    writer.give(b"d")
    turn(writer)
    assert session.sent == [], "the log is in term 4, and may have more of it"
    cluster.messages(100, b"a")
    cluster.new_term()
    turn(writer)
    assert session.sent == [b"b", b"c", b"d"]
    assert len(cluster.sessions) == 1


def test_a_message_that_is_missing_between_others_is_sent_by_another_session(cluster):
    writer = cluster.writer(b"a", b"b", b"c", b"d")
    turn(writer)
    cluster.messages(100, b"a", b"c")
    turn(writer)
    assert cluster.sessions[0].is_closed
    assert cluster.sessions[1].sent == [], "the first may have more in the log"
    cluster.messages(100, b"d")
    cluster.close(100)
    turn(writer)
    assert cluster.sessions[1].sent == [b"b"]


def stalled(cluster):
    cluster.now_ns += STALLED_NS + 1


def ended(cluster):
    cluster.close(100)


def lost_by_the_client(cluster):
    cluster.sessions[0].is_closed = True


@pytest.mark.parametrize("what", [stalled, ended, lost_by_the_client])
def test_a_session_that_is_over_or_stands_still_is_followed_by_another(cluster, what):
    writer = cluster.writer(b"a")
    turn(writer)
    what(cluster)
    turn(writer)
    assert len(cluster.sessions) == 2
    if what is not ended:
        cluster.close(100)
    turn(writer)
    assert [session.sent for session in cluster.sessions] == [[b"a"], [b"a"]]


def test_a_session_whose_open_is_lost_with_the_leader_is_followed_by_another(cluster):
    cluster.keeps_opens = False
    writer = cluster.writer(b"a")
    turn(writer)
    cluster.keeps_opens = True
    cluster.new_term()
    turn(writer)
    assert [session.sent for session in cluster.sessions] == [[], [b"a"]]


def test_a_session_that_owes_nothing_is_kept(cluster):
    writer = cluster.writer(b"a")
    turn(writer)
    cluster.messages(100, b"a")
    turn(writer)
    stalled(cluster)
    turn(writer)
    assert len(cluster.sessions) == 1
    writer.close()
    assert cluster.sessions[0].is_closed
