"""One attempt to write a lane's batch into a real cluster: what it reads in the log, and does then."""

from __future__ import annotations

import pytest

from cluster.aeron.lane_index import LaneAlias
from cluster.aeron.lane_writer import STALLED_NS, LaneState, LaneWriter
from cluster.errors import ClientClosed
from cluster.protocol.lane import Lane
from tests.aeron.scripted_log import ScriptedLog

LANE = Lane("orders", 3, 17)


@pytest.fixture
def cluster():
    return ScriptedLog()


def writer_of(cluster, *rows):
    writer = LaneWriter(LaneAlias(LANE, "mine"), cluster.connect, cluster.entries(), lambda: cluster.now_ns)
    for row in rows:
        writer.give(row)
    return writer


def turn(writer, times=5):
    for _ in range(times):
        writer.do_work()


def other(lane=LANE, attempt="other"):
    return LaneAlias(lane, attempt).text


def test_a_row_is_settled_when_its_message_is_in_the_log(cluster):
    writer = writer_of(cluster, b"a", b"b")
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
    writer = writer_of(cluster, b"a", b"b", b"a", b"a", b"c")
    turn(writer)
    assert cluster.sessions[0].sent == [b"b", b"a"]
    writer.give(b"d")
    turn(writer)
    assert cluster.sessions[0].sent == [b"b", b"a", b"d"]


def test_messages_of_the_lane_that_are_no_rows_of_the_task_are_counted(cluster):
    cluster.open(other(), 1)
    cluster.messages(1, b"x", b"a", b"x")
    cluster.close(1)
    writer = writer_of(cluster)
    turn(writer)
    writer.give(b"a")
    assert (writer.unsettled, writer.extra_rows) == (0, 2)


def test_nothing_is_sent_while_the_session_of_an_earlier_attempt_is_open(cluster):
    cluster.open(other(), 1)
    writer = writer_of(cluster, b"a", b"b")
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
    writer = writer_of(cluster, b"a")
    turn(writer)
    cluster.open(other(lane), 2)
    turn(writer)
    assert cluster.sessions[0].sent == [b"a"]


def test_an_attempt_gives_up_when_it_sees_a_later_one(cluster):
    writer = writer_of(cluster, b"a")
    turn(writer)
    cluster.open(other(), 1)
    with pytest.raises(
        ClientClosed, match="another attempt has opened batch 17 of lane orders/3, at position 64"
    ):
        turn(writer)


def test_in_a_new_term_what_is_not_in_the_log_is_sent_again_to_its_leader(cluster):
    writer = writer_of(cluster, b"a", b"b", b"c")
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
    writer = writer_of(cluster, b"a", b"b", b"c", b"d")
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
    writer = writer_of(cluster, b"a")
    turn(writer)
    what(cluster)
    turn(writer)
    assert len(cluster.sessions) == 2
    if what is not ended:
        cluster.close(100)
    turn(writer)
    assert [session.sent for session in cluster.sessions] == [[b"a"], [b"a"]]


def test_an_attempt_that_has_much_of_the_log_to_read_keeps_its_session(cluster):
    writer = writer_of(cluster, b"a")
    cluster.keeps_opens = False
    turn(writer)
    for _ in range(3):
        cluster.now_ns += STALLED_NS - 1
        cluster.close(9)
        turn(writer)
    cluster.open(LaneAlias(LANE, "mine").text, 100)
    turn(writer)
    assert [session.sent for session in cluster.sessions] == [[b"a"]]


def test_sessions_that_follow_one_another_are_no_progress(cluster):
    writer = writer_of(cluster, b"a")
    turn(writer)
    before = writer.steps
    for number in range(3):
        stalled(cluster)
        turn(writer)
        cluster.close(100 + number)
        cluster.messages(7, b"of another")
        turn(writer)
    assert len(cluster.sessions) == 4
    assert writer.steps == before
    cluster.messages(103, b"a")
    turn(writer)
    assert writer.steps == before + 1


def test_a_session_whose_open_is_lost_with_the_leader_is_followed_by_another(cluster):
    cluster.keeps_opens = False
    writer = writer_of(cluster, b"a")
    turn(writer)
    cluster.keeps_opens = True
    cluster.new_term()
    turn(writer)
    assert [session.sent for session in cluster.sessions] == [[], [b"a"]]


def test_a_session_that_owes_nothing_is_kept(cluster):
    writer = writer_of(cluster, b"a")
    turn(writer)
    cluster.messages(100, b"a")
    turn(writer)
    stalled(cluster)
    turn(writer)
    writer.give(b"b")
    turn(writer)
    assert [session.sent for session in cluster.sessions] == [[b"a", b"b"]]
    writer.close()
    assert cluster.sessions[0].is_closed
