"""Mistakes planted in compiled turns, and which of them the comparison of single steps sees.

python -m tests.member.busy.step_mistakes        plants each, and prints those that are not seen

A mistake is a change of the text of one module. With compilation off (NUMBA_DISABLE_JIT=1) its routines are
plain functions: those of the changed text take the places of the others.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from numba import config

from cluster.member.busy import turn
from tests.archive import single_frames
from tests.member.busy.step_runs import RUNS


class Mistake(NamedTuple):
    """``right`` stands once in the module of compiled turns, and ``wrong`` takes its place."""

    module: str  # of cluster.member.busy, or by its full name
    right: str
    wrong: str


# What Python's turns do by the same text: runs of a recording alone see what is wrong there.
RECORDING = "cluster.archive.append_and_sync"

MISTAKES = (
    # what is written, proven and synced
    Mistake("recorder", "    error = append_and_sync.sync_segment(t.recording)\n", "    error = 0\n"),
    Mistake(RECORDING, "error = sync_file(t.calls, r[SEGMENT], r[SYNC_LEVEL] != 1)", "error = 0"),
    Mistake(RECORDING, "        r[UNPROVEN_CRC] = 0\n", ""),
    Mistake(RECORDING, "        store(t.scratch, 0, length, r[CHECKSUM] == POLYNOMIAL_CRC_32C)\n", ""),
    Mistake(RECORDING, "error = write_mark(t.proof, t.calls, t.scratch)", "error = 0"),
    Mistake(RECORDING, "checksum = r[CHECKSUM] if r[IS_SINGLE_FRAME] else 0", "checksum = 0"),
    Mistake(RECORDING, "if has_proof and says_single_frames(t.proof) and not r[IS_SINGLE_FRAME]", "if False"),
    Mistake(RECORDING, "error = _write_back(t, max(r[SYNCED_POSITION], r[SEGMENT_BASE]))", "error = 0"),
    # what is sent
    Mistake("envelopes", "    t.connections[row + CRC] = crc\n    return True", "    return True"),
    Mistake("envelopes", "length = POSITION_FRAME_LENGTH if has_position else 0", "length = 0"),
    Mistake("leading", "        t.followers[row + STREAM_POSITION] = piece\n", ""),
    Mistake("egress", "t.egress, begin, end - begin, t", "t.egress, begin, end - begin - 32, t"),
    # what is taken and committed
    Mistake("turn", "        t.connections[row + CRC] = crc\n        offset", "        offset"),
    Mistake("buffer", "taken, status == DONE, limit)", "taken, status == DONE, limit - 32)"),
    Mistake("turn", "        if w[at.REASON] & (at.FRAMES | at.FAILED):\n            break\n", ""),
    Mistake("leading", "    t.member_log[COMMIT_POSITION] = position\n", ""),
    Mistake("following", "begin + POSITION_AT), w[at.NOW_NS])", "begin + POSITION_AT), w[at.LAST_NS])"),
    Mistake("following", "sent(t.follower, synced_position, w[at.NOW_NS])", "sent(t.follower, 0, 0)"),
    Mistake("leading", "commit(t.leadership, position, w[at.NOW_NS])", "commit(t.leadership, position, 0)"),
    Mistake("receiving", "    t.connections[row + HEARD_NS] = t.words[at.NOW_NS]\n", ""),
    Mistake("egress", "        kept[head + IS_TOUCHED] = 0\n", ""),
    # services in processes of their own
    Mistake("serving", "    give_log(t)\n", ""),
    Mistake("remote", "    t.counters[service[POSITION_COUNTER]] = position\n", ""),
    Mistake("remote", "SERVED], service[ANSWERED] = position, 0", "SERVED], service[ANSWERED] = position, 1"),
)


@contextmanager
def planted(mistake: Mistake) -> Iterator[None]:
    """Meanwhile compiled turns make it. Raises AssertionError where the text is another one."""
    is_full = "." in mistake.module
    module = importlib.import_module(mistake.module if is_full else f"cluster.member.busy.{mistake.module}")
    assert module.__file__ is not None
    text = Path(module.__file__).read_text()
    assert text.count(mistake.right) == 1, mistake
    wrong: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(text.replace(mistake.right, mistake.wrong), module.__file__, "exec"), wrong)
    with ExitStack() as stack:
        for name in (*turn.MODULES, turn.__name__):
            there = importlib.import_module(name)
            for attribute, value in list(vars(there).items()):
                if getattr(value, "__module__", None) == module.__name__ and callable(value):
                    stack.enter_context(patch.object(there, attribute, wrong[attribute]))
        yield


def is_seen(mistake: Mistake) -> bool:
    """Whether a step comes out otherwise, or the run with it does not come to its end."""
    with planted(mistake):
        for run in single_frames.RUNS if mistake.module == RECORDING else RUNS:
            try:
                run()
            except Exception:
                return True
    return False


if __name__ == "__main__":
    assert config.DISABLE_JIT, "NUMBA_DISABLE_JIT=1"  # type: ignore[attr-defined]
    missed = [mistake for mistake in MISTAKES if not is_seen(mistake)]
    print(f"{len(MISTAKES)} mistakes, {len(missed)} of them not seen", *missed, sep="\n")
    sys.exit(bool(missed))
