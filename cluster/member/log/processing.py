"""The committed log into the replicated state, on every member (Aeron: LogAdapter, ConsensusModuleAgent).

recording ── LogAdapter ── session messages ──▶ session table, by a kernel
                 └──────── other entries ─────▶ ReplicatedState.apply ──▶ counters, snapshots
commit-pos after it
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cluster.archive.log_cursor import LogSource
from cluster.archive.recording import Recording
from cluster.consensus.replica import ReplicatedState
from cluster.counters import Counter
from cluster.errors import AgentTermination, RemoteProtocolError
from cluster.member.log.adapter import LogAdapter
from cluster.protocol import decode
from cluster.protocol.enums import ClusterAction, ConsensusModuleState
from cluster.protocol.log import ClusterActionRequest, NewLeadershipTermEvent


class ProcessedLog(Protocol):
    """The log of a member, or of a standby."""

    @property
    def recording(self) -> Recording | None: ...

    def commit(self, position: int) -> None:
        """It is processed up to here."""


@dataclass(eq=False)
class LogProcessing:
    """``position``: how far the log is processed, which is the commit position between two turns."""

    _log: ProcessedLog
    _replica: ReplicatedState
    _leadership_term_id: Counter
    _on_module_changed: Callable[[ConsensusModuleState], None]  # gets the state before
    _on_snapshot: Callable[[int, int], None]  # gets position and time of its action

    def __post_init__(self) -> None:
        self.adapter = LogAdapter(self, self._replica.sessions.table)

    @property
    def position(self) -> int:
        return self.adapter.position

    def start(self, position: int) -> None:
        """Everything before ``position`` is processed, by a snapshot."""
        self.adapter.start(position)

    def process(self, limit: int, length: int = 1) -> int:
        """Process about ``length`` bytes up to ``limit``. Raises LogDamaged, AgentTermination."""
        recording, adapter = self._log.recording, self.adapter
        if recording is None or not self._replica.module.reads_log:
            return 0
        limit = min(limit, recording.append_position)
        if adapter.position >= limit:
            return 0
        moved = adapter.poll(recording, limit)
        while moved < length and adapter.position < limit and not adapter.is_stopped:
            moved += adapter.poll(recording, limit)
        self._replica.drop_logged_service_messages()
        self._log.commit(adapter.position)
        return moved

    def count(self, log: LogSource, commit_position: int) -> None:
        """On a leader, which acts on its entries when it appends them: only count what is committed."""
        adapter = self.adapter
        while adapter.position < commit_position:
            adapter.poll(log, commit_position, is_applied=False)

    def on_log_message(self, message: bytes, log_position: int) -> bool:
        """Apply an entry; True ends the poll. Raises AgentTermination for what this member cannot read."""
        try:
            entry = decode(message)
        except RemoteProtocolError as error:
            raise AgentTermination(f"the log entry that ends at {log_position}: {error}") from error
        before = self._replica.module.state
        action = self._replica.apply(entry, log_position)
        if isinstance(entry, NewLeadershipTermEvent):
            self._leadership_term_id.set(entry.leadership_term_id)
        if not isinstance(entry, ClusterActionRequest):
            return False
        if action is not None:
            self._on_module_changed(before)
        if action is ClusterAction.SNAPSHOT:
            self._on_snapshot(log_position, entry.timestamp)
        return True
