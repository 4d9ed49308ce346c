"""Makes what a service may go by beside its log the same each time: chance, clocks, what instances share."""

import datetime
import gc
import os
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from itertools import count
from typing import Any, NoReturn, TypeVar

import numpy as np

T = TypeVar("T")

BEGIN_NS = 1_767_225_600 * 10**9  # 2026
TICK_NS = 1_000_000  # from one look at a clock to the next
MOVED_OBJECTS = 20_000


@contextmanager
def same_chance() -> Iterator[None]:
    """Random numbers of the standard library and numpy are the same each time that this is entered."""
    seeds, drawn = count(), random.Random(0)
    seed, state, numpy_state = random.Random.seed, random.getstate(), np.random.get_state()

    def seed_alike(self: random.Random, a: Any = None, version: int = 2) -> None:
        seed(self, next(seeds) if a is None else a, version)

    random.seed(0)
    np.random.seed(0)
    random.Random.seed = seed_alike  # type: ignore[method-assign]
    try:
        with _replaced({os.urandom: _in_this_thread(os.urandom, drawn.randbytes)}):
            yield
    finally:
        random.Random.seed = seed  # type: ignore[method-assign]
        random.setstate(state)
        np.random.set_state(numpy_state)


@contextmanager
def same_clock() -> Iterator[None]:
    """All clocks go on with each look at one of them, the same each time that this is entered."""
    times_ns = count(BEGIN_NS, TICK_NS)

    def now_ns() -> int:
        return next(times_ns)

    def now_s() -> float:
        return now_ns() / 1e9

    utc_s = _in_this_thread(time.time, now_s)

    class _IsInstance(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, cls.__mro__[1])

    class Datetime(datetime.datetime, metaclass=_IsInstance):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return datetime.datetime.fromtimestamp(utc_s(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return datetime.datetime.fromtimestamp(utc_s(), datetime.UTC).replace(tzinfo=None)

    names = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    twins: dict[Any, Any] = {datetime.datetime: Datetime}
    for kind, twin in (("", now_s), ("_ns", now_ns)):
        for clock in (getattr(time, name + kind) for name in names):
            twins[clock] = _in_this_thread(clock, twin)
    is_collecting = gc.isenabled()
    gc.disable()  # finalisers and callbacks would look at clocks, at another place each time
    try:
        with _replaced(twins):
            yield
    finally:
        if is_collecting:
            gc.enable()


def _in_this_thread(original: Callable[..., T], twin: Callable[..., T]) -> Callable[..., T]:
    """``twin`` here, ``original`` in other threads, which would take from what this one is to get."""
    this = threading.get_ident()

    @wraps(original)
    def call(*arguments: Any) -> T:
        return (twin if threading.get_ident() == this else original)(*arguments)

    return call


@contextmanager
def _replaced(twins: Mapping[Any, Any]) -> Iterator[None]:
    """Each of these is its twin wherever a module has it under a name."""
    by_id = {id(original): twin for original, twin in twins.items()}
    own = sys.modules[__name__]
    places = [
        (names, name, value)
        for module in list(sys.modules.values())
        if module is not own and isinstance(names := getattr(module, "__dict__", None), dict)
        for name, value in list(names.items())
        if id(value) in by_id
    ]
    for names, name, value in places:
        names[name] = by_id[id(value)]
    try:
        yield
    finally:
        for names, name, value in places:
            names[name] = value


def in_forks(work: Callable[[], T]) -> list[T | None]:
    """What this returns in three processes that begin as this one is now; None where it raises.

    In the last of them the objects that it makes are elsewhere in memory. They begin in a process that has
    this thread alone: others would take and release memory between one fork and the next.
    """
    receiver, sender = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(receiver)
        _serve(lambda: _in_three_forks(work), sender, is_moved=False)
    os.close(sender)
    return _received(pid, receiver) or [None] * 3


def _in_three_forks(work: Callable[[], T]) -> list[T | None]:
    pipes, pids, found = [os.pipe() for _ in range(3)], [0] * 3, list[T | None]()
    for i in range(3):
        if (pid := os.fork()) == 0:
            if i == 0:
                pids[0] = os.getpid()  # as in this process: else the next one begins with less free memory
            for other in range(3):
                if other != i:
                    os.close(pipes[other][1])  # else what another one says ends only with this process
            _serve(work, pipes[i][1], is_moved=i == 2)
        pids[i] = pid
    for pid, (receiver, sender) in zip(pids, pipes, strict=True):
        os.close(sender)
        found.append(_received(pid, receiver))
    return found


def _received(pid: int, receiver: int) -> Any:
    """What a process has written at its end; None for nothing."""
    with os.fdopen(receiver, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return pickle.loads(data) if data else None


def _serve(work: Callable[[], object], sender: int, *, is_moved: bool) -> NoReturn:
    moved = [bytes(number % 1_024) for number in range(MOVED_OBJECTS)] if is_moved else []
    del moved[::3]
    try:
        with os.fdopen(sender, "wb") as file:
            pickle.dump(work(), file)
    finally:
        os._exit(0)
