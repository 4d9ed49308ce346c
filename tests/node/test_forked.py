"""A process that is forked off one with all imported: how it ends."""

from __future__ import annotations

import pytest

from tests.node.forked import Forked

NEVER_DELETED = "class Kept:\n    def __del__(self): print('taken apart')\nkept = Kept()"


@pytest.mark.parametrize(
    ("module", "status", "out", "error"),
    [
        ("print('done', end='')", 0, "done", ""),
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('why')", 1, "", "why\n"),
        ("raise ValueError('why')", 1, "", "ValueError: why\n"),
        ("import atexit; atexit.register(print, 'last')", 0, "last\n", ""),
        ("import threading; threading.Timer(0.05, print, ['late']).start()", 0, "late\n", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -2, "", "KeyboardInterrupt\n"),
        (NEVER_DELETED, 0, "", ""),
    ],
)
def test_a_forked_process_ends_as_an_interpreter_does_and_is_not_taken_apart(
    tmp_path, module, status, out, error
):
    (tmp_path / "ending.py").write_text(module)
    process = Forked(["ending"], cwd=tmp_path)
    said, told = process.communicate(timeout=20)
    assert (process.returncode, said) == (status, out)
    assert told.endswith(error) and bool(told) == bool(error)
