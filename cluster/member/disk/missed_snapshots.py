"""A follower whose services miss snapshots takes the leader's, so that its log keeps within its bound.

A follower has to record what the leader sends: a majority may need it. Once its log is full, and it has
missed two of the snapshots that the leader asks for, it fetches the leader's newest one beside its log and
starts again from it. Then the log before it goes; what it has acknowledged stays.
"""

from cluster.member.disk.snapshot_replication import ReplicationPorts, SnapshotBesideLog
from cluster.member.log.room import LogRoom
from cluster.member.status import MemberStatus
from cluster.protocol.sbe import Message


class MissedSnapshots:
    """Looked after by the slow tick of an established member; raises MemberRestart."""

    def __init__(self, room: LogRoom, status: MemberStatus, ports: ReplicationPorts) -> None:
        self._room = room
        self._status = status
        self._ports = ports
        self._turn = ports.turn
        self._replication: SnapshotBesideLog | None = None
        self._next_ns = 0

    @property
    def is_fetching(self) -> bool:
        """Whether one is asked for, or on its way."""
        return self._replication is not None

    def do_work(self) -> int:
        """Ask, and ask on; give up where the leader is another or has none that is newer."""
        replication, leader_id = self._replication, self._status.leader_member_id
        if replication is None:
            if (
                self._status.is_following
                and self._room.misses_snapshots
                and self._turn.now_ns >= self._next_ns
            ):
                self._replication = SnapshotBesideLog(leader_id, self._ports)
            return 0
        if not replication.is_over and replication.member_id == leader_id:
            return replication.do_work()
        replication.discard()
        self._replication = None
        self._next_ns = self._turn.now_ns + self._ports.context.leader_heartbeat_timeout_ns
        return 0

    def on_message(self, member_id: int, message: Message) -> None:
        """What a member sends; everything but an answer is passed over."""
        if self._replication is not None:
            self._replication.on_message(member_id, message)
