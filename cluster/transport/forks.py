"""What a process that was forked off does with the connections of its parent: it lets go of them, unheard.

    multiprocessing (fork), a preloading web server     parent's session ── goes on
                        └── child ── ``on_forked`` of each owner: its copies of descriptors are closed,
                                     nothing is sent, and whoever uses the owner there hears why

A connection has one stream of bytes: two processes that read from it, or write, take it apart. So it is with
what gRPC watches: where it was at work during the fork, to use it in the child ends the parent.
"""

import ctypes
import os
from typing import Protocol
from weakref import WeakSet

from cluster.errors import ConfigurationError


class Connected(Protocol):
    """Of connections."""

    def on_forked(self, why: str) -> None:
        """In the one thread of a forked copy: let go, and say so when it is used. Locks may be taken."""


_owners: WeakSet[Connected] = WeakSet()
_grpc_of = 0  # the parent


def leave_to_parent(owner: Connected) -> None:
    """From now on the owner hears of it in each process that is forked off this one."""
    _owners.add(owner)


def keep_for_ever(thing: object) -> None:
    """Never release what would speak to the peer when it is."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def refuse_grpc() -> None:
    """In the child, from now on: its parent had calls at work."""
    global _grpc_of
    _grpc_of = os.getppid()


def check_grpc() -> None:
    """Raise ConfigurationError after ``refuse_grpc``."""
    if _grpc_of:
        raise ConfigurationError(
            f"process {_grpc_of} was at work with gRPC when this one was forked off, so gRPC cannot be used "
            "here: name endpoints by tcp: or ipc:, or start the process by spawn"
        )


def _in_child() -> None:
    why = f"process {os.getppid()} opened it, and this one was forked off: open another one here"
    for owner in list(_owners):
        owner.on_forked(why)
    _owners.clear()


os.register_at_fork(after_in_child=_in_child)
