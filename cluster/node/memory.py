"""What the collector of reference cycles has to look at, in processes that run for long."""

from __future__ import annotations

import gc

# Allocations between two looks for reference cycles: the duty cycle makes next to none.
GC_THRESHOLDS = (100_000, 50, 100)


def settle_memory() -> None:
    """What is there now stays: the collector need not look at it again, nor often at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
