"""The client of ``cluster demo``: numbers its messages, and counts what comes back to each of them.

It runs in a process of its own, so that its pace is its own, too. Every message is the next number, which the
service echoes. A number that is skipped among the answers is lost, one that comes again is doubled.
"""

import time
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np

from cluster.client.cluster_client import ClusterClient
from cluster.client.egress_dispatch import EgressBatch
from cluster.errors import ClusterError, TimedOut

PAYLOAD_BYTES = 32
NUMBERS_PER_PAYLOAD = PAYLOAD_BYTES // 8  # the first is the message's own, the others are 0
BATCH_MAX = 2_000  # messages of one offer
IN_FLIGHT_MAX = 10_000  # messages without an answer
WAIT_S = 0.002
REPORT_S = 0.05
GAP_MIN_S = 0.005  # what is shorter is the pace of commits
FINISH_S = 60.0


class DemoStanding(NamedTuple):
    """How far the client is. Times are monotonic, in seconds."""

    offered: int
    committed: int
    answered: int
    lost: int
    doubled: int
    gaps: tuple[tuple[float, float], ...]  # without a commit, since the last report: (began, ended)


class NumberedAnswers:
    """The listener: which numbers have come back."""

    def __init__(self) -> None:
        self.next = 0
        self.lost = 0
        self.doubled = 0

    def on_messages(self, batch: EgressBatch) -> None:
        first_bytes = batch.offsets[:, None] + np.arange(8)
        numbers = batch.buffer[first_bytes].view("<i8")[:, 0]
        fresh = numbers[numbers >= self.next]
        self.doubled += len(numbers) - len(fresh)
        if len(fresh):
            end = int(fresh[-1]) + 1
            self.lost += end - self.next - len(fresh)
            self.next = end

    @property
    def answered(self) -> int:
        return self.next - self.lost


def send_numbers(link: Connection, endpoints: str, messages_per_s: int) -> None:
    """Send until ``link`` says otherwise; report every REPORT_S, and the text of an error that ends it."""
    answers = NumberedAnswers()
    try:
        with ClusterClient.connect(endpoints, answers, supervised=True, message_timeout_s=30.0) as client:
            _Sender(client, answers, link).run(messages_per_s)
    except ClusterError as error:
        link.send(str(error))


class _Sender:
    def __init__(self, client: ClusterClient, answers: NumberedAnswers, link: Connection) -> None:
        self._client = client
        self._answers = answers
        self._link = link
        self._committed = 0
        self._grown_at = self._reported_at = time.monotonic()
        self._gaps: list[tuple[float, float]] = []

    def run(self, messages_per_s: int) -> None:
        """A second's worth of messages in a second; what could not be sent in its time is not made up for."""
        due, looked_at = 0.0, time.monotonic()
        while not self._link.poll():
            now = time.monotonic()
            due = min(due + (now - looked_at) * messages_per_s, BATCH_MAX)
            looked_at = now
            count = min(int(due), IN_FLIGHT_MAX - (self._client.offered - self._answers.next))
            if count > 0 and self._client.offer_batch(self._payloads(count)) > 0:
                due -= count
            self._take()
        self._link.recv()
        deadline = time.monotonic() + FINISH_S
        while min(self._answers.next, self._committed) < self._client.offered:
            if time.monotonic() > deadline:
                raise TimedOut(f"not all messages were answered within {FINISH_S:g} s")
            self._take()
        self._report()
        self._link.poll(None)  # whoever reads the report ends this process

    def _payloads(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        numbers = np.zeros((count, NUMBERS_PER_PAYLOAD), "<i8")
        numbers[:, 0] = np.arange(self._client.offered, self._client.offered + count)
        lengths = np.full(count, PAYLOAD_BYTES)
        return numbers.reshape(-1).view(np.uint8), PAYLOAD_BYTES * np.arange(count), lengths

    def _take(self) -> None:
        self._client.poll_egress()
        now, committed = time.monotonic(), self._client.acknowledged
        if committed > self._committed:
            if now - self._grown_at >= GAP_MIN_S:
                self._gaps.append((self._grown_at, now))
            self._committed, self._grown_at = committed, now
        if now - self._reported_at >= REPORT_S:
            self._report()
            self._reported_at = now
        self._client.wait(WAIT_S)

    def _report(self) -> None:
        answers, gaps = self._answers, tuple(self._gaps)
        self._gaps = []
        self._link.send(
            DemoStanding(
                self._client.offered, self._committed, answers.answered, answers.lost, answers.doubled, gaps
            )
        )
