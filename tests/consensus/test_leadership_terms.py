"""Which term wrote which part of the log."""

import pytest

from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms


def terms(*entries):
    return LeadershipTerms(LeadershipTerm(*entry) for entry in entries)


@pytest.mark.conformance("C-324")
def test_a_new_term_closes_the_one_before_it():
    log = terms((0, 0, -1))
    log.record(1, 96)

    assert list(log) == [(0, 0, 96), (1, 96, -1)]
    assert log.last_term_id == 1


@pytest.mark.conformance("C-327")
def test_terms_that_nobody_led_are_filled_in_as_empty_ones():
    log = terms((0, 0, -1))
    log.record(3, 96)

    assert list(log) == [(0, 0, 96), (1, 96, 96), (2, 96, 96), (3, 96, -1)]


def test_the_first_term_of_a_log_has_empty_ones_before_it():
    log = terms()
    log.record(2, 0)

    assert list(log) == [(0, 0, 0), (1, 0, 0), (2, 0, -1)]


def test_the_end_of_a_known_term_can_be_set_and_the_last_one_opened_again():
    log = terms((0, 0, -1))
    log.record(0, 0, 64)
    assert list(log) == [(0, 0, 64)]

    log.record(0, 0)
    assert list(log) == [(0, 0, -1)]


def test_a_truncation_drops_the_terms_that_are_not_there_any_more():
    log = terms((0, 0, 96), (1, 96, 200), (2, 200, 200), (3, 200, -1))
    log.truncate(150, first_removed_term_id=2)
    assert list(log) == [(0, 0, 96), (1, 96, 150)]

    log = terms((0, 0, 96), (1, 96, 200), (2, 200, -1))
    log.truncate(64, first_removed_term_id=2)
    assert list(log) == [(0, 0, 64)]


def test_a_term_is_found_by_its_id():
    log = terms((4, 32, 96), (5, 96, -1))

    assert log.find(4) == (4, 32, 96)
    assert log.find(3) is None
    assert log.find(6) is None
    assert log.end_of(log.find(4), 128) == 96
    assert log.end_of(log.find(5), 128) == 128


@pytest.mark.parametrize("entries", [[(0, 0, 96), (2, 96, -1)], [(0, 64, 96), (1, 32, -1)]])
def test_terms_with_a_gap_or_out_of_order_are_a_bug(entries):
    with pytest.raises(AssertionError):
        terms(*entries)
