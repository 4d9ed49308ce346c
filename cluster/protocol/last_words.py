"""Of schema 1111, in a file: what a member says last, when an operator closes its directory for good."""

from cluster.protocol.identity import ClusterIdentity
from cluster.protocol.link import LINK_SCHEMA
from cluster.protocol.link_histories import TermEvent, TermEvents
from cluster.protocol.sbe import Bool32, Message, i32, i64


class LastWords(Message, template_id=43, schema=LINK_SCHEMA):
    """In closed.dat: what those need who give the cluster other members.

    ``candidate_term_id`` is the highest term that it voted or stood for. Its log ends at ``log_position``, in
    ``leadership_term_id`` (-1: it has none), which begins at ``term_base_log_position``. It has the terms'
    ``events`` from ``begin_position`` on, and is committed to ``committed_position``, as far as is known.
    ``cluster`` is one identity, with the ids of all members.
    """

    candidate_term_id: i64
    leadership_term_id: i64
    log_position: i64
    term_base_log_position: i64
    begin_position: i64
    committed_position: i64
    member_id: i32
    knows_promises: Bool32
    is_log_whole: Bool32
    cluster: tuple[ClusterIdentity, ...] = ()
    events: tuple[TermEvent, ...] = ()

    @property
    def identity(self) -> ClusterIdentity:
        return self.cluster[0]

    @property
    def history(self) -> TermEvents:
        """As it would report to the other members."""
        return TermEvents(
            self.begin_position,
            self.committed_position,
            self.leadership_term_id,
            self.term_base_log_position,
            self.events,
        )

    @property
    def log_end(self) -> tuple[int, int]:
        """Term, then position: the best log is the one whose end is the highest."""
        return self.leadership_term_id, self.log_position
