"""Compare-and-set of one word: what it does, and that nobody comes in between."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cluster.log.atomic import compare_and_set

ROOT = Path(__file__).resolve().parents[2]
INCREMENTS = 20_000
INCREMENT = """
import mmap, sys
import numpy as np
from cluster.log.atomic import compare_and_set
file = open(sys.argv[1], "r+b")
words = np.frombuffer(mmap.mmap(file.fileno(), 4096), np.int64)
for _ in range(int(sys.argv[2])):
    while not compare_and_set(words, 3, int(words[3]), int(words[3]) + 1):
        pass
"""


def test_a_word_is_set_only_when_it_is_what_is_expected():
    words = np.array([7, 8, -(2**63)], np.int64)
    assert compare_and_set(words, 1, 8, 2**62)
    assert not compare_and_set(words, 1, 8, 9)
    assert compare_and_set(words, 2, -(2**63), -1)
    assert words.tolist() == [7, 2**62, -1]


@pytest.mark.parametrize("index", [-1, 3])
def test_nothing_beyond_the_words_is_touched(index):
    with pytest.raises(AssertionError):
        compare_and_set(np.zeros(3, np.int64), index, 0, 1)


def test_what_two_processes_add_to_one_word_is_all_there(tmp_path):
    """Reading and then storing would lose what the other has stored in between."""
    path = tmp_path / "words"
    path.write_bytes(bytes(4096))
    compiled = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    command = [sys.executable, "-c", INCREMENT, str(path), str(INCREMENTS)]
    processes = [subprocess.Popen(command, cwd=ROOT, env=compiled) for _ in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ) as mapped:
        assert int.from_bytes(mapped[24:32], "little") == 2 * INCREMENTS
