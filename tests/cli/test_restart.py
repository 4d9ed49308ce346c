"""``cluster restart`` asks its leader to hand over again when that fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.cli import restart
from cluster.errors import AuthenticationRejected, ClusterError


class Members:
    """Two of them, of which the first leads, and is to restart."""

    def __init__(self, monkeypatch):
        self.errors, self.asked, self.leader_id, self.restarted = [], 0, 0, []
        to_restart = restart._Members({0: 0}, {}, self.hand_over)
        monkeypatch.setattr(restart, "HAND_OVER_PAUSE_S", 0)
        monkeypatch.setattr(restart, "_on_host", lambda _: to_restart)
        monkeypatch.setattr(restart, "_await_following", self.statuses)
        monkeypatch.setattr(restart, "_restart", lambda *_: self.restarted.append(self.leader_id))

    def statuses(self, *_):
        return [SimpleNamespace(leader_member_id=self.leader_id, leadership_term_id=1, commit_position=0)] * 2

    def hand_over(self):
        """Refuse with each of the errors, then do it."""
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        self.leader_id = 1

    def restart(self):
        restart.restart.__wrapped__(Path("cluster-data"), None, timeout=1, as_json=False)


@pytest.fixture
def members(monkeypatch):
    return Members(monkeypatch)


def test_a_hand_over_that_fails_is_asked_for_again(members):
    members.errors = [
        ClusterError("goes on leading: member 1 lags"),
        ClusterError("it won the election again"),
    ]
    members.restart()
    assert (members.asked, members.restarted) == (3, [1])


def test_one_that_came_late_is_not_asked_for_again(members, monkeypatch):
    """The new leader would hand over to the member that is about to restart."""

    def late():
        members.asked += 1
        members.leader_id = 1
        raise ClusterError("member 0 has not said within 10 s who leads after it")

    monkeypatch.setattr(restart, "_on_host", lambda _: restart._Members({0: 0}, {}, late))
    members.restart()
    assert (members.asked, members.restarted) == (1, [1])


def test_the_last_of_three_failures_ends_the_restart(members):
    members.errors = [ClusterError(f"failure {number}") for number in range(1, 5)]
    with pytest.raises(ClusterError, match="failure 3"):
        members.restart()
    assert (members.asked, members.restarted) == (3, [])


def test_who_may_not_ask_is_refused_once(members):
    members.errors = [AuthenticationRejected("alice has no right to administer")]
    with pytest.raises(AuthenticationRejected, match="alice"):
        members.restart()
    assert (members.asked, members.restarted) == (1, [])
