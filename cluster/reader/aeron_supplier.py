"""One member of a real Aeron Cluster, over its own medium: what a backup copies from."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from cluster.aeron.aeron_log import AeronLog
from cluster.aeron.aeron_member import RecordingSource, answered_members
from cluster.aeron.aeron_recording import AeronRecording
from cluster.errors import ClusterError
from cluster.log.scan import frame_starts
from cluster.protocol import link
from cluster.protocol.backup import BackupQuery, BackupResponse
from cluster.protocol.catalog import NULL_POSITION, RecordingDescriptor
from cluster.protocol.enums import ConsensusModuleState, ElectionState, Role
from cluster.protocol.frame import DATA_FRAME_HEADER, FRAME_ALIGNMENT
from cluster.reader.recordings import status_of
from cluster.transport.committed_log import AS_COMMITTED
from cluster.transport.credentials import CredentialsSupplier
from cluster.transport.log_client import Answer, RecordingAnswer


class _MemberLog(AeronLog):
    """The log of the member that is given, and of no other."""

    def _others(self, answered: dict[str, RecordingSource], asked: dict[str, RecordingSource]) -> list[str]:
        return []


@dataclass(eq=False)
class AeronSupplier:
    """A ``Supplier`` (supplier.py). It is asked whenever ``poll`` is called, which waits."""

    name: str  # where consensus is asked
    _aeron_dir: str | None
    _credentials: CredentialsSupplier
    _cluster_id: int  # which no member reports
    _timeout_s: float
    _log: AeronLog | None = None
    _response: BackupResponse | None = None

    def ask(self, query: BackupQuery) -> None:
        """A query of its own is sent by ``poll``."""
        self.close()

    def poll(self) -> BackupResponse:
        """Raises TimedOut, MediaDriverError, AuthenticationRejected."""
        self._log = _MemberLog(
            self.name,
            aeron_dir=self._aeron_dir,
            cluster_id=self._cluster_id,
            credentials=self._credentials,
            timeout_s=self._timeout_s,
            give_up_s=self._timeout_s,
        )
        self._response = self._log.backup_response()
        return self._response

    def _asked(self) -> tuple[AeronLog, BackupResponse]:
        assert self._log is not None and self._response is not None, "nothing was asked"
        return self._log, self._response

    def status(self) -> link.LogStatus:
        """As far as it is known: the member was asked a moment ago."""
        log, response = self._asked()
        leads = response.member_id == response.leader_member_id
        recording = log.recording
        return link.LogStatus(
            correlation_id=0,
            start_position=log.start_position,
            commit_position=log.commit_position(),
            append_position=NULL_POSITION,
            leadership_term_id=response.last_leadership_term_id,
            first_term_timestamp=None,
            first_log_session_id=None,
            cluster_id=self._cluster_id,
            member_id=response.member_id or 0,
            leader_member_id=response.leader_member_id,
            role=Role.LEADER if leads else Role.FOLLOWER,
            election_state=ElectionState.CLOSED,
            module_state=ConsensusModuleState.ACTIVE,
            session_count=0,
            term_length=log.term_length,
            mtu=recording.mtu_length,
            initial_term_id=recording.initial_term_id,
            time_unit=log.time_unit,
        )

    def read(self, from_position: int, to_position: int) -> Iterator[Answer]:
        log, _ = self._asked()
        blocks = log.blocks(from_position, to_position, AS_COMMITTED)
        yield from _as_recorded(log.recording, blocks)
        yield _END

    def read_recording(self, recording_id: int) -> Iterator[RecordingAnswer]:
        """Of the log only what it is like."""
        log, response = self._asked()
        if recording_id == response.log_recording_id:
            yield status_of(log.recording, terms=_terms(response, log.start_position))
            return
        assert response.member_id is not None
        archive = answered_members(response)[response.member_id].archive_endpoint
        of_snapshot = AeronRecording(
            archive,
            recording_id,
            aeron_dir=self._aeron_dir,
            credentials=self._credentials,
            timeout_s=self._timeout_s,
            give_up_s=self._timeout_s,
        )
        with closing(of_snapshot):
            yield status_of(of_snapshot.recording)
            yield from _as_recorded(of_snapshot.recording, of_snapshot.blocks(how=AS_COMMITTED))
        yield _END

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = self._response = None


_END = link.EndOfStream(0, NULL_POSITION, link.LinkErrorCode.OK)


def _as_recorded(
    recording: RecordingDescriptor, blocks: Iterable[tuple[int, np.ndarray]]
) -> Iterator[np.ndarray]:
    """The frames with the recording's session and stream: a replay has its own."""
    for _, frames in blocks:
        starts = frame_starts(frames) // FRAME_ALIGNMENT
        headers = frames.view(DATA_FRAME_HEADER)
        headers["session_id"][starts] = recording.session_id
        headers["stream_id"][starts] = recording.stream_id
        yield frames


def _terms(response: BackupResponse, start_position: int) -> tuple[link.TermEntry, ...]:
    """The term that holds the beginning of the log, as far as the answer knows it, and the last."""
    known = {
        snapshot.leadership_term_id: link.TermEntry(
            snapshot.leadership_term_id, snapshot.term_base_log_position, NULL_POSITION, snapshot.timestamp
        )
        for snapshot in response.snapshots
    }
    begins = [term for term in known.values() if term.term_base_log_position <= start_position]
    if start_position > 0 and not begins:
        raise ClusterError(f"the log begins at {start_position}, and no snapshot says in which term")
    return tuple(begins)
