"""Members on hosts of their own: a network namespace each, joined by a bridge in another one.

    member 0 --veth-- |        |
    member 1 --veth-- | bridge | hub: where clients of the tests are
    member 2 --veth-- |        |

What is lost here is lost as on a network: nobody is refused, nothing is reset, packets just do not come.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from tests.faults.tools import kernel
from tests.programs import require

CLONE_NEWNET = 0x40000000
NOBODY = "02:00:00:00:00:fe"  # no host has it

T = TypeVar("T")


class Hosts:
    """``count`` namespaces with addresses 10.213.0.1 and up; a context manager that removes them."""

    def __init__(self, count: int = 3) -> None:
        require("ip", "iproute2")
        self._name = f"cluster-{os.getpid()}"
        self.hub = f"{self._name}-hub"
        self.addresses = [f"10.213.0.{i + 1}" for i in range(count)]
        self._namespaces = [self.hub, *(self.of(i) for i in range(count))]

    def of(self, member_id: int) -> str:
        """The name of a member's namespace."""
        return f"{self._name}-{member_id}"

    def prefix(self, member_id: int) -> list[str]:
        """What stands before a command that is to run there."""
        return ["ip", "netns", "exec", self.of(member_id)]

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _build(self) -> None:
        for namespace in self._namespaces:
            kernel("ip", "netns", "add", namespace)
            self._ip(namespace, "link set lo up")
        self._ip(self.hub, "link add bridge type bridge")
        self._ip(self.hub, "addr add 10.213.0.254/24 dev bridge")
        self._ip(self.hub, "link set bridge up")
        for i, address in enumerate(self.addresses):
            self._ip(self.hub, f"link add port{i} type veth peer name eth0 netns {self.of(i)}")
            self._ip(self.hub, f"link set port{i} master bridge up")
            self._ip(self.of(i), f"addr add {address}/24 dev eth0")
            self._ip(self.of(i), "link set eth0 up")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)

    def _ip(self, namespace: str, what: str) -> None:
        kernel("ip", "-netns", namespace, *what.split())

    # -- faults --

    def unplug(self, member_id: int) -> None:
        """The member's host neither sends nor hears."""
        self._ip(self.hub, f"link set port{member_id} down")

    def plug(self, member_id: int) -> None:
        self._ip(self.hub, f"link set port{member_id} up")

    def lose(self, sender: int, receiver: int) -> None:
        """What one host sends to the other goes astray; the other way works."""
        self._ip(
            self.of(sender),
            f"neigh replace {self.addresses[receiver]} lladdr {NOBODY} dev eth0 nud permanent",
        )

    def find(self, sender: int, receiver: int) -> None:
        """Undo ``lose``."""
        self._ip(self.of(sender), f"neigh del {self.addresses[receiver]} dev eth0")

    # -- being there --

    def enter_hub(self) -> None:
        """Let the calling thread, and the sockets that it opens, be where clients are."""
        with open(f"/run/netns/{self.hub}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"entering {self.hub}")

    def in_hub(self, function: Callable[[], T]) -> T:
        """Call a function in a thread that is there, and return what it returns."""
        results: list[T] = []
        errors: list[BaseException] = []

        def call() -> None:
            try:
                self.enter_hub()
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]
