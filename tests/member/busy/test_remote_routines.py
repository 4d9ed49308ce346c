"""Single routines of a compiled turn for a service in a process of its own, as Python."""

import numpy as np
import pytest

from cluster.log.message_columns import COLUMNS, EXTRA, LENGTHS, OFFSETS, SESSION_IDS
from cluster.member.busy import remote
from cluster.member.busy import words as at
from cluster.member.services import log_limits
from cluster.member.services.log_limits import ANSWERED, LIMIT, SERVED
from cluster.protocol.service_link import ServiceAnswers
from cluster.transport.message_frames import link_frame
from tests.member.busy.tables import plain, tables


@pytest.fixture
def service(monkeypatch):
    """Its tables, with the positions at which it was given more of the log."""
    t = tables(limits=[0] * 64, counters=[0] * 8, received=None)
    t.given = []
    monkeypatch.setattr(remote, "send_limit", lambda t: t.given.append(t.words[at.COMMIT_POSITION]))
    t.words[at.LIMIT_DUE_NS], t.words[at.NOW_NS] = at.NEVER, 1_000
    t.words[at.COMMIT_POSITION] = 640
    return t


def test_a_followers_process_is_given_the_log_of_5_ms_or_64_kib_at_once(service):
    service.words[at.ROLE], service.limits[LIMIT] = at.FOLLOWER_ROLE, 640
    plain(remote.give_log)(service)
    assert service.words[at.LIMIT_DUE_NS] == at.NEVER, "it has all"
    service.limits[LIMIT] = 0
    plain(remote.give_log)(service)
    assert service.words[at.LIMIT_DUE_NS] == 1_000 + 5_000_000
    service.words[at.NOW_NS] = 2_000
    plain(remote.give_log)(service)
    assert service.words[at.LIMIT_DUE_NS] == 1_000 + 5_000_000, "from the first of it on"
    assert service.given == []

    service.words[at.COMMIT_POSITION] = 65_536
    plain(remote.give_log)(service)
    assert service.given == [65_536]


def test_a_leaders_process_is_given_it_at_once(service):
    service.words[at.ROLE] = at.LEADER_ROLE
    plain(remote.give_log)(service)
    assert service.given == [640]


def test_answers_count_for_what_follows_the_position_that_a_service_names(service, monkeypatch):
    said = {remote.SERVED_POSITION_AT: 320, remote.MAX_CYCLE_TIME_AT: 7, remote.CYCLE_TIME_EXCEEDED_AT: 1}
    monkeypatch.setattr(remote, "get_i64", lambda buffer, place: said[place])
    service.words[at.SERVICE_COUNTER], service.words[at.MAX_CYCLE_COUNTER] = 3, 4
    service.words[at.CYCLES_EXCEEDED_COUNTER] = 5
    service.limits[SERVED], service.limits[LIMIT], service.limits[ANSWERED] = 96, 640, 12
    take_position = plain(remote._take_position)

    assert take_position(service, 0)
    assert (service.limits[SERVED], service.limits[ANSWERED]) == (320, 0)
    assert service.counters[3:6] == [320, 7, 1]
    service.limits[ANSWERED] = 2
    assert take_position(service, 0) and service.limits[ANSWERED] == 2, "it is at the same position"
    service.limits[LIMIT] = 288
    assert not take_position(service, 0), "beyond what it was given"
    service.limits[LIMIT], service.limits[SERVED] = 640, 352
    assert not take_position(service, 0), "before what it has said"


def test_a_limit_that_was_due_is_due_no_more_whether_the_service_comes_along_or_not(monkeypatch):
    monkeypatch.setattr(remote, "next_limit", lambda *_: False)
    t = tables(limits=None)
    plain(remote.send_limit)(t)
    assert t.words[at.LIMIT_DUE_NS] == at.NEVER


def test_limits_are_known_until_they_are_reached_and_no_more_than_some_of_them():
    limits = np.zeros(log_limits.LIMITS_WORDS, np.int64)
    known = limits[log_limits.FIRST_LIMIT :]
    assert log_limits.next_limit(limits, 96, 10) and not log_limits.next_limit(limits, 96, 11)
    assert log_limits.next_limit(limits, 192, 20) and log_limits.next_limit(limits, 320, 30)
    assert (limits[LIMIT], limits[log_limits.UNREACHED]) == (320, 3)
    assert known[:6].tolist() == [96, 10, 192, 20, 320, 30]
    limits[SERVED] = 192
    assert not log_limits.next_limit(limits, 320, 40), "it has not risen"
    assert limits[log_limits.UNREACHED] == 1 and known[:2].tolist() == [320, 30]

    for position in range(352, 352 + 32 * (log_limits.LIMITS_MAX - 1), 32):
        assert log_limits.next_limit(limits, position, 50)
    assert not log_limits.next_limit(limits, 1 << 20, 60), "it does not come along"
    limits[SERVED] = 320
    assert log_limits.next_limit(limits, 1 << 20, 70)
    assert known[:2].tolist() == [352, 50] and known[-2:].tolist() == [1 << 20, 70]


COLUMNS_OF_TWO = {SESSION_IDS: (7, 8), OFFSETS: (0, 4), LENGTHS: (4, 6), EXTRA: (0, 0)}


@pytest.mark.parametrize(
    ("column", "values", "lacking", "is_taken"),
    [
        (EXTRA, (0, 0), 0, True),
        (OFFSETS, (-1, 4), 0, False),
        (OFFSETS, (11, 4), 0, False),
        (LENGTHS, (4, 7), 0, False),
        (LENGTHS, (-1, 6), 0, False),
        (LENGTHS, (4, 6), 1, False),  # its frame ends before its bytes do
    ],
)
def test_answers_are_taken_where_all_of_them_are_among_their_bytes(
    service, monkeypatch, column, values, lacking, is_taken
):
    monkeypatch.setattr(remote, "fits_egress", lambda t, length: True)
    monkeypatch.setattr(remote, "_read_answers", plain(remote._read_answers))
    monkeypatch.setattr(remote, "send_kept", lambda t: None)
    monkeypatch.setattr(remote, "send_egress", lambda t, columns, payloads, rows: t.given.append(rows))
    for name, length in (("get_i32", 4), ("get_u32", 4), ("get_i64", 8)):
        monkeypatch.setattr(remote, name, _reading(length))
    columns = np.zeros((COLUMNS, 2), np.int64)
    for place, of_two in (COLUMNS_OF_TWO | {column: values}).items():
        columns[place] = of_two
    said = bytearray(link_frame(ServiceAnswers(9, columns.tobytes(), b"onetwo....")))
    said[0] -= lacking
    service.received, service.columns = np.frombuffer(said, np.uint8), np.zeros(COLUMNS * 4, np.int64)
    service.words[at.ROLE], service.words[at.SERVICE_ROWS] = at.LEADER_ROLE, 4
    service.limits[ANSWERED] = 3

    assert plain(remote._take_answers)(service, 0) == is_taken
    assert (service.given, service.limits[ANSWERED]) == (([2], 5) if is_taken else ([], 3))
    if is_taken:
        assert service.words[at.SERVICE_LEADERSHIP_TERM_ID] == 9
        begin = service.columns[2 * OFFSETS]
        assert service.received[begin : begin + 6].tobytes() == b"onetwo"


def _reading(length):
    return lambda buffer, at: int.from_bytes(buffer[at : at + length].tobytes(), "little", signed=length == 8)
