"""A member of a real Aeron Cluster over its own medium: asked at its consensus endpoint, its archive read.

    BackupQuery ──▶ consensus endpoint    ◀── BackupResponse: recording, members, counter of commit-pos
    bounded replay ──▶ archive endpoint   ◀── frames, as far as that counter lets them go

ClusterBackup of Aeron reads a cluster so. The counter is of the member's own driver: nobody says its value to
others, but its archive sends nothing beyond it. A member in an election answers no query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack, closing
from typing import NamedTuple

from cluster.errors import ConfigurationError, LogPurged, MediaDriverError, RemoteProtocolError
from cluster.media.aeron import Aeron
from cluster.media.aeron_archive import AeronArchive, ArchiveRefusal, BoundedReplay
from cluster.media.response_channel import Answers
from cluster.protocol import decode
from cluster.protocol.backup import BackupQuery, BackupResponse
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.members import MemberEndpoints, parse_members
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from cluster.transport.credentials import CredentialsSupplier

CONSENSUS_STREAM = 108
RESPONSE_STREAM = 109


def answered_members(response: BackupResponse) -> dict[int, MemberEndpoints]:
    """The members that an answer names, by id. Raises RemoteProtocolError for a text of no members."""
    try:
        return {member.member_id: member for member in parse_members(response.cluster_members)}
    except ConfigurationError as error:
        raise RemoteProtocolError(f"backup response: {error}") from None


class ArchiveAccess(NamedTuple):
    """How archives are asked: who comes, for how long, and how many bytes they are to read at once."""

    credentials: CredentialsSupplier
    timeout_s: float
    file_io_max_length: int | None = None


class RecordingSource(ABC):
    """Who has the recording that is read: its archive, reached by a driver's client.

    Raises TimedOut, ArchiveRefusal, AuthenticationRejected, MediaDriverError.
    """

    def __init__(self, aeron: Aeron, endpoint: str, access: ArchiveAccess) -> None:
        """``endpoint`` is ``host:port``, where it is asked."""
        self.endpoint = endpoint
        self._aeron = aeron
        self._access = access
        self._archive: AeronArchive | None = None

    @property
    @abstractmethod
    def member_id(self) -> int: ...

    @property
    @abstractmethod
    def is_leader(self) -> bool: ...

    @abstractmethod
    def begin_query(self) -> None:
        """Ask for what is known of the recording only there; ``poll_response`` sends the question."""

    @abstractmethod
    def poll_response(self) -> bool:
        """Whether the answer is there."""

    @abstractmethod
    def query(self) -> object:
        """Ask, and wait for the answer: whoever does not go on does not answer."""

    @abstractmethod
    def _located(self) -> tuple[AeronArchive, int]:
        """The archive, and the recording's id in it."""

    @abstractmethod
    def _replay(self, position: int, length: int) -> BoundedReplay: ...

    def recording(self) -> RecordingDescriptor:
        """What the archive says of it now."""
        archive, recording_id = self._located()
        return archive.recording(recording_id)

    def recorded_end(self) -> int:
        """How far it is recorded, committed or not."""
        archive, recording_id = self._located()
        return archive.recorded_end(recording_id)

    def replay(self, position: int, length: int) -> BoundedReplay:
        """The recording from ``position`` on, as far as it may be read. Raises LogPurged."""
        try:
            return self._replay(position, length)
        except ArchiveRefusal:
            start = self.recording().start_position
            if position < start:
                what = f"position {position} was purged, the log begins at {start} at {self.endpoint}"
                raise LogPurged(what, start) from None
            raise

    def _archive_at(self, endpoint: str) -> AeronArchive:
        """The control session with the archive there."""
        if self._archive is not None and self._archive.endpoint != endpoint:
            self._archive.close()
            self._archive = None
        if self._archive is None:
            access = self._access
            self._archive = AeronArchive.connect(self._aeron, endpoint, access.timeout_s, access.credentials)
        return self._archive

    def close(self) -> None:
        """Give all back to the driver."""
        if self._archive is not None:
            self._archive.close()


class AeronMember(RecordingSource):
    """A member: asked at its consensus endpoint, its log read as far as it is committed."""

    def __init__(self, aeron: Aeron, endpoint: str, access: ArchiveAccess) -> None:
        super().__init__(aeron, endpoint, access)
        self.response: BackupResponse | None = None  # the last
        with ExitStack() as made:
            self._answers = made.enter_context(closing(Answers(aeron, endpoint, RESPONSE_STREAM)))
            self._queries = aeron.add_exclusive_publication(
                f"aeron:udp?endpoint={endpoint}", CONSENSUS_STREAM
            )
            made.pop_all()
        self._correlation_id = -1
        self._is_answered = False

    @property
    def member_id(self) -> int:
        """Who answered: one of an old release may leave that to its leader."""
        assert self.response is not None
        member_id = self.response.member_id
        return self.response.leader_member_id if member_id is None else member_id

    @property
    def is_leader(self) -> bool:
        return self.response is not None and self.member_id == self.response.leader_member_id

    # ---- the query

    def begin_query(self) -> None:
        self._correlation_id, self._is_answered = -1, False

    def poll_response(self) -> bool:
        """Whether the answer is there. Raises RemoteProtocolError for an answer that does not decode."""
        if self._correlation_id < 0:
            self._ask()
        for message in self._answers.poll():
            answer = decode(message, 0, len(message))
            if isinstance(answer, BackupResponse) and answer.correlation_id == self._correlation_id:
                self.response, self._is_answered = answer, True
        return self._is_answered

    def _ask(self) -> None:
        correlation_id = self._aeron.next_correlation_id()
        query = BackupQuery(
            correlation_id,
            RESPONSE_STREAM,
            CLIENT_PROTOCOL_VERSION,
            response_channel=self._answers.channel,
        )
        if self._queries.offer(query.encode()) > 0:
            self._correlation_id = correlation_id

    def query(self) -> BackupResponse:
        """Ask, and wait for the answer."""
        self.begin_query()
        what = f"an answer of the member at {self.endpoint}"
        self._aeron.conductor.await_value(self.poll_response, self._access.timeout_s, what)
        assert self.response is not None
        return self.response

    def _located(self) -> tuple[AeronArchive, int]:
        response = self.response or self.query()
        members = answered_members(response)
        if self.member_id not in members:
            raise RemoteProtocolError(f"member {self.member_id} answers, and is none of its own cluster")
        return self._archive_at(members[self.member_id].archive_endpoint), response.log_recording_id

    def _replay(self, position: int, length: int) -> BoundedReplay:
        counter_id = self.query().commit_position_counter_id  # that of before may be another's by now
        archive, recording_id = self._located()
        at_once = self._access.file_io_max_length
        return archive.replay(recording_id, position, length, at_once, counter_id)

    def close(self) -> None:
        super().close()
        try:
            self._answers.close()
            self._aeron.remove_publication(self._queries)
        except MediaDriverError:
            pass  # with the driver all of it is gone
