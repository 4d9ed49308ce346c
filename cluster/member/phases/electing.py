"""A member in an election: the core decides (consensus/election.py), and here it is carried out.

    turn      sync what was fetched, and report it to the election
              catching up: process what is committed
              the election's cycle ──▶ actions
              a replay's next part, the request for the log if it is due, the log to followers
    message   to the election ──▶ actions

A failure starts the election again, unless it ends the member.
"""

from cluster.consensus.actions import Action
from cluster.consensus.context import NULL_VALUE
from cluster.consensus.election import Election
from cluster.errors import FATAL, ClusterError
from cluster.member.log.sender import LedLog
from cluster.member.phase import Fetch, Next, Phase, PhaseName, Resume
from cluster.member.phases.election_actions import ElectionActions, ElectionPorts
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    Vote,
)
from cluster.protocol.enums import AppendPositionFlags, ElectionState, Role
from cluster.protocol.link import CatchupProgress, LinkError, LogImage, ReplicationRequest
from cluster.protocol.sbe import Message


class Electing(Phase):
    """Exists while one election runs; a fetched snapshot may let it rest."""

    name = PhaseName.ELECTING

    def __init__(self, election: Election, ports: ElectionPorts) -> None:
        self._election = election
        self._ports = ports
        self.actions = ElectionActions(election, ports)

    @property
    def election(self) -> Election:
        return self._election

    @property
    def _led(self) -> LedLog | None:
        """The log that this member is to lead."""
        election = self._election
        if self._ports.status.role is not Role.LEADER or election.log_session_id == NULL_VALUE:
            return None
        return LedLog(election.leadership_term_id, election.log_session_id)

    def do_work(self) -> Next | None:
        ports, election = self._ports, self._election
        turn = ports.turn
        try:
            recording = ports.log.recording
            if recording is not None and recording.is_active:
                turn.work_count += ports.fetched_log_sync.sync(recording, turn.now_ns)
                election.on_append_position(recording.synced_position, turn.now_ns)
            if election.state is ElectionState.FOLLOWER_CATCHUP:
                # Ahead of the question whether it is level: under steady load each turn has a commit.
                limit = min(election.effective_commit_position, election.append_position)
                self._process(limit, ports.context.replay_limit_per_poll)
            turn.work_count += self.actions.carry_out(election.do_work(turn.now_ns, ports.clocks.own))
            if election.state is not ElectionState.CLOSED:
                replay = self.actions.log_replay
                if replay is not None and replay.is_joined:
                    self._process(replay.stop_position)
                ports.log_requests.request()
            turn.work_count += ports.log_sender.streams.do_work()
        except FATAL:
            raise
        except ClusterError as error:
            turn.work_count += 1
            ports.reporter.error(error)
            return self.on_failure(error)
        return self._take_next()

    def _process(self, limit: int, length: int = 1) -> None:
        """Process the log, and let the election know how far."""
        moved = self._ports.processing.process(limit, length)
        self._ports.turn.work_count += moved
        if moved:
            self._election.on_log_position(self._ports.log.commit_position, self._ports.turn.now_ns)

    def _carry_out(self, actions: list[Action]) -> Next | None:
        """Carry out the election's actions; a failure starts it again, unless it ends the member."""
        try:
            self.actions.carry_out(actions)
        except FATAL:
            raise
        except ClusterError as error:
            self._ports.reporter.error(error)
            return self.on_failure(error)
        return self._take_next()

    def _take_next(self) -> Next | None:
        step, self.actions.next = self.actions.next, None
        return step

    def on_failure(self, error: ClusterError) -> Next | None:
        """A step of the election failed: it starts again, and members are asked for snapshots again."""
        ports, election = self._ports, self._election
        if election.state is ElectionState.CLOSED:
            return self._take_next()
        ports.without_snapshot.clear()
        self.actions.next = None
        self.actions.carry_out(election.on_error(str(error), ports.log.commit_position, ports.turn.now_ns))
        assert self.actions.next is None, "an election that begins anew leads to nothing at once"
        return Resume()

    # ---- other members

    def on_message(self, member_id: int, message: Message) -> Next | None:
        election, now_ns = self._election, self._ports.turn.now_ns
        streams = self._ports.log_sender.streams
        match message:
            case AppendPosition():
                step = self._carry_out(election.on_append_position_of(message, now_ns))
                self._on_report(message)
                return step
            case CommitPosition():
                return self._carry_out(election.on_commit_position(message, now_ns))
            case CanvassPosition():
                streams.suspend(member_id)
                return self._carry_out(election.on_canvass_position(message, now_ns))
            case RequestVote():
                return self._carry_out(election.on_request_vote(message, now_ns))
            case Vote():
                return self._carry_out(election.on_vote(message, now_ns))
            case NewLeadershipTerm():
                return self._carry_out(election.on_new_leadership_term(message, now_ns))
            case StopCatchup():
                return self._carry_out(election.on_stop_catchup(message, now_ns))
        return self.on_log_message(member_id, message)

    def on_log_message(self, member_id: int, message: Message) -> Next | None:
        """What is said about the log, also while the election rests."""
        match message:
            case ReplicationRequest() | CatchupPosition() | CatchupProgress():
                if (led := self._led) is not None:
                    self._ports.log_sender.on_message(member_id, message, led)
            case LogImage():
                return self._on_log_image(member_id, message)
            case LinkError() if self._ports.log_requests.is_refused(member_id, message):
                return Fetch(member_id, is_needed=True)  # only its snapshot helps
        return None

    def _on_report(self, message: AppendPosition) -> None:
        """A follower that is in the term gets its log again, and hears when it is level."""
        server, member_id = self._ports.log_sender, message.follower_member_id
        if message.leadership_term_id == self._election.leadership_term_id:
            server.streams.resume(member_id)
        if message.flags == AppendPositionFlags.CATCHUP:
            server.check_catchup(member_id, message.leadership_term_id, message.log_position)

    def _on_log_image(self, member_id: int, image: LogImage) -> Next | None:
        client, election = self._ports.log_requests, self._election
        subscription = client.subscription_of(member_id, image.correlation_id)
        if subscription is None or subscription.leadership_term_id != image.leadership_term_id:
            return None
        try:
            client.join(subscription, image)
        except ClusterError as error:
            self._ports.reporter.error(error)
        if not subscription.is_live:
            return None
        now_ns = self._ports.turn.now_ns
        return self._carry_out(election.on_log_image(image.leadership_term_id, image.join_position, now_ns))

    def on_log_fault(self, error: ClusterError) -> Next | None:
        return self.on_failure(error)

    def on_link_up(self, member_id: int) -> Next | None:
        return self._carry_out(self._election.on_link_up(member_id, self._ports.turn.now_ns))

    def on_link_down(self, member_id: int) -> Next | None:
        return self._carry_out(self._election.on_link_down(member_id, self._ports.turn.now_ns))

    def on_member_gone(self, member_id: int) -> Next | None:
        return self._carry_out(self._election.on_member_gone(member_id, self._ports.turn.now_ns))
