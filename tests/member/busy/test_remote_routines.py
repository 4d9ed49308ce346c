"""Single routines of a compiled turn for a service in a process of its own, as Python."""

import numpy as np
import pytest

from cluster.log.kernel import as_python
from cluster.log.message_columns import COLUMNS, EXTRA, LENGTHS, OFFSETS, SESSION_IDS
from cluster.member.busy import remote
from cluster.member.busy import words as at
from cluster.member.log.log_words import COMMIT_POSITION
from cluster.member.services import service_table
from cluster.member.services.service_table import ANSWERED, LIMIT, SERVED, SERVICE_WORDS, ServiceTable
from cluster.protocol.service_link import ServiceAnswers
from cluster.transport.message_frames import link_frame
from tests.member.busy.tables import tables

# Two services have processes of their own, beside one in line.
FIRST, SECOND = SERVICE_WORDS, 2 * SERVICE_WORDS


@pytest.fixture
def t(monkeypatch):
    """With the rows of services, and how far which of them was let into the log."""
    t = tables(services=ServiceTable(3).words, counters=[0] * 8, received=None)
    t.services[FIRST + service_table.LINK], t.services[SECOND + service_table.LINK] = 6, 5
    t.given = []

    def offer(t, descriptor, *buffers):
        t.given.append((descriptor, t.member_log[COMMIT_POSITION]))

    monkeypatch.setattr(remote, "offer", offer)
    monkeypatch.setattr(remote, "put_i64", lambda buffer, place, value: None)
    monkeypatch.setattr(remote, "_send_limit", as_python(remote._send_limit))
    t.scratch = None
    t.words[at.LIMIT_DUE_NS], t.words[at.NOW_NS] = at.NEVER, 1_000
    t.member_log[COMMIT_POSITION] = 640
    return t


def test_a_followers_processes_are_given_the_log_of_5_ms_or_64_kib_at_once(t):
    t.words[at.ROLE] = at.FOLLOWER_ROLE
    t.services[[FIRST + LIMIT, SECOND + LIMIT]] = 640
    as_python(remote.give_log)(t)
    assert t.words[at.LIMIT_DUE_NS] == at.NEVER, "they have all"
    t.services[FIRST + LIMIT] = 0
    as_python(remote.give_log)(t)
    assert t.words[at.LIMIT_DUE_NS] == 1_000 + 5_000_000
    t.words[at.NOW_NS] = 2_000
    t.services[SECOND + LIMIT] = 0
    as_python(remote.give_log)(t)
    assert t.words[at.LIMIT_DUE_NS] == 1_000 + 5_000_000, "from the first of it on"
    assert t.given == []

    t.member_log[COMMIT_POSITION], t.services[SECOND + LIMIT] = 65_536, 640
    as_python(remote.give_log)(t)
    assert t.given == [(6, 65_536)]
    assert t.words[at.LIMIT_DUE_NS] == 1_000 + 5_000_000, "the other is still to hear"
    t.member_log[COMMIT_POSITION] += 640
    as_python(remote.give_log)(t)
    assert t.given[1:] == [(5, 66_176)]
    t.words[at.NOW_NS] = 1_000 + 5_000_000
    as_python(remote.give_log)(t)
    assert t.given[2:] == [(6, 66_176)] and t.words[at.LIMIT_DUE_NS] == at.NEVER

    for more, due_ns in ((32, 1_000 + 10_000_000), (65_536, at.NEVER)):
        t.member_log[COMMIT_POSITION] += more
        as_python(remote.give_log)(t)
        assert t.words[at.LIMIT_DUE_NS] == due_ns


def test_a_leaders_processes_are_given_it_at_once(t):
    t.words[at.ROLE] = at.LEADER_ROLE
    as_python(remote.give_log)(t)
    assert t.given == [(6, 640), (5, 640)]
    assert t.words[at.LIMIT_DUE_NS] == at.NEVER


@pytest.mark.parametrize("role", [at.LEADER_ROLE, at.FOLLOWER_ROLE])
def test_one_that_python_serves_is_given_nothing_and_nothing_is_due_for_it(t, role):
    t.words[at.ROLE], t.services[SECOND + LIMIT] = role, 640
    t.services[FIRST + service_table.LINK] = -1
    as_python(remote.give_log)(t)
    assert t.given == [] and t.words[at.LIMIT_DUE_NS] == at.NEVER


def test_one_that_does_not_come_along_holds_up_no_other(t):
    t.words[at.ROLE] = at.FOLLOWER_ROLE
    t.services[FIRST + service_table.UNREACHED] = service_table.LIMITS_MAX
    t.services[FIRST + service_table.FIRST_LIMIT :][: 2 * service_table.LIMITS_MAX] = 640
    for position in (65_536, 65_632):
        t.member_log[COMMIT_POSITION] = position
        as_python(remote.give_log)(t)
    assert t.given == [(5, 65_536)] and t.words[at.LIMIT_DUE_NS] == 1_000 + 5_000_000


def test_answers_count_for_what_follows_the_position_that_a_service_names(t, monkeypatch):
    said = {remote.SERVED_POSITION_AT: 320, remote.MAX_CYCLE_TIME_AT: 7, remote.CYCLE_TIME_EXCEEDED_AT: 1}
    monkeypatch.setattr(remote, "get_i64", lambda buffer, place: said[place])
    service, other = t.services[SECOND:], t.services[:SECOND].copy()
    service[service_table.POSITION_COUNTER : service_table.CYCLES_EXCEEDED_COUNTER + 1] = 3, 4, 5
    service[SERVED], service[LIMIT], service[ANSWERED] = 96, 640, 12
    take_position = as_python(remote._take_position)

    assert take_position(t, SECOND, 0)
    assert (service[SERVED], service[ANSWERED]) == (320, 0)
    assert t.counters == [0, 0, 0, 320, 7, 1, 0, 0]
    service[ANSWERED] = 2
    assert take_position(t, SECOND, 0) and service[ANSWERED] == 2, "it is at the same position"
    service[LIMIT] = 288
    assert not take_position(t, SECOND, 0), "beyond what it was given"
    service[LIMIT], service[SERVED] = 640, 352
    assert not take_position(t, SECOND, 0), "before what it has said"
    assert (t.services[:SECOND] == other).all(), "which is of one service alone"


def test_limits_are_known_until_they_are_reached_and_no_more_than_some_of_them():
    limits = ServiceTable(1).row(0)
    known = limits[service_table.FIRST_LIMIT :]
    assert service_table.next_limit(limits, 96, 10) and not service_table.next_limit(limits, 96, 11)
    assert service_table.next_limit(limits, 192, 20) and service_table.next_limit(limits, 320, 30)
    assert (limits[LIMIT], limits[service_table.UNREACHED]) == (320, 3)
    assert known[:6].tolist() == [96, 10, 192, 20, 320, 30]
    limits[SERVED] = 192
    assert not service_table.next_limit(limits, 320, 40), "it has not risen"
    assert limits[service_table.UNREACHED] == 1 and known[:2].tolist() == [320, 30]

    for position in range(352, 352 + 32 * (service_table.LIMITS_MAX - 1), 32):
        assert service_table.next_limit(limits, position, 50)
    assert not service_table.next_limit(limits, 1 << 20, 60), "it does not come along"
    limits[SERVED] = 320
    assert service_table.next_limit(limits, 1 << 20, 70)
    assert known[:2].tolist() == [352, 50] and known[-2:].tolist() == [1 << 20, 70]


COLUMNS_OF_TWO = {SESSION_IDS: (7, 8), OFFSETS: (0, 4), LENGTHS: (4, 6), EXTRA: (0, 0)}


@pytest.mark.parametrize(
    ("column", "values", "lacking", "is_taken"),
    [
        (EXTRA, (0, 0), 0, True),
        (EXTRA, (0, 0), -2, False),  # it is said to have two rows more
        (OFFSETS, (-1, 4), 0, False),
        (OFFSETS, (11, 4), 0, False),
        (LENGTHS, (4, 7), 0, False),
        (LENGTHS, (-1, 6), 0, False),
        (LENGTHS, (4, 6), 1, False),  # its frame ends before its bytes do
    ],
)
def test_answers_are_taken_where_all_of_them_are_among_their_bytes(
    t, monkeypatch, column, values, lacking, is_taken
):
    monkeypatch.setattr(remote, "fits_egress", lambda t, length: True)
    monkeypatch.setattr(remote, "_read_answers", as_python(remote._read_answers))
    monkeypatch.setattr(remote, "send_kept", lambda t: None)
    monkeypatch.setattr(
        remote, "send_egress", lambda t, term, columns, payloads, rows: t.given.append((term, rows))
    )
    for name, length in (("get_i32", 4), ("get_u32", 4), ("get_i64", 8)):
        monkeypatch.setattr(remote, name, _reading(length))
    columns = np.zeros((COLUMNS, 2), np.int64)
    for place, of_two in (COLUMNS_OF_TWO | {column: values}).items():
        columns[place] = of_two
    said = bytearray(link_frame(ServiceAnswers(9, columns.tobytes(), b"onetwo....")))
    said[0] -= max(lacking, 0)
    said[remote.COLUMNS_LENGTH_AT] -= min(lacking, 0) * remote.ROW_BYTES
    t.received, t.columns = np.frombuffer(said, np.uint8), np.zeros(COLUMNS * 4, np.int64)
    t.words[at.ROLE], t.words[at.SERVICE_ROWS] = at.LEADER_ROLE, 4
    t.services[SECOND + ANSWERED] = 3

    assert as_python(remote._take_answers)(t, SECOND, 0) == is_taken
    assert (t.given, t.services[SECOND + ANSWERED]) == (([(9, 2)], 5) if is_taken else ([], 3))
    if is_taken:
        begin = t.columns[2 * OFFSETS]
        assert t.received[begin : begin + 6].tobytes() == b"onetwo"


def _reading(length):
    def reading(buffer, at):
        assert at + length <= len(buffer), "nothing is read beyond what was received"
        return int.from_bytes(buffer[at : at + length].tobytes(), "little", signed=length == 8)

    return reading
