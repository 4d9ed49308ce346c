"""Puts mistakes into production code, and refuses those that no longer fit it.

As a pytest plugin it plants the quiet mistake that the variable PLANTED names, before any test:

PLANTED=damaged_member_stands python -m pytest -p tests.simulation.planted tests/consensus
"""

from __future__ import annotations

import inspect
import os

import pytest

from tests.simulation.mistakes import Patch


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


def pytest_configure(config: pytest.Config) -> None:
    from tests.simulation.quiet_mistakes import QUIET_MISTAKES

    name = os.environ["PLANTED"]
    mistake = next(mistake for mistake in QUIET_MISTAKES if mistake.__name__ == name)
    mistake(with_the_same_signature(setattr))
