"""A standby reports its newest snapshot to the members, each until it has heard of it (StandbySnapshot).

taken ──▶ each member: StandbySnapshot ──▶ the connection is closed: taken
                                       ├─▶ SessionEvent: refused, which is told
                                       └─▶ lost, or nothing in time: again after a pause
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.archive.recording_log import RecordingLog
from cluster.backup.agent import BackupContext
from cluster.errors import ClusterError
from cluster.protocol.backup import StandbySnapshot, StandbySnapshotRecording
from cluster.protocol.session import SessionEvent
from cluster.protocol.streams import CONSENSUS
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from cluster.reader.member_request import MemberRequest
from cluster.transport.log_client import Unreachable

# Begins to report to one member.
Announce = Callable[[StandbySnapshot], MemberRequest]


class Announcements:
    """``members``: by the name for people, what notifies it; ``endpoint``: where the snapshots are served."""

    def __init__(
        self,
        members: dict[str, Announce],
        recording_log: RecordingLog,
        endpoint: str,
        service_count: int,
        context: BackupContext,
        *,
        on_event: Callable[[str], None],
        on_error: Callable[[ClusterError], None],
    ) -> None:
        self._recording_log = recording_log
        self._endpoint = endpoint
        self._service_count = service_count
        self._on_event = on_event
        self._members = [_Member(name, announce, context, on_error) for name, announce in members.items()]
        self.announce()

    def announce(self) -> None:
        """Report the newest snapshot that is here to everybody, if there is one."""
        newest = next(self._recording_log.snapshot_sets(self._service_count), None)
        if newest is None:
            return
        recordings = tuple(StandbySnapshotRecording(*entry[:6], self._endpoint) for entry in reversed(newest))
        self._on_event(f"announces the snapshot at {newest[0].log_position}")
        for member in self._members:
            member.say(recordings)

    def do_work(self, now_ns: int) -> int:
        """Take what is on its way further; returns how much was done."""
        return sum(member.do_work(now_ns) for member in self._members)

    def close(self) -> None:
        for member in self._members:
            member.close()


@dataclass(slots=True)
class _Member:
    _name: str
    _announce: Announce
    _context: BackupContext
    _on_error: Callable[[ClusterError], None]
    _recordings: Sequence[StandbySnapshotRecording] = ()  # not reported yet
    _request: MemberRequest | None = None
    _due_ns: int = 0  # of the next try, or of the present one's end

    def say(self, recordings: Sequence[StandbySnapshotRecording]) -> None:
        self.close()
        self._recordings = recordings
        self._due_ns = 0

    def do_work(self, now_ns: int) -> int:
        if not self._recordings or (self._request is None and now_ns < self._due_ns):
            return 0
        if self._request is None:
            self._due_ns = now_ns + self._context.response_timeout_ns
            self._request = self._announce(
                StandbySnapshot(
                    now_ns, CLIENT_PROTOCOL_VERSION, CONSENSUS, tuple(self._recordings), "standby"
                )
            )
            return 1
        try:
            answer = self._request.poll()
        except Unreachable as error:
            if self._request.is_sent:
                self._end()
            else:
                self._again(now_ns, error)
            return 1
        if isinstance(answer, SessionEvent):
            what = f"refuses the standby's snapshot: {answer.code.name}: {answer.detail}"
            self._on_error(ClusterError(f"{self._name} {what}"))
            self._end()
            return 1
        if now_ns >= self._due_ns:
            self._again(now_ns, ClusterError(f"{self._name}: no answer to the standby's announcement"))
            return 1
        return 0

    def _end(self) -> None:
        self.close()
        self._recordings = ()

    def _again(self, now_ns: int, error: ClusterError) -> None:
        self.close()
        self._on_error(error)
        self._due_ns = now_ns + self._context.cool_down_interval_ns

    def close(self) -> None:
        if self._request is not None:
            self._request.close()
            self._request = None
