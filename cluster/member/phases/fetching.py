"""A member whose election rests while it fetches another member's snapshot: it has no say meanwhile."""

from cluster.consensus.election import Election
from cluster.errors import ClusterError
from cluster.member.disk.snapshot_replication import Answer, SnapshotAndLog
from cluster.member.phase import Fetch, Next, Phase, PhaseName, Resume
from cluster.member.phases.electing import Electing
from cluster.member.phases.election_actions import ElectionPorts
from cluster.protocol.sbe import Message


class Fetching(Phase):
    """Exists until everything is there, or is given up: then ``electing`` goes on."""

    name = PhaseName.FETCHING

    def __init__(self, electing: Electing, replication: SnapshotAndLog, ports: ElectionPorts) -> None:
        self.electing = electing
        self._replication = replication
        self._ports = ports

    @property
    def source_id(self) -> int:
        """The member that is asked for its snapshot."""
        return self._replication.member_id

    @property
    def election(self) -> Election:
        return self.electing.election

    def do_work(self) -> Next | None:
        self._ports.turn.work_count += self._replication.do_work()
        return self._next()

    def on_message(self, member_id: int, message: Message) -> Next | None:
        """Answers to what was asked for, and about the log; what concerns the election is passed over."""
        if not isinstance(message, Answer):
            return self._stay(self.electing.on_log_message(member_id, message))
        self._replication.on_message(member_id, message)
        return self._next()

    def _next(self) -> Next | None:
        replication = self._replication
        if replication.error is not None:
            return self.on_failure(replication.error)
        if not replication.is_over:
            return None
        self._ports.without_snapshot.add(replication.member_id)
        return Resume()

    def on_failure(self, error: ClusterError) -> Next | None:
        self._replication.discard()
        return self.electing.on_failure(error)

    def on_log_fault(self, error: ClusterError) -> Next | None:
        return self.on_failure(error)

    def on_link_up(self, member_id: int) -> Next | None:
        return self._stay(self.electing.on_link_up(member_id))

    def on_link_down(self, member_id: int) -> Next | None:
        if self._replication.member_id != member_id:
            return self._stay(self.electing.on_link_down(member_id))
        broken = f"the link to member {member_id} broke, its snapshot is not complete"
        self._replication.fail(ClusterError(broken))
        step = self._next()
        further = self.electing.on_link_down(member_id)
        assert further is None, "an election that begins again waits for its next cycle"
        return step

    def on_member_gone(self, member_id: int) -> Next | None:
        return self._stay(self.electing.on_member_gone(member_id))

    def _stay(self, step: Next | None) -> Next | None:
        """The next step of the paused election, except a second fetch: one snapshot at a time."""
        if isinstance(step, Fetch):
            return None
        if isinstance(step, Resume):
            self._replication.discard()  # the election has failed meanwhile, and starts again
        return step
