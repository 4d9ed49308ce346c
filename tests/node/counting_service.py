"""A service in a process of its own, and a client that keeps its answers, for tests on real members."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from cluster import ClusterClient, ClusteredService
from tests.node.processes import await_that, is_alive


class Counting(ClusteredService):
    """Numbers what it hears; its own messages to the cluster and its timers are numbered by all."""

    def __init__(self) -> None:
        self.number = self.told = self.fired = 0

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            self.number, self.told, self.fired = map(int, b"".join(snapshot_image).split())

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        if session is None:
            self.told += 1
            return
        payload = bytes(buffer)
        if payload.startswith(b"sleep"):
            time.sleep(float(payload[5:]))
        if payload == b"state":
            session.offer(b"%d %d %d" % (self.number, self.told, self.fired))
            return
        self.number += 1
        self.cluster.offer(payload)
        self.cluster.schedule_timer(self.number, timestamp)
        session.offer(b"%d %s" % (self.number, payload))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.fired += 1

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(b"%d %d %d" % (self.number, self.told, self.fired))


class Repeating(ClusteredService):
    """Answers each message with itself."""

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        session.offer(bytes(buffer))


COUNTING = f"{__name__}:Counting"
REPEATING = f"{__name__}:Repeating"


class Client:
    """A client that keeps its answers."""

    def __init__(self, endpoints: str) -> None:
        self.answers: list[bytes] = []
        self.client = ClusterClient.connect(endpoints, self)

    def on_message(self, cluster_session_id: int, timestamp: int, payload: memoryview) -> None:
        self.answers.append(bytes(payload))

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            while self.client.offer(payload) < 0:
                self.client.poll_egress()

    def await_answers(self, count: int) -> list[bytes]:
        await_that(lambda: self.client.poll_egress() >= 0 and len(self.answers) >= count, f"{count} answers")
        return self.answers


def events(directory: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (directory / "node.log").read_text().splitlines()]


def pid_of(directory: Path, service_id: int = 0) -> int:
    """The process that the member has told of last."""
    told = f"service {service_id} runs in process "
    return int([line for line in events(directory) if line.startswith(told)][-1].removeprefix(told))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    await_that(lambda: not is_alive(pid), "it is dead")
