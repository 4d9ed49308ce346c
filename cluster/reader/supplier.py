"""What a backup asks of one member, and how the answers are read."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Protocol

import numpy as np

from cluster.errors import AuthenticationRejected, ClusterError, RemoteProtocolError
from cluster.member.disk.fetched_recording import check_end
from cluster.protocol import link
from cluster.protocol.backup import BackupQuery, BackupResponse
from cluster.protocol.enums import EventCode
from cluster.protocol.session import SessionEvent
from cluster.transport.log_client import Answer, RecordingAnswer


class SourceType(StrEnum):
    """From whom a backup copies (ClusterBackup.SourceType)."""

    ANY = "any"
    LEADER = "leader"
    FOLLOWER = "follower"

    def accepts(self, *, is_leader: bool) -> bool:
        return self is SourceType.ANY or (self is SourceType.LEADER) == is_leader


class Supplier(Protocol):
    """One member; only the query takes turns, all else waits. Raises the errors of ``LogClient``."""

    @property
    def name(self) -> str:
        """Where it is, for people."""

    def ask(self, query: BackupQuery) -> None:
        """Send the query as soon as there is a connection; ``poll`` takes it on."""

    def poll(self) -> BackupResponse | SessionEvent | None:
        """The answer to the query, once it is there. Raises ClusterError when none can come."""

    def status(self) -> link.LogStatus: ...

    def read(self, from_position: int, to_position: int) -> Iterator[Answer]: ...

    def read_recording(self, recording_id: int) -> Iterator[RecordingAnswer]: ...

    def close(self) -> None:
        """Drop all connections."""


def event_error(name: str, event: SessionEvent) -> ClusterError:
    """What a member that refuses a query says."""
    kind = AuthenticationRejected if event.code is EventCode.AUTHENTICATION_REJECTED else ClusterError
    return kind(f"{name} refuses the backup query: {event.code.name}: {event.detail}")


def frames_of(name: str, answers: Iterator[Answer | RecordingAnswer]) -> Iterator[np.ndarray]:
    """The frames in the answers to a request, to its end. Raises DataLoss (purged), ClusterError."""
    for answer in answers:
        match answer:
            case np.ndarray():
                yield answer
            case link.EndOfStream():
                check_end(name, answer)
                return
    raise RemoteProtocolError(f"{name}: the stream ended without its end")


def described(name: str, answers: Iterator[RecordingAnswer]) -> link.RecordingStatus:
    """What the member says of a recording, before its frames. Raises DataLoss, ClusterError."""
    for answer in answers:
        if isinstance(answer, link.RecordingStatus):
            return answer
        if isinstance(answer, link.EndOfStream):
            check_end(name, answer)
        break
    raise RemoteProtocolError(f"{name}: a recording's frames came before its description")
