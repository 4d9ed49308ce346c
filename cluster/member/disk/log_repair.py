"""A damaged log is repaired from what other members have of it, before its member does anything else.

    LogRangeRequest ──▶     to every other: frames of term T from the first one that is missing
    ◀── RecordingBlock      who knows T with the same base, and has them whole: damaged members, too
    ◀── LinkError           who has not

Two logs that hold bytes of one term from the same base are equal up to the end of the shorter (Raft's log
matching, ``LeadershipTerms``). So what comes is what was there, committed or not, and the log that is made
whole is the very one by which its member has voted and reported: nothing is to be noted, nothing has changed.
Where nobody gives it in time, the log is cut (``repair.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cluster.archive.frame_walk import log_params
from cluster.archive.recording_log import RecordingLog
from cluster.archive.recording_repair import RecordingRepair
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.errors import LogDamaged
from cluster.log.scan import check_run
from cluster.member.disk.member_files import MemberFiles
from cluster.member.ports import Peers
from cluster.protocol.link import LinkError, LinkErrorCode, LogRangeRequest, RecordingBlock
from cluster.protocol.recording_log import TERM, RecordingLogEntry
from cluster.transport.message_frames import link_frame

BLOCK_BYTES = 64 * 1024


def _bytes_of_term(
    recording_log: RecordingLog, position: int, end: int
) -> tuple[RecordingLogEntry, int] | None:
    """The term that wrote ``position`` of a log that ends at ``end``, and where its bytes end there."""
    for entry in reversed(recording_log.entries):
        if entry.is_valid and entry.entry_type is TERM:
            term_end = end if entry.log_position == NULL_POSITION else min(end, entry.log_position)
            if entry.term_base_log_position <= position < term_end:
                return entry, term_end
            end = min(end, entry.term_base_log_position)
    return None


@dataclass(eq=False)
class LogRepair:
    """Exists from the start of a damaged member until its log is repaired, or nobody is asked any more."""

    _context: ConsensusModuleContext
    _files: MemberFiles
    _peers: Peers
    _say: Callable[[str], None]
    _recording_id: int
    _mender: RecordingRepair
    _progress_ns: int  # when something came last
    _asked: set[int] = field(default_factory=set)
    _refused: set[int] = field(default_factory=set)
    _put_bytes: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        self._correlation_id = self._progress_ns

    def do_work(self, now_ns: int) -> int:
        """Ask whoever was not asked; give up when all have refused, or nothing came for too long."""
        if self.is_over:
            return 1
        mender, peers = self._mender, self._peers
        recording = self._files.archive.recording(self._recording_id)
        found = _bytes_of_term(self._files.recording_log, mender.position, recording.append_position)
        if mender.is_done:
            self._end(f"log repaired: {self._put_bytes} bytes have come from others")
        elif found is None:
            self._end(f"no term has written log position {mender.position}")
        elif self._refused and self._refused | set(peers.gone_ids) >= set(peers.ids):
            self._end(f"nobody else has log position {mender.position}")
        elif now_ns - self._progress_ns >= self._context.startup_canvass_timeout_ns:
            self._end(f"nobody has given log position {mender.position} in time")
        if self.is_over:
            return 1
        assert found is not None
        term, term_end = found
        request = LogRangeRequest(
            correlation_id=self._correlation_id,
            leadership_term_id=term.leadership_term_id,
            term_base_log_position=term.term_base_log_position,
            from_position=mender.position,
            to_position=min(mender.limit, term_end),
        )
        work_count = 0
        for member_id in peers.ids:
            if member_id in self._asked or not peers.links.is_up(member_id):
                continue
            if peers.links.send(member_id, link_frame(request)) > 0:
                self._asked.add(member_id)
                work_count += 1
        return work_count

    def _end(self, outcome: str) -> None:
        self.is_over = True
        self._mender.close()
        self._say(outcome)

    def on_link_down(self, member_id: int) -> None:
        """What it was asked may be lost; and it may come back with more."""
        self._asked.discard(member_id)
        self._refused.discard(member_id)

    def on_answer(self, member_id: int, message: RecordingBlock | LinkError, now_ns: int) -> None:
        """Frames that are missing, or none."""
        if message.correlation_id != self._correlation_id or self.is_over:
            return
        if isinstance(message, LinkError) or not self._put(message, now_ns):
            self._refused.add(member_id)

    def _put(self, block: RecordingBlock, now_ns: int) -> bool:
        """Put frames in their place; False when they are not what belongs there."""
        mender = self._mender
        frames = np.frombuffer(bytearray(block.frames), np.uint8)
        params = log_params(self._files.archive.recording(self._recording_id).descriptor)
        if block.position != mender.position or not 0 < len(frames) <= mender.limit - mender.position:
            return False
        if check_run(frames, 0, len(frames), block.position, params, is_recording=True) < len(frames):
            return False
        try:
            mender.put(frames)
        except (OSError, LogDamaged) as error:
            self._end(f"the log cannot be repaired: {error}")
            return True
        self._put_bytes += len(frames)
        self._correlation_id += 1
        self._progress_ns = now_ns
        self._asked.clear()
        self._refused.clear()
        return True


def range_answer(files: MemberFiles, request: LogRangeRequest) -> bytes:
    """What another member misses, in one frame: as far as it is whole here, and of the same term."""
    frames = frames_for(files, request)
    answer: RecordingBlock | LinkError
    if len(frames):
        answer = RecordingBlock(request.correlation_id, request.from_position, frames.tobytes())
    else:
        text = f"log position {request.from_position} of term {request.leadership_term_id} is not here"
        answer = LinkError(request.correlation_id, LinkErrorCode.NOT_AVAILABLE, text)
    return link_frame(answer)


def frames_for(files: MemberFiles, request: LogRangeRequest) -> np.ndarray:
    """Whole frames from the position that is asked for on, with session ids; empty without any."""
    nothing = np.zeros(0, np.uint8)
    recording_id = files.recording_log.find_last_recording_id()
    if recording_id is None or not files.archive.has_recording(recording_id):
        return nothing
    recording = files.archive.recording(recording_id)
    begin = request.from_position
    found = _bytes_of_term(files.recording_log, begin, recording.synced_position)
    if found is None or begin < recording.start_position:
        return nothing
    term, end = found
    if (term.leadership_term_id, term.term_base_log_position) != (
        request.leadership_term_id,
        request.term_base_log_position,
    ):
        return nothing
    return files.archive.whole_frames(recording_id, begin, min(end, request.to_position), BLOCK_BYTES)
