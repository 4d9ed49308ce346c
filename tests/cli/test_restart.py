"""``cluster restart`` asks its leader to hand over again when that fails."""

from __future__ import annotations

import pytest

from cluster.cli import restart
from cluster.errors import AuthenticationRejected, ClusterError


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(restart, "HAND_OVER_PAUSE_S", 0)


class Leader:
    """Refuses to hand over with each of the errors, then hands over."""

    def __init__(self, *errors):
        self.errors, self.asked = list(errors), 0

    def hand_over(self):
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return 2


def test_a_hand_over_that_fails_is_asked_for_again():
    leader = Leader(ClusterError("goes on leading: member 2 lags"), ClusterError("it won the election again"))
    restart._hand_over(leader.hand_over)
    assert leader.asked == 3


def test_the_last_of_three_failures_ends_the_restart():
    leader = Leader(*(ClusterError(f"failure {n}") for n in range(1, 5)))
    with pytest.raises(ClusterError, match="failure 3"):
        restart._hand_over(leader.hand_over)
    assert leader.asked == 3


def test_who_may_not_ask_is_refused_once():
    leader = Leader(AuthenticationRejected("alice has no right to administer"))
    with pytest.raises(AuthenticationRejected, match="alice"):
        restart._hand_over(leader.hand_over)
    assert leader.asked == 1
