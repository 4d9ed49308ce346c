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


def old_and_restored(directory: Path, lines: int = 3) -> tuple[LiveLog, LiveLog, int]:
    """One log before and after its cluster was restored, and to which position that was.

    Both have gone on from there for twice as long, the one before in two more terms.
    """
    logs = []
    for name in ("old", "restored"):
        log, session_id = open_log(directory / name)
        log.lines(session_id, 0, lines)
        position = log.position
        is_old = name == "old"
        log.lines(session_id, lines, lines if is_old else 0)
        for _ in range(2 if is_old else 1):
            log.time += 1_000 if is_old else 60_000
            log.term()
            log.lines(session_id, 100, lines if is_old else 4 * lines)
        logs.append(log)
    return logs[0], logs[1], position
