"""Whether two logs are of one history, by the NewLeadershipTermEvents in them.

    log of A     0 ────── 1 ────── 3 ──────        one history: 2 is the tail of a dead leader, and is cut
    log of B     0 ────── 1 ── 2 ─                 as log_matching.py says

    log of A     0 ────── 1a ─────                 two histories: a term has one leader, who writes its event
    log of B     0 ────── 1b ─────                 once

    log of A     0 ── 1 ── 2 ─────                 two histories: 1 was committed, so whoever led later had it
    log of B     0 ── 3 ──────────

    log of A     0 ────── 1 ═════════              two histories: ═ was committed in term 1, so whoever led
    log of B     0 ────── 1 ── 2 ─                 later had it, also if 2 is only recorded, without its event

An event is known to be committed if it lies below a commit position, or before a later event of the same log:
a leader writes its event only after a majority has everything before it. A log's last event proves nothing,
since it may be the tail of a leader that died. Of the terms in recording.log that have no bytes, only the
last is sent, and only its base proves something: the leader that recorded it, or a later one that filled it
in, had the votes of a majority whose logs ended there. So nothing after that base is committed in an earlier
term.

A member that sends no events, or has none at the place in question (the head of its log was purged), is not
of another history.
"""

from collections.abc import Mapping
from operator import lt

from cluster.consensus.context import NULL_VALUE
from cluster.protocol.link_histories import TermEvent, TermEvents

EVENTS_MAX = 1024  # the last ones, of a log with more


def fault_of_events(reported: TermEvents) -> str | None:
    """Why no log has these events; None when one can."""
    if len(reported.events) > EVENTS_MAX:
        return f"{len(reported.events)} events, at most {EVENTS_MAX} are told"
    before = (-1, reported.begin_position - 1)
    for event in reported.events:
        place = (event.leadership_term_id, event.term_base_log_position)
        if not (place[0] > before[0] and place[1] > before[1]):
            return f"term {place[0]} at {place[1]} after term {before[0]} at {before[1]}"
        before = place
    recorded = (reported.recorded_term_id, reported.recorded_term_base)
    if reported.events and reported.recorded_term_id != NULL_VALUE and any(map(lt, recorded, before)):
        return f"term {recorded[0]} is recorded at {recorded[1]} after term {before[0]} at {before[1]}"
    return None


def history_difference(own: TermEvents, other: TermEvents) -> str | None:
    """Where two logs show to be of two histories: position, term, both values; None if nowhere. Symmetric."""
    theirs = {event.leadership_term_id: event for event in other.events}
    for event in own.events:
        there = theirs.get(event.leadership_term_id)
        if there is not None and there != event:
            return (
                f"term {event.leadership_term_id} begins at position {event.term_base_log_position} here, "
                f"{_by(event)}, and at position {there.term_base_log_position} there, {_by(there)}"
            )
    if (found := _left_out(own, other)) is not None:
        return _reported_left_out(*found, "here", "there")
    if (found := _left_out(other, own)) is not None:
        return _reported_left_out(*found, "there", "here")
    return _cut_off(own, other, "here", "there") or _cut_off(other, own, "there", "here")


def _cut_off(one: TermEvents, other: TermEvents, where: str, elsewhere: str) -> str | None:
    """Whether ``other`` has a term later than all of ``one``, that begins before what is committed there."""
    if not one.events:
        return None
    last_term_id = max(one.events[-1].leadership_term_id, one.recorded_term_id)
    terms = [
        *((event.leadership_term_id, event.term_base_log_position, _by(event)) for event in other.events),
        (other.recorded_term_id, other.recorded_term_base, "without an entry yet"),
    ]
    for term_id, base, what in terms:
        if term_id > last_term_id and base < one.committed_position:
            return (
                f"the log is committed to position {one.committed_position} {where}, in term "
                f"{last_term_id}; {elsewhere} term {term_id} begins before that, at position {base}, {what}"
            )
    return None


def _left_out(one: TermEvents, other: TermEvents) -> tuple[TermEvent, TermEvent] | None:
    """The first event that ``one`` knows to be committed and ``other`` has not, and a later one of that."""
    known = {event.leadership_term_id for event in other.events}
    for number, event in enumerate(one.events):
        is_committed = number < len(one.events) - 1 or event.term_base_log_position < one.committed_position
        is_there = event.leadership_term_id in known or event.term_base_log_position < other.begin_position
        if is_committed and not is_there:
            for later in other.events:
                if later.leadership_term_id > event.leadership_term_id:
                    return event, later
    return None


def _reported_left_out(event: TermEvent, later: TermEvent, where: str, elsewhere: str) -> str:
    return (
        f"term {event.leadership_term_id} at position {event.term_base_log_position} is committed {where}, "
        f"{_by(event)}; {elsewhere} it is missing, before term {later.leadership_term_id} at position "
        f"{later.term_base_log_position}, {_by(later)}"
    )


def _by(event: TermEvent) -> str:
    return (
        f"by leader {event.leader_member_id} with log session id {event.log_session_id} "
        f"at time {event.timestamp}"
    )


def majority_elsewhere(
    own: TermEvents, reported: Mapping[int, TermEvents], quorum_threshold: int
) -> list[int] | None:
    """So many others that differ from this log, and not from each other; None where there are not."""
    others = {
        id_: events for id_, events in sorted(reported.items()) if history_difference(own, events) is not None
    }
    for events in others.values():
        agreeing: dict[int, TermEvents] = {}
        for id_, candidate in others.items():
            if history_difference(events, candidate) is None and not any(
                history_difference(known, candidate) for known in agreeing.values()
            ):
                agreeing[id_] = candidate
        if len(agreeing) >= quorum_threshold:
            return list(agreeing)
    return None
