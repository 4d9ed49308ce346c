"""Compiled code that is damaged, missing, another's, or wanted by two at once costs one compilation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config, int64

from cluster.log import kernel_cache
from cluster.log.kernel import kernel
from tests.tree import ROOT

PROGRAM = """
from cluster.log import atomic
print(atomic._compare_and_set.stats.cache_hits.total())
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_cache, "_told", set())
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
    path.write_bytes(
        {"empty": b"", "cut": whole[:100], "flipped": whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]}[
            damage
        ]
    )
    assert (hits(), hits()) == (0, 1)
    assert len(the_file(folder).read_bytes()) == len(whole)


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
    cache = kernel_cache.KernelCache(compile_one, 1, False)
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


def run(environment: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_two_processes_that_start_at_once_compile_once(tmp_path):
    both = [run({"NUMBA_CACHE_DIR": str(tmp_path)}) for _ in range(2)]
    assert sorted(process.communicate()[0] for process in both) == ["0\n", "1\n"]


def test_where_no_folder_can_be_written_the_packages_code_is_used_without_a_word(tmp_path):
    """A read-only installation, a home that is none: reading asks for nothing that can be written."""
    compile_here = run({})
    assert compile_here.wait(60) == 0
    compile_here.communicate()
    process = run({"HOME": "/proc/none", "XDG_CACHE_HOME": "", "TMPDIR": "/proc/none"})
    assert process.communicate() == ("1\n", "")


def test_where_nothing_can_be_written_or_read_kernels_work_and_a_line_says_so(tmp_path):
    process = run({"NUMBA_CACHE_DIR": "/proc/none"})
    out, err = process.communicate()
    assert (out, err.count("\n")) == ("0\n", 1)
    assert "for this process alone" in err
