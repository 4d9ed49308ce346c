"""``java/Service.java`` in mode script, in Python: the same answers, state, snapshot and record."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from typing import Any

from cluster.protocol.enums import CloseReason
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.service.client_session import ClientSession
from cluster.service.cluster import Cluster
from cluster.service.clustered_service import ClusteredService

RECORD = "SCRIPT_RECORD"  # environment: the file that callbacks are written to
_TWO_LONGS = struct.Struct("<qq")


class Script(ClusteredService):
    """Does what the first byte of a message says (java/Workload.java)."""

    def on_start(self, cluster: Cluster, snapshot_image: Iterable[bytes] | None) -> None:
        self._cluster = cluster
        self._count = self._hash = 0
        for record in snapshot_image or ():
            self._count, self._hash = _TWO_LONGS.unpack(record)
        self._record = open(os.environ[RECORD], "w", buffering=1)  # noqa: SIM115 - for as long as it lives
        self._write("start", logPosition=cluster.log_position())

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self._update(21, session.id, timestamp)
        self._write(
            "sessionOpen",
            clusterSessionId=session.id,
            timestamp=timestamp,
            responseStreamId=session.response_stream_id,
            responseChannel=session.response_channel,
        )

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self._update(22, session.id, timestamp)
        reason = close_reason.name
        self._write("sessionClose", clusterSessionId=session.id, timestamp=timestamp, closeReason=reason)

    def on_session_message(self, session: ClientSession | None, timestamp: int, buffer: memoryview) -> None:
        position = self._cluster.log_position()
        self._update(1, position, timestamp)
        self._write(
            "sessionMessage",
            clusterSessionId=None if session is None else session.id,
            timestamp=timestamp,
            endPosition=position,
            payload=bytes(buffer).hex(),
        )
        if session is not None:
            self._perform(session, bytes(buffer))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self._update(20, correlation_id, timestamp)
        self._write("timer", correlationId=correlation_id, timestamp=timestamp)

    def on_new_leadership_term_event(self, event: NewLeadershipTermEvent) -> None:
        self._update(24, event.leadership_term_id, event.timestamp)
        self._write(
            "newLeadershipTerm",
            leadershipTermId=event.leadership_term_id,
            timestamp=event.timestamp,
            termBaseLogPosition=event.term_base_log_position,
            leaderMemberId=event.leader_member_id,
            appVersion=event.app_version,
        )

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(_TWO_LONGS.pack(self._count, self._hash))

    def _perform(self, session: ClientSession, message: bytes) -> None:
        number, delay_ms = _TWO_LONGS.unpack_from(message, 1)
        match message[:1]:
            case b"E":
                session.offer(message)
            case b"T":
                self._cluster.schedule_timer(number, self._cluster.time() + delay_ms)
            case b"C":
                self._cluster.cancel_timer(number)
            case b"O":
                self._cluster.offer(message)
            case b"X":
                session.close()

    def _update(self, kind: int, value: int, timestamp: int) -> None:
        self._count += 1
        wrapped = ((self._hash * 31 + kind) * 31 + value) * 31 + timestamp
        self._hash = (wrapped + 2**63) % 2**64 - 2**63

    def _write(self, callback: str, **fields: object) -> None:
        self._record.write(json.dumps({"callback": callback, **fields}) + "\n")
