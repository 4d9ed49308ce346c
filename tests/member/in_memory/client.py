"""A client of the simulated cluster: sends numbered messages, and holds the cluster to its promises.

It speaks the session protocol by itself, so that the cluster is judged by what is on the wire: a message that
a CommitAck covers must be in every log, once, and in order; so must be what it answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.protocol import decode, streams
from cluster.protocol.enums import EventCode
from cluster.protocol.frame import HEADER_LENGTH, align, frame
from cluster.protocol.link import CommitAck, SessionResume, SessionResumed
from cluster.protocol.resume import TOKEN_LENGTH, with_resume_hash
from cluster.protocol.session import (
    NewLeaderEvent,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)
from cluster.testing.world import MS, SECOND
from tests.member.in_memory.network import ClientConnection

if TYPE_CHECKING:
    from tests.member.in_memory.cluster import SimulatedCluster

RETRY_NS = 200 * MS
KEEP_ALIVE_NS = 1 * SECOND
SILENCE_NS = 4 * SECOND  # without any frame the connection is given up


class SimulatedClient:
    """``sent`` are the payloads in order; the first ``acknowledged`` of them are promised."""

    def __init__(self, cluster: SimulatedCluster, client_id: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.client_id = client_id
        self.session_id = -1
        self.leadership_term_id = -1
        self.sent: list[bytes] = []
        self.acknowledged = 0
        self.echoed: list[bytes] = []
        self.is_open = False
        self.is_lost = False  # the cluster closed the session
        self.refusals: list[str] = []  # why something of it was not taken
        self._connection: ClientConnection | None = None
        self._member_id = client_id % cluster.member_count
        self._correlation_id = client_id * 1_000_000
        self._resume_token = (client_id + 1).to_bytes(TOKEN_LENGTH)
        self._attempt = 0
        self._last_heard_ns = 0

    @property
    def name(self) -> str:
        return f"client {self.client_id}"

    def start(self) -> None:
        self._connect(self._member_id)
        self.cluster.after(KEEP_ALIVE_NS, self._keep_alive)

    def send(self, payload: bytes) -> None:
        """One more message; goes out now, or when there is a leader again."""
        self.sent.append(payload)
        if self.is_open:
            self._send_message(payload)

    @property
    def is_settled(self) -> bool:
        """Everything sent is acknowledged, or the session is gone."""
        return self.is_lost or (self.is_open and self.acknowledged == len(self.sent))

    # ---- going to a member

    def _connect(self, member_id: int) -> None:
        self.is_open = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._member_id = member_id % self.cluster.member_count
        self._attempt += 1
        attempt = self._attempt
        member = self.cluster.members[self._member_id]
        self.cluster.after(RETRY_NS, lambda: self._check_attempt(attempt))
        self._connection = member.dial(
            lambda frames: self._on_frames(frames) if attempt == self._attempt else None,
            lambda: self._on_closed(attempt),
        )
        self._correlation_id += 1
        self._last_heard_ns = self.world.now_ns
        if self.session_id < 0:
            channel = with_resume_hash(f"client-{self.client_id}", self._resume_token)
            request = SessionConnectRequest(self._correlation_id, 102, 3 << 8, channel)
            self._connection.send(frame(request.encode(), session_id=0, stream_id=streams.INGRESS))
        else:
            resume = SessionResume(
                self._correlation_id,
                self.session_id,
                self.leadership_term_id,
                resume_token=self._resume_token,
            )
            self._connection.send(frame(resume.encode(), session_id=0, stream_id=streams.LINK))

    def _check_attempt(self, attempt: int) -> None:
        if attempt == self._attempt and not self.is_open and not self.is_lost:
            self._connect(self._member_id + 1)

    def _on_closed(self, attempt: int) -> None:
        if attempt == self._attempt:
            self.is_open = False
            self._connection = None
            self.cluster.after(RETRY_NS // 4, lambda: self._check_attempt(attempt))

    def _keep_alive(self) -> None:
        if self.is_lost:
            return
        if self.is_open:
            if self.world.now_ns - self._last_heard_ns > SILENCE_NS and self.acknowledged < len(self.sent):
                self._connect(self._member_id + 1)
            else:
                message = SessionKeepAlive(self.leadership_term_id, self.session_id)
                assert self._connection is not None
                self._connection.send(frame(message.encode(), session_id=0, stream_id=streams.INGRESS))
        self.cluster.after(KEEP_ALIVE_NS, self._keep_alive)

    def close(self) -> None:
        if self.is_open and self._connection is not None:
            request = SessionCloseRequest(self.leadership_term_id, self.session_id)
            self._connection.send(frame(request.encode(), session_id=0, stream_id=streams.INGRESS))

    def _send_message(self, payload: bytes) -> None:
        assert self._connection is not None
        header = SessionMessageHeader(self.leadership_term_id, self.session_id, 0).encode()
        self._connection.send(frame(header + payload, session_id=0, stream_id=streams.INGRESS))

    # ---- what the cluster says

    def _on_frames(self, frames: bytes) -> None:
        self._last_heard_ns = self.world.now_ns
        offset = 0
        while offset < len(frames):
            length = int.from_bytes(frames[offset : offset + 4], "little")
            message = decode(frames, offset + HEADER_LENGTH, length - HEADER_LENGTH)
            match message:
                case SessionMessageHeader():
                    self._on_echo(frames[offset + HEADER_LENGTH + 32 : offset + length])
                case SessionEvent():
                    self._on_session_event(message)
                case SessionResumed():
                    self._on_resumed(message)
                case CommitAck():
                    self._on_commit_ack(message)
                case NewLeaderEvent():
                    if (
                        message.leadership_term_id > self.leadership_term_id
                    ):  # else SessionResumed has said it
                        self._connect(message.leader_member_id)
            offset += align(length)

    def _on_session_event(self, event: SessionEvent) -> None:
        if event.code is EventCode.OK:
            if self.session_id < 0:
                self.session_id = event.cluster_session_id
                self.world.say(self.name, f"session {self.session_id} in term {event.leadership_term_id}")
            self._go_on(event.leadership_term_id, 0)
        elif event.code is EventCode.ERROR:
            self.refusals.append(event.detail)
        elif event.code is EventCode.REDIRECT:
            leader = event.leader_member_id
            self._connect(leader if leader >= 0 else self._member_id + 1)
        elif event.code is EventCode.CLOSED:
            if event.detail == "election" and self.session_id < 0:
                return  # a request that no leader took: asked again
            self.world.say(self.name, f"session {self.session_id} is closed: {event.detail}")
            self.is_open = False
            self.is_lost = True

    def _on_resumed(self, resumed: SessionResumed) -> None:
        self._go_on(resumed.leadership_term_id, resumed.appended_messages)

    def _go_on(self, leadership_term_id: int, appended: int) -> None:
        assert appended >= self.acknowledged, (
            f"{self.name}: {self.acknowledged} were promised, {appended} are there"
        )
        assert appended <= len(self.sent)
        self.leadership_term_id = leadership_term_id
        self.is_open = True
        for payload in self.sent[appended:]:
            self._send_message(payload)

    def _on_commit_ack(self, ack: CommitAck) -> None:
        assert ack.cluster_session_id == self.session_id
        assert ack.committed_messages <= len(self.sent), f"{self.name}: more is committed than was sent"
        if ack.committed_messages > self.acknowledged:
            self.acknowledged = ack.committed_messages

    def _on_echo(self, payload: bytes) -> None:
        self.echoed.append(payload)
        assert payload in self.sent, f"{self.name}: {payload!r} was never sent"
