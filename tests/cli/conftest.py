"""Commands as they are run in the tests of one group of them, ``GROUP`` of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cluster.cli.main import main
from tests.reader.real import remove_unpacked

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command of the group; return its exit status, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = main([request.module.GROUP, *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture(scope="module", autouse=True)
def _unpacked() -> Iterator[None]:
    yield
    remove_unpacked()
