"""Three members of a real Aeron Cluster, each a process with a driver of its own, and what restarts them.

Spark, readers and clients reach them through one more media driver, as ``docs/aeron.md`` has it.
"""

from __future__ import annotations

import json
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from benchmarks.real_members import await_that
from tests.interop.aeron import MARK_SECONDS, RealNode, cluster_node, media_driver

PORT = 27_300
OPTIONS = [
    *("--service", "echo", "--base-port", str(PORT), "--max-sessions", "200", "--max-seconds", "100000"),
    # Its leader goes on while a follower that was killed is away.
    *("--term-length", "1m", "--segment-length", "1m"),
    *("--heartbeat-timeout", "5s", "--heartbeat-interval", "100ms", "--session-timeout", "8s"),
    *("--canvass-timeout", "10s"),
]


class AeronMembers:
    """As ``RealMembers``, as far as it is killed here. What has ended is started again by itself."""

    def __init__(self, folder: Path) -> None:
        self.ids = [0, 1, 2]
        self._folder = folder
        self._nodes: dict[int, RealNode] = {}
        self._paused: set[int] = set()
        self._is_closing = threading.Event()
        self._keepers: list[threading.Thread] = []
        self._opened = ExitStack()
        self.aeron_dir = ""
        self.consensus_endpoints = ",".join(f"localhost:{PORT + 100 * i + 3}" for i in self.ids)

    def member_dir(self, member_id: int) -> Path:
        return self._folder / f"member-{member_id}"

    def __enter__(self) -> Self:
        self.aeron_dir = str(self._opened.enter_context(media_driver()))
        for member_id in self.ids:
            self._nodes[member_id] = cluster_node(self._folder, member_id, *OPTIONS)
            self._keepers.append(threading.Thread(target=self._keep, args=(member_id,), daemon=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        for keeper in self._keepers:
            while keeper.is_alive():
                for node in self._nodes.values():
                    node.stop(signal.SIGKILL)
                keeper.join(0.1)
        self._opened.close()

    def start(self, *member_ids: int) -> None:
        """Let them be started whenever they have ended; one that was killed is."""
        for keeper in self._keepers if not member_ids else ():
            keeper.start()

    def _keep(self, member_id: int) -> None:
        while not self._is_closing.is_set():
            self._nodes[member_id].process.wait()
            if not self._is_closing.wait(MARK_SECONDS):
                self._nodes[member_id] = cluster_node(self._folder, member_id, *OPTIONS)

    def kill(self, member_id: int) -> None:
        self._nodes[member_id].process.kill()
        self._nodes[member_id].process.wait()

    def pause(self, member_id: int) -> None:
        self._nodes[member_id].process.send_signal(signal.SIGSTOP)
        self._paused.add(member_id)

    def wake(self, member_id: int) -> None:
        """What has stood still for longer than its driver bears ends by itself, and is started again."""
        self._nodes[member_id].process.send_signal(signal.SIGCONT)
        self._paused.discard(member_id)

    def established(self) -> dict[int, dict[str, Any]]:
        """The last state that those wrote which run, where their election is over."""
        states = {}
        for member_id, node in self._nodes.items():
            lines = node.lines() if node.process.poll() is None and member_id not in self._paused else []
            if lines and (state := json.loads(lines[-1])).get("election") == "CLOSED":
                states[member_id] = state
        return states

    def await_leader(self) -> int:
        """Who has become leader last."""

        def in_order() -> list[int]:
            states = self.established()
            leaders = [member_id for member_id, state in states.items() if state["role"] == "LEADER"]
            return sorted(leaders, key=lambda member_id: int(states[member_id]["ms"]))

        return await_that(in_order, "a real member leads", tell=self.tell)[-1]

    def tell(self) -> str:
        """How they stand, and the last errors that they wrote."""
        errors = [f"member {i}: {node.errors()[-1000:]}" for i, node in self._nodes.items()]
        return "\n".join([str(self.established()), *errors])
