"""A recording to be damaged, how it is damaged, and what of it is found."""

import errno
import os

from cluster.archive.archive import Archive
from cluster.archive.files import OsFile
from tests.archive.logs import SEGMENT_LENGTH, SESSION_ID, TERM_LENGTH, Clock, a_log

LOG = a_log(1000)


def opened(directory, **options):
    options.setdefault("checksum", "crc32c")
    return Archive.open(
        str(directory), segment_length=SEGMENT_LENGTH, may_be_damaged=True, epoch_ms=Clock(), **options
    )


def recorded(directory, *, is_stopped=True, **options):
    archive = opened(directory, **options)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    last = LOG.entries[-1][0]
    recording.append(0, LOG.frames(0, last))
    recording.sync()
    recording.append(last, LOG.frames(last))
    recording.sync()
    archive.close() if is_stopped else archive.abandon()


def damage_of(directory, from_position=None, **options):
    archive = opened(directory, **options)
    damage = archive.find_damage(0, from_position)
    archive.abandon()
    return damage


def entry_at(position):
    """(begin, end) of the entry whose frames hold the position."""
    return next((begin, end) for begin, end in LOG.entries if begin <= position < end)


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def unreadable_at(monkeypatch, base, bad):
    """Let reads of one byte of a segment fail, and of all that is read with it; not of its successor."""
    inodes = []

    def check(file, offset, length):
        if file.path.endswith(f"0-{base}.rec"):
            inode = os.stat(file.path).st_ino
            inodes.append(inode)
            if inode == inodes[0] and offset <= bad < offset + length:
                raise OSError(errno.EIO, "Input/output error", file.path)

    read_into, read = OsFile.pread_into, OsFile.pread

    def pread_into(self, buffer, offset):
        check(self, offset, len(buffer))
        return read_into(self, buffer, offset)

    def pread(self, length, offset):
        check(self, offset, length)
        return read(self, length, offset)

    monkeypatch.setattr(OsFile, "pread_into", pread_into)
    monkeypatch.setattr(OsFile, "pread", pread)
