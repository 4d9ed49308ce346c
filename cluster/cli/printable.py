"""Standard output and error of commands: a stranger's text moves no cursor and turns no line around."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from cluster.errors import printable

_LINE = re.compile(r"[^\n\t]+")  # what is between characters of ours


class PrintableStream:
    """A text stream on which newline and tab alone act; every other control is written as an escape."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if not text.isprintable():
            text = _LINE.sub(lambda found: printable(found[0]), text)
        return int(self.stream.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def printable_streams() -> Iterator[None]:
    """Have all that is printed in the block go through a PrintableStream."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(PrintableStream, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def plain(stream: Any) -> Any:
    """The stream below, for what draws on a terminal itself."""
    return stream.stream if isinstance(stream, PrintableStream) else stream


def leave_streams_to_services() -> None:
    """What a service prints in this process is written as it is, to the end of ``printable_streams``."""
    sys.stdout, sys.stderr = plain(sys.stdout), plain(sys.stderr)
