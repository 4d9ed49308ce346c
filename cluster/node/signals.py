"""What a process of ours does on signals that do not end it: docs/operations.md has the table."""

import faulthandler
import signal
import sys
from collections.abc import Callable

from cluster.node.node_log import NodeLog
from cluster.transport.event_logs import stacks_of_threads

HARMLESS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def pass_over() -> None:
    """Let none of them end the process before there is a log to answer in. What does end it says where."""
    for number in HARMLESS:
        signal.signal(number, signal.SIG_IGN)
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)
        faulthandler.register(signal.SIGQUIT, sys.__stderr__, chain=True)


def answer(log: NodeLog, reload: Callable[[], None]) -> None:
    """HUP calls ``reload``, USR1 turns debug on and off, USR2 writes the stacks of all threads."""
    signal.signal(signal.SIGHUP, lambda *_: reload())
    signal.signal(signal.SIGUSR1, lambda *_: log.toggle_debug())
    signal.signal(signal.SIGUSR2, lambda *_: log.asked("stacks", stacks=stacks_of_threads()))
