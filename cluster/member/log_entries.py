"""Log entries that are no session messages, as members that do not lead act on them (Aeron: LogAdapter)."""

from typing import TYPE_CHECKING

from cluster.errors import AgentTermination, RemoteProtocolError
from cluster.protocol import decode
from cluster.protocol.enums import ClusterAction
from cluster.protocol.log import ClusterActionRequest, NewLeadershipTermEvent

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class LogEntries:
    """What the log adapter calls: the replicated state changes, and the member shows it."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent

    def on_log_message(self, message: bytes, log_position: int) -> bool:
        """Apply the entry that ends at ``log_position``; True ends the poll.

        Raises AgentTermination for what this member cannot read.
        """
        agent = self._agent
        try:
            entry = decode(message)
        except RemoteProtocolError as error:
            raise AgentTermination(f"the log entry that ends at {log_position}: {error}") from error
        state = agent.replica.module.state
        action = agent.replica.apply(entry, log_position)
        if isinstance(entry, NewLeadershipTermEvent):
            agent.counters.leadership_term_id.set(entry.leadership_term_id)
        if not isinstance(entry, ClusterActionRequest):
            return False
        if action is not None:
            agent.on_module_state_changed(state)
        if action is ClusterAction.SNAPSHOT:
            agent.snapshots.on_read(log_position, entry.timestamp)
        return True
