"""Which term wrote which part of a log: entries of terms as values (parts of group N)."""

import pytest

from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from tests.consensus.language import a_log

OPEN = -1


def entries(terms: LeadershipTerms) -> list[tuple[int, int, int]]:
    return [tuple(term) for term in terms]


@pytest.mark.conformance("C-324")
def test_a_new_term_closes_the_one_before_it_at_its_base():
    terms = a_log(400, 1000)

    terms.record(2, 960)

    assert entries(terms) == [(0, 0, 400), (1, 400, 960), (2, 960, OPEN)]


@pytest.mark.conformance("C-327")
def test_terms_that_nobody_led_are_filled_in_as_empty_ones():
    terms = a_log(400)

    terms.record(4, 400)

    assert entries(terms) == [(0, 0, 400), (1, 400, 400), (2, 400, 400), (3, 400, 400), (4, 400, OPEN)]


@pytest.mark.conformance("C-327")
def test_so_are_those_before_the_first_one_of_an_empty_log():
    terms = LeadershipTerms()

    terms.record(2, 0)

    assert entries(terms) == [(0, 0, 0), (1, 0, 0), (2, 0, OPEN)]


def test_a_log_that_begins_with_a_snapshot_has_no_terms_before_it():
    terms = LeadershipTerms()

    terms.record(7, 5000)

    assert entries(terms) == [(7, 5000, OPEN)]
    assert terms.find(6) is None


def test_of_a_known_term_only_the_end_is_set():
    terms = a_log(400, 1000)

    terms.record(1, 400, 1000)
    assert entries(terms) == [(0, 0, 400), (1, 400, 1000)]
    terms.record(1, 400)
    assert entries(terms)[-1] == (1, 400, OPEN), "bytes are about to follow"


@pytest.mark.conformance("C-325")
def test_a_known_term_cannot_begin_elsewhere():
    with pytest.raises(AssertionError):
        a_log(400, 1000).record(1, 368)


@pytest.mark.parametrize(
    ("position", "first_removed", "left"),
    [
        (700, 2, [(0, 0, 400), (1, 400, 700)]),
        (400, 2, [(0, 0, 400), (1, 400, 400)]),
        (400, 1, [(0, 0, 400)]),
        (100, 2, [(0, 0, 100)]),
        (0, 0, []),
    ],
)
def test_a_cut_removes_terms_and_closes_the_last_that_is_left(position, first_removed, left):
    terms = a_log(400, 1000, 1600)

    terms.truncate(position, first_removed)

    assert entries(terms) == left


def test_terms_have_no_gaps_and_never_go_back():
    for second in (LeadershipTerm(2, 400, OPEN), LeadershipTerm(1, 368, OPEN)):
        with pytest.raises(AssertionError):
            LeadershipTerms([LeadershipTerm(0, 400, 400), second])


def test_the_term_after_another_is_told_with_its_end():
    terms = a_log(400, 1000)

    assert terms.after(-1) == (0, 0, 400)
    assert terms.after(0) == (1, 400, OPEN)
    assert terms.after(0, 1000) == (1, 400, 1000)
    assert terms.after(1) == (-1, -1, -1)
