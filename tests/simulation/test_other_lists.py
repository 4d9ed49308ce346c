"""Members that are started as those of another cluster: none takes part, and unchecked some would."""

import pytest

from cluster.member.disk.identity_keeper import IdentityKeeper
from tests.simulation.history import History, Result

FAULTS = ("other list", "kill")


def played(seed: int) -> tuple[Result, int]:
    history = History(seed, only_faults=FAULTS)
    result = history.run()
    return result, history.nemesis.counts.get("other list", 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 11])
def test_nobody_takes_part_in_a_cluster_that_it_is_not_of(seed: int) -> None:
    result, strikes = played(seed)
    assert not result.violation, result.violation
    assert strikes


@pytest.mark.slow
@pytest.mark.parametrize("what", ["the configured list", "what others state"])
def test_a_member_that_does_not_look_at_this_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "the configured list":
        monkeypatch.setattr(IdentityKeeper, "_check", lambda *_: None)
    else:
        monkeypatch.setattr(IdentityKeeper, "difference", lambda *_: None)
    assert any(played(seed)[0].violation for seed in range(2, 12))
