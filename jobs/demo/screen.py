"""What the demo shows while it runs: a line that is drawn again on a terminal, short lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

LINE_EVERY_S = 10.0


class Screen:
    """Steps with their times, and a line while the year passes."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._began_s = time.monotonic()
        self._status: Status | None = None
        self._last_line_s = self._began_s

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Say what is being done, and how long it took."""
        began_s = time.monotonic()
        with self._drawn_again(text):
            yield
        self.console.print(f"[green]✓[/] {text} [dim]({time.monotonic() - began_s:.1f} s)[/]")

    @contextmanager
    def _drawn_again(self, text: str) -> Iterator[None]:
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(Text(text, no_wrap=True, overflow="ellipsis")) as self._status:
            yield

    def show(self, text: str) -> None:
        """How far the step is, in place of its name."""
        if self.console.is_terminal:
            assert self._status is not None
            self._status.update(Text(text, no_wrap=True, overflow="ellipsis"))
        elif time.monotonic() - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = time.monotonic()
            self.console.print(f"  {text}")

    def say(self, text: str) -> None:
        self.console.print(text)
