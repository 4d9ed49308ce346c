"""Whole turns of one member that is nothing but arrays: what they ask of disk and sockets, in order."""

import numpy as np
import pytest

from cluster.archive import recording_words as of_recording
from cluster.consensus import quorum
from cluster.consensus.cluster_time import STAMPED
from cluster.log.calls import RECEIVE, SYNC_DATA, WRITE
from cluster.log.connection_table import CRC, IS_QUEUED, PART_LENGTH, STATE
from cluster.member import measuring
from cluster.member.busy import words as at
from cluster.member.frames import consensus_frame
from cluster.member.log import log_words
from cluster.protocol import streams
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.enums import AppendPositionFlags
from cluster.protocol.frame import FLAGS_AT, SESSION_ID_AT
from cluster.protocol.link import CommitAck
from cluster.transport.message_frames import message_frame
from tests.member.busy.one_member import (
    BASE,
    BEGIN,
    CLIENT_A,
    CLIENT_B,
    COMMIT_COUNTER,
    COMMIT_TIME,
    END,
    FROM,
    MS,
    NOW,
    POSITION_COUNTER,
    SERVICE_COUNTER,
    STAMP,
    SYNC_NS,
    SYNC_TIME,
    TERM,
    TERM_BEFORE,
    TO,
    OneMember,
    committed,
    ingress,
)

ONE, TWO = (1, STAMP, b"one"), (1, STAMP, b"two")  # 96 bytes of log each


def report(position, flags=AppendPositionFlags.NONE):
    return AppendPosition(TERM, position, 0, flags)


def counted(member, histogram):
    """Durations, and their sum."""
    values = member.tables.counters[histogram :: measuring.COUNTER_WORDS][: measuring.BUCKETS + 2]
    return values[:-1].sum(), values[-1]


# ---- a leader


def test_what_clients_send_is_written_sent_and_synced_in_this_order(leader):
    assert leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])), after_ns=3 * MS) == 0

    one, two = (1, STAMP + 3, b"one"), (1, STAMP + 3, b"two")
    assert leader.told == [
        ("write", BEGIN, [one, two]),
        (TO[1], [one, two]),
        (TO[2], [one, two]),
        "datasync",
    ]
    tables, recording = leader.tables, leader.tables.recording.words
    assert tables.log_end.tolist() == [BASE, END, END]
    assert recording[[of_recording.APPEND_POSITION, of_recording.SYNCED_POSITION]].tolist() == [END, END]
    assert tables.followers.reshape(-1, 3)[1:, log_words.STREAM_POSITION].tolist() == [END, END]
    assert tables.counters[POSITION_COUNTER] == END
    assert leader.committed == tables.leadership[quorum.COMMIT_POSITION] == BEGIN
    assert tables.leadership[quorum.APPEND_POSITION] == END
    assert counted(leader, SYNC_TIME) == (1, SYNC_NS)
    session = leader.sessions.slots[leader.sessions.slot_of(1)]
    assert (session["appended"], session["committed"], session["active_ns"]) == (2, 0, NOW + 3 * MS)
    assert leader.word(at.LAST_CLIENT) == 70 and leader.word(at.WORK_TURNS) == 1
    assert (leader.word(at.LAST_NS), leader.word(at.NOW_NS)) == (NOW, NOW + 3 * MS)


def test_what_a_majority_reports_is_committed_served_acknowledged_and_told_with_the_next_log(leader):
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    assert leader.turn(leader.report(1, END), after_ns=MS) == 0
    assert leader.tables.members.reshape(3, -1)[1, quorum.LAST_ACTIVITY_NS] == leader.now_ns

    ack = CommitAck(1, TERM, 2, END)
    assert leader.told == [
        (CLIENT_A, [(TERM_BEFORE, 1, STAMP, 1, b"one"), (TERM_BEFORE, 1, STAMP, 2, b"two"), ack])
    ]
    tables = leader.tables
    assert leader.committed == tables.counters[COMMIT_COUNTER] == END
    assert tables.leadership[[quorum.COMMIT_POSITION, quorum.QUORUM_POSITION]].tolist() == [END, END]
    assert tables.leadership[quorum.COMMIT_DUE_NS] == NOW + SYNC_NS + 201 * MS
    assert tables.cursor.tolist() == tables.service_cursor.tolist() == [END, END]
    assert tables.counters[SERVICE_COUNTER] == END
    assert leader.word(at.SERVICE_TIME) == STAMP
    assert counted(leader, COMMIT_TIME) == (1, SYNC_NS + MS) and leader.word(at.MEASURED_POSITION) == 0
    assert tables.leadership[quorum.IS_COMMIT_UNSENT] and not tables.leadership[quorum.HAS_NEWS]

    assert leader.turn((CLIENT_B, ingress(2, [b"three"]))) == 0
    three = (2, STAMP + 1, b"three")
    told = CommitPosition(TERM, END, 0)
    assert leader.told == [
        ("write", END, [three]),
        (TO[1], [told, three]),
        (TO[2], [told, three]),
        "datasync",
    ]
    assert not tables.leadership[quorum.IS_COMMIT_UNSENT]
    assert leader.word(at.MEASURED_POSITION) == END + 96 and leader.word(at.WORK_TURNS) == 3
    assert leader.word(at.LAST_NS) == NOW + SYNC_NS + MS


def test_a_commit_is_told_alone_once_it_has_waited_a_millisecond(leader):
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    leader.turn(leader.report(1, END))
    assert leader.turn(leader.report(2, END), after_ns=MS - 1) == 0 and leader.told == []
    assert leader.turn(leader.report(2, END), after_ns=1) == 0

    told = CommitPosition(TERM, END, 0)
    assert leader.told == [(TO[1], [told]), (TO[2], [told])]
    leader.turn(leader.report(2, END), after_ns=2 * MS)
    assert leader.told == []


def test_a_majority_without_the_leader_commits_no_more_than_is_on_its_own_disk(leader):
    leader.turn((CLIENT_A, ingress(1, [b"one"])))
    ahead = leader.tables.members.reshape(3, -1)
    ahead[1:, quorum.REPORT_POSITION] = END
    leader.tables.leadership[quorum.HAS_NEWS] = 1
    leader.turn((CLIENT_A, ingress(1, [b"two"])))

    assert leader.told[-1] == (
        CLIENT_A,
        [(TERM_BEFORE, 1, STAMP, 1, b"one"), (TERM_BEFORE, 1, STAMP, 2, b"two"), CommitAck(1, TERM, 2, END)],
    )
    assert leader.told[-2] == "datasync"


@pytest.mark.parametrize("call", [WRITE, SYNC_DATA])
def test_after_a_fault_of_the_disk_nothing_is_committed(leader, call):
    def fail(*given):
        raise OSError(28, "no room")

    leader.calls.put(call, fail, 4 if call == WRITE else 1)
    leader.tables.members.reshape(3, -1)[1:, quorum.REPORT_POSITION] = END
    reason = leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))

    assert reason & at.FAILED and leader.word(at.ERROR) == 28
    sent = [(TO[1], [ONE, TWO]), (TO[2], [ONE, TWO])]
    assert leader.told == ([] if call == WRITE else [("write", BEGIN, [ONE, TWO]), *sent])
    assert leader.committed == BEGIN
    assert leader.tables.recording.words[of_recording.SYNCED_POSITION] == BEGIN
    assert leader.tables.counters[POSITION_COUNTER] == (0 if call == WRITE else BEGIN)
    assert leader.tables.recording.words[of_recording.APPEND_POSITION] == (BEGIN if call == WRITE else END)


@pytest.mark.parametrize(
    ("said", "is_taken"),
    [
        (report(END), True),
        (report(END + 32), False),
        (AppendPosition(TERM_BEFORE, END, 1, AppendPositionFlags.NONE), False),
        (report(END, AppendPositionFlags.CATCHUP), False),
        (CommitPosition(TERM, END, 1), False),
    ],
)
def test_what_is_no_report_of_this_term_is_python_s_and_nothing_was_done(leader, said, is_taken):
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    descriptor, envelope = leader.from_member(1, consensus_frame(said))
    reason = leader.turn((descriptor, envelope))

    row = leader.tables.members.reshape(3, -1)[1]
    assert row[quorum.REPORT_POSITION] == (END if is_taken else BEGIN)
    assert (leader.table.get(descriptor, CRC) != 0) == is_taken
    assert reason == (0 if is_taken else at.FRAMES)
    if not is_taken:
        assert [leader.word(place) for place in (at.GIVEN, at.GIVEN_BEGIN, at.GIVEN_END)] == [
            descriptor,
            0,
            len(envelope),
        ]


@pytest.mark.parametrize("taken", [20, 40])
def test_what_a_link_takes_in_part_is_left_to_python_and_nothing_is_sent_past_it(leader, taken):
    leader.takes[TO[1]] = taken
    assert leader.turn((CLIENT_A, ingress(1, [b"one"]))) == at.UNSENT
    part, whole = (given[1] for call, *given in leader.done if call == "send")
    assert part == whole[:taken]
    descriptor, length = leader.tables.unsent[:16].view(np.int64)
    assert (descriptor, length) == (TO[1], len(whole) - taken)
    assert leader.tables.unsent[16 : 16 + length].tobytes() == whole[taken:]
    assert leader.word(at.UNSENT_END) == 16 + (length + 7) // 8 * 8
    assert leader.table.get(TO[1], STATE) == IS_QUEUED
    assert leader.table.get(TO[1], CRC) == leader.table.get(TO[2], CRC)
    assert leader.tables.followers.reshape(-1, 3)[1:, log_words.STREAM_POSITION].tolist() == [BEGIN + 96] * 2


def test_clients_whose_session_it_is_not_and_other_terms_are_not_taken(leader):
    assert leader.turn((CLIENT_B, ingress(1, [b"one"])), (CLIENT_A, ingress(1, [b"two"], TERM_BEFORE))) == 0
    assert leader.told == [] and leader.tables.log_end[log_words.PUBLICATION_POSITION] == BEGIN


def test_what_is_no_frame_of_a_client_is_pythons_with_all_that_came_before_it(leader):
    data = bytearray(ingress(1, [b"one", b"two"]))
    data[len(data) // 2 + FLAGS_AT] = 0  # of a fragment
    assert leader.turn((CLIENT_A, bytes(data))) == at.FRAMES
    assert leader.word(at.GIVEN_BEGIN) == 0 and leader.told == []


def test_an_entry_that_is_no_message_is_passed_and_then_pythons(leader):
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    leader.tables.log[BEGIN - BASE + 96 + 34] = 2  # the template of what was "two"
    reason = leader.turn(leader.report(1, END))

    assert reason == at.ENTRY | at.SERVICES
    ack = CommitAck(1, TERM, 1, BEGIN + 96)
    assert leader.told == [(CLIENT_A, [(TERM_BEFORE, 1, STAMP, 1, b"one"), ack])]
    assert leader.tables.cursor.tolist() == [END, END] and leader.committed == END
    assert leader.tables.service_cursor.tolist() == [BEGIN + 96] * 2
    assert leader.tables.counters[[COMMIT_COUNTER, SERVICE_COUNTER]].tolist() == [END, BEGIN + 96]


def test_a_service_of_pythons_is_served_by_it_after_the_turn():
    leader = OneMember(leads=True, service=at.PYTHON_SERVICE)
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    assert leader.turn(leader.report(1, END)) == at.SERVICES
    assert leader.told == [] and leader.committed == END


def test_a_follower_that_lacks_log_is_not_sent_what_follows_it(leader):
    leader.tables.followers[3 + log_words.STREAM_POSITION] = BEGIN - 96
    leader.tables.leadership[quorum.IS_COMMIT_UNSENT] = 1
    assert leader.turn((CLIENT_A, ingress(1, [b"one"]))) == at.LAGGARD
    assert leader.told == [
        ("write", BEGIN, [ONE]),
        (TO[2], [CommitPosition(TERM, BEGIN, 0), ONE]),
        "datasync",
    ]
    assert leader.tables.leadership[quorum.IS_COMMIT_UNSENT]


def test_followers_are_told_what_a_majority_has_where_that_is_less_than_was_committed(leader):
    leader.tables.leadership[[quorum.QUORUM_POSITION, quorum.IS_COMMIT_UNSENT]] = BEGIN - 96, 1
    told = CommitPosition(TERM, BEGIN - 96, 0)
    leader.turn((CLIENT_A, ingress(1, [b"one"])))
    assert leader.told[1] == (TO[1], [told, ONE])
    leader.tables.leadership[quorum.IS_COMMIT_UNSENT] = 1
    leader.turn(after_ns=2 * MS)
    assert leader.told == [(TO[1], [told]), (TO[2], [told])]
    assert leader.tables.replica[STAMPED] == STAMP + 2, "it goes on while nothing comes"


def test_a_client_whose_messages_do_not_fit_the_write_of_a_turn_comes_first_in_the_next(leader):
    recording = leader.tables.recording._replace(scratch=np.zeros(2 * leader.tables.received.size, np.uint8))
    leader.tables = leader.tables._replace(recording=recording)
    assert leader.turn((CLIENT_A, ingress(1, [b"one"])), (CLIENT_B, ingress(2, [b"two"]))) == 0
    assert leader.told[0] == ("write", BEGIN, [ONE]) and leader.word(at.LAST_CLIENT) == 70
    assert leader.left == {CLIENT_B}


def test_a_log_without_room_is_written_and_the_rest_of_what_came_is_pythons(leader):
    leader.tables = leader.tables._replace(log=leader.tables.log[: END - BASE])
    data = ingress(1, [b"one", b"two", b"three"])
    assert leader.turn((CLIENT_A, data)) == at.ROOM | at.FRAMES
    assert leader.told == [("write", BEGIN, [ONE, TWO]), (TO[1], [ONE, TWO]), (TO[2], [ONE, TWO]), "datasync"]
    given = [leader.word(place) for place in (at.GIVEN, at.GIVEN_BEGIN, at.GIVEN_END)]
    assert given == [CLIENT_A, 2 * len(data) // 3, len(data)]
    assert leader.tables.log_end.tolist() == [BASE, END, END]


def test_a_segment_that_ends_is_python_s_to_write(leader):
    leader.tables.recording.words[of_recording.SEGMENT_LENGTH] = END - 512
    assert leader.turn((CLIENT_A, ingress(1, [b"one", b"two"]))) == at.ROOM
    assert leader.told == [] and leader.tables.log_end.tolist() == [BASE, END, BEGIN]


@pytest.mark.parametrize("leads", [True, False])
def test_without_syncs_what_is_written_counts(leads, log):
    member = OneMember(leads=leads)
    member.tables.recording.words[of_recording.SYNC_LEVEL] = 0
    member.turn((CLIENT_A, ingress(1, [b"one", b"two"])) if leads else member.from_member(1, *log))
    sent = [(TO[1], [ONE, TWO]), (TO[2], [ONE, TWO])] if leads else [(TO[1], [report(END)])]
    assert member.told == [("write", BEGIN, [ONE, TWO]), *sent]
    assert member.tables.counters[POSITION_COUNTER] == END
    assert not member.tables.counters[SYNC_TIME:COMMIT_TIME].any()


def test_answers_that_do_not_fit_one_buffer_follow_in_the_next(leader):
    leader.tables = leader.tables._replace(egress=np.zeros(8 * 96 + 200, np.uint8))
    leader.tables.recording.words[of_recording.SEGMENT_LENGTH] = 1 << 16
    payloads = [b"%d" % row for row in range(12)]
    leader.turn((CLIENT_A, ingress(1, payloads)))
    end = BEGIN + 12 * 96
    assert leader.turn(leader.report(1, end)) == 0
    assert [(fd, [said[-1] for said in frames]) for fd, frames in leader.told] == [
        (CLIENT_A, payloads[:9]),
        (CLIENT_A, [*payloads[9:], end]),
    ]


@pytest.mark.parametrize("is_reset", [False, True])
def test_the_end_of_a_connection_is_pythons(leader, is_reset):
    def fail(*given):
        raise ConnectionResetError(104, "reset")

    if is_reset:
        leader.calls.put(RECEIVE, fail, 4)
    assert leader.turn((CLIENT_A, b"")) == at.EVENT


# ---- a follower


def test_log_is_written_and_synced_before_it_is_reported_and_processed_once_it_is_committed(follower, log):
    assert follower.turn(follower.from_member(1, *log), after_ns=MS) == 0
    assert follower.told == [("write", BEGIN, [ONE, TWO]), "datasync", (TO[1], [report(END)])]
    tables = follower.tables
    assert tables.log_end[log_words.PUBLICATION_POSITION] == tables.counters[POSITION_COUNTER] == END
    assert tables.follower[[quorum.SENT_POSITION, quorum.REPORT_DUE_NS]].tolist() == [END, NOW + 201 * MS]
    assert tables.cursor.tolist() == [BEGIN, BEGIN] and follower.committed == BEGIN
    assert tables.follower[quorum.LAST_LEADER_MESSAGE_NS] == 0, "CommitPosition alone is a sign"

    assert follower.turn(follower.from_member(1, committed(END)), after_ns=MS) == 0
    assert follower.told == [], "its clients are the leader's"
    assert tables.cursor.tolist() == tables.service_cursor.tolist() == [END, END]
    assert follower.committed == END
    assert tables.counters[[COMMIT_COUNTER, SERVICE_COUNTER]].tolist() == [END, END]
    assert tables.follower[quorum.LAST_LEADER_MESSAGE_NS] == NOW + SYNC_NS + 2 * MS
    session = follower.sessions.slots[follower.sessions.slot_of(1)]
    assert (session["committed"], session["appended"]) == (2, 2)


def test_a_commit_ahead_of_its_log_is_processed_as_far_as_that_goes_and_then_on(follower, log):
    one, two = log
    assert follower.turn(follower.from_member(1, committed(END), one)) == 0
    assert follower.told == [("write", BEGIN, [ONE]), "datasync", (TO[1], [report(BEGIN + 96)])]
    assert follower.committed == BEGIN + 96
    assert follower.tables.follower[quorum.NOTIFIED_COMMIT_POSITION] == END

    assert follower.turn(follower.from_member(1, two)) == 0
    assert follower.committed == follower.tables.counters[COMMIT_COUNTER] == END
    assert follower.word(at.SERVICE_TIME) == STAMP


def test_log_between_commit_positions_is_taken_in_its_order(follower, log):
    one, two = log
    assert follower.turn(follower.from_member(1, one, committed(BEGIN + 96), two, committed(END))) == 0
    assert follower.told == [
        ("write", BEGIN, [ONE]),
        ("write", BEGIN + 96, [TWO]),
        "datasync",
        (TO[1], [report(END)]),
    ]
    assert follower.committed == END


@pytest.mark.parametrize(
    "why",
    [
        "another sender",
        "a gap",
        "an older term",
        "a newer term",
        "half a frame",
        "no position",
        "another kind",
        "another stream",
        "too short",
        "another session",
        "a fragment",
        "room",
    ],
)
def test_what_a_follower_does_not_take_is_pythons_and_nothing_was_done(follower, log, why):
    one, two = log
    sender, frames = 1, [one, committed(BEGIN + 96)]
    match why:
        case "another sender":
            sender = 2
        case "a gap":
            frames = [two]
        case "an older term":
            frames[1] = committed(BEGIN + 96, TERM_BEFORE)
        case "a newer term":
            frames[1] = committed(BEGIN + 96, TERM + 1)
        case "half a frame":
            follower.tables.received[128:224] = np.frombuffer(two, np.uint8)  # from before
            frames = [one, two[:64]]
        case "no position":
            frames[1] = committed(BEGIN + 95)
        case "another stream":
            frames[1] = message_frame(CommitPosition(TERM, BEGIN + 96, 1), streams.LINK)
        case "too short":
            frames[1] = bytes([frames[1][0] - 1]) + frames[1][1:]
        case "another session":
            frames[0] = one[:SESSION_ID_AT] + b"\0\0\0\0" + one[SESSION_ID_AT + 4 :]
        case "a fragment":
            frames[1] = frames[1][:FLAGS_AT] + b"\x80" + frames[1][FLAGS_AT + 1 :]
        case "another kind":
            frames[1] = consensus_frame(report(BEGIN + 96))
        case "room":
            follower.tables.recording.words[of_recording.SEGMENT_LENGTH] = BEGIN - 512 + 96 + 32
    descriptor, envelope = follower.from_member(sender, *frames)

    assert follower.turn((descriptor, envelope)) == at.FRAMES
    assert follower.told == []
    assert follower.table.get(descriptor, CRC) == 0
    assert [follower.word(place) for place in (at.GIVEN, at.GIVEN_BEGIN, at.GIVEN_END)] == [
        descriptor,
        0,
        len(envelope),
    ]
    assert follower.tables.follower[quorum.LAST_LEADER_MESSAGE_NS] == 0


def test_what_comes_before_an_envelope_for_python_is_done_and_what_follows_is_not(follower, log):
    one, two = log
    pieces = [
        follower.from_member(1, one)[1],
        follower.from_member(1, committed(END, TERM + 1))[1],
        follower.from_member(1, two)[1][:60],
    ]
    follower.tables.words[at.PASSES_MAX] = 5
    other = follower.from_member(2, committed(END))
    assert follower.turn((FROM[1], b"".join(pieces)), other) == at.FRAMES
    assert follower.left == {FROM[2]}, "Python has its turn first"
    assert follower.told == [("write", BEGIN, [ONE]), "datasync", (TO[1], [report(BEGIN + 96)])]
    assert follower.word(at.GIVEN_BEGIN) == len(pieces[0])
    assert follower.word(at.GIVEN_END) == sum(map(len, pieces))


def test_an_envelope_that_was_changed_on_its_way_is_pythons(follower, log):
    descriptor, envelope = follower.from_member(1, log[0])
    changed = bytearray(envelope)
    changed[-40] ^= 1
    assert follower.turn((descriptor, bytes(changed))) == at.FRAMES and follower.told == []


def test_half_an_envelope_waits_for_its_rest_beside_that_of_another(follower, log):
    descriptor, envelope = follower.from_member(1, *log)
    other, of_other = follower.from_member(2, committed(END))
    assert follower.turn((other, of_other[:50])) == 0
    for begin, end in ((0, 20), (20, 90)):
        assert follower.turn((descriptor, envelope[begin:end])) == 0 and follower.told == []
        assert follower.table.get(descriptor, PART_LENGTH) == end
    assert follower.turn((descriptor, envelope[90:])) == 0
    assert follower.told == [("write", BEGIN, [ONE, TWO]), "datasync", (TO[1], [report(END)])]
    assert follower.table.get(descriptor, PART_LENGTH) == 0
    assert np.count_nonzero(follower.table.keepers) == 1


@pytest.mark.parametrize("call", [WRITE, SYNC_DATA])
def test_what_a_disk_did_not_take_is_not_reported(follower, log, call):
    def fail(*given):
        raise OSError(5, "broken")

    follower.calls.put(call, fail, 4 if call == WRITE else 1)
    assert follower.turn(follower.from_member(1, *log, committed(END))) & at.FAILED
    assert follower.told == ([] if call == WRITE else [("write", BEGIN, [ONE, TWO])])
    assert follower.committed == BEGIN and follower.word(at.ERROR) == 5


@pytest.mark.parametrize("written", [0, 1])
def test_after_a_write_that_failed_nothing_is_written_synced_or_reported(follower, log, written):
    pwrite, calls = follower.pwrite, iter(range(9))

    def fail_once(data, offset):
        if next(calls) == written:
            raise OSError(5, "broken")
        pwrite(data, offset)

    follower.pwrite = fail_once
    one, two = log
    assert follower.turn(follower.from_member(1, one, committed(BEGIN + 96), two)) & at.FAILED
    assert follower.told == [("write", BEGIN, [ONE])] * written


def test_a_report_that_its_socket_does_not_take_waits_and_is_not_made_again(follower, log):
    follower.takes[TO[1]] = 0
    assert follower.turn(follower.from_member(1, log[0])) == at.UNSENT
    assert follower.tables.follower[quorum.SENT_POSITION] == BEGIN + 96
    assert follower.word(at.UNSENT_END) == 16 + 32 + 64


def test_a_report_that_has_no_room_to_wait_was_not_made(follower, log):
    follower.takes[TO[1]] = 0
    follower.tables = follower.tables._replace(unsent=np.zeros(len(follower.table.words) + 64, np.uint8))
    assert follower.turn(follower.from_member(1, log[0])) == at.UNSENT
    assert follower.tables.follower[quorum.SENT_POSITION] == BEGIN
    assert follower.table.get(TO[1], CRC) == 0
    assert follower.tables.unsent[:16].view(np.int64).tolist() == [TO[1], at.IS_TO_CLOSE]


def test_a_follower_processes_no_further_than_an_entry_for_python(follower, log):
    follower.turn(follower.from_member(1, *log))
    follower.tables.log[BEGIN - BASE + 96 + 34] = 2  # the template of what was "two"
    assert follower.turn(follower.from_member(1, committed(END))) == at.ENTRY
    assert follower.tables.cursor.tolist() == [BEGIN + 96] * 2
    counters = follower.tables.counters[[COMMIT_COUNTER, SERVICE_COUNTER]]
    assert counters.tolist() == [BEGIN + 96] * 2 and follower.committed == BEGIN + 96
