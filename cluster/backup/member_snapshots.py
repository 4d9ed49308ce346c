"""Snapshots of a running cluster, found and fetched as a backup does it, for who only reads them.

Every member answers the query for the newest snapshot at or before a position, and serves its recordings to
who may read (backup_sessions.py, served_recordings.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.backup.member_supplier import MemberSupplier
from cluster.backup.supplier import described, event_error, frames_of
from cluster.errors import ClusterError, TimedOut
from cluster.member.disk.fetched_recording import append_snapshot, create_snapshot_of
from cluster.protocol.backup import BackupQuery, BackupResponse, BackupSnapshotRecording
from cluster.protocol.link import LogStatus
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID
from cluster.protocol.session import SessionEvent
from cluster.protocol.streams import CONSENSUS
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from cluster.reader.preference import FOLLOWER, in_order
from cluster.reader.remote import TIMEOUT_S, adopt_reported, log_client_opener
from cluster.reader.snapshots import StoredSnapshot
from cluster.transport.clock import epoch_ms, monotonic_ns
from cluster.transport.credentials import CredentialsSupplier, as_supplier, credentials_in
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import Endpoint, parse_endpoints
from cluster.transport.log_client import LogClient, statuses
from cluster.transport.tls import TlsFiles, tls_in

POLL_INTERVAL_S = 0.005


class MemberSnapshots:
    """The snapshots of one service that the members at ``endpoints`` have, as ``DirectorySnapshots``.

    TLS and credentials are as for ``RemoteLog``. ``timeout_s`` is how long one member may take to answer.
    """

    def __init__(
        self,
        endpoints: str,
        service_id: int,
        *,
        tls: TlsFiles | None = None,
        credentials: bytes | CredentialsSupplier | None = None,
        timeout_s: float = TIMEOUT_S,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        """Find the members. Raises ConfigurationError, and TimedOut when none answers, with each reason."""
        self._service_id = service_id
        self._timeout_s = timeout_s
        self._now_ns = now_ns
        tls = tls_in(os.environ) if tls is None else tls
        credentials = credentials_in(os.environ) if credentials is None else credentials
        open_client = log_client_opener(credentials)
        self._world = Dialler(tls)
        self._suppliers: list[MemberSupplier] = []
        known = parse_endpoints(endpoints)
        found, failures = _members(known, lambda endpoint: open_client(endpoint, timeout_s, tls))
        if not found:
            raise TimedOut(f"no member answers: {'; '.join(failures)}")
        for member_id in in_order(found, FOLLOWER, os.getpid()):
            endpoint, supplier = known[member_id], as_supplier(credentials)
            client = open_client(endpoint, timeout_s, tls)
            cluster_id = found[member_id].cluster_id
            self._suppliers.append(MemberSupplier(endpoint, client, self._world, supplier, cluster_id))

    def newest(self, at_or_before: int | None) -> int | None:
        """Where the newest snapshot is, of any member, at or before a position; None without one.

        Raises ClusterError when no member answers.
        """
        answers, failures = self._ask(at_or_before)
        if not answers:
            raise ClusterError("; ".join(failures))
        positions = [
            one.log_position
            for _, response in answers
            for one in response.snapshots
            if one.service_id == self._service_id
            and (at_or_before is None or one.log_position <= at_or_before)
        ]
        return max(positions, default=None)

    def copies(self, log_position: int) -> Iterator[StoredSnapshot]:
        """The snapshot at a position, as each member has it that has it; gone when the next is asked for.

        Raises ClusterError for a member that breaks off while no other has it.
        """
        answers, _ = self._ask(log_position)
        error: ClusterError | None = None
        for supplier, response in answers:
            offered = {one.service_id: one for one in response.snapshots if one.log_position == log_position}
            if self._service_id not in offered:
                continue
            with TemporaryDirectory(prefix="cluster-snapshot-") as folder:
                try:
                    snapshot = self._fetch(supplier, offered, response.member_id, folder)
                except ClusterError as raised:
                    error = raised
                    continue
                error = None
                yield snapshot
        if error is not None:
            raise error

    def close(self) -> None:
        """Drop the connections."""
        for supplier in self._suppliers:
            supplier.close()

    # ---- one member

    def _ask(self, at_or_before: int | None) -> tuple[list[tuple[MemberSupplier, BackupResponse]], list[str]]:
        """(the answers of members, why others have none)"""
        answers, failures = [], []
        for number, supplier in enumerate(self._suppliers):
            query = BackupQuery(number, CONSENSUS, CLIENT_PROTOCOL_VERSION, at_or_before, "replay")
            try:
                answers.append((supplier, self._answer(supplier, query)))
            except ClusterError as error:
                failures.append(str(error))
        return answers, failures

    def _answer(self, supplier: MemberSupplier, query: BackupQuery) -> BackupResponse:
        supplier.ask(query)
        deadline_ns = self._now_ns() + int(self._timeout_s * 1e9)
        while (answer := supplier.poll()) is None:
            if self._now_ns() > deadline_ns:
                raise TimedOut(f"{supplier.name}: no answer within {self._timeout_s:g} s")
            self._world.wait(POLL_INTERVAL_S)
        if isinstance(answer, SessionEvent):
            raise event_error(supplier.name, answer)
        return answer

    def _fetch(
        self,
        supplier: MemberSupplier,
        offered: dict[int, BackupSnapshotRecording],
        member_id: int | None,
        folder: str,
    ) -> StoredSnapshot:
        """Into an archive in ``folder``, with that of the consensus module, by which it is checked."""
        directory = str(Path(folder, "archive"))
        archive = Archive.open(directory, files=OsFiles(), file_sync_level=0, epoch_ms=epoch_ms)
        recording_ids = {}
        try:
            for service_id in (CONSENSUS_MODULE_SERVICE_ID, self._service_id):
                if (one := offered.get(service_id)) is not None:
                    answers = supplier.read_recording(one.recording_id)
                    status = described(supplier.name, answers)
                    recording = create_snapshot_of(archive, status)
                    for frames in frames_of(supplier.name, answers):
                        append_snapshot(supplier.name, recording, status, frames)
                    archive.stop_recording(recording.recording_id)
                    recording_ids[service_id] = recording.recording_id
        finally:
            archive.close()
        wanted = offered[self._service_id]
        return StoredSnapshot(
            supplier.name,
            directory,
            member_id,
            self._service_id,
            recording_ids[self._service_id],
            recording_ids.get(CONSENSUS_MODULE_SERVICE_ID),
            wanted.leadership_term_id,
            wanted.log_position,
            wanted.timestamp,
        )


def _members(
    known: dict[int, Endpoint], open_client: Callable[[Endpoint], LogClient]
) -> tuple[dict[int, LogStatus], list[str]]:
    """(members that answer, by the keys of ``known``, which gets those that they report; others' reasons)"""
    found: dict[int, LogStatus] = {}
    failures: dict[int, str] = {}
    for _ in range(2):
        asked = {key: open_client(known[key]) for key in known if key not in found and key not in failures}
        for key, answer in statuses(asked).items():
            if isinstance(answer, ClusterError):
                failures[key] = str(answer)
            elif all(answer.member_id != other.member_id for other in found.values()):
                found[key] = answer
        for client in asked.values():
            client.close()
        for status in list(found.values()):
            adopt_reported(known, status)
        found = {key: status for key, status in found.items() if key in known}
    return found, list(failures.values())
