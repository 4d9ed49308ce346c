"""What a service's process says to its member, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cluster.archive.files import OsFiles
from cluster.log.runs import headers
from cluster.node.module_link import SEND_BYTES_MAX, ModuleLink
from cluster.protocol import streams
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.service_link import (
    ServiceAnswers,
    ServicePosition,
    SnapshotBegin,
    SnapshotReserved,
    decode_service_link,
)
from cluster.service.channel import NO_NUMBERS, ServiceEgress
from cluster.transport.poller import Poller
from cluster.transport.sockets import BUFFERS_PER_SEND_MAX


class SlowConnection:
    """Keeps what it is given until ``drain``; ``most_queued`` is the most that it had to keep."""

    is_closed = False

    def __init__(self) -> None:
        self.queued: list[bytes] = []
        self.taken: list[bytes] = []
        self.most_queued = 0

    @property
    def queued_bytes(self) -> int:
        return sum(map(len, self.queued))

    def offer(self, *frames: bytes) -> int:
        assert len(frames) <= BUFFERS_PER_SEND_MAX
        self.queued += frames
        self.most_queued = max(self.most_queued, self.queued_bytes)
        return 1

    def drain(self) -> None:
        self.taken += self.queued
        self.queued = []


@pytest.fixture
def connection():
    return SlowConnection()


@pytest.fixture
def link(connection):
    poller = Poller()
    yield ModuleLink(0, connection, poller, OsFiles())
    poller.close()


def said(frames: list[bytes]) -> list[Any]:
    """Places of requests, and the messages."""
    found: list[Any] = []
    for frame in frames:
        buffer = np.frombuffer(frame, np.uint8)
        ((_, header),) = headers(buffer, 0, len(buffer))
        if header.stream_id == streams.CONSENSUS_MODULE:
            found.append(header.reserved_value)
        else:
            found.append(decode_service_link(frame, HEADER_LENGTH, header.frame_length - HEADER_LENGTH))
    return found


def test_a_position_is_said_at_the_end_of_a_turn_and_never_within_one(link, connection):
    """A request of the next entry before it would count as one of entries up to it, and be said again."""
    link.channel.log_position = 1_000
    link.channel.offer_to_consensus_module(b"a" * SEND_BYTES_MAX, 900)
    link.channel.offer_to_consensus_module(b"b", 1_000)
    link.flush(is_end_of_turn=True)  # the second one waits
    connection.drain()
    link.channel.offer_to_consensus_module(b"c", 1_100)
    link.flush()  # a callback of the entry at 1,100 idles
    connection.drain()
    link.channel.log_position = 1_100
    link.flush(is_end_of_turn=True)
    connection.drain()

    assert said(connection.taken) == [900, 1_000, 1_100, ServicePosition(1_100, 0, 0)]


def test_a_snapshot_is_asked_for_after_all_that_came_before_it(link, connection, monkeypatch):
    for _ in range(3):
        link.channel.offer_to_consensus_module(b"a" * SEND_BYTES_MAX, 900)

    def await_more():
        connection.drain()
        if isinstance(said(connection.taken)[-1], SnapshotBegin):
            link._reserved = SnapshotReserved(0, 0, b"", b"")

    monkeypatch.setattr(link, "await_more", await_more)
    link.reserve_snapshot(1_000)

    assert said(connection.taken) == [900, 900, 900, SnapshotBegin(1_000)]


def test_answers_that_a_socket_takes_slowly_all_come_in_order_and_the_position_after_them(link, connection):
    count, length = 1_600, 100_000
    lengths = np.full(count, length, np.int64)
    link.channel.offer_egress(
        ServiceEgress(
            3,
            np.arange(count),
            np.zeros(count, np.int64),
            np.arange(count) * length,
            lengths,
            np.zeros(count * length, np.uint8),
            NO_NUMBERS,
        )
    )
    link.channel.log_position = 5
    link.flush(is_end_of_turn=True)
    assert link.has_unsent
    while link.has_unsent:
        connection.drain()
        link.flush(is_end_of_turn=True)
    connection.drain()

    *answers, position = said(connection.taken)
    assert position == ServicePosition(5, 0, 0)
    assert all(isinstance(answer, ServiceAnswers) for answer in answers)
    sessions = [np.frombuffer(answer.columns, np.int64).reshape(6, -1)[0] for answer in answers]
    assert np.concatenate(sessions).tolist() == list(range(count))
    assert connection.most_queued < 80 * 1024 * 1024
