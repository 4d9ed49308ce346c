"""Of schema 1111, between members: the leadership terms in a log."""

from cluster.protocol.link import LINK_SCHEMA
from cluster.protocol.sbe import Composite, Message, i32, i64


class TermEvent(Composite):
    """A NewLeadershipTermEvent of a log. A term has one leader, who writes it once."""

    leadership_term_id: i64
    term_base_log_position: i64
    timestamp: i64
    leader_member_id: i32
    log_session_id: i32


class TermEvents(Message, template_id=39, schema=LINK_SCHEMA):
    """The NewLeadershipTermEvents in the sender's log: all of them from ``begin_position`` on.

    When a link comes up, before all else, and again when one more is there or is committed.
    ``committed_position`` is what the sender knows to be committed; ``recorded_term_id`` the last term of its
    recording.log, -1 for none, which may have no event yet. A member of 0.1 steps over it.
    """

    begin_position: i64
    committed_position: i64
    recorded_term_id: i64 = -1
    recorded_term_base: i64 = -1
    events: tuple[TermEvent, ...] = ()
