"""What the nemesis takes for whole: the healed majority has among its members all that they may ask for."""

from cluster.testing.world import SECOND
from tests.simulation.script import Script


def test_who_lags_is_not_healed_with_a_member_that_alone_has_what_it_misses_and_cannot_read_it() -> None:
    """The third one has it, but may not be heard until all are healed."""
    script = Script(3, 1)
    history = script.history
    nemesis = history.nemesis
    found: list[int] = []

    def storm() -> None:
        rotten = script.await_all().member_id
        late, third = (i for i in history.context.member_ids if i != rotten)
        script.cut_off(late)
        before, end = history.invariants.log.end, 0
        script.until(lambda: history.invariants.log.end > before + 10_000, 20 * SECOND)
        while end <= before:
            frame = nemesis.damage._choose_frame(rotten)
            end = 0 if frame is None else frame.position
        assert frame is not None
        assert not nemesis.damage.is_lost_among([late, rotten])
        nemesis.damage._spoil_sector(frame)
        nemesis.not_whole.discard(rotten)  # as after a snapshot behind it: no restart reads it
        assert nemesis.damage.is_lost_among([late, rotten])
        assert not nemesis.damage.is_lost_among([late, third])
        assert not nemesis.damage.is_lost_among([rotten, third])
        nemesis.random.sample = lambda ids, count: [i for i in (rotten, late, third) if i in ids][:count]  # type: ignore[method-assign]
        found.extend(sorted([late, third]))

    script.run(storm)
    assert nemesis._healed_ids == found
