"""A member's directory written without a cluster: any log, of any length, in little time.

What frames and stores the entries are the leader's own kernels and archive; only the consensus is missing.
For benchmarks that read, and for tests of what reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.archive.mark_files import ClusterMarkFile
from cluster.archive.recording_log import RecordingLog
from cluster.log.append import append_message, message_end_position
from cluster.log.frames import DONE, OUT_FULL, LogParams, framed_length
from cluster.log.ingress import append_ingress
from cluster.log.session_frames import frame_ingress, join_payloads
from cluster.log.session_table import SessionTable
from cluster.protocol.enums import CloseReason, ClusterAction, ClusterComponentType, ClusterTimeUnit
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.sbe import Message

LOG_STREAM_ID = 100
CONNECTION_ID = 1
BATCH_BYTES = 4 * 1024 * 1024
ROWS_AT_ONCE = 8192


class LogWriter:
    """Appends entries to the log in ``directory``/cluster and /archive, which it makes.

    ``time`` is the cluster time of what is appended next, in milliseconds; ``position`` the end of the log.
    The first entry has to be a term.
    """

    def __init__(
        self,
        directory: Path,
        *,
        cluster_id: int = 0,
        term_length: int = 1 << 26,
        segment_length: int = 1 << 27,
        mtu: int = 1408,
        log_session_id: int = 1877313736,
        checksum: str = "crc32c",
        time: int = 1_800_000_000_000,
    ) -> None:
        self.directory = directory
        self.time = time
        self.leadership_term_id = -1
        self._params = LogParams(term_length, mtu, 0, log_session_id, LOG_STREAM_ID)
        self._files = OsFiles()
        self._archive = Archive.open(
            str(directory / "archive"),
            files=self._files,
            file_sync_level=0,
            segment_length=segment_length,
            checksum=checksum,
            epoch_ms=lambda: self.time,
        )
        self._recording = self._archive.create_recording(
            stream_id=LOG_STREAM_ID,
            session_id=log_session_id,
            initial_term_id=0,
            term_length=term_length,
            mtu=mtu,
        )
        self._mark_file = ClusterMarkFile.create(
            str(directory / "cluster"),
            files=self._files,
            component_type=ClusterComponentType.CONSENSUS_MODULE,
            now_ms=time,
            cluster_id=cluster_id,
            member_id=0,
        )
        self._recording_log = RecordingLog.open(
            str(directory / "cluster"), files=self._files, file_sync_level=0
        )
        self._sessions = SessionTable()
        self._next_session_id = 1
        self._out = np.zeros(max(BATCH_BYTES, self._params.batch_length_min), np.uint8)

    @property
    def position(self) -> int:
        return self._recording.append_position

    def term(self, leader_member_id: int = 0) -> int:
        """Begin the next leadership term; return the position of its first entry."""
        self.leadership_term_id += 1
        base = self.position
        self._recording_log.ensure_coherent(
            recording_id=self._recording.recording_id,
            leadership_term_id=self.leadership_term_id,
            term_base_log_position=base,
            timestamp=self.time,
        )
        return self._append(
            NewLeadershipTermEvent(
                self.leadership_term_id,
                message_end_position(base, len(self._new_term(base, 0, leader_member_id)), self._params),
                self.time,
                base,
                leader_member_id,
                self._params.session_id,
                ClusterTimeUnit.MILLIS,
                1,
            )
        )

    def _new_term(self, base: int, end: int, leader_member_id: int) -> bytes:
        event = NewLeadershipTermEvent(
            self.leadership_term_id, end, self.time, base, leader_member_id, 0, ClusterTimeUnit.MILLIS, 1
        )
        return event.encode()

    def open_session(self, principal: bytes = b"", response_channel: str = "aeron:udp") -> int:
        """Append a SESSION_OPEN; return the new session's id."""
        session_id = self._next_session_id
        self._next_session_id += 1
        self._append(
            SessionOpenEvent(
                self.leadership_term_id, 7, session_id, self.time, 102, response_channel, principal
            )
        )
        self._sessions.open(session_id, CONNECTION_ID)
        return session_id

    def close_session(self, session_id: int, reason: CloseReason = CloseReason.CLIENT_ACTION) -> int:
        self._sessions.close(session_id)
        return self._append(SessionCloseEvent(self.leadership_term_id, session_id, self.time, reason))

    def timer(self, correlation_id: int) -> int:
        return self._append(TimerEvent(self.leadership_term_id, correlation_id, self.time))

    def action(self, action: ClusterAction = ClusterAction.SNAPSHOT) -> int:
        length = len(ClusterActionRequest(self.leadership_term_id, 0, self.time, action, 0).encode())
        end = message_end_position(self.position, length, self._params)
        return self._append(ClusterActionRequest(self.leadership_term_id, end, self.time, action, 0))

    def messages(self, session_id: int, payloads: Sequence[bytes]) -> int:
        """Append one SESSION_MESSAGE a payload; return the position behind the last."""
        for row in range(0, len(payloads), ROWS_AT_ONCE):
            self.columns(session_id, *join_payloads(payloads[row : row + ROWS_AT_ONCE]))
        return self.position

    def columns(self, session_id: int, offsets: np.ndarray, lengths: np.ndarray, buffer: np.ndarray) -> int:
        """The same for payloads that lie in one buffer."""
        ingress = np.zeros(int((lengths + 128).sum()), np.uint8)
        rows, end = frame_ingress(
            ingress, 0, offsets, lengths, buffer, 0, self.leadership_term_id, session_id
        )
        assert rows == len(offsets)
        status, consumed = OUT_FULL, 0
        while status != DONE:
            begin = self.position
            status, position, consumed = append_ingress(
                self._out,
                0,
                begin,
                self._params,
                ingress,
                consumed,
                end,
                self._sessions,
                CONNECTION_ID,
                self.leadership_term_id,
                self.time,
                0,
            )
            assert status in (DONE, OUT_FULL)
            self._recording.append(begin, self._out[: position - begin])
        return self.position

    def _append(self, message: Message) -> int:
        """Append an entry; return where its first frame starts."""
        data = message.encode()
        begin = self.position
        end = append_message(self._out, 0, begin, self._params, data)
        self._recording.append(begin, self._out[: end - begin])
        return end - int(framed_length(len(data), self._params.mtu))

    def stop(self) -> None:
        """End in order: what is recorded is committed."""
        self._recording_log.commit_log_position(self.leadership_term_id, self.position)
        self._recording_log.close()
        self._archive.close()
        self._mark_file.close()

    def abandon(self) -> None:
        """End as a process that is killed does."""
        self._recording_log.close()
        self._archive.abandon()
        self._mark_file.abandon()


def write_messages(
    directory: Path, count: int, *, payload_length: int = 100, sessions: int = 4, checksum: str = "crc32c"
) -> int:
    """A stopped member's log of ``count`` session messages with random payloads; return its end."""
    writer = LogWriter(directory, checksum=checksum)
    writer.term()
    ids = [writer.open_session() for _ in range(sessions)]
    random = np.random.default_rng(1)
    rows = min(ROWS_AT_ONCE, count)
    offsets = np.arange(rows, dtype=np.int64) * payload_length
    lengths = np.full(rows, payload_length, np.int64)
    for begin in range(0, count, rows):
        writer.time += 1
        now = min(rows, count - begin)
        payloads = np.frombuffer(random.bytes(now * payload_length), np.uint8)  # no two alike
        writer.columns(ids[begin // rows % sessions], offsets[:now], lengths[:now], payloads)
    end = writer.position
    writer.stop()
    return end
