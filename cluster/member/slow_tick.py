"""What is looked after every 10 ms, in Aeron's order (ConsensusModuleAgent.slowTickWork)."""

from typing import TYPE_CHECKING

from cluster.member.admission import present_leader
from cluster.member.counters import SessionCounters
from cluster.protocol.enums import (
    ClusterAction,
    ClusterActionFlags,
    ClusterControlToggle,
    ConsensusModuleState,
    NodeControlToggle,
)
from cluster.protocol.log import ClusterActionRequest

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class SlowTick:
    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent
        self._replica = agent.replica
        self._next_mark_file_update_ns = 0
        self._session_counters = SessionCounters(agent.counters.file, agent.context.cluster_id)

    def do_work(self) -> int:
        """Take one tick; returns how much was done."""
        agent, sessions = self._agent, self._replica.sessions
        now_ns = agent.now_ns
        work_count = 0
        if now_ns >= self._next_mark_file_update_ns:
            self._next_mark_file_update_ns = now_ns + agent.context.mark_file_update_interval_ns
            if agent.mark_file is not None:
                agent.mark_file.update_activity(agent.now_ms)
        self._session_counters.update(sessions.sessions)
        for member_id in agent.presence.update(now_ns, agent.links.is_stable):
            agent.tell(f"member {member_id} is not there, and is not waited for")

        if self._is_recording_stopped():
            agent.enter_election("log recording stopped")
            work_count += 1
        term_id, leader_id = self._replica.leadership_term_id, agent.leader_member_id
        if sessions.has_pending_work:
            work_count += sessions.send_redirects(term_id, leader_id, now_ns)
            work_count += sessions.send_rejections(term_id, leader_id, now_ns)
        if sessions.clients_kept_until_ns is not None:
            work_count += self._let_go_of_clients(sessions.clients_kept_until_ns)
        if agent.election is not None or agent.waking.is_looking_around:
            return work_count
        if agent.leading is not None:
            work_count += self._as_leader()
        elif agent.following is not None:
            work_count += self._as_follower()
        if agent.election is None and self._replica.module.is_active:
            work_count += self._check_node_toggle()
            work_count += agent.retention.do_work(agent.now_ns, agent.replications.server.last_request_ns)
        return work_count

    def _let_go_of_clients(self, kept_until_ns: int) -> int:
        """Send the clients of a leader that was replaced to the new one, as soon as that is known."""
        agent = self._agent
        term_id, leader_id = present_leader(agent)
        if leader_id == agent.context.member_id or (leader_id < 0 and agent.now_ns < kept_until_ns):
            return 0
        count = self._replica.sessions.let_go_of_clients(term_id, leader_id)
        told = f"member {leader_id} leads" if leader_id >= 0 else "nobody is known to lead in time"
        agent.tell(f"lets go of the clients of {count} sessions: {told}")
        return count

    def _is_recording_stopped(self) -> bool:
        """By a tool, as a rule. In an election it is stopped and begun as that goes on."""
        agent = self._agent
        return (
            agent.election is None
            and self._replica.module.reads_log
            and agent.log.recording is not None
            and not agent.log.recording.is_active
        )

    def _as_leader(self) -> int:
        agent, replica = self._agent, self._replica
        assert agent.leading is not None
        work_count = self._check_control_toggle()
        if replica.module.is_active:
            sessions = replica.sessions
            ids = (replica.leadership_term_id, agent.context.member_id, replica.cluster_time)
            if sessions.pending_count:
                work_count += sessions.process_pending(*ids, agent.now_ns, agent.now_ms)
            before = sessions.timed_out_count
            if agent.leading.is_ingress_read:
                work_count += sessions.check_sessions(*ids)
            if sessions.timed_out_count != before:
                agent.counters.timed_out_clients.set(sessions.timed_out_count)
        elif replica.module.state is ConsensusModuleState.TERMINATING:
            work_count += agent.termination.check_leader()
        # While suspended, too (not so in Aeron): else a leader that hears nobody stays one until resumed.
        return work_count + agent.check_quorum()

    def _as_follower(self) -> int:
        agent = self._agent
        following = agent.following
        assert following is not None
        subscription = agent.subscription
        if subscription is not None and not subscription.is_requested:
            agent.messages.request_log()
        if not self._replica.module.reads_log or agent.termination.is_near:
            return 0
        if following.follower.is_leader_silent(agent.now_ns):
            agent.enter_election("leader heartbeat timeout")
            return 1
        if following.is_log_missing():
            agent.enter_election("the leader is heard, but its log does not come")
            return 1
        return 0

    # ---- what an operator asks for

    def _check_control_toggle(self) -> int:
        agent = self._agent
        toggle = agent.counters.control_toggle
        value = toggle.get()
        if value == ClusterControlToggle.NEUTRAL or value == ClusterControlToggle.INACTIVE:
            return 0
        state = self._replica.module.state
        if state is ConsensusModuleState.ACTIVE:
            if value == ClusterControlToggle.SUSPEND:
                self._append_action(ClusterAction.SUSPEND, ConsensusModuleState.SUSPENDED)
                return 1
            if value == ClusterControlToggle.ABORT:
                agent.termination.begin()
            elif value == ClusterControlToggle.SNAPSHOT:
                self._append_snapshot_action()
            elif value == ClusterControlToggle.SHUTDOWN:
                agent.termination.begin_at(self._append_snapshot_action())
            elif value == ClusterControlToggle.STANDBY_SNAPSHOT:
                self._append_action(ClusterAction.SNAPSHOT, None, flags=ClusterActionFlags.STANDBY_SNAPSHOT)
                toggle.set(ClusterControlToggle.NEUTRAL)
            else:  # RESUME has nothing to resume, and others are none; to leave them would block all
                toggle.set(ClusterControlToggle.NEUTRAL)
            return 1
        if state is ConsensusModuleState.SUSPENDED and value == ClusterControlToggle.RESUME:
            # Nobody could keep alive meanwhile.
            self._replica.sessions.table.touch_all(self._replica.cluster_time)
            self._append_action(ClusterAction.RESUME, ConsensusModuleState.ACTIVE)
            toggle.set(ClusterControlToggle.NEUTRAL)
            return 1
        return 0

    def _append_snapshot_action(self) -> int:
        agent = self._agent
        position = self._append_action(ClusterAction.SNAPSHOT, ConsensusModuleState.SNAPSHOT)
        agent.snapshots.on_appended(position)
        return position

    def _append_action(
        self, action: ClusterAction, state: ConsensusModuleState | None, flags: int = 0
    ) -> int:
        """Append the action; the module is in ``state`` from now on. Returns where its entry ends."""
        agent, replica = self._agent, self._replica
        publication = agent.publication
        assert publication is not None
        request = ClusterActionRequest(replica.leadership_term_id, 0, replica.cluster_time, action, flags)
        end = publication.end_of(len(request.encode()))
        position = publication.append(request.replace(log_position=end).encode())
        if state is not None:
            replica.module.change_by_log(state, position)
            agent.show_module_state()
        agent.tell(f"{action.name} at {position}")
        return position

    def _check_node_toggle(self) -> int:
        agent = self._agent
        toggle = agent.counters.node_control_toggle
        value = toggle.get()
        if value == NodeControlToggle.NEUTRAL or value == NodeControlToggle.INACTIVE:
            return 0
        if value == NodeControlToggle.VALIDATE_RECORDING_LOG:
            agent.snapshots.validate_entries()
        # Nobody keeps snapshots for others here: there are none of standbys to replicate.
        toggle.set(NodeControlToggle.NEUTRAL)
        return 1
