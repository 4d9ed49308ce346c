"""Whose a directory is: what a refused start leaves, who is remembered, and looking without taking."""

from __future__ import annotations

import fcntl
import os

import pytest

from cluster.archive.directory_lock import DirectoryLock, check_is_free, lock_path
from cluster.archive.files import OsFiles
from cluster.errors import DirectoryInUse
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from tests.archive.faulty_files import FaultyDisk
from tests.archive.logs import T0
from tests.archive.mark_files import leave_mark_of_another_process


@pytest.fixture
def lock_file(tmp_path):
    """Beside a fresh mark file of another process, 4242."""
    leave_mark_of_another_process(tmp_path, T0)
    return lock_path(str(tmp_path), CLUSTER_MARK_FILE_NAME)


def take(tmp_path, now_ms=T0):
    return DirectoryLock.take(OsFiles(), str(tmp_path), CLUSTER_MARK_FILE_NAME, now_ms)


def test_a_start_that_is_refused_gives_the_lock_back(tmp_path, lock_file):
    with pytest.raises(DirectoryInUse, match="in use by process 4242 of Aeron") as refused:
        take(tmp_path)
    take(tmp_path, T0 + 10_000).release()
    assert refused.traceback, "which somebody keeps, with all that it knows of"


def test_starts_that_fail_before_they_write_a_mark_file_leave_that_of_ours_known(tmp_path, lock_file):
    with open(lock_file, "w") as file:
        file.write("4242")
    for _ in range(3):
        take(tmp_path).release()


def test_who_has_the_lock_is_known_after_a_power_cut():
    for seed in range(8):
        disk = FaultyDisk(seed)
        DirectoryLock.take(disk, "/member", CLUSTER_MARK_FILE_NAME, T0)
        disk.lose_power()
        path = lock_path("/member", CLUSTER_MARK_FILE_NAME)
        assert disk.open(path).pread(32, 0).split() == [str(disk.process_id()).encode()]


def test_those_who_look_at_a_free_lock_do_not_keep_each_other_out(tmp_path, lock_file):
    looking = os.open(lock_file, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH | fcntl.LOCK_NB)
    check_is_free(OsFiles(), str(tmp_path), CLUSTER_MARK_FILE_NAME)
    os.close(looking)
