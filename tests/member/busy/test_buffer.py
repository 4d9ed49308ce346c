"""When the log in memory moves: single routines of a compiled turn, as Python."""

import pytest

from cluster.consensus import quorum
from cluster.log.connection_table import CLIENT
from cluster.log.frames import DONE, OUT_FULL
from cluster.log.kernel import as_python
from cluster.member.busy import following, leading
from cluster.member.busy import words as at
from cluster.member.log import log_words
from tests.member.busy.tables import connections, recorded, tables

pytestmark = pytest.mark.usefixtures("rules_as_python")


@pytest.mark.parametrize(("module", "work"), [(leading, "leader_work"), (following, "follower_work")])
def test_each_turn_ends_with_a_look_whether_the_log_is_to_move(monkeypatch, module, work):
    t, moved = tables(recording=recorded(), follower=[0] * quorum.FOLLOWER_WORDS, cursor=[0, 0]), []
    t.leadership = [0] * quorum.LEADERSHIP_WORDS
    names = {"flush", "sync", "update_leader_position", "send_commit_position"}
    for name in names & vars(module).keys():
        monkeypatch.setattr(module, name, lambda t: True)
    monkeypatch.setattr(module, "make_room", moved.append)
    monkeypatch.setattr(quorum, "is_report_due", lambda *_: False)
    as_python(getattr(module, work))(t)
    assert moved == [t]


@pytest.mark.parametrize(("base", "appended", "reason"), [(64, [0, 32], 0), (0, [0], at.ROOM)])
def test_a_log_that_is_full_amid_what_came_moves_and_goes_on(monkeypatch, base, appended, reason):
    runs, begins = iter([(OUT_FULL, 96, 32), (DONE, 128, 64)]), []
    t = tables(log_end=[0] * 3, connections=connections((CLIENT, 5)), leadership=[0], left=[])
    t.log = t.params = t.received = t.sessions = None
    monkeypatch.setattr(leading, "receive_frames", lambda *_: (64, 64, 0))
    monkeypatch.setattr(leading, "append_run", lambda *given: begins.append(given[5]) or next(runs))
    monkeypatch.setattr(leading, "flush", lambda t: True)
    monkeypatch.setattr(leading, "make_room", lambda t: t.log_end.__setitem__(log_words.BASE, base))
    monkeypatch.setattr(leading, "leave", lambda t, descriptor, begin, *_: t.left.append(begin))
    as_python(leading.receive_ingress)(t, 0)
    assert (begins, t.left, t.words[at.REASON]) == (appended, [32 * len(appended)], reason)
