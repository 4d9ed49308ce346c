"""What each step of a batch costs: nanoseconds a message by the batch's size, and rows a second to Arrow.

    frame_ingress  append_ingress  check_run  follow_log  deliver  frame_egress  parse_egress
    client         leader          follower   every member          leader       client

Goals: tens of nanoseconds a message in every step, one to three microseconds for a batch of one, and five
million rows a second from frames to Arrow with the whole row schema on one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.options import Options
from cluster.log.append import append_message
from cluster.log.checksum import (
    Checksum,
    restore_session_ids,
    store_checksums,
    verify_checksums,
)
from cluster.log.columns import ROW_SCHEMA, log_to_record_batch
from cluster.log.deliver import DeliveredMessages, deliver
from cluster.log.follow import follow_log
from cluster.log.frames import DONE, LogParams
from cluster.log.ingress import append_ingress
from cluster.log.scan import check_run, last_message_end, split
from cluster.log.session_frames import (
    EgressMessages,
    frame_egress,
    frame_ingress,
    join_payloads,
    parse_egress,
)
from cluster.log.session_table import SessionTable
from cluster.protocol.log import TimerEvent

PARAMS = LogParams(term_length=64 * 1024 * 1024, mtu=1408, initial_term_id=0, session_id=1)
CONNECTION_ID, TERM_ID, CLUSTER_TIME = 7, 3, 1_800_000_000_000
BATCHES = (1, 10, 400, 16_384)
PAYLOAD_LENGTH = 100


class Batch:
    """``messages`` of ``length`` bytes from one session, at every stage of their way."""

    def __init__(self, messages: int, length: int) -> None:
        room = messages * (length + 256) + PARAMS.batch_length_min
        self.messages = messages
        self.table = SessionTable()
        self.table.open(1, CONNECTION_ID)
        self.columns = join_payloads([b"x" * length] * messages)
        self.ingress, self.log, self.egress = (np.zeros(room, np.uint8) for _ in range(3))
        self.delivered = DeliveredMessages(messages + 1)
        self.received = EgressMessages(messages + 1)
        self.ingress_end = self.frame_ingress()[1]
        self.log_end = self.append_ingress()[1]
        self.deliver()
        self.egress_end = self.frame_egress()[1][0][2]

    def frame_ingress(self) -> tuple[int, int]:
        return frame_ingress(self.ingress, 0, *self.columns, 0, TERM_ID, 1)

    def append_ingress(self) -> tuple[int, int, int]:
        return append_ingress(
            *(self.log, 0, 0, PARAMS, self.ingress, 0, self.ingress_end),
            *(self.table, CONNECTION_ID, TERM_ID, CLUSTER_TIME, 0),
        )

    def check_run(self) -> int:
        return check_run(self.log, 0, self.log_end, 0, PARAMS)

    def follow_log(self) -> tuple[int, int, int]:
        return follow_log(self.log, 0, self.log_end, 0, self.table)

    def deliver(self) -> tuple[int, int]:
        return deliver(self.log, 0, self.log_end, 0, self.delivered)

    def frame_egress(self) -> tuple[int, list[list[int]]]:
        rows = self.delivered
        return frame_egress(
            *(self.egress, rows.session_ids, rows.timestamps, rows.offsets, rows.lengths),
            *(rows.numbers, rows.buffer, 0, TERM_ID, TERM_ID, self.table),
        )

    def parse_egress(self) -> tuple[int, int]:
        return parse_egress(self.egress, 0, self.egress_end, self.received)

    def split(self) -> np.ndarray:
        return split(self.log, 0, self.log_end, [self.log_end // 2, self.log_end])

    def store_crc32c(self) -> int:
        return store_checksums(Checksum.CRC_32C, self.egress, 0, self.egress_end)

    def verify_crc32c(self) -> int:
        return verify_checksums(Checksum.CRC_32C, self.egress, 0, self.egress_end)


STEPS = (
    *(
        "frame_ingress",
        "append_ingress",
        "check_run",
        "follow_log",
        "deliver",
        "frame_egress",
        "parse_egress",
    ),
    *("split", "store_crc32c", "verify_crc32c"),
)


def best_seconds(step: Callable[[], Any], seconds: float) -> float:
    """The shortest of the runs that fit the time: what the step costs when nothing else wants the core."""
    best, until = float("inf"), time.perf_counter() + seconds
    while True:
        began = time.perf_counter()
        step()
        ended = time.perf_counter()
        best = min(best, ended - began)
        if ended > until:
            return best


def run(options: Options) -> Iterator[dict[str, Any]]:
    seconds = options.seconds / 40
    for length, messages in [*((PAYLOAD_LENGTH, n) for n in BATCHES), (5000, 400)]:
        batch = Batch(messages, length)
        assert batch.parse_egress() == (DONE, batch.egress_end)
        assert batch.received.count == messages, "an answer to each came back"
        for name in STEPS:
            best = best_seconds(getattr(batch, name), seconds)
            yield {
                "figure": name,
                "payload_bytes": length,
                "messages_per_call": messages,
                "microseconds_per_call": round(best * 1e6, 2),
                "nanoseconds_per_message": round(best / messages * 1e9, 1),
            }
    for name, log in (
        ("session messages", Batch(65_536, PAYLOAD_LENGTH).log),
        ("one in ten a timer", _mixed(65_536)),
    ):
        for columns in (None, ["position", "clusterSessionId", "payload"]):
            for checksum in (None, Checksum.CRC_32C):
                yield _to_arrow(name, log, columns, checksum, seconds * 5)


def _to_arrow(
    name: str, log: np.ndarray, columns: list[str] | None, checksum: Checksum | None, seconds: float
) -> dict[str, Any]:
    """Runs of frames to columns; with a checksum each run is verified, and its session ids are restored."""
    end = last_message_end(log, 0, log.size)
    stored = log.copy()
    if checksum is not None:
        assert store_checksums(checksum, stored, 0, end) == end
    decoded = log_to_record_batch(log, 0, end, 0, columns=columns)
    rows = decoded.record_batch.num_rows

    def decode_all() -> None:
        position = 0
        while position < end:
            found = log_to_record_batch(log, position, end, position, columns=columns, rows_max=16_384)
            if checksum is not None:
                assert (
                    verify_checksums(checksum, stored, position, found.next_position) == found.next_position
                )
                restore_session_ids(log, position, found.next_position, PARAMS.session_id)
            position = found.next_position

    best = best_seconds(decode_all, seconds)
    return {
        "figure": "log_to_record_batch",
        "log": name,
        "payload_bytes": PAYLOAD_LENGTH,
        "columns": len(ROW_SCHEMA) if columns is None else len(columns),
        "verified": None if checksum is None else checksum.name,
        "rows_per_batch": 16_384,
        "million_rows_per_second": round(rows / best / 1e6, 2),
        "megabytes_of_log_per_second": round(end / best / 1e6),
    }


def _mixed(entries: int) -> np.ndarray:
    """A log in which every tenth entry is a timer's, so that columns have nulls."""
    message = bytes(Batch(1, PAYLOAD_LENGTH).log[32:164])
    log = np.zeros(entries * 192 + PARAMS.batch_length_min, np.uint8)
    position = 0
    for i in range(entries):
        entry = message if i % 10 else TimerEvent(TERM_ID, i, CLUSTER_TIME).encode()
        position = append_message(log, position, position, PARAMS, entry)
    return log
