"""What can be seen of a member that runs: the one file of the tests that knows where its agent keeps what."""

from __future__ import annotations

import numpy as np

from cluster.archive.archive import Archive
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording import Recording
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.consensus.authentication import AuthorisationService
from cluster.consensus.cluster_member import ClusterMember, LogEnd
from cluster.consensus.cluster_session import ClusterSession, SessionState
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.consensus.replica import ReplicatedState
from cluster.consensus.timers import PriorityHeapTimerService
from cluster.member.agent import ConsensusModuleAgent
from cluster.member.counters import MemberCounters
from cluster.member.disk.snapshot_server import SnapshotServer
from cluster.member.frames import consensus_frame
from cluster.member.log.streams import LogStreams
from cluster.member.phase import Elect, PhaseName
from cluster.member.phases.electing import Electing
from cluster.member.phases.fetching import Fetching
from cluster.member.phases.following import Following
from cluster.member.services.snapshot_digests import SnapshotDigests
from cluster.node.life import MemberLife
from cluster.protocol.enums import CloseReason, ClusterControlToggle, ConsensusModuleState, ElectionState
from cluster.protocol.sbe import CLUSTER, Message
from cluster.service.channel import ServiceChannel
from cluster.transport.message_frames import link_frame


def framed(message: Message) -> bytes:
    """The message in a frame of the stream that it belongs to."""
    return consensus_frame(message) if type(message).SCHEMA is CLUSTER else link_frame(message)


class MemberState:
    """``life`` is None of a process that has none now: it does not run, and there is nothing to be seen.

    Positions are of the Log: ``append_position`` is the end of what is recorded, ``published_position`` that
    of what a leader has put into the Log, ``processed_position`` that of what its own state comes from.
    """

    member_id: int
    life: MemberLife | None

    @property
    def agent(self) -> ConsensusModuleAgent | None:
        return None if self.life is None else self.life.consensus_module

    @property
    def _module(self) -> ConsensusModuleAgent:
        assert self.life is not None, "the member does not run"
        return self.life.consensus_module

    # -- the phase that it is in --

    @property
    def is_leading(self) -> bool:
        return self.agent is not None and self.agent.phase.name is PhaseName.LEADING

    @property
    def is_following(self) -> bool:
        return self.agent is not None and self.agent.phase.name is PhaseName.FOLLOWING

    @property
    def is_electing(self) -> bool:
        return self.election is not None

    @property
    def is_repairing(self) -> bool:
        return self.agent is not None and self.agent.phase.name is PhaseName.REPAIRING

    @property
    def is_fetching_snapshots(self) -> bool:
        return self.agent is not None and self.agent.phase.name is PhaseName.FETCHING

    @property
    def snapshot_source_id(self) -> int:
        """Of whom it fetches snapshots."""
        phase = self._module.phase
        assert isinstance(phase, Fetching)
        return phase.source_id

    @property
    def is_replaying(self) -> bool:
        """Whether its module reads the Log again that it has, within an election."""
        phase = self._module.phase
        return isinstance(phase, Electing) and phase.actions.log_replay is not None

    @property
    def election(self) -> Election | None:
        return None if self.agent is None else self.agent.phase.election

    @property
    def election_state(self) -> ElectionState | None:
        return None if self.election is None else self.election.state

    @property
    def leader_member_id(self) -> int:
        return self._module.status.leader_member_id

    @property
    def notified_commit_position(self) -> int:
        """How far its leader has told a follower that the Log is committed."""
        phase = self._module.phase
        assert isinstance(phase, Following)
        return phase.follower.notified_commit_position

    @property
    def has_say(self) -> bool:
        """Whether it knows its promises, so that its votes and reports count."""
        return self._module.parts.promise_keeper.promises.has_say

    @property
    def waits_for(self) -> list[int]:
        """Members whose answers about its promises it lacks."""
        return self._module.parts.promise_keeper.promises.waits_for

    @property
    def acknowledged_end(self) -> LogEnd | None:
        """Up to where its Log was known to go before it was damaged."""
        return self._module.parts.repair.acknowledged_end

    @property
    def termination_position(self) -> int:
        return self._module.parts.termination.position

    # -- its Log --

    @property
    def commit_position(self) -> int:
        return 0 if self.agent is None else self.agent.log.commit_position

    @property
    def append_position(self) -> int:
        return self._module.log.append_position

    @property
    def synced_position(self) -> int:
        return self._recorded.synced_position

    @property
    def start_position(self) -> int:
        return self._recorded.start_position

    @property
    def processed_position(self) -> int:
        return self._module.parts.processing.position

    @property
    def published_position(self) -> int:
        publication = self._module.log.publication
        assert publication is not None, "it has not been elected"
        return publication.position

    @property
    def is_publishing(self) -> bool:
        return self._module.log.publication is not None

    @property
    def log_session_id(self) -> int:
        """Of the frames that a leader writes."""
        publication = self._module.log.publication
        assert publication is not None
        return publication.params.session_id

    @property
    def recording(self) -> Recording | None:
        return None if self.agent is None else self.agent.log.recording

    @property
    def _recorded(self) -> Recording:
        assert self.recording is not None, "it has no Log"
        return self.recording

    @property
    def log_streams(self) -> LogStreams:
        """What a leader sends to members that catch up."""
        return self._module.parts.log_sender.streams

    @property
    def log_correlation_id(self) -> int | None:
        """Of the last request for the Log, None of one that subscribes to none."""
        subscription = self._module.log.subscription
        return None if subscription is None else subscription.correlation_id

    @property
    def reports(self) -> dict[int, ClusterMember]:
        """What it knows of each member: as leader, how far their logs are reported to go."""
        return self._module.parts.members

    # -- what it has replicated --

    @property
    def replica(self) -> ReplicatedState:
        return self._module.replica

    @property
    def leadership_term_id(self) -> int:
        return self.replica.leadership_term_id

    @property
    def module_state(self) -> ConsensusModuleState:
        return self.replica.module.state

    @property
    def timers(self) -> PriorityHeapTimerService:
        return self.replica.timers

    @property
    def sessions(self) -> dict[int, ClusterSession]:
        return self.replica.sessions.sessions

    @property
    def open_sessions_ns(self) -> dict[int, int]:
        """When a leader heard each session last that is open, by its own monotonic clock."""
        table, sessions = self.replica.sessions.table, self.sessions.values()
        slots = table.slots["active_ns"]
        open_ids = [session.id for session in sessions if session.state is SessionState.OPEN]
        return {session_id: int(slots[table.slot_of(session_id)]) for session_id in open_ids}

    def close_reason_of(self, session_id: int) -> CloseReason | None:
        """Of a session that a leader closes, also where that is in its log and not committed."""
        session = self.sessions.get(session_id)
        for _, closed in self.replica.sessions._uncommitted_closed:
            session = closed if closed.id == session_id else session
        return None if session is None else session.close_reason

    # -- its files and ports --

    @property
    def context(self) -> ConsensusModuleContext:
        return self._module.context

    @property
    def counters(self) -> MemberCounters:
        return self._module.counters

    @property
    def archive(self) -> Archive:
        return self._module.files.archive

    @property
    def recording_log(self) -> RecordingLog:
        return self._module.log.recording_log

    @property
    def node_state(self) -> NodeStateFile:
        return self._module.files.node_state

    @property
    def snapshot_archive(self) -> SnapshotArchive:
        return self._module.parts.snapshots.archive

    @property
    def snapshot_digests(self) -> SnapshotDigests:
        return self._module.parts.digests

    @property
    def snapshot_server(self) -> SnapshotServer:
        return self._module.parts.snapshot_server

    @property
    def service_channels(self) -> tuple[ServiceChannel, ...]:
        return self._module.parts.services._channels

    @property
    def expected_ack_id(self) -> int:
        """Of the next ack of its services."""
        return self._module.parts.services._expected_ack_id

    # -- what is done to it --

    def enter_election(self, reason: str = "test") -> None:
        """Have it end what is established, as by itself."""
        self._module.enter(Elect(reason))

    def close_log(self) -> None:
        """Have a leader tell that its Log ends here, as before it stops."""
        assert self.is_leading
        self._module.phase.close()

    def begin_termination(self) -> bool:
        """Have it end the cluster; False where it cannot."""
        return self._module.parts.toggles.request(ClusterControlToggle.ABORT)

    def receive(self, member_id: int, message: Message) -> None:
        """Have it read this of another member, now."""
        frame = framed(message)
        self._module._consensus_adapter.on_frames(member_id, frame, 0, len(frame))

    def fault_of(self, member_id: int, message: Message) -> str | None:
        """Why it takes no notice of this from another member."""
        return self._module.parts.admission.fault_of(member_id, message)

    def receive_ingress(self, connection_id: int, frames: np.ndarray) -> int | None:
        """Have it read this of a client, now; how many bytes it took where it did not take all."""
        return self._module.parts.ingress.on_frames(connection_id, frames, 0, len(frames))

    def apply(self, entry: Message, log_position: int) -> bool:
        """Have it carry out an entry of the Log, as one that follows; whether the poll ends with it."""
        return self._module.parts.processing.on_log_message(entry.encode(), log_position)

    def authorise(self, authorisation: AuthorisationService) -> None:
        """Ask another service from now on whether a client may do what it asks for."""
        self._module.parts.requests.authorisation = authorisation
