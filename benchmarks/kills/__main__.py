"""Run rounds of kills and stops, and add them to the ledger."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.kills.ledger import RESULTS, RESULTS_OF_AERON, Ledger
from benchmarks.kills.rounds import stage

KILLS_A_ROUND = 25


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    length = made.add_mutually_exclusive_group()
    length.add_argument("--kills", type=int, default=KILLS_A_ROUND, help="how many; default %(default)s")
    length.add_argument("--minutes", type=float, help="begin rounds for so long, instead")
    made.add_argument("--seed", type=int, help="of the first round; default: after those in the ledger")
    made.add_argument("--aeron", action="store_true", help="with the members of a real Aeron Cluster")
    made.add_argument("--ledger", type=Path, help="file to add to; default: of these members, in results/")
    given = made.parse_args()
    ledger = Ledger(given.ledger or (RESULTS_OF_AERON if given.aeron else RESULTS))
    seed = ledger.next_seed if given.seed is None else given.seed
    left = given.kills if given.minutes is None else None
    ends_s = math.inf if given.minutes is None else time.monotonic() + 60 * given.minutes
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="cluster-kills-", ignore_cleanup_errors=True)
        )
        running = stack.enter_context(stage(Path(folder), print_now, is_aeron=given.aeron))
        while left != 0 and time.monotonic() < ends_s:
            kills = KILLS_A_ROUND if left is None else min(left, KILLS_A_ROUND)
            try:
                ledger.add(running.run_round(seed, kills))
            except BaseException:
                which = " --aeron" if given.aeron else ""
                print_now(f"again: python -m benchmarks.kills{which} --seed {seed} --kills {kills}")
                raise
            print_now(f"{ledger.rounds[-1]}\nso far: {ledger.totals()}")
            seed, left = seed + 1, None if left is None else left - kills
    return 0


def print_now(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
