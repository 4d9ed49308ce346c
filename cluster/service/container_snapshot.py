"""The container's own part of a service's snapshot: the sessions, before what the service writes.

    SnapshotMarker BEGIN │ ClientSession … │ SnapshotMarker END │ messages of the service, in its own format

Source: ServiceSnapshotTaker, ServiceSnapshotLoader.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from cluster.archive.snapshot_archive import SnapshotArchive, SnapshotImage, SnapshotPublication
from cluster.errors import ClusterError, LogDamaged
from cluster.protocol import decode, streams
from cluster.protocol.enums import ClusterTimeUnit, SnapshotMark
from cluster.protocol.link import ServiceSnapshot
from cluster.protocol.snapshot import SERVICE_TYPE_ID, ClientSession, SnapshotMarker
from cluster.service.channel import ServiceChannel

NO_RECORDING = -1

# Writes a snapshot; returns the digest to be compared with other members', -1 for none.
WriteSnapshot = Callable[[SnapshotPublication], int]


class Snapshots(Protocol):
    """Where snapshots go, and come from."""

    def take(self, log_position: int, write: WriteSnapshot) -> int:
        """Have ``write`` write one, now or beside, and report it to the module when safe (ServiceSnapshot).

        Returns the recording's id; NO_RECORDING when nobody wants it. Raises ClusterError when there is none.
        """

    def open(self, recording_id: int) -> SnapshotImage: ...


@dataclass(frozen=True, slots=True)
class ArchivedSnapshots:
    """``Snapshots`` of a service that shares its member's thread: written at once, into the archive."""

    _service_id: int
    _archive: SnapshotArchive
    _channel: ServiceChannel

    def take(self, log_position: int, write: WriteSnapshot) -> int:
        publication = self._archive.create(streams.SERVICE_SNAPSHOT, self._service_id, log_position)
        try:
            digest = write(publication)
            recording_id = self._archive.complete(publication)
        except Exception:
            self._archive.discard(publication.recording_id)
            raise
        taken = ServiceSnapshot(
            self._service_id,
            log_position,
            recording_id,
            publication.position,
            publication.checksum,
            digest,
        )
        self._channel.offer_to_consensus_module(taken.encode(), log_position)
        return recording_id

    def open(self, recording_id: int) -> SnapshotImage:
        """Read a snapshot. Raises LogDamaged."""
        return self._archive.open(recording_id)


def container_records(
    sessions: Iterable[ClientSession],
    *,
    log_position: int,
    leadership_term_id: int,
    time_unit: ClusterTimeUnit,
    app_version: int,
) -> Iterator[bytes]:
    """The records before a service's own, sessions in the order given: ascending by id."""
    begin = SnapshotMarker(
        type_id=SERVICE_TYPE_ID,
        log_position=log_position,
        leadership_term_id=leadership_term_id,
        index=0,
        mark=SnapshotMark.BEGIN,
        time_unit=time_unit,
        app_version=app_version,
    )
    yield begin.encode()
    for session in sessions:
        yield session.encode()
    yield begin.replace(mark=SnapshotMark.END).encode()


def read_container_section(
    image: SnapshotImage, log_position: int
) -> tuple[SnapshotMarker, list[ClientSession]]:
    """The container's records, up to the service's first. Raises LogDamaged, ClusterError."""
    begin: SnapshotMarker | None = None
    sessions: list[ClientSession] = []
    while (record := image.next_message()) is not None:
        match decode(record):
            case SnapshotMarker(type_id=type_id) if type_id != SERVICE_TYPE_ID:
                raise LogDamaged(None, None, f"a snapshot of type {type_id}, expected {SERVICE_TYPE_ID}")
            case SnapshotMarker(mark=SnapshotMark.BEGIN) as marker:
                if begin is not None:
                    raise LogDamaged(None, None, "a snapshot begins twice")
                begin = marker
            case SnapshotMarker(mark=SnapshotMark.END):
                if begin is None:
                    raise LogDamaged(None, None, "a snapshot ends before it begins")
                if log_position not in (begin.log_position, 0):  # 0: the first of a log seeded from it
                    raise ClusterError(
                        f"a snapshot of position {begin.log_position}, expected {log_position}"
                    )
                return begin, sessions
            case ClientSession() as session if begin is not None:
                sessions.append(session)
    raise LogDamaged(None, None, "a snapshot without an end")
