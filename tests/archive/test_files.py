"""A file that is replaced is the old one or the new one, whole, whatever happens on the way."""

from __future__ import annotations

import errno
import os

import pytest

from cluster.archive.files import OsFiles, replace
from cluster.archive.recording_log import RecordingLog
from cluster.errors import StorageError
from tests.archive.faulty_files import FaultyDisk, PowerCut, io_error
from tests.archive.logs import append_term

PATH = "/member/cluster/note"
OLD = b"old" * 1000
NEW = b"newer" * 2000


def a_disk(seed: int = 0) -> FaultyDisk:
    disk = FaultyDisk(seed)
    replace(disk, PATH, OLD)
    return disk


def read(disk: FaultyDisk) -> bytes:
    file = disk.open(PATH)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def test_a_replaced_file_is_padded_with_zeros_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "catalog"
    replace(OsFiles(), str(path), b"first", length=64)
    assert path.read_bytes() == b"first".ljust(64, b"\0")
    replace(OsFiles(), str(path), b"second and longer", length=8)
    assert path.read_bytes() == b"second and longer"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_at_any_step_is_told_with_the_path_and_leaves_one_of_the_two_files():
    for at in range(1, 100):
        disk = a_disk()
        disk.open(f"{PATH}.tmp", create=True).close()  # of a process that died on the way
        disk.fail(at, io_error(errno.ENOSPC))
        try:
            replace(disk, PATH, NEW)
        except StorageError as error:
            assert (error.path, error.errno) == (PATH, errno.ENOSPC)
            assert read(disk) == (NEW if disk.history[-1] == "sync /member/cluster" else OLD)
            assert not disk.open_files
            replace(disk, PATH, NEW)
        else:
            break
        assert read(disk) == NEW
    assert at == 8, "unlink, create, resize, write, sync, rename, sync of the folder: each has failed"


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_at_any_step_leaves_one_of_the_two_files(seed):
    for at in range(1, 100):
        disk = a_disk(seed)
        disk.fail(at, PowerCut())
        try:
            replace(disk, PATH, NEW)
        except PowerCut:
            disk.lose_power()
            assert read(disk) in (OLD, NEW)
            replace(disk, PATH, NEW)
        disk.lose_power()
        assert read(disk) == NEW
        if at > 7:
            break


def test_a_recording_log_that_cannot_be_rewritten_is_the_old_one_or_the_new_one_and_closed():
    for at in range(1, 7):
        disk = FaultyDisk()
        log = RecordingLog.open("/member/cluster", files=disk)
        append_term(log, 0, 0, 0, timestamp=1)
        append_term(log, 0, 1, 64, timestamp=2)
        disk.fail(at, io_error())
        with pytest.raises(StorageError):
            log.rewrite(log.entries[1:])
        log.close()
        assert not disk.open_files
        found = RecordingLog.open("/member/cluster", files=disk, write=False)
        assert [entry.leadership_term_id for entry in found.entries] == ([0, 1] if at < 6 else [1])


def test_a_file_goes_quietly_when_the_interpreter_has_let_go_of_os(tmp_path, monkeypatch):
    """As at its end: names of modules may be gone before the last objects are."""
    file, lock = OsFiles().open(str(tmp_path / "log"), create=True), OsFiles().lock(str(tmp_path / "lock"))
    descriptors = {file.fileno(), lock._fd}
    with monkeypatch.context() as patched:
        patched.setattr("cluster.archive.files.os", None)
        del file, lock  # what they raise here is an error of the test
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_lock_is_not_kept_by_what_its_process_forked(tmp_path):
    path = str(tmp_path / "lock")
    lock = OsFiles().lock(path)
    (waiting, go_on), (coming, here) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go_on)
        os.write(here, b".")
        os.read(waiting, 1)  # lives until the test ends it
        os._exit(0)
    try:
        os.read(coming, 1)
        assert OsFiles().lock(path) is None, "its own process holds it still"
        lock.release()
        again = OsFiles().lock(path)
        assert again is not None
        again.release()
    finally:
        os.close(go_on)
        os.waitpid(child, 0)
