"""What became of the rows, a line a round. Each has the hash of the one before, so none can be left out."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results" / "kills.jsonl"
RESULTS_OF_AERON = RESULTS.with_name("kills_of_aeron.jsonl")


class Ledger:
    """The lines of one file, which need not be there. Raises ValueError for one that is not as written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = ""
        self.rounds: list[dict[str, Any]] = []
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), 1):
            figures = json.loads(line)
            if figures["previous"] != self._hash:
                raise ValueError(
                    f"{path}:{number}: previous is {figures['previous']!r}, expected {self._hash!r}"
                )
            self._note(line, figures)

    def add(self, figures: dict[str, Any]) -> None:
        """Write a line behind the others."""
        line = json.dumps({**figures, "previous": self._hash})
        with self._path.open("a") as file:
            file.write(line + "\n")
        self._note(line, figures)

    def _note(self, line: str, figures: dict[str, Any]) -> None:
        self._hash = hashlib.sha256(line.encode()).hexdigest()[:16]
        self.rounds.append(figures)

    @property
    def next_seed(self) -> int:
        """One that no round had."""
        return max((figures["seed"] for figures in self.rounds), default=0) + 1

    def totals(self) -> dict[str, Any]:
        """Of all rounds."""
        kills, stops = Counter[str](), Counter[str]()
        for figures in self.rounds:
            kills.update(figures["kills"])
            stops.update(figures.get("stops", {}))  # there were none in the first rounds
        sums = {name: sum(figures[name] for figures in self.rounds) for name in ("rows", "lost", "doubled")}
        counts = {"kills": kills.total(), **dict(sorted(kills.items()))}
        if stops:
            counts |= {"stops": stops.total(), **dict(sorted(stops.items()))}
        return {"rounds": len(self.rounds), **counts, **sums}
