"""cnc.dat of a member: its counters, shown to any process on the host, in the file Aeron's tools look into.

A media driver's file without a driver. Counters, heartbeat and error log are real; what a client asks of
the driver through the ring (publications, subscriptions) is answered with an error, or it would wait out its
time-out. The file is allocated whole, built aside and renamed, and never shortened: who has it mapped
keeps its pages, and opens again when the inode at its path is another one.

A counter is changed by one aligned 8-byte store, which no reader sees half of. What a value promises (a
commit position: that the bytes are written) must be true before the store. A toggle, which several may write,
is changed by compare-and-set. Sources: CncFileDescriptor of
Aeron, CountersManager, ManyToOneRingBuffer and BroadcastTransmitter of Agrona; layouts in protocol/cnc.py.
"""

import mmap
import os
import struct
from collections.abc import Callable, Iterator
from typing import Final, Self

import numpy as np

from cluster.archive.files import OsFiles, make_directories, open_regular
from cluster.errors import LogDamaged, NotAClusterDirectory, StorageError, StorageErrors
from cluster.protocol.cnc import (
    BROADCAST_TRAILER_LENGTH,
    CNC_FILE_NAME,
    COUNTER_METADATA,
    DRIVER_TIMEOUT_MS,
    KEY_OFFSET,
    LABEL_LENGTH_MAX,
    LABEL_LENGTH_OFFSET,
    METADATA_LENGTH,
    RING_TRAILER_LENGTH,
    VALUE_LENGTH,
    CncHeader,
    CounterRecord,
    consumer_heartbeat_offset,
    decode_cnc_header,
    decode_counters,
    encode_counter_metadata,
    encode_counter_value,
    file_length,
    new_cnc_header,
    regions,
)
from cluster.protocol.counter_types import (
    CounterTypeId,
    counter_key,
    counter_label,
    decode_recording_position_key,
    recording_position_key,
    recording_position_label,
)
from cluster.protocol.enums import CounterState
from cluster.protocol.error_log import ErrorLogEntry, decode_error_log, record_error
from cluster.protocol.media import CLIENT_CLOSE, ON_ERROR, PADDING_RECORD

COUNTERS_MAX: Final = 4096  # one a client session, and some dozens
REUSE_TIMEOUT_MS: Final = 1_000
_TERMINATED: Final = -1  # as heartbeat

_RING_LENGTH: Final = 128 * 1024
_BROADCAST_LENGTH: Final = 128 * 1024
_ERROR_LOG_LENGTH: Final = 256 * 1024

_RECORDS_PER_LOOK: Final = 256

# Trailers, as indexes of 8-byte words; record header: i32 length, i32 type.
_HEAD, _TAIL_INTENT, _TAIL, _LATEST = 384 // 8, 0, 1, 2
_RECORD = struct.Struct("<ii")
_GENERIC_ERROR = 0
_UNANSWERED = frozenset((0x06, CLIENT_CLOSE, 0x0E))  # keep-alive, client close, terminate driver
_CORRELATED = struct.Struct("<qq")  # client id, correlation id: every other command begins so
_ERROR_RESPONSE = struct.Struct("<qii")
_REFUSAL = b"this member has no media driver: use the cluster command, or its endpoints"


class Counter:
    """One allocated counter of a file."""

    __slots__ = ("_index", "_words", "counter_id")

    def __init__(self, counter_id: int, words: memoryview) -> None:
        self.counter_id = counter_id
        self._words = words
        self._index = counter_id * (VALUE_LENGTH // 8)

    @property
    def index(self) -> int:
        """Where its value is in ``CountersFile.words``."""
        return self._index

    def get(self) -> int:
        return self._words[self._index]

    def set(self, value: int) -> None:
        self._words[self._index] = value

    def compare_and_set(self, expected: int, value: int) -> bool:
        """Set it if it is what is expected, whoever else writes it; returns whether it was."""
        from cluster.log.atomic import compare_and_set  # what only reads needs no compiled code

        return compare_and_set(np.frombuffer(self._words, np.int64), self._index, expected, value)

    def get_and_add(self, delta: int) -> int:
        """Add to a counter that only this process writes; return the value before."""
        value: int = self._words[self._index]
        self._words[self._index] = value + delta
        return value


class FoundCounter(Counter):
    """A counter that another process may free, and whose id it may use for another."""

    __slots__ = ("_begin", "_metadata", "_seen", "key")

    def __init__(self, counter_id: int, words: memoryview, metadata: memoryview) -> None:
        super().__init__(counter_id, words)
        self._metadata = metadata
        self._begin = counter_id * METADATA_LENGTH
        self._seen = self._identity()
        self.key = self._seen[KEY_OFFSET:]

    @property
    def label(self) -> str:
        begin = self._begin + LABEL_LENGTH_OFFSET
        length = int.from_bytes(self._metadata[begin : begin + 4], "little", signed=True)
        length = min(max(length, 0), LABEL_LENGTH_MAX)
        return bytes(self._metadata[begin + 4 : begin + 4 + length]).decode("latin-1")

    def is_there(self) -> bool:
        """Whether it is still the counter that was found."""
        return self._identity() == self._seen

    def _identity(self) -> bytes:
        """State, type and key."""
        return bytes(self._metadata[self._begin : self._begin + LABEL_LENGTH_OFFSET])


class _MappedCounters:
    """What writer and reader share: the regions of one cnc.dat."""

    def __init__(self, buffer: memoryview, header: CncHeader, path: str) -> None:
        self.path = path
        self.header = header
        self._buffer = buffer
        found = regions(header)
        self._metadata = found.counters_metadata.of(buffer)
        self._values = found.counters_values.of(buffer)
        self._words = self._values.cast("q")
        self._error_log = found.error_log.of(buffer)
        heartbeat = consumer_heartbeat_offset(header)
        self._heartbeat = buffer[heartbeat : heartbeat + 8].cast("q")

    @property
    def words(self) -> np.ndarray:
        """The values of all counters, mapped: int64."""
        return np.frombuffer(self._words, np.int64)

    @property
    def heartbeat_ms(self) -> int:
        """When the owner's duty cycle last ran, epoch ms; 0 or -1 when there is none."""
        return self._heartbeat[0]

    def is_live(self, now_ms: int) -> bool:
        """Whether the owner's duty cycle ran within the last 10 s."""
        return self.heartbeat_ms > 0 and now_ms - self.heartbeat_ms <= DRIVER_TIMEOUT_MS

    def counters(self) -> list[CounterRecord]:
        """All counters as they are now, reclaimed ones too."""
        return list(decode_counters(self._metadata, self._values))

    def find(self, type_id: int, cluster_id: int | None = None) -> FoundCounter | None:
        """The allocated counter of the type, and of the cluster when one is given."""
        key = b"" if cluster_id is None else counter_key(cluster_id)
        for counter in self._allocated(type_id):
            if counter.key.startswith(key):
                return counter
        return None

    def find_recording_position(self, recording_id: int, session_id: int) -> FoundCounter | None:
        """The position counter of an active recording."""
        for counter in self._allocated(CounterTypeId.RECORDING_POSITION):
            key = decode_recording_position_key(counter.key)
            if (key.recording_id, key.session_id) == (recording_id, session_id):
                return counter
        return None

    def types_and_values(self) -> tuple[list[int], list[int]]:
        """Type and value of each allocated counter, by id; there may be thousands, so none gets an object."""
        types: list[int] = []
        values: list[int] = []
        for first_id, allocated, of_type in self._looks():
            ids = np.flatnonzero(allocated)
            types += of_type[ids].tolist()
            values += [self._words[index] for index in ((first_id + ids) * (VALUE_LENGTH // 8)).tolist()]
        return types, values

    def labels_and_values(self, type_id: int) -> dict[str, int]:
        """Label and value of each allocated counter of a type, by id."""
        return {counter.label: counter.get() for counter in self._allocated(type_id)}

    def _allocated(self, type_id: int) -> Iterator[FoundCounter]:
        """Counters of a type, by id; those of a thousand sessions are passed over without a look at each."""
        for first_id, allocated, of_type in self._looks():
            for index in np.flatnonzero(allocated & (of_type == type_id)).tolist():
                yield FoundCounter(first_id + index, self._words, self._metadata)

    def _looks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(first id, which are allocated, types) of each block, up to the first that was never used."""
        block = _RECORDS_PER_LOOK * METADATA_LENGTH
        for begin in range(0, len(self._metadata), block):
            records = np.frombuffer(self._metadata[begin : begin + block], COUNTER_METADATA)
            states, types = records["state"].copy(), records["type_id"].copy()
            del records  # nothing may hold the mapping from one block to the next
            yield begin // METADATA_LENGTH, states == CounterState.ALLOCATED, types
            if (states == CounterState.UNUSED).any():
                return

    def errors(self) -> list[ErrorLogEntry]:
        """The distinct errors. Raises LogDamaged."""
        try:
            return list(decode_error_log(self._error_log))
        except LogDamaged as damage:
            raise damage.at(self.path, regions(self.header).error_log.offset) from None

    def _release(self) -> None:
        for view in (self._words, self._heartbeat, self._metadata, self._values, self._error_log):
            view.release()
        self._buffer.release()


class CountersFile(_MappedCounters):
    """The file of this member, written by one thread of one process."""

    def __init__(self, buffer: memoryview, header: CncHeader, path: str, unmap: Callable[[], None]) -> None:
        super().__init__(buffer, header, path)
        self._unmap = unmap
        self._now_ms = header.start_timestamp
        self._used = 0  # counters that were ever allocated
        self._reclaimed: list[int] = []
        found = regions(header)
        ring, broadcast = found.to_driver, found.to_clients
        self._ring = buffer[ring.offset : ring.end - RING_TRAILER_LENGTH]
        self._ring_words = buffer[ring.end - RING_TRAILER_LENGTH : ring.end].cast("q")
        self._broadcast = buffer[broadcast.offset : broadcast.end - BROADCAST_TRAILER_LENGTH]
        self._broadcast_words = buffer[broadcast.end - BROADCAST_TRAILER_LENGTH : broadcast.end].cast("q")

    @classmethod
    def create(cls, path: str, *, pid: int, now_ms: int) -> "CountersFile":
        """A new, durable file in place of any at ``path``, at epoch ms. Raises StorageError."""
        header = _new_header(pid, now_ms)
        length = file_length(header)
        aside, folder = f"{path}.tmp", os.path.dirname(path) or "."
        with StorageErrors(path, "making the counters file failed"):
            make_directories(folder)
            fd = open_regular(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                os.posix_fallocate(fd, 0, length)  # a full disk says so now, not by a SIGBUS later
                mapped = mmap.mmap(fd, length)
                counters = cls(memoryview(mapped), header, path, mapped.close)
                counters._begin(now_ms)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(aside, path)
            OsFiles().sync_directory(folder)
        return counters

    @classmethod
    def in_memory(cls, *, pid: int = 0, now_ms: int = 0) -> "CountersFile":
        """The same without a file, for a member that lives in a simulation."""
        header = _new_header(pid, now_ms)
        counters = cls(memoryview(bytearray(file_length(header))), header, CNC_FILE_NAME, lambda: None)
        counters._begin(now_ms)
        return counters

    def _begin(self, now_ms: int) -> None:
        self.update_heartbeat(now_ms)
        data = self.header.encode_body()
        self._buffer[4 : len(data)] = data[4:]
        self._buffer[:4] = data[:4]  # the version: the file is ready

    def close(self, *, orderly: bool = True) -> None:
        """Let go of the file, which stays; an ``orderly`` end says so, else the heartbeat grows old."""
        if orderly:
            self._heartbeat[0] = _TERMINATED
        for view in (self._ring_words, self._broadcast_words, self._ring, self._broadcast):
            view.release()
        self._release()
        self._unmap()

    def update_heartbeat(self, now_ms: int) -> None:
        """Say that the duty cycle ran; to be called from it and from nowhere else."""
        self._now_ms = now_ms
        self._heartbeat[0] = now_ms

    # ---- counters

    def allocate(self, type_id: int, key: bytes, label: str, value: int = 0) -> Counter:
        """A new counter, visible to readers when this returns. Raises StorageError when all are in use."""
        counter_id = self._next_id()
        begin = counter_id * METADATA_LENGTH
        metadata = encode_counter_metadata(type_id, key, label)
        at = counter_id * VALUE_LENGTH
        self._values[at : at + VALUE_LENGTH] = encode_counter_value(value)
        self._metadata[begin + 4 : begin + METADATA_LENGTH] = metadata[4:]
        self._metadata[begin : begin + 4] = metadata[:4]  # the state: the counter exists
        return Counter(counter_id, self._words)

    def allocate_cluster_counter(
        self,
        type_id: CounterTypeId,
        cluster_id: int,
        value: int = 0,
        *,
        service_id: int | None = None,
        version: str = "",
        commit: str = "",
        threshold_ns: int | None = None,
    ) -> Counter:
        """A counter of the cluster's table, with its key and label."""
        label = counter_label(
            type_id,
            cluster_id,
            service_id=service_id,
            version=version,
            commit=commit,
            threshold_ns=threshold_ns,
        )
        return self.allocate(type_id, counter_key(cluster_id, service_id), label, value)

    def allocate_recording_position(
        self,
        recording_id: int,
        session_id: int,
        stream_id: int,
        *,
        position: int,
        archive_id: int = -1,
    ) -> Counter:
        """The counter that shows how far a recording goes: for ``Recording.position_counter``."""
        return self.allocate(
            CounterTypeId.RECORDING_POSITION,
            recording_position_key(recording_id, session_id, "aeron:ipc", archive_id),
            recording_position_label(recording_id, session_id, stream_id, "aeron:ipc?alias=log", archive_id),
            position,
        )

    def free(self, counter: Counter) -> None:
        """Take a counter away; its id is used again a second later at the earliest."""
        begin = counter.counter_id * METADATA_LENGTH
        record = self._metadata[begin : begin + METADATA_LENGTH]
        record[0:4] = int(CounterState.RECLAIMED).to_bytes(4, "little", signed=True)
        record[16:128] = bytes(112)
        record[8:16] = (self._now_ms + REUSE_TIMEOUT_MS).to_bytes(8, "little", signed=True)
        self._reclaimed.append(counter.counter_id)

    def _next_id(self) -> int:
        for index, counter_id in enumerate(self._reclaimed):
            begin = counter_id * METADATA_LENGTH
            deadline = int.from_bytes(self._metadata[begin + 8 : begin + 16], "little", signed=True)
            if deadline <= self._now_ms:
                return self._reclaimed.pop(index)
        # Aeron's helpers never look at the very last id.
        if self._used >= len(self._values) // VALUE_LENGTH - 1:
            raise StorageError(self.path, None, f"all {self._used} counters are in use")
        self._used += 1
        return self._used - 1

    def record_error(self, text: str, now_ms: int) -> bool:
        """Count an error in the file's log; False when it finds no room."""
        return record_error(self._error_log, text, now_ms)

    # ---- commands of Aeron clients

    def drain_commands(self, limit: int = 64) -> int:
        """Answer what clients have written into the ring, at most ``limit`` records; return how many."""
        count = 0
        mask = len(self._ring) - 1
        while count < limit:
            head: int = self._ring_words[_HEAD]
            at = head & mask
            length, command = _RECORD.unpack_from(self._ring, at)
            if length <= 0:  # nothing, or a client is still writing it
                return count
            end = min(at + (length + 7 & ~7), len(self._ring))
            body = bytes(self._ring[at + _RECORD.size : min(at + length, end)])
            self._ring[at:end] = bytes(end - at)  # a client takes space that is zero
            self._ring_words[_HEAD] = head + end - at
            if command != PADDING_RECORD:
                count += 1
                if command not in _UNANSWERED and len(body) >= _CORRELATED.size:
                    self._refuse(_CORRELATED.unpack_from(body)[1])
        return count

    def _refuse(self, correlation_id: int) -> None:
        response = _ERROR_RESPONSE.pack(correlation_id, _GENERIC_ERROR, len(_REFUSAL)) + _REFUSAL
        length = _RECORD.size + len(response)
        aligned = length + 7 & ~7
        words, capacity = self._broadcast_words, len(self._broadcast)
        tail: int = words[_TAIL]
        at = tail & capacity - 1
        if capacity - at < aligned:
            words[_TAIL_INTENT] = tail + capacity - at + aligned
            _RECORD.pack_into(self._broadcast, at, capacity - at, PADDING_RECORD)
            tail += capacity - at
            at = 0
        else:
            words[_TAIL_INTENT] = tail + aligned
        _RECORD.pack_into(self._broadcast, at, length, ON_ERROR)
        self._broadcast[at + _RECORD.size : at + length] = response
        words[_LATEST] = tail
        words[_TAIL] = tail + aligned


class CountersReader(_MappedCounters):
    """A cnc.dat of ours or of a real media driver, mapped for reading; to ``write`` is for toggles only."""

    def __init__(self, path: str, *, write: bool = False) -> None:
        """Raises NotAClusterDirectory (no such file, or not ready), LogDamaged, StorageError."""
        try:
            fd = open_regular(path, os.O_RDWR if write else os.O_RDONLY)
            try:
                status = os.fstat(fd)
                if status.st_size < CncHeader.BLOCK_LENGTH:
                    raise LogDamaged(path, 0, f"a counters file of {status.st_size} bytes")
                prot = mmap.PROT_READ | mmap.PROT_WRITE if write else mmap.PROT_READ
                self._mapped = mmap.mmap(fd, status.st_size, prot=prot)
            finally:
                os.close(fd)
        except FileNotFoundError:
            raise NotAClusterDirectory(f"{path}: no counters file is here") from None
        except OSError as error:
            raise StorageError(path, error.errno, "opening failed") from error
        self._inode = status.st_dev, status.st_ino
        try:
            header = decode_cnc_header(self._mapped, status.st_size)
            if header.version == 0:
                raise NotAClusterDirectory(f"{path}: the counters file is not ready")
            super().__init__(memoryview(self._mapped), header, path)
        except LogDamaged as damage:
            self._mapped.close()
            raise damage.at(path) from None
        except NotAClusterDirectory:
            self._mapped.close()
            raise

    def is_replaced(self) -> bool:
        """Whether another file has taken the path, as after a restart: then open it again."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) != self._inode

    def close(self) -> None:
        self._release()
        self._mapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _new_header(pid: int, now_ms: int) -> CncHeader:
    return new_cnc_header(
        now_ms,
        pid,
        to_driver_length=_RING_LENGTH + RING_TRAILER_LENGTH,
        to_clients_length=_BROADCAST_LENGTH + BROADCAST_TRAILER_LENGTH,
        counters_values_length=COUNTERS_MAX * VALUE_LENGTH,
        error_log_length=_ERROR_LOG_LENGTH,
    )
