"""One thread that turns a member (Aeron: AgentRunner with a back-off idle strategy).

    wait for sockets --> read the clocks once --> do_work --+
          ^_________________________________________________|
    no wait at all after a turn with work, unless the agent says that it awaits events: then compiled code
    waits for it and takes what is frequent (``turn_busily``)
    nor for ``spin_ns`` after the last such turn: then sockets are looked at, again and again

Sockets end a wait at once; without them it ends with the slow tick of the consensus module, or when the agent
says that something else is due.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cluster.transport.clock import NEVER_NS
from cluster.transport.poller import Poller

# The shortest interval that any agent keeps: the consensus module's slow tick.
SLEEP_MAX_S = 0.01


class Agent(Protocol):
    """What has a duty cycle."""

    @property
    def awaits_events(self) -> bool:
        """Whether another turn would find nothing to do, whatever the last one has done."""

    def do_work(self, now_ns: int, cluster_time: int) -> int: ...


@dataclass(slots=True)
class AgentRunner:
    """Turns its agent until ``stop`` is called. Whatever is raised comes out.

    ``turn_busily`` waits and turns in compiled code until something is rare, and says whether a socket may
    have it; None where it took no turn. A turn of the agent follows in any case. ``next_due_ns``: the
    monotonic time until which the agent may sleep at most.
    """

    agent: Agent
    poller: Poller
    cluster_clock: Callable[[], int]
    spin_ns: int
    turn_busily: Callable[[], bool | None] = lambda: None
    next_due_ns: Callable[[], int] = lambda: NEVER_NS
    is_stopped: bool = False

    def stop(self) -> None:
        """End ``run`` after the turn it is in. May be called from another thread or a signal handler."""
        self.is_stopped = True
        self.poller.wake()

    def run(self) -> None:
        """Turn until stopped."""
        wait = self.poller.wait
        clock_ns = time.monotonic_ns
        work_count = 0
        spin_until_ns = 0
        while not self.is_stopped:
            is_on_sockets = self.turn_busily()
            if is_on_sockets is None and (not work_count or self.agent.awaits_events):
                # Nothing is left to do, so only a socket or time can give more: no turns in between.
                while not wait(0):
                    clocked_ns = clock_ns()
                    if clocked_ns >= spin_until_ns:
                        wait(min(max(self.next_due_ns() - clocked_ns, 0) / 1e9, SLEEP_MAX_S))
                        break
            elif is_on_sockets is not False:
                wait(0)
            now_ns = clock_ns()
            work_count = self.agent.do_work(now_ns, self.cluster_clock())
            if work_count:
                spin_until_ns = now_ns + self.spin_ns


def cluster_clock(unit: str) -> Callable[[], int]:
    """A reader of wall-clock time in ``"ms"``, ``"us"`` or ``"ns"`` since the epoch."""
    divisor = {"ms": 1_000_000, "us": 1_000, "ns": 1}[unit]
    time_ns = time.time_ns
    return lambda: time_ns() // divisor
