"""``cluster sim``: a user's services in simulated clusters, to see whether they are deterministic."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.cli.printable import plain
from cluster.cli.verbs import Verb, json_option

app = typer.Typer(rich_markup_mode=None, add_completion=False)

HASH_SEEDS = ("1", "2")
SHOWN_MAX = 10  # seeds that fail

EPILOG = """\b
Examples:
  cluster sim echo --seeds 2
  cluster sim --seeds 1000 orders:OrderBook --messages orders.txt
  cluster sim --seed 17 orders:OrderBook --messages orders:any_order
  cluster sim --seed 4 echo --story story.html

Each seed is one history of a cluster in memory: clients send, members die and come back, and snapshots are
taken, in virtual time. In the end every member must have the same state, and clients the same answers, as a
single instance that processes the whole log. Each seed runs in two processes with different string hashes.

--messages names a file with one message per line, or a function that takes a random.Random and returns bytes.
Without it the messages are short texts, which a service may refuse; the output says how many callbacks
raised an exception. If a service fails, the output names the log entry at which its state first differs;
the page of --story marks how that entry came into the services. Where it can, it also says which members
have the same state, and what the service depends on: a clock, chance, what its instances share, the order of
a set, its member, a buffer that it kept, a snapshot that lacks some state, or how messages are batched. It
replays the log with one of these kept constant at a time, and says which one makes the difference.
"""


@app.command(cls=Verb, epilog=EPILOG)
def sim(
    service: Annotated[
        str, typer.Argument(help="echo or module:Class; several with commas, in order of service id.")
    ],
    seeds: Annotated[int, typer.Option(help="How many histories to run.", min=1)] = 100,
    first: Annotated[int, typer.Option("--from", help="The first seed.", min=0)] = 1,
    seed: Annotated[
        int | None, typer.Option(help="Run this seed alone, and print what happened last.")
    ] = None,
    messages: Annotated[str, typer.Option(help="What the clients send: a file, or module:function.")] = "",
    story: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a web page that plays --seed, with all messages."),
    ] = None,
    members: Annotated[int, typer.Option(help="Members of each cluster.", min=1, max=7)] = 3,
    as_json: Annotated[bool, json_option("Print one JSON object per history.")] = False,
) -> None:
    """Check, through simulated kills and restarts, that all members have the same state."""
    from cluster.cli.live_story import page, write_text
    from cluster.service.service_loader import load_service
    from cluster.testing.messages import load_messages

    if story is not None and seed is None:
        raise typer.BadParameter("a story shows one seed: give --seed, too", param_hint="--story")
    services = service.split(",")
    for name in services:
        load_service(name)
    load_messages(messages)
    played = range(first, first + seeds) if seed is None else [seed]
    command = [str(members), messages, "watched" if story is not None else "", *services]
    failed, totals = 0, dict.fromkeys(("messages", "answers", "raised"), 0)
    first_error = ""
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(hash_seed, command)) for hash_seed in HASH_SEEDS]
        outcomes = _outcomes(workers, list(played), command)
        for outcome in _shown(outcomes, len(played), is_quiet=as_json):
            for key in totals:
                totals[key] += outcome[key]
            first_error = first_error or outcome["first_error"]
            failed += bool(outcome["failure"])
            document = outcome.pop("document")
            del outcome["ended"]
            if story is not None:
                write_text(story, page(document))
            if as_json:
                print(json.dumps(outcome), flush=True)
            elif outcome["failure"] and failed <= SHOWN_MAX:
                _show_failure(
                    outcome, services, messages, members, is_whole=seed is not None and story is None
                )
            elif seed is not None and story is None:
                print("\n".join(outcome["story"]))
    if not as_json:
        if first_error:
            print(f"callbacks raised {totals['raised']} times, first: {first_error}")
        print(
            f"{len(played) - failed} of {len(played)} histories passed: {totals['messages']} messages, "
            f"{totals['answers']} answers"
        )
    raise typer.Exit(1 if failed else 0)


def _worker(hash_seed: str, command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cluster.testing.worker", *command],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _outcomes(
    workers: list[subprocess.Popen[str]], seeds: list[int], command: list[str]
) -> Iterator[dict[str, Any]]:
    """Each seed's outcome; that the two of them differ is a failure of it, too."""
    for number in seeds:
        one, other = _played(workers, number)
        outcome: dict[str, Any] = other if other["failure"] and not one["failure"] else one
        if not outcome["failure"] and one["digest"] != other["digest"]:
            with _worker(HASH_SEEDS[0], command) as third:
                [again] = _played([third], number)
            outcome["failure"] = _why_processes_differ(one, other, again)
        yield outcome


def _played(workers: list[subprocess.Popen[str]], number: int) -> list[dict[str, Any]]:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(f"{number}\n")
        worker.stdin.flush()
    lines = [worker.stdout.readline() for worker in workers if worker.stdout is not None]
    if not all(lines):
        raise typer.Exit(1)  # the worker has written why
    return [json.loads(line) for line in lines]


def _why_processes_differ(one: dict[str, Any], other: dict[str, Any], again: dict[str, Any]) -> str:
    """``again`` is of another process with the string hashes of the one."""
    pairs = zip_longest(one["ended"], other["ended"], fillvalue="nothing")
    first = next((f". First {a}, or {b}" for a, b in pairs if a != b), "")
    differ = "two processes have played this seed to different states or answers"
    if again["digest"] == one["digest"]:
        why = "It goes by hash() or the order of a set: where string hashes are the same, it does not differ"
    else:
        why = "It goes by something of its process, as chance at its start: with the same string hashes, too"
    return f"{differ}. {why}{first}"


def _shown(outcomes: Iterator[dict[str, Any]], count: int, *, is_quiet: bool) -> Iterator[dict[str, Any]]:
    """With a bar of progress on standard error, for people."""
    if is_quiet or not sys.stderr.isatty():
        yield from outcomes
        return
    from rich.console import Console
    from rich.progress import track

    console = Console(file=plain(sys.stderr))
    yield from track(outcomes, "histories", total=count, console=console, transient=True)


def _show_failure(
    outcome: dict[str, Any], services: list[str], messages: str, members: int, *, is_whole: bool
) -> None:
    if is_whole:
        print("\n".join(outcome["story"]))
    print(f"seed {outcome['seed']} fails: {outcome['failure']}")
    if not is_whole:
        options = f" --messages {messages}" if messages else ""
        options += f" --members {members}" if members != 3 else ""
        print(f"  again: cluster sim --seed {outcome['seed']} {','.join(services)}{options}")
