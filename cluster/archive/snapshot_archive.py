"""Snapshots as recordings of an archive: written once, whole or not at all, and read back message by message.

    stream 106   of a service      stream 107   of the consensus module

A recording counts as a snapshot only when recording.log has an entry for it, which is written when the
recording is complete and safe. Unlike Aeron's, the frames of one snapshot are the same on every member:
session id and initial term id follow from what it is a snapshot of.
"""

import zlib
from collections.abc import Callable, Iterator

import numpy as np

from cluster.archive.archive import Archive, LentRecording
from cluster.archive.files import Buffer
from cluster.archive.frame_walk import log_params
from cluster.archive.recording import RecordingWriter
from cluster.archive.recording_log import RecordingLog
from cluster.archive.stored_recording import StoredRecording
from cluster.errors import LocalProtocolError, LogDamaged, StorageError
from cluster.log.append import BACK_PRESSURED, append_message
from cluster.log.deliver import read_message
from cluster.log.frames import LogParams
from cluster.protocol import streams
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID, SNAPSHOT

INITIAL_TERM_ID = 0
FLUSH_BYTES = 1024 * 1024
STREAM_IDS = (streams.SERVICE_SNAPSHOT, streams.CONSENSUS_MODULE_SNAPSHOT)


def snapshot_session_id(stream_id: int, service_id: int, log_position: int) -> int:
    """Session of a snapshot's frames; never -1, which means none."""
    value = zlib.crc32(f"{stream_id} {service_id} {log_position}".encode()) & 0x7FFF_FFFF
    return value or 1


def digest(message: bytes, digest_before: int) -> int:
    """CRC-32 of messages in a row, each with its length."""
    return zlib.crc32(message, zlib.crc32(len(message).to_bytes(8, "little"), digest_before))


def drop_snapshots_before(archive: Archive, recording_log: RecordingLog, log_position: int) -> int:
    """Remove older snapshots, the module's entry first; returns how many recordings. Raises StorageError."""
    old = [
        entry
        for entry in recording_log.entries
        if entry.entry_type is SNAPSHOT and entry.log_position < log_position
    ]
    old.sort(key=lambda entry: (entry.log_position, entry.service_id != CONSENSUS_MODULE_SERVICE_ID))
    for entry in old:
        recording_log.remove(entry)
    for entry in old:
        if archive.has_recording(entry.recording_id):
            archive.purge_recording(entry.recording_id)
    return len(old)


class SnapshotPublication:
    """What a snapshot is written into (Aeron: ExclusivePublication).

    ``offer`` takes one message from any number of buffers and returns the position after it; it never asks
    to be called again. Raises LocalProtocolError for a message of no bytes and for one that is longer than
    ``max_message_length``, StorageError for the disk.
    """

    def __init__(self, recording: RecordingWriter) -> None:
        self._recording = recording
        self._params = log_params(recording.descriptor)
        self._buffer = np.zeros(self._params.batch_length_min + FLUSH_BYTES, np.uint8)
        self._base = 0
        self.position = 0
        self.checksum = 0  # CRC-32 of all that is written out
        self.digest = 0  # CRC-32 of the messages offered since it was set to 0, whatever frames they are in

    @property
    def recording_id(self) -> int:
        return self._recording.recording_id

    @property
    def max_message_length(self) -> int:
        return self._params.message_length_max

    def offer(self, *message: Buffer) -> int:
        """Append one message."""
        data = b"".join(bytes(part) for part in message)
        if not 0 < len(data) <= self.max_message_length:
            raise LocalProtocolError(
                f"a message of {len(data)} bytes for a snapshot: 1 to {self.max_message_length} are allowed"
            )
        position = append_message(self._buffer, self.position - self._base, self.position, self._params, data)
        if position == BACK_PRESSURED:
            self.flush()
            position = append_message(self._buffer, 0, self.position, self._params, data)
            assert position > 0
        self.position = position
        self.digest = digest(data, self.digest)
        return position

    def flush(self) -> int:
        """Write out what was offered; return the checksum of all bytes up to ``position``."""
        batch = self._buffer[: self.position - self._base]
        if len(batch):
            self.checksum = zlib.crc32(batch.data, self.checksum)
            self._recording.append(self._base, batch)
            self._base = self.position
        return self.checksum

    def sync(self) -> None:
        """Make what was offered safe. Raises StorageError."""
        self.flush()
        self._recording.sync()


class SnapshotImage:
    """A snapshot read back (Aeron: Image): its messages in order. Raises LogDamaged, StorageError."""

    def __init__(self, recording: StoredRecording) -> None:
        self._recording = recording
        self._data = np.zeros(0, np.uint8)
        self._offset = 0
        self._wanted = FLUSH_BYTES
        self.position = recording.start_position  # of the next message

    @property
    def length(self) -> int:
        return self._recording.append_position

    @property
    def is_end_of_stream(self) -> bool:
        return self.position >= self._recording.append_position

    def poll(self, on_message: Callable[[memoryview], object], limit: int = 10) -> int:
        """Hand over at most ``limit`` messages; return how many: 0 at the end."""
        count = 0
        while count < limit and (message := self.next_message()) is not None:
            on_message(memoryview(message))
            count += 1
        return count

    def __iter__(self) -> Iterator[bytes]:
        while (message := self.next_message()) is not None:
            yield message

    def next_message(self) -> bytes | None:
        """The next message, None at the end."""
        while not self.is_end_of_stream:
            message, end = read_message(self._data, self._offset, len(self._data))
            if end > self._offset:
                self.position += end - self._offset
                self._offset = end
                if message is not None:
                    return message
            else:
                self._read_more()
        return None

    def _read_more(self) -> None:
        """The bytes from ``position`` on; more of them when a message did not fit what was read."""
        rest = len(self._data) - self._offset
        if rest:
            if self.position + rest >= self.length:
                raise LogDamaged(None, None, f"snapshot {self._recording.recording_id} ends in a message")
            self._wanted *= 2
        length = min(self._wanted, self.length - self.position)
        self._data, self._offset = self._recording.read(self.position, length), 0


class SnapshotArchive:
    """The snapshots of one member. ``term_length`` bounds a snapshot's longest message to an eighth of it."""

    def __init__(self, archive: Archive, *, term_length: int, mtu: int) -> None:
        self._archive = archive
        self._params = LogParams(term_length, mtu, INITIAL_TERM_ID, 0)

    def create(self, stream_id: int, service_id: int, log_position: int) -> SnapshotPublication:
        """Begin the snapshot of a service (or of the module, -1) at a log position. Raises StorageError."""
        session_id = snapshot_session_id(stream_id, service_id, log_position)
        return SnapshotPublication(
            self._archive.create_recording(
                stream_id=stream_id,
                session_id=session_id,
                initial_term_id=INITIAL_TERM_ID,
                term_length=self._params.term_length,
                mtu=self._params.mtu,
                channel=f"aeron:ipc?session-id={session_id}|alias=snapshot",
                is_sparse=True,
            )
        )

    def lend(self, service_id: int, log_position: int) -> LentRecording:
        """Begin the snapshot of a service that its own process writes. Raises StorageError."""
        publication = self.create(streams.SERVICE_SNAPSHOT, service_id, log_position)
        return self._archive.lend_recording(publication.recording_id)

    def take_back(self, recording_id: int, length: int) -> None:
        """The service has written its snapshot and made it safe: end its recording. Raises StorageError."""
        self._archive.take_back_recording(recording_id, length)

    def complete(self, publication: SnapshotPublication) -> int:
        """Make the snapshot safe, and end its recording; return the recording's id. Raises StorageError."""
        publication.flush()
        self._archive.stop_recording(publication.recording_id)
        return publication.recording_id

    def discard(self, recording_id: int) -> None:
        """Remove a snapshot that is not whole, or not wanted any more. Raises StorageError."""
        self._archive.purge_recording(recording_id)

    def open(self, recording_id: int) -> SnapshotImage:
        """Read a snapshot. Raises LogDamaged when the archive does not know it, or it never ended."""
        if not self._archive.has_recording(recording_id):
            raise LogDamaged(None, None, f"{self._archive.directory}: recording {recording_id} is not there")
        return SnapshotImage(self._archive.recording(recording_id))

    def checksum(self, recording_id: int, end: int | None = None) -> int:
        """CRC-32 of the frames of a snapshot up to ``end``, each found in its place. Raises LogDamaged."""
        try:
            return self._archive.recording(recording_id).checksum_of_frames(end)
        except StorageError as error:
            raise LogDamaged(error.path, None, str(error)) from error
