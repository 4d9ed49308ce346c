"""Standard output and error of commands: a stranger's text moves no cursor and turns no line around."""

import os
import queue
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from cluster.errors import printable

_LINE = re.compile(r"[^\n\t]+")  # what is between characters of ours
TEXTS_MAX = 64
CLOSE_TIMEOUT_S = 1.0


def _printable_lines(text: str) -> str:
    return text if text.isprintable() else _LINE.sub(lambda found: printable(found[0]), text)


class PrintableStream:
    """A text stream on which newline and tab alone act; every other control is written as an escape."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return int(self.stream.write(_printable_lines(text)))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class AsideStream:
    """Writes from a thread, so that a full pipe holds up nobody; beyond ``TEXTS_MAX`` is left out."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._texts: queue.Queue[str | None] = queue.Queue(TEXTS_MAX)
        self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)

    def write(self, text: str) -> None:
        with suppress(queue.Full):
            self._texts.put_nowait(_printable_lines(text))
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):  # nobody reads it any more
            descriptor = self._stream.fileno()
            while (text := self._texts.get()) is not None:
                data = text.encode(errors="replace")
                while data:
                    data = data[os.write(descriptor, data) :]

    def close(self) -> None:
        """Wait a second at most until all is written."""
        if self._thread.ident is not None:
            with suppress(queue.Full):
                self._texts.put_nowait(None)
            self._thread.join(CLOSE_TIMEOUT_S)


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
