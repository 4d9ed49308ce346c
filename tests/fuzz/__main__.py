"""Run one target: for so many seconds, or with one input again.

    python -m tests.fuzz messages --seconds 600
    python -m tests.fuzz messages --seed 7
    python -m tests.fuzz messages --input 16000300...

An input that breaks the target ends the run with 1, its traceback, and the command that repeats it.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from tests.fuzz.media import AeronArchiveImage, AeronEgress, AeronIngressImage, MediaDriverFiles
from tests.fuzz.mutator import Mutator
from tests.fuzz.ports import PORTS
from tests.fuzz.targets import TARGETS, Target

ALL = {
    **TARGETS,
    "media-driver": MediaDriverFiles,
    "aeron-ingress": AeronIngressImage,
    "aeron-archive": AeronArchiveImage,
    "aeron-egress": AeronEgress,
    **PORTS,
}
INPUT_S_MAX = 5.0  # an input takes milliseconds; far beyond them on a busy machine
GROWTH_MIB_MAX = 256
CHECK_INTERVAL = 50


class Broken(AssertionError):
    """An input did what none may; the text has the command that repeats it."""


def fuzz(name: str, seed: int, *, seconds: float = 0.0, inputs: int | None = None) -> int:
    """Feed a target for so long, or so many inputs, or its slice; returns how many. Raises Broken."""
    target = ALL[name]()
    try:
        for data in target.corpus:
            _feed(name, target, data)
        if inputs is None:
            inputs = 0 if seconds else target.slice
        mutator, count = Mutator(target.corpus, seed), 0
        before_mib, end_s = _memory_mib(), time.monotonic() + seconds
        while count < inputs or time.monotonic() < end_s:
            data = mutator.next()
            mutator.learn(data, _feed(name, target, data))
            count += 1
            if count % CHECK_INTERVAL == 0:
                _check(name, target, seed, count)
        _check(name, target, seed, count)
        grown = _memory_mib() - before_mib
        if grown > GROWTH_MIB_MAX:
            raise Broken(
                f"{name}: {count} inputs have taken {grown} MiB: python -m tests.fuzz {name} --seed {seed}"
            )
        return count
    finally:
        target.close()


def feed_once(name: str, data: bytes) -> None:
    """One input again. Raises Broken."""
    target = ALL[name]()
    try:
        _feed(name, target, data)
        target.check()
    finally:
        target.close()


def _feed(name: str, target: Target, data: bytes) -> str:
    began_s = time.monotonic()
    try:
        outcome = target.feed(data)
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}: {_again(name, data)}") from error
    if time.monotonic() - began_s > INPUT_S_MAX:
        raise Broken(f"it took {time.monotonic() - began_s:.1f} s: {_again(name, data)}")
    return outcome


def _check(name: str, target: Target, seed: int, count: int) -> None:
    try:
        target.check()
    except Exception as error:
        command = f"python -m tests.fuzz {name} --seed {seed} --inputs {count}"
        raise Broken(f"whoever is no stranger is not served any more: {error}: {command}") from error


def _again(name: str, data: bytes) -> str:
    return f"python -m tests.fuzz {name} --input {data.hex()}"


def _memory_mib() -> int:
    """The most that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=ALL)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--inputs", type=int)
    parser.add_argument("--input", type=bytes.fromhex)
    options = parser.parse_args(arguments)
    if options.input is not None:
        feed_once(options.target, options.input)
        return 0
    count = fuzz(options.target, options.seed, seconds=options.seconds, inputs=options.inputs)
    print(f"{options.target}: {count} inputs of seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
