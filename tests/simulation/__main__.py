"""Seeded histories of a faulty cluster.

python -m tests.simulation --seeds 1000 --from 1     many, over both cores; stops telling after a few failures
python -m tests.simulation --seed 91                 one again, to the same trace hash
python -m tests.simulation --seed 91 --story         who did what, and why
python -m tests.simulation --seed 91 --page a.html   that with all messages, and what led to a violation
python -m tests.simulation --mistake vote_not_synced --page a.html     the same of a planted mistake
python -m tests.simulation --effects                 write down what seeds 1 to 200 do (effects.txt)
python -m tests.simulation --mistakes                find seeds that show planted mistakes (mistakes.txt)
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from cluster.service.compiled_callback import CompiledCallback
from tests.simulation import effects, sought
from tests.simulation.compiled_service import CompiledChainService
from tests.simulation.history import History, Result
from tests.simulation.page import page_of
from tests.simulation.seeds import play, run_seed

EVENTS_SHOWN = 40
FAILURES_SHOWN = 5
SEEDS_SHOWN = 20
SEEDS_PER_PROCESS = 50
SILENCE_S = 600


def summary(result: Result) -> str:
    """One line of one history."""
    verdict = "fails" if result.violation else "well"
    return (
        f"seed {result.seed:>6} {verdict:<5} {result.trace_hash} {result.virtual_s:6.1f} s "
        f"{result.events:>6} events {result.terms:>2} terms {result.entries:>5} entries "
        f"{result.acknowledged:>5} acks"
    )


def tell_failure(result: Result) -> None:
    """The invariant, what was last, and the command that brings it back."""
    print(f"\nseed {result.seed} fails: {result.violation}")
    for event in result.last_events[-EVENTS_SHOWN:]:
        print(f"  {event}")
    print(f"trace {result.trace_hash}; replay it with: make sim SEED={result.seed}", flush=True)
    print(f"see it: python -m tests.simulation --seed {result.seed} --page {result.seed}.html\n", flush=True)


def tell_one(seed: int | None, *, story: bool, page: Path | None, mistake: str) -> int:
    """Replay one seed, of a planted mistake without any other the one that shows it."""
    settings = sought.settings(sought.plant(mistake)) if mistake else {}
    number = sought.known()[mistake] if seed is None else seed
    history = History(number, keeps_story=story or page is not None, **settings)
    try:
        result = play(history)
        if page is not None:
            page.write_text(page_of(history, result.violation))
    finally:
        if story:
            print(*history.world.trace.story, sep="\n")
    if result.violation and not story:
        tell_failure(result)
    elif result.violation:
        print(f"seed {number} fails: {result.violation}")
    print(summary(result))
    return int(bool(result.violation))


def tell_coverage(results: list[Result]) -> None:
    """What the histories reached together, and what they did not."""
    from tests.simulation.history import ELECTION_STATES

    faults, transitions = Counter[str](), Counter[str]()
    for result in results:
        faults.update(result.faults)
        transitions.update(result.transitions)
    print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))
    print("transitions:")
    for name, count in sorted(transitions.items()):
        print(f"  {name:<60} {count:>7}")
    reached = {name.split(" -> ")[1] for name in transitions}
    missing = [name for name in ELECTION_STATES if name not in reached]
    print(f"states: {len(ELECTION_STATES) - len(missing)} of {len(ELECTION_STATES)} reached")
    if missing:
        print("never reached: " + ", ".join(missing))


def tell_effects(results: list[Result]) -> None:
    """Which histories are no longer what they were when they were written down."""
    known = effects.known()
    other = sorted(r.seed for r in results if r.seed in known and r.effects_hash != known[r.seed])
    print(f"effects: {len(other)} histories are not as in {effects.FILE.name}", end="")
    print(f": {', '.join(map(str, other[:SEEDS_SHOWN]))}" if other else "")


def write_effects(results: list[Result]) -> None:
    """Keep the hashes of these seeds."""
    hashes = {result.seed: result.effects_hash for result in results}
    effects.FILE.write_text("".join(f"{line}\n" for line in effects.lines(hashes)))


def write_mistakes(jobs: int) -> int:
    """Find a seed that shows each mistake, each in a process of its own, in which it is planted."""
    names = [mistake.__name__ for mistake in sought.SOUGHT]
    before, missing = sought.known(), []
    seeds = {name: before.get(name, 1) for name in names}
    with _pool(jobs, histories_max=1) as pool, _bar() as bar:
        found = pool.imap(sought.plant_and_find, names)
        for name, seed in bar.track(found, len(names), description="mistakes"):
            if seed is None:
                missing.append(name)
                continue
            if seed != before.get(name):
                print(f"{name}: seed {seed}, not {before.get(name)}", flush=True)
            seeds[name] = seed
    sought.FILE.write_text("".join(f"{line}\n" for line in sought.lines(seeds)))
    for name in missing:
        print(f"not found in {sought.SEEDS_MAX} seeds: {name}")
    return int(bool(missing))


def _pool(jobs: int, *, histories_max: int) -> Pool:
    """Processes that have imported and compiled all; each ends after so many."""
    CompiledCallback(CompiledChainService(0, print))
    gc.freeze()  # what is imported need not be looked at again behind every history
    return multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=histories_max)


def _bar() -> Progress:
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=False, transient=True)
    bar.disable = not sys.stderr.isatty()
    return bar


def _each_result(pool: Pool, seeds: range, results: list[Result]) -> Iterator[Result]:
    """As histories end. Raises SystemExit with the seeds of the others when none ends for long.

    ``Pool`` waits for ever for the history of a process that was killed, as for want of memory.
    """
    coming = pool.imap_unordered(run_seed, seeds)
    for _ in seeds:
        try:
            yield coming.next(SILENCE_S)
        except multiprocessing.TimeoutError:
            missing = sorted(set(seeds) - {result.seed for result in results})
            shown = ", ".join(map(str, missing[:SEEDS_SHOWN]))
            sys.exit(
                f"no history has ended for {SILENCE_S} s, of {len(missing)} that have not: seeds {shown}"
            )


def tell_many(seeds: range, jobs: int, *, verbose: bool, writes_effects: bool) -> int:
    begin = time.monotonic()
    results: list[Result] = []
    failed: list[Result] = []
    with _pool(jobs, histories_max=SEEDS_PER_PROCESS) as pool, _bar() as bar:
        for result in bar.track(_each_result(pool, seeds, results), len(seeds), description="histories"):
            results.append(result)
            if verbose:
                print(summary(result), flush=True)
            if result.violation:
                failed.append(result)
                if len(failed) <= FAILURES_SHOWN:
                    tell_failure(result)
    took_s = time.monotonic() - begin
    tell_coverage(results)
    if writes_effects:
        write_effects(results)
    tell_effects(results)
    print(
        f"{len(results)} histories in {took_s:.0f} s, {len(results) / took_s:.1f} a second: "
        f"{sum(result.virtual_s for result in results) / 3600:.1f} hours of {len(results)} clusters, "
        f"{sum(result.entries for result in results)} entries committed, "
        f"{sum(result.terms for result in results)} terms"
    )
    for result in sorted(failed, key=lambda result: result.seed):
        print(f"failed: seed {result.seed}: {result.violation}")
    return int(bool(failed))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many histories")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--story", action="store_true", help="tell what happens; with --seed")
    parser.add_argument("--page", type=Path, help="write a page that plays --seed")
    parser.add_argument("--mistake", choices=sought.known(), metavar="NAME", help="plant it; alone: its seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--effects", action="store_true", help=f"write {effects.FILE.name}")
    parser.add_argument("--mistakes", action="store_true", help=f"write {sought.FILE.name}")
    parser.add_argument("--verbose", action="store_true", help="a line for each history")
    options = parser.parse_args(arguments)
    if options.seed is not None or options.mistake:
        return tell_one(options.seed, story=options.story, page=options.page, mistake=options.mistake or "")
    if options.mistakes:
        return write_mistakes(options.jobs)
    seeds = range(options.first, options.first + options.seeds)
    if options.effects:
        seeds = range(effects.FIRST, effects.FIRST + effects.COUNT)
    return tell_many(seeds, options.jobs, verbose=options.verbose, writes_effects=options.effects)


if __name__ == "__main__":
    sys.exit(main())
