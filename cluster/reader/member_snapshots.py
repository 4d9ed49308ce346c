"""Snapshots of a running cluster, found and fetched as a backup does it, for who only reads them.

Every member answers the query for the newest snapshot at or before a position, and serves its recordings to
who may read (backup_sessions.py, served_recordings.py). A member that does not answer, or breaks off, is
asked no more, and is among those that are ``silent``.
"""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.archive.snapshot_archive import SnapshotImage
from cluster.errors import (
    AuthenticationRejected,
    ClusterError,
    DataLoss,
    LogDamaged,
    StorageErrors,
    TimedOut,
    TlsFailed,
)
from cluster.member.disk.fetched_recording import FetchedSnapshot
from cluster.protocol.backup import BackupQuery, BackupResponse
from cluster.protocol.enums import Role
from cluster.protocol.link import LogStatus
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID
from cluster.protocol.session import SessionEvent
from cluster.protocol.streams import CONSENSUS
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from cluster.reader.member_supplier import MemberSupplier
from cluster.reader.snapshots import StoredSnapshot, described_in
from cluster.reader.supplier import event_error
from cluster.transport.clock import epoch_ms, monotonic_ns
from cluster.transport.credentials import CredentialsSupplier, supplier_of
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import Endpoint, parse_endpoints
from cluster.transport.log_client import statuses
from cluster.transport.member_status import TIMEOUT_S, OpenClient, adopt_reported, log_client_opener
from cluster.transport.preference import FOLLOWER, in_order
from cluster.transport.tls import TlsFiles, tls_in

POLL_INTERVAL_S = 0.005


class SilentMember(NamedTuple):
    """A member that does not answer. ``member_id`` is None where nothing says which one it is."""

    member_id: int | None
    endpoint: str
    error: ClusterError

    def __str__(self) -> str:
        name = "the member" if self.member_id is None else f"member {self.member_id}"
        return f"{name} at {self.endpoint} does not answer: {self.error}"


class MemberSnapshots:
    """The snapshots of one service, or of all, that the members at ``endpoints`` have.

    As ``DirectorySnapshots``: ``directory`` of a snapshot is the member's endpoint. TLS and credentials are
    as for ``RemoteLog``. ``timeout_s`` is how long one member may take to answer.
    """

    def __init__(
        self,
        endpoints: str,
        service_id: int | None = None,
        *,
        tls: TlsFiles | None = None,
        credentials: bytes | CredentialsSupplier | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Find the members. Raises ConfigurationError and, with each reason, TimedOut when none answers,
        AuthenticationRejected or TlsFailed when all refuse.
        """
        self._service_id = service_id
        self._timeout_s = timeout_s
        tls = tls_in(os.environ) if tls is None else tls
        supplier = supplier_of(credentials)
        open_client = log_client_opener(timeout_s, tls, supplier)
        self._world = Dialler(tls)
        self._suppliers: dict[str, tuple[MemberSupplier, int | None]] = {}  # and the ids, by endpoint
        known = parse_endpoints(endpoints)
        found, silent = _members(known, open_client)
        self._silent = {one.endpoint: one for one in silent}
        if not found:
            self._world.close()
            raise self._no_answer()
        leads = {key: status.role == Role.LEADER for key, status in found.items()}
        for key in in_order(leads, FOLLOWER, os.getpid()):
            endpoint, status = known[key], found[key]
            client = open_client(endpoint)
            made = MemberSupplier(endpoint, client, self._world, supplier, status.cluster_id)
            self._suppliers[made.name] = (made, status.member_id if status.member_id >= 0 else None)

    @property
    def silent(self) -> list[SilentMember]:
        """The members that have not answered so far."""
        return list(self._silent.values())

    def newest(self, at_or_before: int | None) -> int | None:
        """Where the newest snapshot of any member is, at or before a position, or None. Raises TimedOut."""
        positions = (one.log_position for one in self._offered(at_or_before) if self._is_wanted(one))
        return max((one for one in positions if at_or_before is None or one <= at_or_before), default=None)

    def listed(self, beyond: int = -1) -> list[StoredSnapshot]:
        """Those after ``beyond``, by position, service and member, to be ``opened``. Raises TimedOut."""
        found: list[StoredSnapshot] = []
        at: int | None = None
        while at is None or at > beyond:
            offered = self._offered(at)
            positions = (one.log_position for one in offered if at is None or one.log_position <= at)
            position = max(positions, default=-1)
            if position <= beyond:
                break
            found += [one for one in offered if one.log_position == position and self._is_wanted(one)]
            at = position - 1
        return sorted(found, key=lambda one: (one.log_position, one.service_id, one.member_id or 0))

    def copies(self, log_position: int) -> Iterator[StoredSnapshot]:
        """The snapshot at a position, as each member has it that has it; gone when the next is asked for.

        Raises ClusterError for a member that breaks off while no other has it, TimedOut when none answers.
        """
        is_found, error = False, None
        for one in self._offered(log_position):
            if one.log_position != log_position or not self._is_wanted(one):
                continue
            with _temporary_folder() as folder:
                try:
                    snapshot = self._fetch(one, folder)
                except ClusterError as raised:
                    error = raised
                    continue
                is_found = True
                yield snapshot
        if error is not None and not is_found:
            raise error

    @contextmanager
    def opened(self, snapshot: StoredSnapshot) -> Iterator[SnapshotImage]:
        """One that was ``listed``, fetched meanwhile. Raises DataLoss when it was deleted, ClusterError."""
        with _temporary_folder() as folder:
            yield self._fetch(snapshot, folder).open()

    def close(self) -> None:
        """Drop the connections."""
        for supplier, _ in self._suppliers.values():
            supplier.close()
        self._world.close()

    def _is_wanted(self, snapshot: StoredSnapshot) -> bool:
        return self._service_id is None or snapshot.service_id == self._service_id

    def _no_answer(self) -> ClusterError:
        """Why nobody does; whose fault it is where all say the same."""
        errors = [one.error for one in self.silent]
        same = (
            kind for kind in (TlsFailed, AuthenticationRejected) if all(isinstance(e, kind) for e in errors)
        )
        return next(same, TimedOut)(f"no member answers: {'; '.join(map(str, errors))}")

    # ---- one member

    def _offered(self, at_or_before: int | None) -> list[StoredSnapshot]:
        """What members say that they have: of each the newest at or before a position, else its oldest."""
        waiting = dict.fromkeys(self._suppliers)
        answers: dict[str, BackupResponse] = {}
        for number, name in enumerate(self._suppliers):
            query = BackupQuery(number, CONSENSUS, CLIENT_PROTOCOL_VERSION, at_or_before, "replay")
            self._suppliers[name][0].ask(query)
        deadline_ns = monotonic_ns() + int(self._timeout_s * 1e9)
        while waiting:
            for name in list(waiting):
                try:
                    answer = self._polled(name, is_late=monotonic_ns() > deadline_ns)
                except ClusterError as error:
                    self._leave_out(name, error)
                    del waiting[name]
                    continue
                if answer is not None:
                    answers[name] = answer
                    del waiting[name]
            if waiting:
                self._world.wait(POLL_INTERVAL_S)
        if not answers:
            raise self._no_answer()
        found = ((name, answers[name]) for name in self._suppliers if name in answers)
        return [one for name, of in found for one in described_in(name, "", of.member_id, of.snapshots)]

    def _polled(self, name: str, *, is_late: bool) -> BackupResponse | None:
        answer = self._suppliers[name][0].poll()
        if isinstance(answer, SessionEvent):
            raise event_error(name, answer)
        if answer is None and is_late:
            raise TimedOut(f"{name}: no answer within {self._timeout_s:g} s")
        return answer

    def _leave_out(self, name: str, error: ClusterError) -> None:
        supplier, member_id = self._suppliers.pop(name)
        supplier.close()
        self._silent[name] = SilentMember(member_id, name, error)

    def _fetch(self, offered: StoredSnapshot, folder: str) -> StoredSnapshot:
        """Into an archive in ``folder``, with the module's. A member that breaks off is left out then."""
        name = offered.directory
        if name not in self._suppliers:
            raise TimedOut(str(self._silent.get(name) or f"no member is known at {name}"))
        supplier, _ = self._suppliers[name]
        directory = str(Path(folder, "archive"))
        archive = Archive.open(directory, files=OsFiles(), file_sync_level=0, epoch_ms=epoch_ms)
        given = dict.fromkeys((offered.module_recording_id, offered.recording_id))
        wanted = [recording_id for recording_id in given if recording_id is not None]
        copy = FetchedSnapshot(name, wanted, archive)
        try:
            while not copy.is_complete:
                copy.go_on(supplier.read_recording)
        except DataLoss:
            raise
        except ClusterError as error:
            self._leave_out(name, error)
            raise
        finally:
            archive.close()
        made = (recording.recording_id for recording in copy.recordings)
        fetched: dict[int | None, int] = dict(zip(wanted, made, strict=True))
        return replace(
            offered,
            archive=directory,
            recording_id=fetched[offered.recording_id],
            module_recording_id=fetched.get(offered.module_recording_id),
        )


def fetched_module_records(
    endpoints: str, tls: TlsFiles | None, credentials: bytes | CredentialsSupplier | None, timeout_s: float
) -> tuple[int, list[bytes]] | None:
    """Log position and records of the consensus module's newest snapshot; None where no member has one.

    Raises as ``MemberSnapshots``, and LogDamaged where what each member has of it is damaged.
    """
    damage, module = None, CONSENSUS_MODULE_SERVICE_ID
    found = MemberSnapshots(endpoints, module, tls=tls, credentials=credentials, timeout_s=timeout_s)
    with closing(found) as snapshots:
        position = snapshots.newest(None)
        for copy in () if position is None else snapshots.copies(position):
            try:
                return copy.log_position, list(copy.open())
            except LogDamaged as error:
                damage = error
    if damage is not None:
        raise damage
    return None


def _temporary_folder() -> TemporaryDirectory[str]:
    """For a copy of a snapshot. Raises StorageError."""
    with StorageErrors(os.environ.get("TMPDIR", "/tmp"), "no temporary folder can be made"):
        return TemporaryDirectory(prefix="cluster-snapshot-")


def _members(
    known: dict[int, Endpoint], open_client: OpenClient
) -> tuple[dict[int, LogStatus], list[SilentMember]]:
    """(members that answer, by the keys of ``known``, which gets those that they report; the others)"""
    found: dict[int, LogStatus] = {}
    silent: dict[int, SilentMember] = {}
    for _ in range(2):
        asked = {key: open_client(known[key]) for key in known if key not in found and key not in silent}
        for key, answer in statuses(asked).items():
            if isinstance(answer, ClusterError):
                silent[key] = SilentMember(key if key >= 0 else None, str(known[key]), answer)
            elif all(answer.member_id != other.member_id for other in found.values()):
                found[key] = answer
        for client in asked.values():
            client.close()
        for status in list(found.values()):
            adopt_reported(known, status)
        found = {key: status for key, status in found.items() if key in known}
        silent = {key: one for key, one in silent.items() if key in known}
    return found, list(silent.values())
