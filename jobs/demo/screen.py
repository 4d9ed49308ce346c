"""What the demo shows while it runs: bars with rates on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

LINE_EVERY_S = 5.0


class _Count(ProgressColumn):
    def render(self, task: Task) -> Text:
        total = f" of {int(task.total):,}" if task.total else ""
        return Text(f"{int(task.completed):>9,}{total}")


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:>8,.0f}/s" if speed else "", style="cyan")


class Screen:
    """Steps with their times, and one set of gauges while the year passes."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Say what is being done, and how long it took."""
        began_s = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(text):
                yield
        else:
            yield
        self.console.print(f"[green]✓[/] {text} [dim]({time.monotonic() - began_s:.1f} s)[/]")

    def say(self, text: str) -> None:
        self.console.print(text)


class Gauges:
    """Named counts that grow, each with its rate; a context manager while they are on the screen."""

    def __init__(self, screen: Screen, totals: dict[str, int | None]) -> None:
        self._console = screen.console
        self._live = self._console.is_terminal
        self._progress = Progress(
            TextColumn("  {task.description}"), BarColumn(bar_width=28), _Count(), _Rate(),
            console=self._console, refresh_per_second=4, speed_estimate_period=10,
        )  # fmt: skip
        self._tasks = {name: self._progress.add_task(name, total=total) for name, total in totals.items()}
        self._headline = self._progress.add_task("", total=None, visible=False)
        self._last_line_s = time.monotonic()
        self._last: dict[str, int] = dict.fromkeys(totals, 0)

    def show(self, headline: str, values: dict[str, int]) -> None:
        """Bring the counts up to ``values``."""
        for name, value in values.items():
            self._progress.update(self._tasks[name], completed=value)
        now_s = time.monotonic()
        if not self._live and now_s - self._last_line_s >= LINE_EVERY_S:
            passed_s = now_s - self._last_line_s
            parts = [
                f"{name} {value:,} ({(value - self._last[name]) / passed_s:,.0f}/s)"
                for name, value in values.items()
            ]
            self._console.print(f"  {headline}: {', '.join(parts)}")
            self._last_line_s, self._last = now_s, dict(values)

    def __enter__(self) -> Self:
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._progress.stop()
