"""A log that a test writes while Spark reads it: a member that runs, as seen from outside."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.synthetic_log import LogWriter
from cluster.counters import CountersFile
from cluster.protocol.counter_types import CounterTypeId

TERM_LENGTH = 1 << 16


class LiveLog(LogWriter):
    """A member that runs: what it appended is not committed until ``commit``.

    Its heartbeat is set with each commit, and is fresh for 10 s.
    """

    def __init__(self, directory: Path, *, cluster_id: int = 0, time: int = 1_800_000_000_000) -> None:
        super().__init__(
            directory,
            cluster_id=cluster_id,
            term_length=TERM_LENGTH,
            segment_length=2 * TERM_LENGTH,
            time=time,
        )
        self._counters = CountersFile.create(
            str(directory / "driver" / "cnc.dat"), pid=os.getpid(), now_ms=_now_ms()
        )
        recording = self._recording
        recording.position_counter = self._counters.allocate_recording_position(
            recording.recording_id, recording.session_id, recording.stream_id, position=0
        )
        self._commit_position = self._counters.allocate_cluster_counter(
            CounterTypeId.COMMIT_POSITION, cluster_id
        )

    def commit(self, position: int | None = None) -> int:
        """Let what was appended, or a part of it, be committed; return the commit position."""
        position = self.position if position is None else position
        self._recording.sync()
        self._counters.update_heartbeat(_now_ms())
        self._commit_position.set(position)
        return position

    def lines(self, session_id: int, first: int, count: int) -> list[bytes]:
        """Append and commit messages ``line N``; return their payloads."""
        payloads = [b"line %d" % number for number in range(first, first + count)]
        self.messages(session_id, payloads)
        self.commit()
        return payloads

    def stop(self) -> None:
        super().stop()
        self._counters.close()

    def abandon(self) -> None:
        super().abandon()
        self._counters.update_heartbeat(1)
        self._counters.close(orderly=False)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def open_log(directory: Path, **options: object) -> tuple[LiveLog, int]:
    """A live log with one term and one session, both committed; and the session's id."""
    log = LiveLog(directory, **options)  # type: ignore[arg-type]
    log.term()
    session_id = log.open_session()
    log.commit()
    return log, session_id
