"""How long to measure, and where the peers are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """``peers`` is None where there is nothing to measure against, ``plots`` where none are drawn."""

    peers: Path | None = None
    seconds: float = 8.0
    rounds: int = 3
    plots: Path | None = None
