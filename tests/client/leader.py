"""A one-member cluster without a disk: a real port, turned by a thread, that echoes and acknowledges."""

from __future__ import annotations

import threading
import time

import numpy as np

from cluster.log.frames import SESSION_HEADER_LENGTH
from cluster.protocol import decode, link, streams
from cluster.protocol.enums import EventCode
from cluster.protocol.session import (
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.grpc_gateway import GrpcGateway
from cluster.transport.member_tls import MemberTls
from cluster.transport.message_frames import each_frame, link_frame, message_frame
from cluster.transport.poller import Poller
from cluster.transport.server import ClientPort
from tests.answer_frames import answer_frame

MESSAGE_LENGTH_MAX = 200_000


class Leader:
    """``log`` holds the payloads in order; what it answers and acknowledges can be changed."""

    def __init__(self, folder: str, tls: MemberTls | None = None) -> None:
        self.certificate_names: list[str | None] = []  # of those that connected
        self.log: list[bytes] = []
        self.closed: list[int] = []
        self.keep_alives = 0
        self.session_id = 41
        self.committed_max: int | None = None  # acknowledge no more than this many, None: all
        self.answers = 1  # echoes of each message
        self.is_supervised = False  # they are numbered
        self.answers_late_s = 0.0  # how long after the acknowledgement echoes are sent
        self.closes_after: int | None = None  # close the session when the log is this long
        self._late: list[tuple[float, int, bytes]] = []  # (when, to whom, echoes)
        self._poller = Poller()
        ipc = Endpoint(Medium.IPC, path=f"{folder}/ingress.sock")
        self._port = ClientPort(
            [ipc, Endpoint(Medium.TCP, "127.0.0.1", 0)],
            poller=self._poller,
            member_id=0,
            cluster_id=0,
            incarnation=1,
            message_length_max=MESSAGE_LENGTH_MAX,
            tls=tls,
        )
        self._gateway = GrpcGateway(
            Endpoint(Medium.GRPC, "127.0.0.1", 0),
            self._port.connect,
            self._no_log,
            MESSAGE_LENGTH_MAX,
            tls=tls,
        )
        self.endpoints = {
            "ipc": f"0={ipc}",
            "tcp": f"0={self._port.endpoints[1]}",
            "grpc": f"0={self._gateway.start()}",
        }
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @staticmethod
    def _no_log() -> object:
        raise AssertionError("nobody reads the log here")

    def _run(self) -> None:
        while not self._is_stopped:
            self._poller.wait(0.01 if self._late else 1)
            self._port.poll(self)
            while self._late and time.monotonic() >= self._late[0][0]:
                _, connection_id, echoes = self._late.pop(0)
                self._port.send(connection_id, echoes)

    def stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self._poller.wake()
            self._thread.join()
            self._gateway.stop()
            self._port.shutdown()
            self._poller.close()

    # -- what the port calls --

    def on_connect(self, connection_id: int) -> None:
        self.certificate_names.append(self._port.certificate_name(connection_id))

    def has_session(self, connection_id: int) -> bool:
        return True

    def on_disconnect(self, connection_id: int) -> None:
        pass

    def on_frames(self, connection_id: int, buffer: np.ndarray, start: int, end: int) -> None:
        answers = bytearray()
        self._connection_id = connection_id
        for stream_id, offset, length in each_frame(buffer, start, end):
            payload = buffer[offset : offset + length].tobytes()
            if stream_id in (streams.INGRESS, streams.LINK):
                answers += self._answer(payload)
        if self.closes_after is not None and len(self.log) >= self.closes_after:
            answers += message_frame(self._event(EventCode.CLOSED, 0, "SERVICE_ACTION"), streams.EGRESS)
        committed = len(self.log) if self.committed_max is None else min(len(self.log), self.committed_max)
        answers += link_frame(link.CommitAck(self.session_id, 1, committed, 32 + 192 * committed))
        self._port.send(connection_id, answers)

    def _answer(self, payload: bytes) -> bytes:
        message = decode(payload)
        match message:
            case SessionMessageHeader():
                content = payload[SESSION_HEADER_LENGTH:]
                self.log.append(content)
                number = len(self.log)
                numbers = {"answered": number, "answer_id": number * self.is_supervised}
                echo = answer_frame(1, self.session_id, content, timestamp=7, **numbers)
                if self.answers_late_s:
                    self._late.append((time.monotonic() + self.answers_late_s, self._connection_id, echo))
                    return b""
                return echo * self.answers
            case SessionConnectRequest():
                event = self._event(EventCode.OK, message.correlation_id, "")
                return message_frame(event, streams.EGRESS)
            case SessionKeepAlive():
                self.keep_alives += 1
            case SessionCloseRequest():
                self.closed.append(message.cluster_session_id)
        return b""

    def _event(self, code: EventCode, correlation_id: int, detail: str) -> SessionEvent:
        return SessionEvent(
            cluster_session_id=self.session_id,
            correlation_id=correlation_id,
            leadership_term_id=1,
            leader_member_id=0,
            code=code,
            version=768,
            leader_heartbeat_timeout_ns=10_000_000_000,
            detail=detail,
        )
