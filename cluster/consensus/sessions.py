"""Clients' sessions, on every member (Aeron: SessionManager).

    connect request ─┬─ follower ──────────── redirects ── SessionEvent REDIRECT
                     ├─ refused ───────────── rejected ─── SessionEvent ERROR, AUTHENTICATION_REJECTED
                     └─ leader ── pending ─── authenticated ── SessionOpenEvent in the log ── sessions
    sessions ── close request, service, time-out ── SessionCloseEvent in the log ── gone

The connection is closed after REDIRECT and a refusal, and when a session's close is committed; what was sent
on it before goes out first. A former leader keeps its clients' connections until it knows the new leader,
sends NewLeaderEvent, and closes them. If no leader is known within the election timeout, it closes them
without the event. If it leads again itself, they stay.

Followers keep ``sessions`` from the log, so that any of them can take over. Over a stream a client's
connection is its ingress and its egress; the response channel is kept for readers of the log.

OK is sent when the SessionOpenEvent is committed (the reference sends it when it is appended): an id that a
client knows stays its own, whoever leads next. The client resumes its session by that id and by the secret
whose hash it opened the session with; a client that never received the OK, by the secret alone.

After a lost connection the client may soon be back: its session waits for it (SessionResume) until the
time-out, and only then is closed with TIMEOUT (C-210).
"""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from cluster.consensus.authentication import Security, open_security
from cluster.consensus.cluster_session import ClusterSession, SessionState
from cluster.consensus.consumers import ConsumerTable
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.lanes import LaneTable
from cluster.consensus.module import UncommittedEntries
from cluster.consensus.session_admission import AdmissionPort, SessionAdmission
from cluster.consensus.session_events import KnownLeader, SessionEvents
from cluster.consensus.session_shares import SessionShares
from cluster.log import session_table
from cluster.log.session_table import SessionTable
from cluster.protocol import snapshot
from cluster.protocol.enums import CloseReason, EventCode
from cluster.protocol.lane import Lane
from cluster.protocol.link import SessionResume
from cluster.protocol.log import SessionCloseEvent, SessionOpenEvent
from cluster.protocol.response_channel import fault_of
from cluster.protocol.resume import is_token_of
from cluster.protocol.session import NewLeaderEvent, SessionConnectRequest
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION, version_text


class SessionPort(AdmissionPort, Protocol):
    """What the manager needs of its member: the log of a leader, and the clients' connections."""

    def append_session_open(self, session: ClusterSession) -> int:
        """End of the appended SessionOpenEvent; not above 0 when the log does not take it now."""

    def append_session_close(self, session: ClusterSession, reason: CloseReason) -> int: ...

    def ingress_endpoints(self, connection_id: int) -> str:
        """``id=endpoint`` of all members, of the medium that the client came by."""

    def close_egress(self, connection_id: int) -> None:
        """Close the connection once what was sent is out."""

    def dial(self, session: ClusterSession) -> None:
        """Have the client reached at its response channel, if this member can: it cannot come by itself."""


class SessionManager:
    """All sessions of one member. ``table`` has the same open sessions for the kernels, with their counts."""

    def __init__(
        self, context: ConsensusModuleContext, port: SessionPort, security: Security | None = None
    ) -> None:
        self.port = port
        self.table = SessionTable(context.max_sessions)
        self.lanes = LaneTable(context, self.table)
        self.consumers = ConsumerTable(context)
        self.admission = SessionAdmission(security or open_security(), port, self.lanes, self.consumers)
        self.events = SessionEvents(context, port)
        self.sessions: dict[int, ClusterSession] = {}
        self.next_session_id = 1
        self.next_committed_session_id = 1  # what a snapshot says: opens that are committed only
        self.timed_out_count = 0
        # Of a member that led and does not: until then its clients wait to hear who leads; None: none do.
        self.clients_kept_until_ns: int | None = None
        self._context = context
        self._pending: list[ClusterSession] = []
        self._shares = SessionShares(context.max_sessions, self._pending, self.sessions)
        self._redirects: list[ClusterSession] = []
        self._rejected: list[ClusterSession] = []
        self._uncommitted_closed: deque[tuple[int, ClusterSession]] = deque()
        self._uncommitted_next_ids: UncommittedEntries[int] = UncommittedEntries()
        self._has_pending_events = False
        self._commit_position = 0

    def __iter__(self) -> Iterator[ClusterSession]:
        """Open and closing sessions by ascending id."""
        return iter(sorted(self.sessions.values(), key=lambda session: session.id))

    @property
    def has_pending_work(self) -> bool:
        """Whether the next slow tick has something to send or to open."""
        return bool(self._pending or self._redirects or self._rejected or self._has_pending_events)

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    # ---- connect requests

    def on_connect_request(
        self,
        connection_id: int,
        request: SessionConnectRequest,
        *,
        is_leader: bool,
        now_ns: int,
        now_ms: int,
    ) -> None:
        """Redirect, refuse, or begin to open. An id is used up even when the session is refused."""
        session = ClusterSession(
            self.next_session_id if is_leader else NULL_VALUE,
            correlation_id=request.correlation_id,
            response_stream_id=request.response_stream_id,
            response_channel=request.response_channel,
            connection_id=connection_id,
            time_of_last_activity_ns=now_ns,
        )
        session.holder = self._shares.holder_at(self.port.address(connection_id))
        self.next_session_id += is_leader
        if not is_leader:
            session.reject(EventCode.REDIRECT, self.port.ingress_endpoints(connection_id))
            self._redirects.append(session)
        elif refusal := self._refusal(session, request):
            session.response_channel = ""  # it may be of any length
            session.reject(EventCode.ERROR, refusal)
            self._rejected.append(session)
        else:
            self.admission.on_connect_request(session, bytes(request.encoded_credentials), now_ms)
            self._pending.append(session)

    def _refusal(self, session: ClusterSession, request: SessionConnectRequest) -> str:
        """Why the request is refused, whoever makes it; empty when it is not."""
        context = self._context
        if request.version >> 16 != CLIENT_PROTOCOL_VERSION >> 16:
            return (
                f"invalid client version {version_text(request.version)}, "
                f"cluster is {version_text(CLIENT_PROTOCOL_VERSION)}"
            )
        if why := fault_of(request.response_channel, context.response_channel_length_max):
            return why
        if self._sessions_of(session.connection_id) >= context.connection_sessions_max:
            return (
                f"{context.connection_sessions_max} sessions of one connection, as many as "
                "connection_sessions_max allows"
            )
        return self._shares.refusal(session.holder, self.taken_count)

    @property
    def taken_count(self) -> int:
        """Pending and open ones, which max_sessions bounds."""
        return len(self._pending) + len(self.table)

    def on_challenge_response(
        self, session_id: int, correlation_id: int, encoded_credentials: bytes, now_ns: int, now_ms: int
    ) -> None:
        for session in self._pending:
            if session.id == session_id and session.state is SessionState.CHALLENGED:
                session.correlation_id = correlation_id
                session.time_of_last_activity_ns = now_ns
                self.admission.on_challenge_response(session, encoded_credentials, now_ms)

    def find_resumed(self, request: SessionResume) -> ClusterSession | None:
        """The open session that was opened with the request's token; None when there is none."""
        token = bytes(request.resume_token)
        if request.cluster_session_id == NULL_VALUE:
            session = next((s for s in reversed(list(self)) if is_token_of(s.resume_hash, token)), None)
        else:
            session = self.sessions.get(request.cluster_session_id)
        if session is None or session.state is not SessionState.OPEN:
            return None
        return session if is_token_of(session.resume_hash, token) else None

    def link(self, session: ClusterSession, connection_id: int, now_ns: int, *, has_heard_ok: bool) -> None:
        """From now on the session is served over this connection."""
        if connection_id != session.connection_id:
            self.table.slots["retained"][self.table.slot_of(session.id)] = 0  # it has sent nothing there yet
        session.connection_id = connection_id
        if isinstance(session.holder, str):
            session.holder = self._shares.holder_at(self.port.address(connection_id))
        session.has_open_event_pending = not has_heard_ok
        self.table.link(session.id, connection_id)
        self.table.slots["active_ns"][self.table.slot_of(session.id)] = now_ns
        self._has_pending_events |= session.has_new_leader_event_pending or session.has_open_event_pending

    def on_disconnect(self, connection_id: int) -> None:
        """The connection is gone: its open sessions wait for their clients, the others are gone with it."""
        for session_id in self.table.unlink(connection_id):
            session = self.sessions.get(session_id)
            if session is not None:  # else its close is in the log, and not committed yet
                session.connection_id = NULL_VALUE
        for sessions in (self._pending, self._redirects, self._rejected):
            sessions[:] = [session for session in sessions if session.connection_id != connection_id]

    def _sessions_of(self, connection_id: int) -> int:
        pending = sum(session.connection_id == connection_id for session in self._pending)
        return pending + self.table.count_of(connection_id)

    # ---- slow tick

    def send_redirects(self, leader: KnownLeader, now_ns: int) -> int:
        """Answer those who came to a member that does not lead."""
        return self._send_refusals(self._redirects, leader, now_ns)

    def send_rejections(self, leader: KnownLeader, now_ns: int) -> int:
        """Answer those who were refused."""
        return self._send_refusals(self._rejected, leader, now_ns)

    def _send_refusals(self, sessions: list[ClusterSession], leader: KnownLeader, now_ns: int) -> int:
        before = len(sessions)
        for session in list(sessions):
            if self.events.is_refusal_over(session, leader, now_ns):
                sessions.remove(session)
                self.end_egress(session.connection_id)
        return before - len(sessions)

    def end_egress(self, connection_id: int) -> None:
        """Close the connection (Aeron: the session's publication), unless it serves another session."""
        pending = (self._pending, self._redirects, self._rejected)
        is_used = any(session.connection_id == connection_id for sessions in pending for session in sessions)
        if connection_id != NULL_VALUE and not is_used and not self.table.count_of(connection_id):
            self.port.close_egress(connection_id)

    def process_pending(self, leader: KnownLeader, cluster_time: int, now_ns: int, now_ms: int) -> int:
        """Take each pending session as far as it goes now, newest first."""
        work_count = 0
        for session in list(reversed(self._pending)):
            if self.events.is_timed_out(session, now_ns):
                self._pending.remove(session)
                session.state = SessionState.CLOSED
                self.timed_out_count += 1
                self.end_egress(session.connection_id)
                work_count += 1
                continue
            self.admission.decide(session, now_ms)
            if session.state is SessionState.AUTHENTICATED:
                work_count += self._open(session, leader, cluster_time, now_ns)
            if session.state is SessionState.REJECTED:
                self._pending.remove(session)
                self._rejected.append(session)
                work_count += 1
        return work_count

    def _open(self, session: ClusterSession, leader: KnownLeader, cluster_time: int, now_ns: int) -> int:
        if not self.port.is_connected(session.connection_id):
            return 0
        if not self.admission.judge_share(session, self._shares, self.taken_count - 1):
            return 0
        if session.lane is not None:
            self.admission.judge_lane(session, session.lane, cluster_time)
            if session.state is SessionState.REJECTED or self.lanes.is_undecided(session.lane):
                return 0
            if not self._displace_holders(session, session.lane, leader):
                return 0
        if not self.admission.may_report(session, self._commit_position, cluster_time):
            return 0
        position = self.port.append_session_open(session)
        if position <= 0:
            return 0
        assert session.id not in self.sessions  # an id is given once
        session.open(position)
        self._pending.remove(session)
        self.sessions[session.id] = session
        self.table.open(session.id, session.connection_id, now_ns, session.is_supervised)
        self.lanes.append_open(session.id, session.encoded_principal, position, cluster_time)
        self.consumers.append_open(session.encoded_principal, position, cluster_time)
        self._uncommitted_next_ids.add(position, session.id + 1)
        return 1

    def _displace_holders(self, session: ClusterSession, lane: Lane, leader: KnownLeader) -> bool:
        """Append the closes of those that hold the lane; False when the log does not take all of them now."""
        are_closed = True
        for holder_id in self.lanes.holder_ids(lane):
            holder = self.sessions.get(holder_id)
            if holder is None:
                continue  # its close is in the log
            if holder.state is SessionState.OPEN:
                holder.detail = f"displaced by session {session.id}, batch {lane.batch} of lane {lane}"
                self._begin_close(holder, CloseReason.CLIENT_ACTION)
            are_closed &= self._log_close(holder, leader, is_reported=True) > 0
        return are_closed

    def _send_open_event(self, session: ClusterSession, leader: KnownLeader) -> bool:
        if self.events.send(session, EventCode.OK, self.admission.open_detail(session), leader):
            session.has_open_event_pending = False
            return True
        self._has_pending_events = True
        return False

    def _send_new_leader_event(self, session: ClusterSession, leader: KnownLeader) -> bool:
        endpoints = self.port.ingress_endpoints(session.connection_id)
        event = NewLeaderEvent(leader.leadership_term_id, session.id, leader.member_id, endpoints)
        return self.port.send_egress(session.connection_id, event)

    def check_sessions(self, leader: KnownLeader, now_ns: int) -> int:
        """Close what timed out or could not be closed before, and send what is still to be sent."""
        for session_id in self.table.inactive_since(now_ns - self._context.session_timeout_ns):
            session = self.sessions.get(session_id)
            if session is not None and session.state is SessionState.OPEN:
                self._begin_close(session, CloseReason.TIMEOUT)
        if not self._has_pending_events:
            return 0
        work_count = 0
        self._has_pending_events = False
        for session in list(self):
            if session.state is SessionState.CLOSING:
                work_count += self._log_close(session, leader, is_reported=True)
            elif session.opened_log_position > self._commit_position:
                continue  # the commit leads here again
            elif session.connection_id != NULL_VALUE and session.has_open_event_pending:
                work_count += self._send_open_event(session, leader)
                self._has_pending_events |= session.has_new_leader_event_pending
            elif session.connection_id != NULL_VALUE and session.has_new_leader_event_pending:
                if self._send_new_leader_event(session, leader):
                    session.has_new_leader_event_pending = False
                    work_count += 1
                else:
                    self._has_pending_events = True
            elif session.has_new_leader_event_pending and not session.resume_hash:
                session.has_new_leader_event_pending = False  # until it is reached
                self.port.dial(session)
        return work_count

    def report_error(self, session_id: int, detail: str, leader: KnownLeader) -> None:
        """Report to an open session's client, if it is connected, that something went wrong for it."""
        session = self.sessions.get(session_id)
        if session is not None:
            self.events.send(session, EventCode.ERROR, detail, leader)

    def _log_close(self, session: ClusterSession, leader: KnownLeader, *, is_reported: bool) -> int:
        """Append the close of a CLOSING session, which stays when the log does not take it (C-209)."""
        reason = session.close_reason
        assert session.state is SessionState.CLOSING and reason is not None  # its messages are refused (I-7)
        position = self.port.append_session_close(session, reason)
        if position <= 0:
            self._has_pending_events = True
            return 0
        if is_reported:
            self.events.send(session, EventCode.CLOSED, session.detail or reason.name, leader)
        if reason is CloseReason.TIMEOUT:
            self.timed_out_count += 1
        del self.sessions[session.id]
        self._uncommitted_closed.append((position, session))
        self.lanes.append_close(session.id, position)
        return 1

    # ---- closing on request

    def close(self, session_id: int, reason: CloseReason, leader: KnownLeader) -> int:
        """On an active leader: close for a client (sent nothing, C-207) or a service (sent CLOSED)."""
        session = self.sessions.get(session_id)
        if session is None or session.state is not SessionState.OPEN:
            return 0
        self._begin_close(session, reason)
        is_reported = reason is not CloseReason.CLIENT_ACTION
        return self._log_close(session, leader, is_reported=is_reported)

    def mark_closing(self, session_id: int, reason: CloseReason) -> None:
        """To be logged as closed when this member leads (C-235), also where another close was undone."""
        session = self.sessions.get(session_id)
        if session is not None and session.state is SessionState.OPEN:
            self._begin_close(session, reason)
        if reason is CloseReason.SERVICE_ACTION:
            for known in (session, *(closed for _, closed in self._uncommitted_closed)):
                if known is not None and known.id == session_id:
                    known.is_closed_by_service, known.close_reason = True, reason

    def _begin_close(self, session: ClusterSession, reason: CloseReason) -> None:
        session.closing(reason)
        self.table.slots["state"][self.table.slot_of(session.id)] = session_table.CLOSING
        self._has_pending_events = True

    # ---- what the log says, on every member that does not lead

    def on_replay_session_open(self, event: SessionOpenEvent, log_position: int) -> None:
        assert not self._uncommitted_next_ids  # who reads the log has appended nothing to it
        session = self._add_committed(event, log_position)
        session.name(bytes(event.encoded_principal))
        self.lanes.on_open(session.id, session.encoded_principal, log_position, event.timestamp)
        self.consumers.on_open(session.encoded_principal, event.timestamp)
        self.next_session_id = max(self.next_session_id, session.id + 1)
        self.next_committed_session_id = max(self.next_committed_session_id, session.id + 1)

    def on_replay_session_close(self, event: SessionCloseEvent) -> None:
        assert not self._uncommitted_closed  # who reads the log has appended nothing to it
        session = self.sessions.pop(event.cluster_session_id, None)
        if session is not None:
            self.lanes.on_close(session.id)
            self.table.close(session.id)
            self.end_egress(session.connection_id)

    def _add_committed(
        self, opened: SessionOpenEvent | snapshot.ClusterSession, log_position: int
    ) -> ClusterSession:
        """An open session that another member, or another life of this one, wrote into the log."""
        session = ClusterSession(
            opened.cluster_session_id,
            correlation_id=opened.correlation_id,
            response_stream_id=opened.response_stream_id,
            response_channel=opened.response_channel,
        )
        session.open(log_position)
        self._commit_position = max(self._commit_position, log_position)
        self.sessions[session.id] = session
        self.table.open(session.id, NULL_VALUE, is_supervised=session.is_supervised)
        return session

    # ---- a snapshot

    def load(self, next_session_id: int) -> None:
        """Begin from a snapshot; its sessions follow with ``load_session``."""
        assert not self.sessions
        self.next_session_id = self.next_committed_session_id = next_session_id

    def load_session(self, record: snapshot.ClusterSession, details: snapshot.SnapshotSession | None) -> None:
        """A session as it was at the snapshot; ``details`` are missing in a snapshot of Aeron."""
        session = self._add_committed(record, record.opened_log_position)
        if details is not None:
            session.name(bytes(details.encoded_principal))
            row = self.table.slots[self.table.slot_of(session.id)]
            row["appended"] = row["committed"] = details.committed_messages
            row["committed_position"] = details.committed_position
        if record.close_reason is not None:
            self.mark_closing(session.id, record.close_reason)

    # ---- commits and changes of leadership

    def keep_longer(self, jumped: int) -> None:
        """Cluster time has jumped so far, in its unit: by that no lane and no consumer group is forgotten."""
        self.lanes.jumped = self.consumers.jumped = jumped

    def sweep(self, commit_position: int) -> None:
        """Forget what was uncommitted and is not any more."""
        self.lanes.sweep(commit_position)
        self.consumers.sweep(commit_position)
        while self._uncommitted_closed and self._uncommitted_closed[0][0] <= commit_position:
            _, session = self._uncommitted_closed.popleft()
            assert session.id not in self.sessions  # else the log would take its messages (I-7)
            session.state = SessionState.CLOSED
            self.table.close(session.id)
            self.end_egress(session.connection_id)
        self._commit_position = max(self._commit_position, commit_position)
        for next_id in self._uncommitted_next_ids.sweep(commit_position):
            self.next_committed_session_id = max(self.next_committed_session_id, next_id)
            self._has_pending_events = True  # a session is open for good: its client is to hear so

    def prepare_for_new_term(self, now_ns: int, *, is_startup: bool) -> None:
        """This member leads: sessions go on, or, after the start of its node, are all closed (C-231)."""
        assert not self._uncommitted_closed  # what was never committed is undone
        assert not self._uncommitted_next_ids
        self.clients_kept_until_ns = None
        self.table.restart_appended()
        self._reopen_silent()
        self.table.touch_all(now_ns)
        for session in self:
            if session.state is SessionState.OPEN:
                if is_startup:
                    self.mark_closing(session.id, CloseReason.TIMEOUT)
                else:
                    session.has_new_leader_event_pending = True
        self._has_pending_events = bool(self.sessions)

    def _reopen_silent(self) -> None:
        """Let sessions that were to be closed for silence begin it again in this term (not as in C-233)."""
        for session in self:
            if session.close_reason is CloseReason.TIMEOUT:
                session.state, session.close_reason = SessionState.OPEN, None
                self.table.slots["state"][self.table.slot_of(session.id)] = session_table.OPEN

    def prepare_for_new_election(self, commit_position: int, leader: KnownLeader, now_ns: int) -> None:
        """Undo what is not committed; clients of open sessions stay until they can be sent who leads."""
        self.sweep(commit_position)
        dropped = self._drop_unopened(commit_position)
        for session in dropped:
            self.events.send(session, EventCode.CLOSED, "election", leader)
        dropped += self._restore_closed(commit_position)
        self._uncommitted_next_ids.take_uncommitted(commit_position)
        self.lanes.restore_uncommitted(commit_position)
        self.consumers.restore_uncommitted(commit_position)
        self.table.restart_appended()
        for session in dropped:
            self.end_egress(session.connection_id)
        for session in self:
            session.has_new_leader_event_pending = False
            if session.connection_id != NULL_VALUE and self.clients_kept_until_ns is None:
                self.clients_kept_until_ns = now_ns + self._context.election_timeout_ns

    def _drop_unopened(self, commit_position: int) -> list[ClusterSession]:
        """Take out the sessions whose opening is not committed, or not even appended."""
        unopened = [session for session in self if session.opened_log_position > commit_position]
        for session in unopened:
            session.state = SessionState.CLOSED
            del self.sessions[session.id]
            self.table.close(session.id)
        unopened += self._pending
        self._pending.clear()
        return unopened

    def _restore_closed(self, commit_position: int) -> list[ClusterSession]:
        """Restore the sessions whose close is not committed; return those whose opening is not, either."""
        unopened = []
        for _, session in self._uncommitted_closed:
            session.state = SessionState.CLOSING
            if session.opened_log_position > commit_position:
                self.table.close(session.id)
                unopened.append(session)
            else:
                self.sessions[session.id] = session
        self._uncommitted_closed.clear()
        return unopened

    def let_go_of_clients(self, leader: KnownLeader) -> int:
        """End the connections that were kept into an election; returns how many sessions they served.

        Clients are sent the new leader; where none is known they look for it themselves. (In Aeron the new
        leader sends it, over egress that it connects. Here it cannot get lost: a client that does not get the
        event sees the end of its connection.)
        """
        self.clients_kept_until_ns = None
        served = [session for session in self if session.connection_id != NULL_VALUE]
        for session in served:
            if leader.member_id != NULL_VALUE and session.state is SessionState.OPEN:
                self._send_new_leader_event(session, leader)
        for connection_id in sorted({session.connection_id for session in served}):
            self.table.unlink(connection_id)
            self.end_egress(connection_id)
        for session in served:
            session.connection_id = NULL_VALUE
        return len(served)
