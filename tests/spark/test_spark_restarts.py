"""Queries that are started again: what of their options still counts, and where a run ends."""

import pytest


@pytest.mark.conformance("P-12")
def test_options_of_a_start_do_nothing_where_there_is_a_checkpoint(pipeline, live):
    """Not even those that a query without one is refused for."""
    starts = [
        {"startingOffsets": "earliest"},
        {"startingOffsets": "latest"},
        {"startingOffsets": "earliest"},
        {"startingOffsets": '{"position": 1}'},  # within an entry
        {"startingOffsets": '{"term": 7}'},  # there is none
        {"startingTimestamp": "2036-01-01T00:00:00Z"},  # after the last entry
    ]
    sent = []
    for number, options in enumerate(starts):
        pipeline.options = options
        sent += live.lines(live.session_id, 10 * number, 10)
        pipeline.run()
        assert pipeline.lines() == sent, options
    assert [len(rows) for rows in pipeline.taken.values()] == [12, 10, 10, 10, 10, 10]


@pytest.mark.conformance("P-53", "P-56")
def test_available_now_after_a_crash_ends_at_the_tip_that_it_saw_though_more_is_written(pipeline, live):
    """The planned micro-batch comes first, and as it was: with the limit of then."""
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
    assert pipeline.run() == [15]
    assert pipeline.lines() == sent + late
