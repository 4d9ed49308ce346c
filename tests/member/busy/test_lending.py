"""The border: compiled turns are lent what the member has, and what they leave is what it has then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cluster.archive.recording_words import APPEND_POSITION
from cluster.consensus.kept_answers import KeptAnswers
from cluster.log.connection_table import KIND, LINK_IN, OWNER, ROW_WORDS
from cluster.log.session_table import SessionTable
from cluster.member.busy import lend
from cluster.member.busy import words as at
from cluster.member.busy.envelopes import POSITION_FRAME_LENGTH
from cluster.member.busy.lend import REST_NS, VAIN_MAX
from cluster.member.busy.services import LentServices
from cluster.member.log import log_words
from cluster.member.phases.leading import Leading
from cluster.member.services.remote_service import RemoteService
from cluster.protocol import decode
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.enums import AppendPositionFlags
from cluster.protocol.frame import HEADER_LENGTH
from cluster.service.agent import ClusteredServiceAgent
from tests.member.busy.busy_cluster import PAYLOADS, processes, run

# By word, where the member has it.
PLACES = {
    at.SLOW_TICK_NS: "turn.slow_tick_ns",
    at.NOW_NS: "turn.now_ns",
    at.LAST_NS: "last_turn_ns",
}


class Border:
    """The agent of a member, with marks in what it lends, and none of it in the words yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, leads: bool) -> None:
        self.cluster = run(PAYLOADS, is_compiled=True)
        leader_id = self.cluster.leader
        member = next(m for m in processes(self.cluster) if (m.member_id == leader_id) is leads)
        assert member.life is not None and member.life.busy is not None
        self.busy, self.agent = member.life.busy, member.life.consensus_module
        for word in PLACES:
            self.busy._words[word] = -5  # of no part
        self._monkeypatch = monkeypatch

    def run(self, turn: Callable[[at.Tables], None]) -> None:
        def in_place_of_the_kernel(tables: at.Tables) -> int:
            tables.words[at.REASON] = at.IDLE
            turn(tables)
            return at.IDLE

        self._monkeypatch.setattr(lend, "busy_turns", in_place_of_the_kernel)
        assert self.busy.run() & at.IDLE

    def has(self) -> dict[int, Any]:
        return {word: attrgetter(place)(self.agent) for word, place in PLACES.items()}


@pytest.fixture(params=[True, False], ids=["leader", "follower"])
def border(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Border:
    return Border(monkeypatch, leads=request.param)


def test_what_is_lent_is_what_the_member_has(border):
    has, lent = border.has(), {}

    border.run(lambda tables: lent.update({word: int(tables.words[word]) for word in PLACES}))

    assert lent == has
    assert border.has() == has, "and it has that again, where nothing was done"


@pytest.mark.parametrize("bytes_max", [0, 1 << 20])
def test_a_leader_takes_no_input_beyond_log_bytes_max_however_long_a_run_is(monkeypatch, bytes_max):
    border = Border(monkeypatch, leads=True)
    border.agent.context.log_bytes_max = bytes_max
    log, limits = border.agent.parts.log, []

    border.run(lambda tables: limits.append(int(tables.words[at.INPUT_LIMIT])))

    end = log.recording.start_position + bytes_max if bytes_max else log.publication.input_limit
    assert limits == [end]


@pytest.mark.parametrize("is_raised", [False, True])
def test_whatever_compiled_turns_leave_is_what_the_member_has_then(border, is_raised):
    left = {}

    def turn(tables):
        for number, word in enumerate(PLACES):
            tables.words[word] = left[word] = int(tables.words[word]) + 32 * (1 + number)
        if is_raised:
            raise KeyError("what no error is for")

    with pytest.raises(KeyError) if is_raised else nullcontext():
        border.run(turn)

    assert border.has() == left


def test_what_compiled_turns_have_written_is_known_whatever_is_raised_after_them(border):
    recording = border.agent.parts.log.recording
    position = recording.append_position

    def turn(tables):
        tables.recording.words[APPEND_POSITION] += 96
        raise KeyError("what no error is for")

    with pytest.raises(KeyError):
        border.run(turn)

    assert recording.append_position == position + 96


def test_how_far_followers_are_sent_the_log_in_compiled_turns_is_known(monkeypatch):
    border = Border(monkeypatch, leads=True)
    parts, own_id = border.agent.parts, border.agent.context.member_id
    others = [member_id for member_id in parts.members if member_id != own_id]
    sent = {}

    def turn(tables):
        rows = tables.followers.reshape(-1, log_words.FOLLOWER_WORDS)
        for member_id, row in zip(parts.members, rows):
            row[log_words.STREAM_POSITION] += 64
            sent[member_id] = int(row[log_words.STREAM_POSITION])
        tables.words[at.REASON] |= at.LAGGARD

    border.run(turn)

    assert all(parts.log_sender.streams.get(id_).position == sent[id_] for id_ in others)
    assert parts.log_sender.streams.has_laggards, "whom Python sends what is recorded"


def test_a_leader_takes_back_what_is_committed_and_when_the_turn_before_was(monkeypatch):
    border, given = Border(monkeypatch, leads=True), []
    monkeypatch.setattr(border.agent.phase, "take_back", lambda *of_turns: given.append(of_turns))

    def turn(tables):
        tables.words[[at.LAST_NS, at.NOW_NS]] = 7_000, 8_000
        tables.member_log[log_words.COMMIT_POSITION] += 640

    before = border.agent.log.commit_position
    border.run(turn)
    assert given == [(before, 7_000)] and border.agent.log.commit_position == before + 640


def test_a_leader_counts_no_report_of_an_unrelated_member_in_compiled_turns(monkeypatch):
    border, heard = Border(monkeypatch, leads=True), set()
    parts = border.agent.parts
    _, unrelated, related = sorted(parts.members, key=lambda id_: id_ != border.agent.context.member_id)
    parts.unrelated._reasons[unrelated] = "planted"

    def turn(tables):
        connections = tables.connections.reshape(-1, ROW_WORDS)
        heard.update(connections[connections[:, KIND] == LINK_IN, OWNER].tolist())

    border.run(turn)
    assert heard == {related}, "what an unrelated member reports is Python's to drop"


@pytest.mark.parametrize(
    ("leads", "place", "value"),
    [
        (True, "parts.log_sender.streams.has_suspended", True),
        (True, "parts.termination.position", 1 << 20),
        (True, "parts.log.recording._failure", OSError(5, "broken")),
        (True, "parts.log.publication.flushed_position", 0),
        (True, "parts.log.publication.input_limit", 0),
        (True, "parts.links.is_full", lambda member_id: True),
        (False, "parts.log.subscription.has_image", False),
        (False, "parts.log.subscription.stop_position", 1 << 40),
        (False, "parts.log.subscription.leader_member_id", 7),
        (False, "parts.links.serve", lambda member_id: None),
        (False, "parts.unrelated", range(3)),
    ],
)
def test_nothing_is_lent_while_something_rare_is_under_way(monkeypatch, leads, place, value):
    border = Border(monkeypatch, leads=leads)
    of, _, name = place.rpartition(".")
    monkeypatch.setattr(attrgetter(of)(border.agent), name, value)
    monkeypatch.setattr(lend, "busy_turns", None)

    assert border.busy.run() is None


@pytest.mark.parametrize("why", ["", "its link is down", "it is of another cluster", "it asked for a part"])
def test_a_follower_is_sent_the_log_where_it_can_be_and_follows_on_and_on(monkeypatch, why):
    border, lent = Border(monkeypatch, leads=True), []
    parts = border.agent.parts
    other = next(member_id for member_id in parts.members if member_id != border.agent.context.member_id)
    stream, serve = parts.log_sender.streams.get(other), parts.links.serve
    match why:
        case "its link is down":
            monkeypatch.setattr(parts.links, "serve", lambda id_: None if id_ == other else serve(id_))
        case "it is of another cluster":
            monkeypatch.setattr(parts, "unrelated", {other})
        case "it asked for a part":
            parts.log_sender.streams.start(other, 1, stream.position, stream.position + 4096)
    border.run(lambda tables: lent.extend(tables.followers.reshape(-1, log_words.FOLLOWER_WORDS).tolist()))

    out, position, is_live = lent[list(parts.members).index(other)]
    assert (out >= 0) == (why in ("", "it asked for a part"))
    assert (position, is_live) == (stream.position, why != "it asked for a part")


@pytest.mark.parametrize("ahead", [0, 32])
def test_a_commit_that_a_turn_of_pythons_has_taken_is_measured_no_more(border, ahead):
    words, lent = border.busy._words, []
    measured = words[at.MEASURED_POSITION] = border.agent.log.commit_position + ahead
    border.run(lambda tables: lent.append(tables.words[at.MEASURED_POSITION]))

    assert lent == [measured if ahead and words[at.ROLE] == at.LEADER_ROLE else 0]


def test_a_follower_drops_what_the_log_shows_of_its_services(monkeypatch):
    border, dropped = Border(monkeypatch, leads=False), []
    monkeypatch.setattr(border.agent.replica, "drop_logged_service_messages", lambda: dropped.append(1))
    border.run(lambda tables: None)
    assert dropped == []
    position = border.agent.log.commit_position + 32
    border.run(lambda tables: tables.member_log.__setitem__(log_words.COMMIT_POSITION, position))
    assert dropped == [1]


def test_runs_that_find_nothing_they_serve_are_followed_by_a_rest_each_time(border, monkeypatch):
    def finds(run_turns):
        def turn(tables):
            tables.words[at.REASON], tables.words[at.RUN_TURNS] = at.EVENT, run_turns

        monkeypatch.setattr(lend, "busy_turns", turn)

    for run_turns in [0] * (VAIN_MAX - 1) + [1]:
        finds(run_turns)
        assert border.busy.run() == at.EVENT
    finds(0)
    for _ in range(2):
        assert [border.busy.run() for _ in range(VAIN_MAX + 1)] == [at.EVENT] * VAIN_MAX + [None]
        border.agent.turn.now_ns += REST_NS - 1
        assert border.busy.run() is None
        border.agent.turn.now_ns += 1


def test_the_service_of_a_leader_alone_answers(border):
    lent = []
    border.run(lambda tables: lent.extend(tables.words[[at.SERVICE, at.IS_SERVING]].tolist()))
    assert lent == [at.COMPILED_SERVICE, border.busy._words[at.ROLE] == at.LEADER_ROLE]


def test_a_service_whose_log_has_an_end_is_left_to_python(border, monkeypatch):
    lent, adapter = [], border.busy._services._inline[0].adapter
    monkeypatch.setattr(adapter, "max_log_position", border.agent.log.commit_position + 4096)
    border.run(lambda tables: lent.append(tables.words[at.SERVICE]))
    assert lent == [at.PYTHON_SERVICE]


def test_the_log_is_in_memory_from_where_the_service_has_come_to(monkeypatch):
    border, lent = Border(monkeypatch, leads=False), []
    cursor = border.busy._services._inline[0].adapter.cursor
    monkeypatch.setattr(border.busy, "_follower_end_of", None)
    monkeypatch.setattr(cursor, "read_position", 0)
    border.run(lambda tables: lent.append(tables.log_end[log_words.BASE]))

    assert lent == [0]


def test_tables_that_have_grown_are_lent_from_then_on(monkeypatch):
    border, lent = Border(monkeypatch, leads=True), []
    answers, connections = border.agent.replica.answers, border.busy._poller.table
    for table in (answers, connections):
        monkeypatch.setattr(table, "words", table.words.copy())
    border.run(lent.append)
    assert lent[0].kept is answers.words and lent[0].connections is connections.words


@pytest.mark.parametrize(("dial_ns", "phase_ns"), [(77, 78), (78, 77)])
def test_all_that_a_turn_works_by_is_lent(border, monkeypatch, dial_ns, phase_ns):
    agent, lent = border.agent, {}
    parts, recording, words = agent.parts, agent.parts.log.recording, border.busy._words
    leads = isinstance(agent.phase, Leading)
    monkeypatch.setattr(type(parts.links), "next_dial_ns", dial_ns)
    monkeypatch.setattr(type(agent.phase), "next_due_ns", phase_ns)
    if not leads:
        leader_id = agent.phase.follower.leader_member_id
        monkeypatch.setattr(border.busy, "_serve_links", lambda: {9: 90, leader_id: 42})
    for word in (at.LIMIT_DUE_NS, at.PREPARE_AT, at.INPUT_LIMIT, at.LEADER_OUT):
        words[word] = -5
    frame = border.busy._scratch[at.FRAME_AT : at.FRAME_AT + POSITION_FRAME_LENGTH]
    frame[:] = 255  # of another role

    border.run(lambda tables: lent.update(enumerate(tables.words.tolist())))
    assert lent[at.DUE_NS] == 77
    assert lent[at.PREPARE_AT] == recording.prepares_at and lent[at.LIMIT_DUE_NS] == at.NEVER
    state = border.busy._services._inline[0].state
    assert lent[at.SERVICE_LEADERSHIP_TERM_ID] == state.leadership_term_id
    assert lent[at.SERVICE_TIME] == state.cluster_time > 0
    said = decode(frame, HEADER_LENGTH, len(frame) - HEADER_LENGTH)
    if leads:
        assert said == CommitPosition(0, 0, agent.context.member_id)
        assert lent[at.INPUT_LIMIT] == parts.log.publication.input_limit
    else:
        assert said == AppendPosition(0, 0, agent.context.member_id, AppendPositionFlags.NONE)
        assert lent[at.LEADER_OUT] == 42


def test_what_is_left_to_python_is_done_after_the_turns(border, monkeypatch):
    done = []
    monkeypatch.setattr(
        type(border.agent.parts.log.recording), "prepare", lambda self: done.append("prepare")
    )
    monkeypatch.setattr(
        border.busy._poller,
        "target",
        lambda descriptor: SimpleNamespace(adopt=lambda data: done.append((descriptor, data.tobytes()))),
    )

    def turn(tables):
        tables.received[:6] = np.frombuffer(b"onetwo", np.uint8)
        tables.words[[at.GIVEN, at.GIVEN_BEGIN, at.GIVEN_END]] = 9, 3, 5
        tables.words[at.REASON] |= at.FRAMES | at.PREPARE

    border.run(turn)
    assert done == [(9, b"tw"), "prepare"]


def test_what_a_call_has_met_is_raised(border, monkeypatch):
    def fail():
        raise KeyError("what no error is for")

    monkeypatch.setattr(border.busy, "_calls", SimpleNamespace(raise_failure=fail))
    with pytest.raises(KeyError):
        border.run(lambda tables: None)


def test_a_follower_that_was_sent_too_little_is_known_until_it_has_that(monkeypatch):
    border = Border(monkeypatch, leads=True)
    streams = border.agent.parts.log_sender.streams
    streams.has_laggards = True
    border.run(lambda tables: None)
    assert streams.has_laggards


def test_counters_that_are_unmapped_next_are_let_go(monkeypatch):
    """An error on its way out may still refer to the turns."""
    busy = Border(monkeypatch, leads=True).busy
    assert len(busy._tables.counters)
    busy.let_go()
    assert not len(busy._tables.counters)


@pytest.mark.parametrize("stale", ["its phase", "its end"])
def test_a_follower_has_the_log_in_memory_that_is_recorded(monkeypatch, stale):
    border, lent = Border(monkeypatch, leads=False), []
    recording, end = border.agent.parts.log.recording, border.busy._follower_end
    monkeypatch.setattr(border.busy._services._inline[0].adapter.cursor, "read_position", 0)
    end.buffer[:] = 255
    if stale == "its phase":
        border.busy._follower_end_of, end.base = None, 0
    else:
        end.position += 96
    border.run(
        lambda tables: lent.append(
            (tables.log_end[:2].tolist(), tables.log[: recording.append_position].tobytes())
        )
    )
    position = recording.append_position
    assert lent == [([0, position], bytes(recording.read(0, position)))]


def test_a_service_that_answers_nobody_and_its_supervised_sessions_are_known(border, monkeypatch):
    lent, noted = [], []
    monkeypatch.setattr(ClusteredServiceAgent, "is_responder", False)
    monkeypatch.setattr(ClusteredServiceAgent, "has_supervised_sessions", True)
    monkeypatch.setattr(ClusteredServiceAgent, "on_busy_turns", lambda agent, *times: noted.append(times))

    def turn(tables):
        lent.extend(tables.words[[at.IS_SERVING, at.HAS_SUPERVISED]].tolist())
        tables.words[[at.LAST_NS, at.LONGEST_GAP_NS, at.SERVICE_TIME]] = 90, 40, 1 << 50

    border.run(turn)
    assert lent == [0, 1] and noted == [(90, 40)]
    assert border.busy._services._inline[0].state.cluster_time == 1 << 50


class Process(RemoteService):
    def __init__(self, is_lent=True):
        self.is_lent, self.taken_back = is_lent, 0

    def lend(self):
        return self.is_lent

    def take_back(self):
        self.taken_back += 1


@pytest.mark.parametrize(
    ("are_lent", "service"),
    [
        ([], at.NO_SERVICE),
        ([True], at.NO_SERVICE),
        ([True, True], at.NO_SERVICE),
        ([False, True], at.PYTHON_SERVICE),
    ],
)
def test_services_in_processes_of_their_own_are_lent_and_one_that_cannot_be_is_pythons(are_lent, service):
    words, processes = np.zeros(at.WORDS, np.int64).data, [Process(is_lent) for is_lent in are_lent]
    services = LentServices(processes, words, KeptAnswers(1, SessionTable()))
    services.lend()
    assert words[at.SERVICE] == service
    services.take_back()
    assert [process.taken_back for process in processes] == are_lent


@pytest.mark.parametrize(
    ("processes", "inline", "service"),
    [
        ([True, True], 1, at.COMPILED_SERVICE),
        ([True, False], 1, at.PYTHON_SERVICE),
        ([True], 2, at.PYTHON_SERVICE),
        ([], 2, at.PYTHON_SERVICE),
    ],
)
def test_one_compiled_service_in_line_is_lent_beside_those_in_processes(border, processes, inline, service):
    words, beside = np.zeros(at.WORDS, np.int64).data, [Process(is_lent) for is_lent in processes]
    (compiled,) = border.busy._services._inline
    LentServices([*beside, *[compiled] * inline], words, border.agent.replica.answers).lend()
    assert words[at.SERVICE] == service


def test_a_service_without_a_compiled_callback_is_pythons(border, monkeypatch):
    lent = []
    monkeypatch.setattr(ClusteredServiceAgent, "is_compiled", False)
    border.run(lambda tables: lent.append(tables.words[at.SERVICE]))
    assert lent == [at.PYTHON_SERVICE]
