"""Two lists of terms' events: whether they can be of one history (``consensus/histories.py``)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.consensus.histories import EVENTS_MAX, fault_of_events, history_difference, majority_elsewhere
from cluster.protocol import decode
from cluster.protocol.link_histories import TermEvent, TermEvents

LENGTH = 96  # of an event's frame


def event(term_id, base, leader=0, session=7, timestamp=1000):
    return TermEvent(term_id, base, timestamp, leader, session)


def a_log(*events, committed=0, begin=0, recorded=(-1, -1)):
    return TermEvents(begin, committed, *recorded, events)


def differ(one, other):
    """Both sides come to the same."""
    found, mirrored = history_difference(one, other), history_difference(other, one)
    assert (found is None) == (mirrored is None)
    return found


A, B, C = event(0, 0), event(1, 400), event(2, 800)


@pytest.mark.parametrize(
    "changed",
    [{"term_base_log_position": 416}, {"leader_member_id": 1}, {"log_session_id": 8}, {"timestamp": 9}],
)
def test_a_term_has_one_event(changed):
    found = differ(a_log(A, B), a_log(A, B.replace(**changed)))

    assert (
        "term 1 begins at position 400 here, by leader 0 with log session id 7 at time 1000, and at" in found
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (a_log(), a_log(A)),
        (a_log(A), a_log(A, B)),
        (a_log(A, C), a_log(A, C)),
        (a_log(A, B), a_log(A, C)),
        (a_log(A, B, committed=400), a_log(A, event(3, 600), committed=600)),
        (a_log(A, B), a_log(A, committed=400)),
    ],
    ids=["nothing", "behind", "a term that nobody led", "a tail", "two tails", "a tail beyond all commits"],
)
def test_a_log_that_is_behind_or_ends_in_a_tail_is_of_the_same_history(one, other):
    assert differ(one, other) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (a_log(A, B, committed=400 + LENGTH), a_log(A, C)),
        (a_log(A, B, event(2, 900)), a_log(A, event(3, 900))),
        (a_log(A, B, committed=496), a_log(A, event(3, 400), event(4, 900), committed=996)),
    ],
    ids=["by a commit position", "by a later term", "by both"],
)
def test_who_led_later_had_what_was_committed(one, other):
    found = differ(one, other)

    assert found.startswith("term 1 at position 400 is committed here, by leader 0")
    assert "there it is missing, before term" in found


@pytest.mark.parametrize(
    "other",
    [a_log(A, C.replace(term_base_log_position=600)), a_log(C, begin=800), a_log(A, C, event(3, 900))],
    ids=["a later term", "of a purged log", "more of them"],
)
def test_a_later_term_does_not_begin_before_what_is_committed(other):
    found = differ(a_log(A, committed=896), other)

    assert found.startswith("the log is committed to position 896 here, in term 0; there term 2 begins ")
    assert differ(a_log(A, committed=600), other) is None


def test_a_term_that_is_only_recorded_counts_by_where_it_begins():
    """A copy that led alone may have been killed before it wrote its first entry."""
    copy = a_log(A, recorded=(2, 800))

    found = differ(a_log(A, committed=896), copy)
    assert found.endswith("there term 2 begins before that, at position 800, without an entry yet")
    assert differ(a_log(A, committed=800), copy) is None
    assert differ(a_log(A, committed=896, recorded=(3, 896)), copy) is None  # committed in term 3
    assert differ(a_log(A, C, committed=896), copy.replace(recorded_term_base=700)) is None


def test_the_head_of_a_log_that_was_purged_proves_nothing():
    whole = a_log(A, B, C, committed=900)

    assert differ(whole, a_log(event(3, 1200), begin=1000)) is None
    assert differ(whole, a_log(event(3, 1200), begin=801)) is None
    assert "term 2 at position 800 is committed" in differ(whole, a_log(event(3, 1200), begin=800))


def test_a_majority_of_others_agrees_on_one_other_history():
    own, other, third = a_log(A, B), a_log(A, event(1, 400, 1)), a_log(A, event(1, 400, 2))

    assert majority_elsewhere(own, {1: other, 2: other}, 2) == [1, 2]
    assert majority_elsewhere(own, {1: other, 2: third}, 2) is None
    assert majority_elsewhere(own, {1: other, 2: own}, 2) is None
    assert majority_elsewhere(own, {1: third, 2: other, 3: other, 4: other}, 3) == [2, 3, 4]
    assert majority_elsewhere(own, {}, 1) is None


def test_a_log_that_two_histories_go_on_from_makes_no_majority_of_both():
    own, begin = a_log(event(0, 0, 2)), a_log(A)
    told = {1: begin, 2: a_log(A, B), 3: a_log(A, event(1, 400, 1))}

    assert majority_elsewhere(own, told, 2) == [1, 2]
    assert majority_elsewhere(own, told, 3) is None


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        (a_log(A, A), "term 0 at 0 after term 0 at 0"),
        (a_log(B, event(2, 400)), "term 2 at 400 after term 1 at 400"),
        (a_log(A, begin=32), "term 0 at 0 after term -1 at 31"),
        (a_log(event(-1, 0)), "term -1 at 0"),
        (a_log(A, B, recorded=(0, 400)), "term 0 is recorded at 400 after term 1 at 400"),
        (a_log(A, B, recorded=(2, 399)), "term 2 is recorded at 399 after term 1 at 400"),
        (a_log(*(event(i, i * 96) for i in range(EVENTS_MAX + 1))), "1025 events, at most 1024 are told"),
    ],
)
def test_a_list_that_no_log_has_is_not_taken(told, fault):
    assert fault in fault_of_events(told)


def test_the_longest_list_goes_over_a_link_and_back():
    told = a_log(*(event(i, i * 96, i % 3, -i) for i in range(EVENTS_MAX)), committed=5, begin=0)

    assert fault_of_events(told) is None
    assert decode(told.encode()) == told


# ---- what can happen to one history


@st.composite
def histories(draw):
    """Terms of one cluster: of some the event was committed, of others it stayed a tail of its leader.

    Others were recorded without an event, by a leader that may not have had all of the term before: what it
    lacked was committed later.
    """
    position, committed, tails, recorded = 0, [], [], []
    for term_id in range(draw(st.integers(1, 8))):
        new = event(term_id, position, draw(st.integers(0, 2)), draw(st.integers(-9, 9)), 1000 + term_id)
        match draw(st.sampled_from(["committed", "committed", "tail", "recorded", "not led"])):
            case "committed":
                committed.append(new)
                position += LENGTH * draw(st.integers(1, 4))
            case "tail":
                tails.append((len(committed), new))
            case "recorded" if committed:
                base = draw(st.integers(committed[-1].term_base_log_position + LENGTH, position))
                recorded.append((len(committed), (term_id, base)))
    return committed, tails, recorded, position


@st.composite
def logs_of(draw, history):
    """A member's log in it: as far as it has come, with a tail or without, its head purged or not."""
    committed, tails, recorded, end = history
    count = draw(st.integers(0, len(committed)))
    events = committed[:count]
    reached = end if count == len(committed) else committed[count].term_base_log_position
    own_recorded, of_this = (-1, -1), [term for number, term in recorded if number == count]
    if count < len(committed) and draw(st.booleans()):  # what it has is known to be committed in that term
        own_recorded = (committed[count].leadership_term_id, reached)
    elif of_this and draw(st.booleans()):
        own_recorded = draw(st.sampled_from(of_this))
        reached = min(base for term_id, base in of_this if term_id >= own_recorded[0])
    elif of_this:  # what these lacked was not committed in the last term that it knows
        reached = min(base for _, base in of_this)
    elif own := [tail for number, tail in tails if number == count and (not events or tail > events[-1])]:
        events = [*events, draw(st.sampled_from(own))]
    begin = draw(st.integers(0, 1)) * draw(st.integers(0, end))
    return a_log(
        *(e for e in events if e.term_base_log_position >= begin),
        committed=draw(st.integers(0, reached)),
        begin=begin,
        recorded=own_recorded,
    )


@given(histories().flatmap(lambda h: st.lists(logs_of(h), min_size=2, max_size=4)))
def test_members_of_one_cluster_are_never_of_two_histories(logs):
    for one in logs:
        for other in logs:
            assert differ(one, other) is None


@given(histories(), st.data())
def test_two_that_went_on_from_one_place_are_found_out(history, data):
    """Each commits two terms of its own after it: whatever their numbers."""
    committed, _, _, end = history
    first = len(committed) + 8
    one, other = (
        [
            event(term_id, end + LENGTH * number, leader, session=leader)
            for number, term_id in enumerate(
                sorted(data.draw(st.sets(st.integers(first, first + 6), min_size=2, max_size=2)))
            )
        ]
        for leader in (0, 1)
    )

    assert differ(a_log(*committed, *one), a_log(*committed, *other)) is not None
