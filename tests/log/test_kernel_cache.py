"""Compiled code that is damaged, missing, another's, or wanted by two at once costs one compilation."""

import ctypes
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config, int64

from cluster.log import kernel_cache
from cluster.log.kernel import kernel
from tests.tree import ROOT

READ_ONLY = """
import errno, os, sys

def refuse(event, arguments):
    to_write = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    if event == "os.mkdir" or event == "open" and (arguments[2] or 0) & to_write:
        wanted.append(arguments[0])
        raise OSError(errno.EROFS, "Read-only file system")

wanted = []
sys.addaudithook(refuse)
"""
PROGRAM = """
from cluster.log import atomic
print(atomic._compare_and_set.stats.cache_hits.total())
"""

GETPID = ctypes.CDLL(None).getpid
GETPID.argtypes = ()
GETPID.restype = ctypes.c_int


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_cache, "printed", set())
    return tmp_path


def compile_one():
    def plus_one(number):
        return number + 1

    return kernel(int64(int64))(plus_one)


def hits() -> int:
    return compile_one().stats.cache_hits.total()


def the_file(folder: Path) -> Path:
    (path,) = [path for path in folder.rglob("*") if path.is_file()]
    return path


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped"])
def test_a_damaged_file_is_compiled_again_and_replaced(folder, damage):
    assert (hits(), hits()) == (0, 1)
    path = the_file(folder)
    whole = path.read_bytes()
    flipped = whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]
    damaged = {"empty": b"", "cut": whole[:100], "flipped": flipped}[damage]
    path.write_bytes(damaged)
    assert (hits(), hits()) == (0, 1)
    assert the_file(folder).read_bytes() != damaged


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("suffix", ["", ".new"])
@pytest.mark.timeout(60)
def test_what_is_no_file_where_one_is_looked_for_is_neither_waited_for_nor_an_error(folder, make, suffix):
    assert hits() == 0
    path = the_file(folder)
    path.unlink()
    make(f"{path}{suffix}")
    assert compile_one()(1) == 2
    is_replaced = make is os.mkfifo and not suffix
    assert hits() == int(is_replaced)


def test_what_a_killed_process_left_half_written_is_taken_over(folder):
    assert hits() == 0
    path = the_file(folder)
    path.rename(f"{path}.new")
    assert (hits(), hits()) == (0, 1)
    assert the_file(folder) == path


def test_code_of_another_processor_is_not_used_under_this_ones_name(folder):
    assert hits() == 0
    path = the_file(folder)
    whole = path.read_bytes()
    cache = kernel_cache.KernelCache(compile_one, 1)
    cache._stamp = b"another processor"
    path.write_bytes(kernel_cache.hashlib.sha256(cache._stamp + whole[32:]).digest() + whole[32:])
    assert (hits(), hits()) == (0, 1)


def test_a_disk_that_takes_no_code_fails_nothing_and_is_told_in_a_line(folder, monkeypatch, capfd):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel_cache.os, "fsync", full)
    assert compile_one()(1) == 2
    assert "No space left on device" in capfd.readouterr().err
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_a_temporary_folder_of_somebody_else_is_not_trusted(tmp_path):
    tmp_path.chmod(0o700)
    assert kernel_cache._is_private(str(tmp_path))
    tmp_path.chmod(0o777)
    assert not kernel_cache._is_private(str(tmp_path))
    (tmp_path / "link").symlink_to("/")
    assert not kernel_cache._is_private(str(tmp_path / "link"))


def run(environment: dict[str, str], program: str = PROGRAM) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_who_holds_a_file_for_too_long_is_not_waited_for(folder, monkeypatch):
    """A stopped process, say: the code goes to the next folder, where later ones find it."""
    folders = [str(folder / "first"), str(folder / "second")]
    monkeypatch.setattr(kernel_cache.KernelCache, "_folders", lambda self, to_write: iter(folders))
    monkeypatch.setattr(kernel_cache, "LOCK_TIMEOUT_S", 0.02)
    assert hits() == 0
    first = the_file(folder)
    first.unlink()
    with open(f"{first}.new", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert (hits(), hits()) == (0, 1)
    assert [path.name for path in (folder / "first").iterdir()] == [f"{first.name}.new"]


def test_two_kernels_of_one_name_never_have_each_others_code(folder):
    def number():
        return 1

    first = kernel(int64())(number)

    def number():
        return 2

    assert (first(), kernel(int64())(number)()) == (1, 2)


def test_what_another_process_cannot_run_is_no_kernel(folder):
    """Code with an address in it, or with a value that is no part of the sources."""
    value = 1
    with pytest.raises(AssertionError, match="closes over"):
        kernel(int64())(lambda: value)
    with pytest.raises(AssertionError, match="this process's alone"):
        kernel(int64())(lambda: GETPID())
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_a_process_is_asked_once_to_have_its_kernels_compiled_and_then_reads_them(folder, monkeypatch):
    asked = []

    def compile_elsewhere(place):
        asked.append(place)
        assert hits() == 0

    monkeypatch.setattr(kernel_cache, "before_compiling", compile_elsewhere)
    assert hits() == 1
    path = the_file(folder)
    path.unlink()
    assert hits() == 0
    assert asked == [str(path.parent)]


@pytest.mark.slow
def test_two_processes_that_start_at_once_compile_once(tmp_path):
    both = [run({"NUMBA_CACHE_DIR": str(tmp_path)}) for _ in range(2)]
    assert sorted(process.communicate()[0] for process in both) == ["0\n", "1\n"]


def test_where_no_folder_can_be_written_the_packages_code_is_used_without_a_word(tmp_path):
    """Not even a temporary file is made."""
    compile_here = run({})
    assert compile_here.wait(60) == 0
    compile_here.communicate()
    process = run({}, READ_ONLY + PROGRAM + "print(wanted)")
    assert process.communicate() == ("1\n[]\n", "")


def test_where_nothing_can_be_written_or_read_kernels_work_and_a_line_says_so(tmp_path):
    process = run({"NUMBA_CACHE_DIR": "/proc/none"}, READ_ONLY + PROGRAM)
    out, err = process.communicate()
    assert (out, err.count("\n")) == ("0\n", 1)
    assert "for this process alone" in err
