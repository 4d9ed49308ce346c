"""Run seeded histories: ``python -m tests.simulation --seeds 100 --from 1``; one: ``--seed 91 --story``."""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback

from tests.simulation.history import History


def run_seed(seed: int, *, story: bool) -> bool:
    """Run one history; a failing one ends with the line that replays it."""
    history = History(seed)
    if story:
        history.cluster.world.story = print
    try:
        outcome = history.run()
    except Exception as error:
        print(f"seed {seed} fails: {type(error).__name__}: {error}")
        if not isinstance(error, AssertionError) or story:
            traceback.print_exc()
        if not story:
            for line in list(history.cluster.world.events)[-40:]:
                print(f"  {line}")
        print(f"trace {history.cluster.world.trace_hash:08x}; replay with: make sim SEED={seed}")
        return False
    if story:
        print(f"seed {seed}: {outcome}")
        print(f"trace {outcome.trace_hash:08x}")
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many histories")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--story", action="store_true", help="tell what happens")
    parser.add_argument("--keep-going", action="store_true", help="run the other seeds after a failure, too")
    options = parser.parse_args(arguments)
    seeds = (
        [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    )
    begin = time.monotonic()
    failed: list[int] = []
    for seed in seeds:
        gc.collect()  # a cluster is full of circles, with large arrays in them
        if not run_seed(seed, story=options.story):
            failed.append(seed)
            if not options.keep_going:
                break
    took = time.monotonic() - begin
    if failed:
        print(f"failed: {', '.join(map(str, failed))} ({took:.1f} s)")
        return 1
    print(f"{len(seeds)} histories went well in {took:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
