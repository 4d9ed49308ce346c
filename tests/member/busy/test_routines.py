"""Single routines of a compiled turn, as Python: what whole turns of a run do not come to."""

from types import SimpleNamespace

import numpy as np
import pytest

from cluster.archive import recording_words as of_recording
from cluster.consensus import quorum
from cluster.consensus.cluster_time import STAMPED
from cluster.log.connection_table import (
    CLIENT,
    HEARD_NS,
    INDEX_LENGTH,
    IS_KEPT,
    IS_PART_NEW,
    LINK_OUT,
    PART_LENGTH,
    PART_ROW,
    ROW_WORDS,
    STATE,
    STRANGER,
)
from cluster.log.frames import MALFORMED
from cluster.log.kernel import as_python
from cluster.member import measuring
from cluster.member.busy import (
    buffer,
    egress,
    following,
    leading,
    receiving,
    recorder,
    serving,
    turn,
)
from cluster.member.busy import words as at
from cluster.member.log import log_words
from cluster.member.services import service_table
from cluster.member.services.service_table import ServiceTable
from tests.member.busy.tables import connections, recorded, tables

pytestmark = pytest.mark.usefixtures("rules_as_python")

# ---- the leader


def test_a_commit_that_stops_at_an_entry_is_looked_at_again(monkeypatch):
    """By Python, which does nothing where there is no news."""
    monkeypatch.setattr(leading.quorum, "take_in", lambda *_: 96)
    monkeypatch.setattr(leading, "poll_log", lambda *_: False)
    t = tables(leadership=[0] * quorum.LEADERSHIP_WORDS, members=None, recording=recorded())
    as_python(leading.update_leader_position)(t)

    assert t.leadership[quorum.HAS_NEWS]
    assert t.member_log[log_words.COMMIT_POSITION] == t.leadership[quorum.COMMIT_POSITION] == 0


def test_a_commit_is_measured_once(monkeypatch):
    monkeypatch.setattr(leading.quorum, "take_in", lambda *_: 96)
    monkeypatch.setattr(leading.quorum, "commit", lambda *_: None)
    measured = []
    monkeypatch.setattr(leading, "measure", lambda counters, histogram, ns: measured.append(ns))
    for name in ("poll_log", "read_clock", "serve_committed"):
        monkeypatch.setattr(leading, name, lambda *_: 7_000)
    t = tables(leadership=[0] * quorum.LEADERSHIP_WORDS, members=None, recording=recorded())
    t.counters, t.words[at.NOW_NS] = [0] * 4, 6_000
    t.words[at.MEASURED_POSITION], t.words[at.MEASURED_FROM_NS] = 64, 2_000
    as_python(leading.update_leader_position)(t)
    assert t.words[at.MEASURED_POSITION] == 0 and measured == [5_000]

    t.member_log[log_words.COMMIT_POSITION] = 64
    as_python(leading.update_leader_position)(t)
    assert measured == [5_000]


@pytest.mark.parametrize(
    ("position", "committed", "is_taken"), [(512, 0, True), (1024, 0, False), (4096, 4000, False)]
)
def test_clients_wait_in_their_sockets_for_the_majority_and_for_room(
    monkeypatch, position, committed, is_taken
):
    t = tables(log_end=[0] * 4, connections=connections((CLIENT, 5)), ready=[0], leadership=None)
    t.words[at.UNCOMMITTED_MAX], t.words[at.INPUT_LIMIT], t.words[at.READY_COUNT] = 1024, 4096, 1
    t.log_end[log_words.PUBLICATION_POSITION], t.member_log[log_words.COMMIT_POSITION] = position, committed
    taken = []
    monkeypatch.setattr(turn, "may_take_input", as_python(leading.may_take_input))
    monkeypatch.setattr(turn, "fits_one_write", lambda t: True)
    monkeypatch.setattr(turn, "receive_ingress", lambda t, descriptor: taken.append(descriptor))
    as_python(turn._receive)(t)

    assert (taken, t.words[at.REASON]) == (([0], 0) if is_taken else ([], at.ROOM))
    assert t.words[at.LAST_CLIENT] == 5 * is_taken


def test_one_write_has_room_for_all_that_one_more_client_may_send():
    t = tables(log_end=[0] * 4, recording=recorded(1000), received=SimpleNamespace(size=300))
    for appended, fits in ((400, True), (401, False)):
        t.log_end[log_words.PUBLICATION_POSITION] = t.log_end[log_words.FLUSHED] + appended
        assert as_python(leading.fits_one_write)(t) == fits


@pytest.mark.parametrize(("length", "are_reports"), [(64, True), (96, False)])
def test_reports_end_where_their_envelope_does(monkeypatch, length, are_reports):
    monkeypatch.setattr(leading, "is_position_message", lambda *_: True)
    monkeypatch.setattr(leading, "get_i64", lambda *_: 0)
    monkeypatch.setattr(leading, "get_u8", lambda *_: 0)
    monkeypatch.setattr(leading, "get_i32", lambda *_: length)
    t = tables(received=None, leadership=[0] * quorum.LEADERSHIP_WORDS, recording=recorded())

    assert as_python(leading._are_reports)(t, 0, 64) == are_reports


def test_nothing_is_written_after_a_fault(monkeypatch):
    monkeypatch.setattr(leading, "flush", None)
    t = tables()
    t.words[at.REASON] = at.FAILED
    as_python(leading.leader_work)(t)


@pytest.fixture
def flushed(monkeypatch):
    """Writes two pieces of log; ``sent`` is to whom, and whether with the commit.

    Descriptor 4 is of a follower that is sent the log, 5 of one that is not yet.
    """
    t = tables(log_end=[0] * 4, leadership=[0] * quorum.LEADERSHIP_WORDS, log=None, sent=[])
    t.log_end[log_words.PUBLICATION_POSITION], t.words[at.MEASURED_POSITION] = 192, 1
    t.leadership[quorum.IS_COMMIT_UNSENT] = 1
    t.followers = np.array([4, 0, True, 5, -1, False])
    for name in ("has_room", "append", "set_position"):
        monkeypatch.setattr(leading, name, lambda *_: True)
    monkeypatch.setattr(leading, "piece_end", lambda log, begin, end: begin + 96)
    monkeypatch.setattr(leading, "_send_log", as_python(leading._send_log))
    monkeypatch.setattr(leading, "_send_position", as_python(leading._send_position))
    monkeypatch.setattr(
        leading, "send_sealed", lambda t, out, has_commit, *_: t.sent.append((out, has_commit)) or t.is_up
    )
    t.flush = lambda: as_python(leading.flush)(t)
    return t


def test_a_commit_goes_with_the_first_piece_of_log_and_alone_to_who_is_sent_none(flushed):
    flushed.is_up = True
    assert flushed.flush()
    assert flushed.sent == [(4, True), (4, False), (5, True)]
    assert not flushed.leadership[quorum.IS_COMMIT_UNSENT] and flushed.words[at.REASON] == 0
    assert flushed.followers[log_words.STREAM_POSITION] == 192
    assert flushed.words[at.MEASURED_POSITION] == 1, "what is measured is measured to its end"


def test_a_commit_that_no_log_came_for_is_told_alone_to_all_that_are_up(flushed):
    flushed.is_up, flushed.followers[log_words.OUT] = True, -1
    as_python(leading.send_commit_position)(flushed)
    assert flushed.sent == [(5, True)] and not flushed.leadership[quorum.IS_COMMIT_UNSENT]


def test_who_lacks_log_of_before_is_not_sent_what_follows_it(flushed):
    flushed.is_up, flushed.followers[log_words.STREAM_POSITION] = True, 96
    assert flushed.flush()
    assert flushed.sent == [(5, True)] and flushed.words[at.REASON] == at.LAGGARD


def test_a_follower_whose_link_is_down_is_sent_nothing(flushed):
    flushed.is_up, flushed.followers[log_words.OUT] = True, -1
    assert flushed.flush()
    assert flushed.sent == [(5, True)] and flushed.words[at.REASON] == 0


def test_of_a_follower_that_does_not_take_its_log_python_hears(flushed):
    flushed.is_up = False
    assert flushed.flush()
    assert flushed.words[at.REASON] == at.LAGGARD
    assert flushed.leadership[quorum.IS_COMMIT_UNSENT] and flushed.followers[log_words.STREAM_POSITION] == 0


def test_how_far_a_follower_was_sent_the_log_is_the_last_piece_that_it_took(flushed, monkeypatch):
    taken = iter((True, False, True))
    monkeypatch.setattr(leading, "send_sealed", lambda *_: next(taken))
    assert flushed.flush()
    assert flushed.followers[log_words.STREAM_POSITION] == 96 and flushed.words[at.REASON] == at.LAGGARD


def test_cluster_time_does_not_fall(monkeypatch):
    monkeypatch.setattr(turn, "go_on", lambda time, now_ns: None)
    t = tables(time=[9_000] * 8)
    t.words[at.TIME_DIVISOR], t.replica[STAMPED] = 1_000, 12
    as_python(turn._stamp)(t)
    assert t.replica[STAMPED] == 12
    t.replica[STAMPED] = 8
    as_python(turn._stamp)(t)
    assert t.replica[STAMPED] == 9


def test_a_run_begins_with_nothing_unsent_or_unkept_and_sends_the_limit_that_is_due(monkeypatch):
    t, limits = tables(leadership=[0] * quorum.LEADERSHIP_WORDS), []
    t.words[at.UNSENT_END] = t.words[at.UNKEPT] = 64
    t.words[at.LIMIT_DUE_NS], t.words[at.PASSES_MAX] = 5_000, 1
    monkeypatch.setattr(turn, "_await_events", lambda t: 0)
    monkeypatch.setattr(turn, "_is_time", lambda t: False)
    monkeypatch.setattr(turn, "_find_ready", lambda t, found: True)
    monkeypatch.setattr(turn, "give_log", lambda t: limits.append(t.words[at.NOW_NS]))
    for now_ns in (4_999, 5_000):
        t.words[at.NOW_NS] = now_ns
        assert as_python(turn.busy_turns)(t) == at.IDLE

    assert limits == [5_000] and t.words[at.UNSENT_END] == t.words[at.UNKEPT] == 0


def test_a_run_that_waits_for_nothing_was_idle_only_where_nothing_came(monkeypatch):
    for found, reason in (((0,), at.IDLE), ((1, 0), 0)):
        t, events = tables(), iter(found)
        t.words[at.PASSES_MAX], t.words[at.ROLE] = 5, at.FOLLOWER_ROLE
        t.words[at.NOW_NS], t.words[at.SPIN_NS], t.words[at.LIMIT_DUE_NS] = 7_000, 400, at.NEVER
        monkeypatch.setattr(turn, "_await_events", lambda t, events=events: next(events))
        monkeypatch.setattr(turn, "_find_ready", lambda t, found: True)
        for name in ("_is_time", "_receive", "follower_work"):
            monkeypatch.setattr(turn, name, lambda t: False)

        assert as_python(turn.busy_turns)(t) == reason
        assert t.words[at.SPIN_UNTIL_NS] == (0 if reason else 7_400), "from the last work on"


@pytest.mark.parametrize(
    ("now_ns", "toggled", "role", "is_time"),
    [
        (999, 0, at.LEADER_ROLE, False),
        (1_000, 0, at.LEADER_ROLE, False),
        (1_000, 1, at.LEADER_ROLE, True),
        (1_500, 0, at.LEADER_ROLE, True),  # CommitPosition of every 200 ms
        (1_500, 0, at.FOLLOWER_ROLE, False),
        (2_000, 0, at.FOLLOWER_ROLE, True),
    ],
)
@pytest.mark.parametrize("toggle", [at.CONTROL_TOGGLE, at.NODE_TOGGLE])
def test_a_quiet_slow_tick_is_followed_by_the_next(now_ns, toggled, toggle, role, is_time):
    t = tables(
        counters=[at.TOGGLE_NEUTRAL, at.TOGGLE_NEUTRAL + toggled], leadership=[0] * quorum.LEADERSHIP_WORDS
    )
    t.words[toggle], t.words[at.ROLE], t.words[at.NOW_NS] = 1, role, now_ns
    t.words[at.SLOW_TICK_NS], t.words[at.TICK_NS], t.words[at.QUIET_UNTIL_NS] = 1_000, 600, 2_000
    t.words[at.DUE_NS], t.leadership[quorum.COMMIT_DUE_NS] = at.NEVER, 1_500

    assert as_python(turn._is_time)(t) == is_time
    assert t.words[at.SLOW_TICK_NS] == (now_ns + 600 if now_ns >= 1_000 and not is_time else 1_000)


def test_a_commit_position_that_a_socket_does_not_take_is_told_at_once(monkeypatch):
    t, events = tables(leadership=[0] * quorum.LEADERSHIP_WORDS), iter([0, -1])
    t.words[at.ROLE], t.leadership[quorum.IS_COMMIT_UNSENT] = at.LEADER_ROLE, 1
    monkeypatch.setattr(turn, "_await_events", lambda t: next(events))
    for name in ("_is_time", "_stamp", "give_log"):
        monkeypatch.setattr(turn, name, lambda t: False)
    monkeypatch.setattr(turn, "_find_ready", lambda t, found: True)
    monkeypatch.setattr(turn, "send_commit_position", lambda t: t.words.__setitem__(at.REASON, at.UNSENT))

    assert as_python(turn.busy_turns)(t) == at.UNSENT


def test_members_come_first_by_their_ids_then_clients_from_the_one_after_the_last_then_services():
    kinds = [
        (turn.SERVICE_LINK, 1),
        (CLIENT, 7),
        (CLIENT, 3),
        (turn.LINK_IN, 2),
        (CLIENT, 9),
        (turn.SERVICE_LINK, 0),
        (turn.LINK_IN, 0),
    ]
    t = tables(connections=connections(*kinds), ready=[0] * 8)
    t.words[at.LAST_CLIENT] = 3
    before = as_python(turn._comes_before)
    order = sorted(range(7), key=lambda one: sum(before(t, other, one) for other in range(7) if other != one))

    assert [kinds[descriptor][1] for descriptor in order] == [0, 2, 7, 9, 3, 0, 1]


@pytest.mark.parametrize(
    ("role", "descriptor", "mask", "state", "is_served"),
    [
        (at.LEADER_ROLE, 0, turn.READABLE, 0, True),
        (at.LEADER_ROLE, 0, turn.READABLE, IS_KEPT, False),
        (at.LEADER_ROLE, 0, turn.READABLE | 4, 0, False),  # EPOLLOUT: Python is to look at it no more
        (at.LEADER_ROLE, 3, turn.READABLE, 0, False),
        (at.FOLLOWER_ROLE, 0, turn.READABLE, 0, False),  # whatever its number: it is no leader
        (at.FOLLOWER_ROLE, 1, turn.READABLE, 0, True),
        (at.FOLLOWER_ROLE, 2, turn.READABLE, 0, False),  # its service is Python's
        (at.FOLLOWER_ROLE, 4, turn.READABLE, 0, True),
        (at.FOLLOWER_ROLE, 9, turn.READABLE, 0, False),  # not a connection
    ],
)
def test_what_is_ready_is_served_only_where_all_of_it_can_be(
    monkeypatch, role, descriptor, mask, state, is_served
):
    rows = connections(
        (CLIENT, 2), (turn.LINK_IN, 2), (turn.SERVICE_LINK, 0), (LINK_OUT, 2), (turn.SERVICE_LINK, 1)
    )
    rows[STATE::ROW_WORDS] = state
    t = tables(connections=rows, ready=[0] * 4)
    t.words[at.ROLE], t.services = role, ServiceTable(2).words
    t.services[service_table.SERVICE_WORDS + service_table.LINK] = 4
    monkeypatch.setattr(turn, "_is_lent", as_python(turn._is_lent))
    monkeypatch.setattr(turn, "event", lambda t, i: (mask, descriptor))

    assert as_python(turn._find_ready)(t, 1) == is_served


# ---- a follower


@pytest.mark.parametrize(
    ("valid_end", "room", "is_taken"), [(96, 128, True), (64, 128, False), (96, 127, False)]
)
def test_log_is_taken_where_all_of_it_joins_on_and_has_room(monkeypatch, valid_end, room, is_taken):
    t = tables(
        recording=recorded(), log_end=[0] * 4, log=SimpleNamespace(size=room), received=None, params=None
    )
    t.log_end[log_words.PUBLICATION_POSITION] = 32
    monkeypatch.setattr(following, "find_whole_frames", lambda *_: (96, 0))
    monkeypatch.setattr(following, "has_room", lambda *_: True)
    monkeypatch.setattr(following, "_log_end", lambda *_: 96)
    monkeypatch.setattr(following, "check_frames", lambda *_: (valid_end, 0))

    assert as_python(following._can_be_taken)(t, 0, 96) == is_taken


def test_a_commit_position_that_was_notified_does_not_fall(monkeypatch):
    t, said = tables(follower=[0] * 8, received=None), iter((640, 320))
    t.words[at.NOW_NS] = 7_000
    monkeypatch.setattr(following, "_log_end", lambda buffer, begin, end: begin)
    monkeypatch.setattr(following, "get_i64", lambda *_: next(said))
    monkeypatch.setattr(following, "get_i32", lambda *_: 64)
    monkeypatch.setattr(following, "align_frame", lambda length: length)

    assert as_python(following._on_log_and_positions)(t, 0, 128)
    assert t.follower[quorum.NOTIFIED_COMMIT_POSITION] == 640
    assert t.follower[quorum.LAST_LEADER_MESSAGE_NS] == 7_000


def test_a_follower_processes_no_more_than_it_has(monkeypatch):
    t, limits = tables(recording=recorded(), cursor=[0, 0], counters=[0]), []
    t.follower = [0] * quorum.FOLLOWER_WORDS
    t.follower[quorum.REPORT_DUE_NS] = at.NEVER
    words = t.recording.words
    words[of_recording.APPEND_POSITION] = words[of_recording.SYNCED_POSITION] = 96
    t.follower[quorum.SENT_POSITION], t.follower[quorum.NOTIFIED_COMMIT_POSITION] = 96, 640
    monkeypatch.setattr(following, "poll_log", lambda t, limit, is_applied: limits.append(limit))
    for name in ("sync", "serve_committed", "make_room"):
        monkeypatch.setattr(following, name, lambda t: True)
    as_python(following.follower_work)(t)
    assert limits == [96]
    t.cursor[of_recording.TAKEN_POSITION] = 96
    as_python(following.follower_work)(t)
    assert limits == [96], "and nothing twice"


# ---- what comes


@pytest.fixture
def receiving_of(monkeypatch):
    """A client and a link that receive 10 bytes, no whole frame; ``kept`` is what waits for its rest."""
    t = tables(connections=connections((CLIENT, 5), (turn.LINK_IN, 1)), keepers=[0, 2], parts=None, kept=[])
    t.received, t.words[at.NOW_NS], t.length, t.is_envelope = None, 7_000, 10, False
    monkeypatch.setattr(receiving, "copy_bytes", lambda *_: None)
    monkeypatch.setattr(receiving, "receive", lambda *_: t.length)
    monkeypatch.setattr(receiving, "find_whole_frames", lambda *_: (0, 0))
    monkeypatch.setattr(receiving, "is_envelope", lambda *_: t.is_envelope)
    monkeypatch.setattr(receiving, "keep_part", lambda *given: t.kept.append((given[4], *given[-2:])) or True)
    return t


def test_half_a_frame_leaves_its_row_when_more_of_it_comes(receiving_of):
    t, row = receiving_of, ROW_WORDS
    t.connections[row + PART_LENGTH], t.connections[row + PART_ROW] = 20, 1
    t.length = -receiving.WOULD_BLOCK
    assert as_python(receiving.receive_frames)(t, 1, True) == (0, 0, 0)
    assert t.keepers == [0, 2] and t.words[at.REASON] == t.connections[row + HEARD_NS] == 0

    t.length = 10
    assert as_python(receiving.receive_frames)(t, 1, True) == (30, 0, 0)
    assert t.keepers == [0, 0] and t.connections[row + PART_LENGTH] == t.connections[row + IS_PART_NEW] == 0
    assert t.connections[row + HEARD_NS] == 7_000
    as_python(receiving.receive_frames)(t, 1, True)
    assert t.connections[row + IS_PART_NEW] == 1, "nothing came before it"


def test_half_a_frame_is_waited_for_where_it_can_be_one(receiving_of):
    t = receiving_of
    leave = as_python(receiving.leave)
    leave(t, 0, 32, 64, 32, 96)
    assert t.kept == [(96, 32, 64)] and t.connections[IS_PART_NEW] == 1
    leave(t, 1, 0, 31, 0, 0)
    t.is_envelope = True
    leave(t, 1, 0, 32, 0, 96)
    assert t.kept[1:] == [(0, 0, 31), (96, 0, 32)] and t.words[at.REASON] == 0
    t.is_envelope = False
    leave(t, 1, 0, 32, 0, 96)
    assert t.kept[3:] == [] and t.words[at.REASON] == at.FRAMES, "a length that was changed on its way"
    t.words[at.REASON] = 0
    leave(t, 0, 0, 32, 0, receiving.NOT_A_FRAME)
    assert t.kept[3:] == [] and t.words[at.REASON] == at.FRAMES, "no frame is to come"


# ---- the recording


def test_python_hears_when_the_recording_wants_zeros_ahead(monkeypatch):
    def append(recording, log, begin, end):
        recording.words[of_recording.APPEND_POSITION] += end - begin
        return 0

    monkeypatch.setattr(recorder.append_and_sync, "append_to_segment", append)
    monkeypatch.setattr(recorder, "_show_position", lambda t: None)
    t = tables(recording=recorded(), log=None)
    t.words[at.PREPARE_AT] = 192
    for reason in (0, at.PREPARE):
        assert as_python(recorder.append)(t, 0, 96) and t.words[at.REASON] == reason


@pytest.mark.parametrize(("error", "shown"), [(0, 96), (5, 64)])
def test_what_is_synced_is_shown_and_a_disk_that_fails_is_told(monkeypatch, error, shown):
    def sync(recording):
        recording.words[of_recording.SYNCED_POSITION] = shown
        return error

    monkeypatch.setattr(recorder.append_and_sync, "sync_segment", sync)
    monkeypatch.setattr(recorder, "_show_position", as_python(recorder._show_position))
    monkeypatch.setattr(recorder, "_fail", as_python(recorder._fail))
    measured = []
    monkeypatch.setattr(recorder, "measure", lambda counters, histogram, ns: measured.append(ns))
    t = tables(recording=recorded(), counters=[64])
    t.recording.words[of_recording.SYNC_NS] = 2_000
    t.recording.words[of_recording.APPEND_POSITION] = 96

    assert as_python(recorder.sync)(t) == (not error)
    assert (t.counters, t.words[at.ERROR]) == ([shown], error)
    assert t.words[at.REASON] == at.FAILED * bool(error)
    assert measured == ([] if error else [2_000])


def test_what_would_fill_the_segment_or_the_room_for_a_copy_is_left_to_python():
    t = tables(recording=recorded(4096))
    t.recording.words[of_recording.SEGMENT_LENGTH] = 1024
    t.recording.words[of_recording.APPEND_POSITION] = 928
    assert not as_python(recorder.has_room)(t, 96)
    assert as_python(recorder.has_room)(t, 64)
    t.recording.scratch.size = 63
    assert not as_python(recorder.has_room)(t, 64)


# ---- the log in memory


@pytest.mark.parametrize(
    ("processed", "served", "service", "moved"),
    [
        (3, 3, at.PYTHON_SERVICE, [3]),
        (3, 1, at.PYTHON_SERVICE, [3]),
        (3, 2, at.COMPILED_SERVICE, []),  # what moves is more than the room for it
        (3, 3, at.COMPILED_SERVICE, [3]),
        (4, 3, at.COMPILED_SERVICE, [3]),
        (0.5, 3, at.PYTHON_SERVICE, []),  # not worth it
    ],
)
def test_what_is_still_to_be_read_moves_to_the_begin_where_it_has_room(
    monkeypatch, processed, served, service, moved
):
    """In MiB, of five that are in memory."""
    mib, copied = 1024 * 1024, []
    t = tables(
        log_end=[0] * 4, cursor=[int(processed * mib)] * 2, service_cursor=[served * mib] * 2, log=None
    )
    t.words[at.SERVICE], t.log_end[log_words.PUBLICATION_POSITION] = service, 5 * mib
    monkeypatch.setattr(buffer, "copy_bytes", lambda out, to, log, begin, length: copied.append(begin / mib))
    as_python(buffer.make_room)(t)

    assert copied == moved
    assert t.log_end[log_words.BASE] == (moved[0] * mib if moved else 0)


def test_how_far_the_log_is_processed_does_not_fall_where_an_entry_is_left_to_python(monkeypatch):
    """A follower may have heard of a commit within its fragments."""
    monkeypatch.setattr(buffer, "follow_run", lambda *_: (buffer.OTHER_MESSAGE, 0, 0))
    t = tables(log_end=[0] * 4, cursor=[0, 0], log=None, sessions=None)
    t.cursor[of_recording.TAKEN_POSITION] = 64

    assert not as_python(buffer.poll_log)(t, 96, True)
    assert t.cursor[of_recording.TAKEN_POSITION] == 64 and t.words[at.REASON] == at.ENTRY


def test_damage_is_passed_by_nobody(monkeypatch):
    monkeypatch.setattr(buffer, "follow_run", lambda *_: (MALFORMED, 32, 0))
    monkeypatch.setattr(buffer, "next_message", None)
    for is_applied in (False, True):
        t = tables(log_end=[0] * 4, cursor=[0, 0], log=None, sessions=None)
        assert not as_python(buffer.poll_log)(t, 96, is_applied)
        assert t.cursor == [32, 32] and t.words[at.REASON] == at.ENTRY


def test_a_compiled_service_passes_over_log_without_messages(monkeypatch):
    runs = iter([(serving.DONE, 64, 0, False)])
    monkeypatch.setattr(serving, "deliver_run", lambda *_: next(runs))
    t = tables(log_end=[0] * 4, service_cursor=[0, 0], counters=[0] * 8, log=None, side=None, columns=None)
    t.member_log[log_words.COMMIT_POSITION] = 96
    t.services, t.words[at.SERVICE_ID] = ServiceTable(2).words, 1
    t.services[service_table.SERVICE_WORDS + service_table.POSITION_COUNTER] = 5
    as_python(serving._deliver)(t)

    assert t.service_cursor[of_recording.READ_POSITION] == 64
    assert t.service_cursor[of_recording.TAKEN_POSITION] == t.counters[5] == 96
    assert t.words[at.REASON] == 0


def test_what_a_compiled_service_does_not_take_is_counted_no_more_and_left_to_python(monkeypatch):
    taken_back = []
    monkeypatch.setattr(serving, "deliver_run", lambda *_: (serving.DONE, 96, 3, False))
    monkeypatch.setattr(serving, "number_messages", lambda *_: None)
    monkeypatch.setattr(serving, "take_back_messages", lambda numbers, ids: taken_back.extend(ids.tolist()))
    monkeypatch.setattr(serving, "_serve", lambda t, payloads, count: 1)
    columns = np.arange(24).reshape(6, 4)
    t = tables(log_end=[0] * 4, service_cursor=[0, 0], counters=[0], log=None, side=None, numbers=None)
    t.services = ServiceTable(1).words
    t.columns, t.words[at.SERVICE_ROWS], t.words[at.SERVICE_FUNCTION] = columns.ravel(), 4, at.ECHO + 1
    t.member_log[log_words.COMMIT_POSITION] = 96
    as_python(serving._deliver)(t)

    assert taken_back == columns[serving.SESSION_IDS, 1:3].tolist()
    assert t.service_cursor == [columns[serving.EXTRA, 0]] * 2 and t.words[at.REASON] == at.SERVICES
    assert t.words[at.SERVICE_TIME] == columns[serving.TIMESTAMPS, 0]


# ---- clients


def test_the_connection_of_a_client_is_not_the_link_of_a_member_with_its_number(monkeypatch):
    monkeypatch.setattr(egress, "_is_of", as_python(egress._is_of))
    t = tables(connections=connections((LINK_OUT, 2), (CLIENT, 5), (CLIENT, 2), (STRANGER, 6)))
    t.by_connection = [0] * INDEX_LENGTH  # whose places others have taken since
    descriptor_of = as_python(egress.descriptor_of)

    assert [descriptor_of(t, connection_id) for connection_id in (2, 5, 6, 9, -1)] == [2, 1, 3, -1, -1]


def test_an_answer_that_cannot_be_framed_beside_the_acknowledgements_is_left_to_python():
    t = tables(egress=SimpleNamespace(size=1024), sessions=[2])
    longest = 1024 - 2 * egress.ACK_LENGTH - egress.FRAME_OVERHEAD - 32
    assert [as_python(egress.fits_egress)(t, length) for length in (longest, longest + 1)] == [True, False]


@pytest.mark.parametrize(("fitting", "served", "sent"), [(2, 2, [2]), (1, 0, [])])
def test_an_echo_answers_all_of_its_messages_or_none(monkeypatch, fitting, served, sent):
    fits, found = iter([True] * fitting + [False]), []
    monkeypatch.setattr(serving, "fits_egress", lambda t, length: next(fits))
    monkeypatch.setattr(serving, "send_egress", lambda t, term, columns, payloads, count: found.append(count))
    t = tables(columns=[0] * 64)
    t.words[at.IS_SERVING], t.words[at.SERVICE_ROWS] = 1, 4

    assert as_python(serving._echo)(t, None, 2) == served
    assert found == sent


# ---- measured


def test_a_duration_is_counted_in_its_bucket_and_added_to_the_sum():
    t = tables(counters=[0] * 1024)
    words, buckets = measuring.COUNTER_WORDS, measuring.BUCKETS_NS
    for duration_ns in (buckets[0], buckets[0] + 1, buckets[-1] + 1):
        as_python(measuring.measure)(t.counters, 0, duration_ns)

    counted = {place: value for place, value in enumerate(t.counters) if value}
    total = 2 * buckets[0] + buckets[-1] + 2
    assert counted == {0: 1, words: 1, len(buckets) * words: 1, (len(buckets) + 1) * words: total}
