"""promises.dat: written whole, and damage of any bit is seen."""

import pytest

from cluster.archive.files import OsFiles
from cluster.archive.promises_file import PROMISES_FILE_NAME, read_promises, write_promises
from cluster.errors import LogDamaged
from cluster.protocol.link import KnownPromises, PromiseState, PromiseStatement

STATEMENT = PromiseStatement(7, 3, -1, PromiseState.KEPT, False, (KnownPromises(99, 2), KnownPromises(11, 4)))


def test_what_is_written_is_read(tmp_path):
    files, directory = OsFiles(), str(tmp_path)
    assert read_promises(files, directory) is None

    write_promises(files, directory, STATEMENT)

    assert read_promises(files, directory) == STATEMENT


def test_every_flipped_bit_and_every_missing_end_is_damage(tmp_path):
    files, directory = OsFiles(), str(tmp_path)
    write_promises(files, directory, STATEMENT)
    path = tmp_path / PROMISES_FILE_NAME
    data = path.read_bytes()
    flipped = [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for at in range(len(data))
        for bit in range(8)
    ]
    for broken in flipped + [data[:length] for length in range(len(data))]:
        path.write_bytes(broken)
        with pytest.raises(LogDamaged, match=PROMISES_FILE_NAME):
            read_promises(files, directory)
