"""The proof file: how much of a recording a power cut has left whole.

Frames without checksums do not show whether a torn write reached them, and of several frames written together
a later one may have come through and an earlier one not. So each sync of such bytes first writes one of two
slots, in turn, each in a page of its own:

    0      4         8          16        24      32           36         40         44
    | magic | slot crc | sequence | from i8 | to i8 | session id | data crc | checksum |

512 bytes after it, once the sync has returned, without a sync of its own:

    | magic | crc of this | sequence | to i8 | checksum |

``data crc`` is CRC-32 of the log bytes [from, to), which the sync is about to make durable, and ``from`` is
where the sync before ended. The slot is handed to the device ahead of the segment's sync, whose flush makes
both durable. After an unclean stop the newest slot either holds, and the recording is whole up to ``to``, or
the last sync never returned, nothing it covered was acknowledged, and the recording ends at ``from``. Unless
it is known to have returned, as after a SIGKILL, which leaves the cache: then acknowledged bytes have
changed, and that is damage. The same mark shows where the newest slot itself is damaged: the older one would
take back what the newest has acknowledged.

A single frame with a checksum is whole, or it is the end: it needs no slot, and waits for none. A slot with a
``checksum`` (a polynomial; 0: none) says that nothing but such frames follows, each synced before the next
was written. While they come, a slot and its mark follow each sync in one write that nobody waits for: they
show, for as long as the cache lasts, that a frame has changed. After a power cut frames may lie after the
newest slot, and one that is bad and is not the last is damage. Before anything else is written a slot without
a checksum is synced. That costs one sync more, so all this begins after SINGLE_FRAMES_MIN such frames, and
when both slots say so, for one may be damaged.

A slot holds only for the session that wrote it: whoever else extends the recording, a real archive for one,
does so under another session id. The file is removed by an orderly stop.
"""

import struct
import zlib
from contextlib import closing
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from cluster.archive import proof_slots
from cluster.archive.files import File, Files
from cluster.archive.proof_slots import MAGIC, MARK_OFFSET, PROOF_MODULES, SLOT_LENGTH
from cluster.log.checksum import Checksum
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES_OUT, I64, WORDS_OUT

_SLOT = struct.Struct("<IIQqqiII")
_SLOT_OFFSETS = (0, proof_slots.PAGE)
_DONE = struct.Struct("<IIQqI")
# Before 0.2.0 neither had a checksum.
_OLD_SLOT = struct.Struct("<IIQqqiI")
_OLD_DONE = struct.Struct("<IIQq")
_OLD_MAGIC = 0x464F_5250  # "PROF"
LENGTH = 8192
SINGLE_FRAMES_MIN = 64  # in a row, before their syncs wait for no slot any more
_CHECKSUMS: dict[int, Checksum] = {int(checksum): checksum for checksum in Checksum}


@dataclass(frozen=True, slots=True)
class SyncProof:
    """What one slot says: the bytes [from_position, to_position) have this CRC-32.

    ``checksum``: of the single frames that may follow without a slot of their own; None: nothing does.
    ``is_done``: their sync returned, so they may have been acknowledged.
    """

    sequence: int
    from_position: int
    to_position: int
    session_id: int
    data_crc: int
    checksum: Checksum | None = None
    is_done: bool = False


def sync_proof_path(directory: str, recording_id: int) -> str:
    return f"{directory}/recording-{recording_id}.proof"


def _sealed(layout: struct.Struct, magic: int, *fields: int) -> bytes:
    """Magic, CRC-32 of all with a CRC of 0, fields."""
    return layout.pack(magic, zlib.crc32(layout.pack(magic, 0, *fields)), *fields)


def _opened(data: bytes, offset: int, *layouts: tuple[struct.Struct, int]) -> list[int] | None:
    """The fields of whichever layout and magic is there, and whole."""
    for layout, magic in layouts:
        if offset + layout.size <= len(data):
            found, _, *fields = layout.unpack_from(data, offset)
            if found == magic and _sealed(layout, magic, *fields) == data[offset : offset + layout.size]:
                return fields
    return None


def _decode(data: bytes, offset: int) -> SyncProof | None:
    fields = _opened(data, offset, (_SLOT, MAGIC), (_OLD_SLOT, _OLD_MAGIC))
    if fields is None:
        return None
    sequence, from_position, to_position, session_id, data_crc, *rest = fields
    checksum = _CHECKSUMS.get(rest[0]) if rest else None
    proof = SyncProof(sequence, from_position, to_position, session_id, data_crc, checksum)
    return replace(proof, is_done=_decode_done(data, offset)[:2] == (sequence, to_position))


def _decode_done(data: bytes, offset: int) -> tuple[int, int, Checksum | None]:
    """Sequence, end and checksum of the mark in the page of a slot; zeros when none is whole."""
    fields = _opened(data, offset + MARK_OFFSET, (_DONE, MAGIC), (_OLD_DONE, _OLD_MAGIC))
    if fields is None:
        return 0, 0, None
    return fields[0], fields[1], _CHECKSUMS.get(fields[2]) if len(fields) > 2 else None


def decode_slots(data: bytes) -> list[SyncProof]:
    """The slots of a proof file that are whole."""
    slots = [_decode(data, offset) for offset in _SLOT_OFFSETS]
    return [proof for proof in slots if proof is not None]


def read_sync_proof(files: Files, directory: str, recording_id: int, session_id: int) -> SyncProof | None:
    """The newest slot of the session, or None: no file, none whole, or of another session.

    Where that slot is damaged and its sync has returned, the proof covers no bytes, at the end of that sync.
    """
    path = sync_proof_path(directory, recording_id)
    if not files.exists(path):
        return None
    with closing(files.open(path)) as file:
        data = file.pread(LENGTH, 0)
    proofs = [proof for proof in decode_slots(data) if proof.session_id == session_id]
    newest = max(proofs, key=lambda proof: proof.sequence, default=None)
    sequence, to, checksum = max((_decode_done(data, offset) for offset in _SLOT_OFFSETS), key=itemgetter(0))
    if newest is not None and newest.sequence < sequence:
        return SyncProof(sequence, to, to, session_id, zlib.crc32(b""), checksum, is_done=True)
    return newest


NO_PROOF = np.zeros(proof_slots.PROOF_WORDS, np.int64)
NO_PROOF[proof_slots.FILE] = -1


@kernel(I64(WORDS_OUT, BYTES_OUT, I64), modules=PROOF_MODULES)
def _put_first_slot(proof, page, position):  # type: ignore[no-untyped-def]
    return proof_slots.put_slot(proof, page, position, position, 0, 0)


class SyncProofFile:
    """The file of one active recording; by ``words`` kernels write its slots (``proof_slots.py``)."""

    def __init__(self, file: File, session_id: int) -> None:
        self.file = file
        self.words = np.zeros(proof_slots.PROOF_WORDS, np.int64)
        self.words[proof_slots.SESSION_ID] = session_id
        self.words[proof_slots.SINGLE_FRAMES_MIN] = SINGLE_FRAMES_MIN
        self.words[proof_slots.FILE] = file.fileno()
        self.words[proof_slots.IS_IN_PLACE] = file.is_pushed_in_place

    @classmethod
    def create(
        cls, files: Files, directory: str, recording_id: int, session_id: int, position: int
    ) -> "SyncProofFile":
        """A new file that proves the recording up to ``position``, durable when this returns."""
        path = sync_proof_path(directory, recording_id)
        if files.exists(path):
            files.unlink(path)
        file = files.open(path, create=True)
        proof = cls(file, session_id)
        data = np.zeros(LENGTH, np.uint8)
        page = np.zeros(SLOT_LENGTH, np.uint8)
        for _ in _SLOT_OFFSETS:
            offset = _put_first_slot(proof.words, page, position)
            data[offset : offset + SLOT_LENGTH] = page
        file.pwrite(data, 0)
        file.datasync()
        files.sync_directory(directory)
        return proof

    def change_session(self, session_id: int, position: int) -> None:
        """Let a slot prove ``position`` for another session too; the next sync of any file makes it durable.

        The other slot proves as much for the session before, as long as the catalog names that one.
        """
        self.words[proof_slots.SESSION_ID] = session_id
        page = np.zeros(SLOT_LENGTH, np.uint8)
        offset = _put_first_slot(self.words, page, position)
        self.file.pwrite(page, offset)
        self.file.push(offset, SLOT_LENGTH)

    def close(self) -> None:
        self.file.close()


def sync_proof_exists(files: Files, directory: str, recording_id: int) -> bool:
    """Whether the recording was being written when its archive was opened last, and did not stop in order."""
    return files.exists(sync_proof_path(directory, recording_id))


def remove_sync_proof(files: Files, directory: str, recording_id: int) -> None:
    path = sync_proof_path(directory, recording_id)
    if files.exists(path):
        files.unlink(path)
