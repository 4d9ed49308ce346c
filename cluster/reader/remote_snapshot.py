"""The newest snapshot of a running member's consensus module, over the network, as a backup asks for it."""

from __future__ import annotations

import zlib

import numpy as np

from cluster.archive.catalog_checksum import checksum_named
from cluster.errors import RemoteProtocolError, TimedOut
from cluster.log.checksum import restore_session_ids, verify_checksums
from cluster.log.deliver import read_message
from cluster.log.scan import scan
from cluster.protocol import decode
from cluster.protocol.backup import BackupQuery, BackupResponse
from cluster.protocol.link import RecordingStatus
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID
from cluster.protocol.session import SessionEvent
from cluster.protocol.snapshot import SnapshotChecksum
from cluster.protocol.streams import CONSENSUS
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from cluster.reader.member_supplier import MemberSupplier
from cluster.reader.supplier import described, event_error, frames_of
from cluster.transport.clock import monotonic_ns
from cluster.transport.credentials import CredentialsSupplier
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import Endpoint
from cluster.transport.log_client import LogClient
from cluster.transport.tls import TlsFiles

WAIT_S = 0.1
ANY_CLUSTER = -1


def fetched_module_records(
    endpoint: Endpoint,
    client: LogClient,
    tls: TlsFiles | None,
    credentials: CredentialsSupplier,
    timeout_s: float,
) -> tuple[int, list[bytes]] | None:
    """Log position and records of the member's newest snapshot; None where it has none.

    ``client`` reads, and stays open. Raises ClusterError: TimedOut after ``timeout_s`` without an answer,
    Unreachable where no member answers, AuthenticationRejected, RemoteProtocolError for damaged frames.
    """
    world = Dialler(tls)
    supplier = MemberSupplier(endpoint, client, world, credentials, ANY_CLUSTER)
    try:
        answer = _asked(supplier, world, timeout_s)
    finally:
        supplier.hang_up()
        world.close()
    for snapshot in answer.snapshots:
        if snapshot.service_id == CONSENSUS_MODULE_SERVICE_ID:
            answers = client.read_recording(snapshot.recording_id)
            status = described(supplier.name, answers)
            frames = list(frames_of(supplier.name, answers))
            return snapshot.log_position, records_in(supplier.name, status, frames)
    return None


def _asked(supplier: MemberSupplier, world: Dialler, timeout_s: float) -> BackupResponse:
    now_ns = monotonic_ns()
    deadline_ns = now_ns + int(timeout_s * 1e9)
    supplier.ask(BackupQuery(now_ns, CONSENSUS, CLIENT_PROTOCOL_VERSION, None, "snapshot"))
    while (answer := supplier.poll()) is None:
        if monotonic_ns() > deadline_ns:
            raise TimedOut(f"{supplier.name}: no answer to the backup query within {timeout_s:g} s")
        world.wait(WAIT_S)
    if isinstance(answer, SessionEvent):
        raise event_error(supplier.name, answer)
    return answer


def records_in(name: str, status: RecordingStatus, frames: list[np.ndarray]) -> list[bytes]:
    """The messages of a module's snapshot. Raises RemoteProtocolError where their CRC-32 is another."""
    data = np.concatenate([np.empty(0, np.uint8), *frames])
    checksum = checksum_named(status.checksum)
    good = scan(data, 0, len(data))
    if checksum is not None:
        good = verify_checksums(checksum, data, 0, good)
        restore_session_ids(data, 0, good, status.session_id)
    records, begin, offset = [], 0, 0
    while offset < good:
        message, end = read_message(data, offset, good)
        if end == offset:
            break
        if message is not None:
            records.append(bytes(message))
            begin = offset
        offset = end
    last = decode(records[-1]) if records else None
    is_other = isinstance(last, SnapshotChecksum) and zlib.crc32(data[:begin].data) != last.checksum
    if offset < len(data) or is_other:
        what = f"{name}: recording {status.recording_id} is not the snapshot that was taken"
        raise RemoteProtocolError(what)
    return records
