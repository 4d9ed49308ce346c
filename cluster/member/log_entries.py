"""Log entries that are no session messages, as members that do not lead act on them."""

from typing import TYPE_CHECKING

from cluster.errors import AgentTermination, RemoteProtocolError
from cluster.protocol import decode
from cluster.protocol.enums import ClusterAction, ClusterTimeUnit, ConsensusModuleState
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class LogEntries:
    """What the log adapter calls."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent

    def on_log_message(self, message: bytes, log_position: int) -> bool:
        agent = self._agent
        try:
            entry = decode(message)
        except RemoteProtocolError as error:
            raise AgentTermination(f"the log entry that ends at {log_position}: {error}") from error
        match entry:
            case TimerEvent():
                agent.cluster_time = max(agent.cluster_time, entry.timestamp)
                agent.timers.on_replay_timer_event(entry.correlation_id, entry.timestamp, log_position)
            case SessionOpenEvent():
                agent.cluster_time = max(agent.cluster_time, entry.timestamp)
                agent.sessions.on_replay_session_open(entry, log_position)
            case SessionCloseEvent():
                agent.cluster_time = max(agent.cluster_time, entry.timestamp)
                agent.sessions.on_replay_session_close(entry)
            case NewLeadershipTermEvent():
                self._on_new_leadership_term(entry, log_position)
            case ClusterActionRequest():
                self._on_action(entry, log_position)
                return True
        return False

    def _on_new_leadership_term(self, event: NewLeadershipTermEvent, log_position: int) -> None:
        agent = self._agent
        context = agent.context
        time_unit = ClusterTimeUnit.MILLIS if event.time_unit is None else event.time_unit
        if time_unit is not context.time_unit:
            raise AgentTermination(
                f"the log at {log_position} counts time in {time_unit.name}, "
                f"this member in {context.time_unit.name}"
            )
        if event.app_version >> 16 != context.app_version >> 16:
            raise AgentTermination(
                f"the log at {log_position} is of app version {event.app_version:#x}, "
                f"this member of {context.app_version:#x}"
            )
        agent.cluster_time = max(agent.cluster_time, event.timestamp)
        agent.leadership_term_id = event.leadership_term_id
        agent.counters.leadership_term_id.set(event.leadership_term_id)

    def _on_action(self, request: ClusterActionRequest, log_position: int) -> None:
        agent = self._agent
        agent.cluster_time = max(agent.cluster_time, request.timestamp)
        if request.leadership_term_id != agent.leadership_term_id:
            return
        match request.action:
            case ClusterAction.SUSPEND:
                agent.set_module_state(ConsensusModuleState.SUSPENDED)
            case ClusterAction.RESUME:
                agent.set_module_state(ConsensusModuleState.ACTIVE)
            case ClusterAction.SNAPSHOT if not request.flags:
                agent.snapshots.on_read(log_position, request.timestamp)
