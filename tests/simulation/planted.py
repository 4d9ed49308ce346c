"""Puts mistakes into production code, and refuses those that no longer fit it.

As a pytest plugin it plants the quiet mistake, or that of a line, which PLANTED names, before any test:

PLANTED=damaged_member_stands python -m pytest -p tests.simulation.planted tests/consensus
"""

from __future__ import annotations

import gc
import inspect
import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.simulation.line_mistakes import LINE_MISTAKES
from tests.simulation.turn_mistakes import TURN_MISTAKES

if TYPE_CHECKING:
    from tests.simulation.mistakes import Patch

TESTS = Path(__file__).resolve().parents[1]


def with_the_same_signature(setattr: Patch) -> Patch:
    """``setattr`` that raises TypeError for a function which cannot be called as the one in its place is."""

    def patch(owner: object, name: str, value: object) -> None:
        before = getattr(owner, name)
        if inspect.isfunction(before) and inspect.isfunction(value):
            arguments, keywords = [], {}
            for parameter in inspect.signature(before).parameters.values():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    keywords[parameter.name] = None
                elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                    arguments.append(None)
            inspect.signature(value).bind(*arguments, **keywords)
        setattr(owner, name, value)

    return patch


def plant(name: str) -> None:
    """A mistake, for the rest of this process."""
    if name in LINE_MISTAKES | TURN_MISTAKES:
        return (LINE_MISTAKES | TURN_MISTAKES)[name].plant()
    from tests.simulation.quiet_mistakes import QUIET_MISTAKES

    mistake = next(mistake for mistake in QUIET_MISTAKES if mistake.__name__ == name)
    mistake(with_the_same_signature(setattr))


def told_by(name: str, tests: str) -> tuple[int, str]:
    """Run tests with a mistake in what they test: the exit code of pytest, and what it told."""
    os.environ["PLANTED"] = name
    gc.freeze()  # pytest looks several times at what it may set free: not at what is imported
    told = StringIO()
    with redirect_stdout(told):
        options = "-x", "-q", "--assert=plain", "-p", "tests.simulation.planted", "-p", "no:cacheprovider"
        exit_code = pytest.main([*options, f"{TESTS}/{tests}"])
    return exit_code, told.getvalue()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before the first of them imports anything."""
    plant(os.environ["PLANTED"])
