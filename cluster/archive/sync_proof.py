"""The proof file: how much of a recording a power cut has left whole.

Frames without checksums do not show whether a torn write reached them. So each sync first writes one of two
slots, in turn, each in a page of its own:

    0      4         8          16        24      32           36         40
    | magic | slot crc | sequence | from i8 | to i8 | session id | data crc |

512 bytes after it, once the sync has returned, without a sync of its own:

    | magic | crc of this | sequence | to i8 |

``data crc`` is CRC-32 of the log bytes [from, to), which the sync is about to make durable, and ``from`` is
where the sync before ended. The slot is handed to the device ahead of the segment's sync, whose flush makes
both durable: 10-20 µs where a second sync costs 60-80. After an unclean stop the newest slot either
holds, and the recording is whole up to ``to``, or the last sync never returned, nothing it covered was
acknowledged, and the recording ends at ``from``. Unless it is known to have returned, as after a SIGKILL,
which leaves the cache: then acknowledged bytes have changed, and that is damage. The same mark shows where
the newest slot itself is damaged: the older one would take back what the newest has acknowledged.

A slot holds only for the session that wrote it: whoever else extends the recording, a real
archive for one, does so under another session id. The file is removed by an orderly stop.
"""

import struct
import zlib
from dataclasses import dataclass, replace

from cluster.archive.files import File, Files

_SLOT = struct.Struct("<IIQqqiI")
_SLOT_OFFSETS = (0, 4096)
_DONE = struct.Struct("<IIQq")
_DONE_OFFSET = 512  # in the page of its slot, and a sector of its own
_MAGIC = 0x464F_5250  # "PROF"
LENGTH = 8192


@dataclass(frozen=True, slots=True)
class SyncProof:
    """What one slot says: the bytes [from_position, to_position) have this CRC-32.

    ``is_done``: their sync returned, so they may have been acknowledged.
    """

    sequence: int
    from_position: int
    to_position: int
    session_id: int
    data_crc: int
    is_done: bool = False


def sync_proof_path(directory: str, recording_id: int) -> str:
    return f"{directory}/recording-{recording_id}.proof"


def _encode(proof: SyncProof) -> bytes:
    fields = (
        proof.sequence,
        proof.from_position,
        proof.to_position,
        proof.session_id,
        proof.data_crc,
    )
    crc = zlib.crc32(_SLOT.pack(_MAGIC, 0, *fields))
    return _SLOT.pack(_MAGIC, crc, *fields)


def _encode_done(proof: SyncProof) -> bytes:
    fields = (proof.sequence, proof.to_position)
    return _DONE.pack(_MAGIC, zlib.crc32(_DONE.pack(_MAGIC, 0, *fields)), *fields)


def _decode(data: bytes) -> SyncProof | None:
    if len(data) < _SLOT.size:
        return None
    magic, _crc, *fields = _SLOT.unpack_from(data)
    proof = SyncProof(*fields)
    if magic != _MAGIC or _encode(proof) != data[: _SLOT.size]:
        return None
    is_done = data[_DONE_OFFSET : _DONE_OFFSET + _DONE.size] == _encode_done(proof)
    return replace(proof, is_done=is_done)


def decode_slots(data: bytes) -> list[SyncProof]:
    """The slots of a proof file that are whole."""
    slots = [_decode(data[offset : offset + _DONE_OFFSET + _DONE.size]) for offset in _SLOT_OFFSETS]
    return [proof for proof in slots if proof is not None]


def _newest_done(data: bytes) -> tuple[int, int]:
    """Sequence and end of the last sync that is known to have returned; zeros when none is."""
    newest = 0, 0
    for offset in _SLOT_OFFSETS:
        mark = data[offset + _DONE_OFFSET : offset + _DONE_OFFSET + _DONE.size]
        if len(mark) < _DONE.size:
            continue
        magic, crc, *fields = _DONE.unpack(mark)
        if magic == _MAGIC and zlib.crc32(_DONE.pack(_MAGIC, 0, *fields)) == crc:
            newest = max(newest, (fields[0], fields[1]))
    return newest


def read_sync_proof(files: Files, directory: str, recording_id: int, session_id: int) -> SyncProof | None:
    """The newest slot of the session, or None: no file, none whole, or of another session.

    Where that slot is damaged and its sync has returned, the proof covers no bytes, at the end of that sync.
    """
    path = sync_proof_path(directory, recording_id)
    if not files.exists(path):
        return None
    file = files.open(path)
    try:
        data = file.pread(LENGTH, 0)
    finally:
        file.close()
    proofs = [proof for proof in decode_slots(data) if proof.session_id == session_id]
    newest = max(proofs, key=lambda proof: proof.sequence, default=None)
    sequence, to_position = _newest_done(data)
    if newest is not None and newest.sequence < sequence:
        return SyncProof(sequence, to_position, to_position, session_id, zlib.crc32(b""), is_done=True)
    return newest


class SyncProofFile:
    """Writes the slots of one active recording."""

    def __init__(self, file: File, session_id: int) -> None:
        self._file = file
        self._session_id = session_id
        self._sequence = 0
        self._last: SyncProof | None = None

    @classmethod
    def create(
        cls, files: Files, directory: str, recording_id: int, session_id: int, position: int
    ) -> "SyncProofFile":
        """A new file that proves the recording up to ``position``, durable when this returns."""
        path = sync_proof_path(directory, recording_id)
        if files.exists(path):
            files.unlink(path)
        file = files.open(path, create=True)
        file.pwrite(bytes(LENGTH), 0)
        file.datasync()
        proof = cls(file, session_id)
        proof.restart(position)
        files.sync_directory(directory)
        return proof

    def restart(self, position: int) -> None:
        """Forget what was proven: the recording now ends at ``position``, and that is durable."""
        for _ in _SLOT_OFFSETS:
            self.write(position, position, 0)
        self._file.datasync()

    def write(self, from_position: int, to_position: int, data_crc: int) -> None:
        """Hand the next slot to the device; the caller's sync of the segment, next, makes it durable."""
        self._sequence += 1
        proof = SyncProof(self._sequence, from_position, to_position, self._session_id, data_crc)
        offset = _SLOT_OFFSETS[self._sequence & 1]
        self._file.pwrite(_encode(proof), offset)
        self._file.push(offset, _SLOT.size)
        self._last = proof

    def done(self) -> None:
        """The sync that the last slot was about has returned. Call it before the sync is acknowledged."""
        assert self._last is not None
        offset = _SLOT_OFFSETS[self._last.sequence & 1]
        self._file.pwrite(_encode_done(self._last), offset + _DONE_OFFSET)

    def close(self) -> None:
        self._file.close()


def sync_proof_exists(files: Files, directory: str, recording_id: int) -> bool:
    """Whether the recording was being written when its archive was opened last, and did not stop in order."""
    return files.exists(sync_proof_path(directory, recording_id))


def remove_sync_proof(files: Files, directory: str, recording_id: int) -> None:
    path = sync_proof_path(directory, recording_id)
    if files.exists(path):
        files.unlink(path)
