"""A query that is started again: what comes first, and where a run ends."""

import pytest


@pytest.mark.slow
@pytest.mark.conformance("P-47", "P-52", "P-53", "P-54", "P-56")
def test_available_now_after_a_crash_ends_at_the_tip_that_it_saw_though_more_is_written(pipeline, live):
    """The planned micro-batch comes first, and as it was: with the limit of then. Once knows no limit."""
    pipeline.options["maxEntriesPerTrigger"] = "12"
    sent = live.lines(live.session_id, 0, 30)
    assert pipeline.run() == [12, 12, 8]
    pipeline.forget(commits=[2])
    sent += live.lines(live.session_id, 30, 30)
    pipeline.options["maxEntriesPerTrigger"] = "20"
    late, take = [], pipeline.take

    def write_meanwhile(batch, batch_id):
        late.extend(live.lines(live.session_id, 60 + len(late), 5))
        take(batch, batch_id)

    pipeline.take = write_meanwhile
    assert pipeline.run() == [8, 20, 10]
    assert pipeline.lines() == sent

    pipeline.take = take
    pipeline.options["maxEntriesPerTrigger"] = "4"
    assert pipeline.run(once=True) == [15]
    assert pipeline.lines() == sent + late
