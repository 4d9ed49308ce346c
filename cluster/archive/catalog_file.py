"""The catalog of an archive as a file: found, changed in place, synced.

Each change writes single fields, in Aeron's order, so that a reader beside us and a crash in between see the
old value or the new one. The layout is in ``cluster/protocol/catalog.py``. Source: Catalog.java.
"""

import struct
from functools import partial

from cluster.archive.catalog_checksum import descriptor_checksum, entry_checksum
from cluster.archive.catalog_repair import PutBack, put_back_flips
from cluster.archive.files import File, Files, read_at_rest, replace
from cluster.errors import LogDamaged, NotAClusterDirectory, StorageErrors
from cluster.log.checksum import Checksum
from cluster.protocol.catalog import (
    CATALOG_CAPACITY_DEFAULT,
    CATALOG_FILE_NAME,
    CHECKSUM_OFFSET,
    HEADER_LENGTH,
    NEXT_RECORDING_ID_OFFSET,
    NULL_POSITION,
    NULL_TIMESTAMP,
    STATE_OFFSET,
    CatalogEntry,
    CatalogHeader,
    RecordingDescriptor,
    RecordingDescriptorHeader,
    decode_catalog_header,
    decode_entries,
    encode_catalog_entry,
    first_entry_offset,
    new_catalog_header,
)
from cluster.protocol.enums import RecordingState
from cluster.protocol.frame import FRAME_ALIGNMENT, is_mtu, is_term_length

MTU_MIN = 64  # a session message's header has to fit
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")
_FIRST_READ = 16 * 1024


def _used_part(file: File, capacity: int) -> bytes:
    """The catalog up to its end, which a live reader looks for often: most of the file is empty."""
    data = read_at_rest(file, min(capacity, _FIRST_READ))
    if len(data) < capacity and len(data) >= HEADER_LENGTH:
        offset = first_entry_offset(CatalogHeader.decode_record(data))
        while offset + HEADER_LENGTH <= len(data):
            length = _I32.unpack_from(data, offset)[0]
            if length <= 0:
                return data
            offset += HEADER_LENGTH + length
    return read_at_rest(file, capacity)


class CatalogFile:
    """Entries of every state, in the file's order; the VALID ones by recording id.

    ``sync_level`` 0 leaves changes to the kernel; 1 and 2 make each durable before the call returns. A change
    that the disk refuses raises StorageError.
    ``stale_checksum``: the kind of those that a crash within a change has left wrong.
    ``damage`` says where the readable part ends when a catalog is opened with ``readable_part``, ``put_back``
    where a bit had flipped.
    """

    def __init__(self, file: File, *, sync_level: int, stale_checksum: Checksum) -> None:
        self._file = file
        self._sync_level = sync_level
        self._stale_checksum = stale_checksum
        self.damage: LogDamaged | None = None
        self.entries: list[CatalogEntry] = []
        self.capacity = file.size()
        data = bytearray(_used_part(file, self.capacity))
        self.put_back: list[PutBack] = put_back_flips(data)
        self.header: CatalogHeader = decode_catalog_header(data)
        self._end = first_entry_offset(self.header)
        try:
            last_id = -1
            for entry in decode_entries(data, self.header):
                recording_id = entry.descriptor.recording_id
                if recording_id <= last_id:
                    what = f"recording id {recording_id} follows {last_id}"
                    raise LogDamaged(None, entry.field_offset("recording_id"), what)
                self.entries.append(entry)
                self._end, last_id = entry.end, recording_id
        except LogDamaged as damage:
            self.damage = damage.at(file.path)

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        *,
        write: bool = False,
        sync_level: int = 1,
        readable_part: bool = False,
        stale_checksum: Checksum = Checksum.CRC_32C,
    ) -> "CatalogFile":
        """The catalog of a directory.

        Raises NotAClusterDirectory, LogDamaged (unless ``readable_part``), StorageError.
        """
        path = f"{directory}/{CATALOG_FILE_NAME}"
        with StorageErrors(path, "opening failed"):
            if not files.exists(path):
                raise NotAClusterDirectory(f"{directory}: no archive is here, {CATALOG_FILE_NAME} is missing")
            file = files.open(path, write=write)
            try:
                catalog = cls(file, sync_level=sync_level, stale_checksum=stale_checksum)
            except LogDamaged as damage:
                file.close()
                raise damage.at(path) from None
            except OSError:
                file.close()
                raise
        if catalog.damage is not None and not readable_part:
            file.close()
            raise catalog.damage
        if write and catalog.put_back:
            for offset, put_back, _ in catalog.put_back:
                catalog._write(put_back, offset)
            catalog._sync()
        return catalog

    @classmethod
    def create(cls, files: Files, directory: str) -> None:
        """Write an empty catalog. Raises StorageError."""
        path = f"{directory}/{CATALOG_FILE_NAME}"
        replace(files, path, new_catalog_header().encode_body(), length=CATALOG_CAPACITY_DEFAULT)

    def close(self) -> None:
        self._file.close()

    @property
    def path(self) -> str:
        return self._file.path

    # ---- finding

    def entry(self, recording_id: int) -> CatalogEntry | None:
        """The entry of a recording, of any state; None for an unknown id."""
        for entry in self.entries:
            if entry.descriptor.recording_id == recording_id:
                return entry
        return None

    def descriptor(self, recording_id: int) -> RecordingDescriptor:
        """Of a VALID recording; asking for another is a bug."""
        entry = self.entry(recording_id)
        assert entry is not None and entry.is_valid, recording_id
        return entry.descriptor

    def descriptors(self) -> list[RecordingDescriptor]:
        """Of the VALID recordings."""
        return [entry.descriptor for entry in self.entries if entry.is_valid]

    def check_entry(self, entry: CatalogEntry, bases: list[int]) -> None:
        """Raise LogDamaged for positions or a geometry that no recording with these ``bases`` has."""
        descriptor = entry.descriptor
        start, stop = descriptor.start_position, descriptor.stop_position
        term_length, segment_length = descriptor.term_buffer_length, descriptor.segment_file_length
        wrong = None
        if not is_term_length(term_length):
            wrong = "term_buffer_length", f"term length {term_length} cannot be"
        elif not is_term_length(segment_length) or segment_length < term_length:
            wrong = "segment_file_length", f"segment length {segment_length} cannot be"
        elif not is_mtu(descriptor.mtu_length) or descriptor.mtu_length < MTU_MIN:
            wrong = "mtu_length", f"MTU {descriptor.mtu_length} cannot be"
        elif start < 0 or start % FRAME_ALIGNMENT:
            wrong = "start_position", f"start position {start} cannot be"
        elif bases and bases[-1] + segment_length < start:
            wrong = "start_position", f"start position {start} cannot be, its segment files end before"
        elif stop != NULL_POSITION and (stop < start or stop % FRAME_ALIGNMENT):
            wrong = "stop_position", f"stop position {stop} cannot be, the recording starts at {start}"
        if wrong is not None:
            raise LogDamaged(self.path, entry.field_offset(wrong[0]), wrong[1])

    def damage_of(self, recording_id: int, field: str, what: str) -> LogDamaged:
        """That a field of a recording's descriptor is damaged, by its offset in the file."""
        entry = self.entry(recording_id)
        assert entry is not None
        return LogDamaged(self.path, entry.field_offset(field), what)

    # ---- changing

    def write_again(self) -> None:
        """Make durable what was read: if a sync failed in an earlier life, the cache alone has it."""
        self._file.pwrite(self._file.pread(self._end, 0), 0)
        self._sync()

    def add(self, descriptor: RecordingDescriptor, checksum: Checksum | None = None) -> RecordingDescriptor:
        """Append an entry under the next id; ``checksum`` is that of its frames. Returns the descriptor."""
        recording_id = self.header.next_recording_id
        descriptor = descriptor.replace(recording_id=recording_id)
        data = encode_catalog_entry(
            descriptor,
            alignment=self.header.alignment,
            checksum=None if checksum is None else partial(descriptor_checksum, checksum),
        )
        offset = self._end
        self._grow(offset + len(data))
        # The length in its header makes the entry exist: then the rest of it is there, and its id is taken.
        self._write(data[HEADER_LENGTH:], offset + HEADER_LENGTH)
        self._write(_I64.pack(recording_id + 1), NEXT_RECORDING_ID_OFFSET)
        self._sync(metadata=True)
        self._write(data[:HEADER_LENGTH], offset)
        self._sync()
        self.header = self.header.replace(next_recording_id=recording_id + 1)
        header = RecordingDescriptorHeader.decode_record(data)
        self.entries.append(CatalogEntry(offset, header, descriptor))
        self._end = offset + len(data)
        return descriptor

    def stop(
        self, recording_id: int, stop_position: int, timestamp: int | None = None
    ) -> RecordingDescriptor:
        """Set the end of a recording; without a ``timestamp`` (epoch ms) that of its last stop stays."""
        changes = {} if timestamp is None else {"stop_timestamp": timestamp}
        return self._update(recording_id, **changes, stop_position=stop_position)

    def extend(self, recording_id: int, session_id: int) -> RecordingDescriptor:
        """Say that the recording is written again, by the publication of ``session_id``."""
        return self._update(
            recording_id,
            control_session_id=0,
            correlation_id=0,
            stop_timestamp=NULL_TIMESTAMP,
            session_id=session_id,
            stop_position=NULL_POSITION,
        )

    def set_start_position(self, recording_id: int, start_position: int) -> RecordingDescriptor:
        """Raise the start of a recording, whose files below are about to go."""
        return self._update(recording_id, start_position=start_position)

    def set_state(self, recording_id: int, state: RecordingState) -> None:
        """Change the state field and nothing else."""
        index = self._index(recording_id)
        entry = self.entries[index]
        self._write(_I32.pack(state), entry.offset + STATE_OFFSET)
        self._sync()
        self.entries[index] = entry._replace(header=entry.header.replace(state=state))

    def set_checksum(self, recording_id: int, checksum: int) -> None:
        """Store the descriptor's checksum, as the checksum tool does."""
        index = self._index(recording_id)
        entry = self.entries[index]
        self._write(_I32.pack(checksum), entry.offset + CHECKSUM_OFFSET)
        self._sync()
        self.entries[index] = entry._replace(header=entry.header.replace(checksum=checksum))

    def checksum_of(self, entry: CatalogEntry) -> Checksum | None:
        """By what an entry says that the frames of its recording are to be verified."""
        return entry_checksum(entry, self.descriptor_bytes(entry), self._stale_checksum)

    def descriptor_bytes(self, entry: CatalogEntry) -> bytes:
        """What a descriptor's checksum covers: the entry without its header."""
        return self._file.pread(entry.header.length, entry.offset + HEADER_LENGTH)

    def _update(self, recording_id: int, **changes: int) -> RecordingDescriptor:
        """Write single fields in the order given, then the checksum if there is one, then sync."""
        index = self._index(recording_id)
        entry = self.entries[index]
        checksum = self.checksum_of(entry)
        descriptor = entry.descriptor.replace(**changes)
        dtype = RecordingDescriptor.DTYPE
        for name, value in changes.items():
            code = _I64 if dtype[name].itemsize == 8 else _I32
            self._write(code.pack(value), entry.field_offset(name))
        entry = entry._replace(descriptor=descriptor)
        if checksum is not None:
            value = descriptor_checksum(checksum, self.descriptor_bytes(entry))
            self._write(_I32.pack(value), entry.offset + CHECKSUM_OFFSET)
            entry = entry._replace(header=entry.header.replace(checksum=value))
        self._sync()
        self.entries[index] = entry
        return descriptor

    def _index(self, recording_id: int) -> int:
        return next(
            index for index, entry in enumerate(self.entries) if entry.descriptor.recording_id == recording_id
        )

    def _grow(self, length: int) -> None:
        while length > self.capacity:
            self.capacity += self.capacity // 2
            with StorageErrors(self.path, "growing failed"):
                self._file.resize(self.capacity)

    def _write(self, data: bytes, offset: int) -> None:
        with StorageErrors(self.path, "writing failed"):
            self._file.pwrite(data, offset)

    def _sync(self, *, metadata: bool = False) -> None:
        with StorageErrors(self.path, "syncing failed"):
            if self._sync_level == 2 or (metadata and self._sync_level > 0):
                self._file.fullsync()
            elif self._sync_level > 0:
                self._file.datasync()
