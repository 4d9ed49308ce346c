"""A damaged log is mended from what other members have of it, before its member does anything else.

    LogRangeRequest ──▶     to every other: frames of term T from the first one that is missing
    ◀── RecordingBlock      who knows T with the same base, and has them whole: damaged members, too
    ◀── LinkError           who has not

Two logs that hold bytes of one term from the same base are equal up to the end of the shorter (Raft's log
matching, ``LeadershipTerms``). So what comes is what was there, committed or not, and the log that is made
whole is the very one by which its member has voted and reported: nothing is to be noted, nothing has changed.
Where nobody gives it in time, the log is cut (``repair.py``).
"""

from typing import TYPE_CHECKING

import numpy as np

from cluster.archive.mending import Mender
from cluster.archive.walk import log_params
from cluster.consensus.context import NULL_POSITION
from cluster.errors import LogDamaged
from cluster.log.scan import check_run
from cluster.protocol.link import LinkError, LinkErrorCode, LogRangeRequest, RecordingBlock
from cluster.protocol.recording_log import TERM, RecordingLogEntry
from cluster.transport.frames import link_frame

if TYPE_CHECKING:
    from cluster.archive.recording_log import RecordingLog
    from cluster.member.agent import ConsensusModuleAgent

BLOCK_BYTES = 64 * 1024


def _bytes_of_term(
    recording_log: "RecordingLog", position: int, end: int
) -> tuple[RecordingLogEntry, int] | None:
    """The term that wrote ``position`` of a log that ends at ``end``, and where its bytes end there."""
    for entry in reversed(recording_log.entries):
        if entry.is_valid and entry.entry_type is TERM:
            term_end = end if entry.log_position == NULL_POSITION else min(end, entry.log_position)
            if entry.term_base_log_position <= position < term_end:
                return entry, term_end
            end = min(end, entry.term_base_log_position)
    return None


class Mending:
    """Exists from the start of a damaged member until its log is mended, or nobody is asked any more."""

    def __init__(self, agent: "ConsensusModuleAgent", recording_id: int, mender: Mender) -> None:
        self._agent = agent
        self._recording_id = recording_id
        self._mender = mender
        self._correlation_id = agent.now_ns
        self._progress_ns = agent.now_ns
        self._asked: set[int] = set()
        self._refused: set[int] = set()
        self._put_bytes = 0
        self.is_over = False

    def do_work(self) -> int:
        """Ask whoever was not asked; give up when all have refused, or nothing came for too long.

        Where nobody answers, nobody is there either with whom to do better after a cut.
        """
        if self.is_over:
            return 1
        agent, mender = self._agent, self._mender
        recording = agent.archive.recording(self._recording_id)
        found = _bytes_of_term(agent.log.recording_log, mender.position, recording.append_position)
        if mender.is_done:
            self._end(f"log mended: {self._put_bytes} bytes have come from others")
        elif found is None:
            self._end(f"no term has written log position {mender.position}")
        elif self._refused and self._refused | set(agent.gone_member_ids) >= set(agent.other_ids):
            self._end(f"nobody else has log position {mender.position}")
        elif agent.now_ns - self._progress_ns >= agent.context.startup_canvass_timeout_ns:
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
        for member_id in agent.other_ids:
            if member_id in self._asked or not agent.links.is_up(member_id):
                continue
            if agent.links.send(member_id, link_frame(request)) > 0:
                self._asked.add(member_id)
                work_count += 1
        return work_count

    def _end(self, told: str) -> None:
        self.is_over = True
        self._mender.close()
        self._agent.tell(told)

    def on_link_down(self, member_id: int) -> None:
        """What it was asked may be lost; and it may come back with more."""
        self._asked.discard(member_id)
        self._refused.discard(member_id)

    def on_answer(self, member_id: int, message: RecordingBlock | LinkError) -> None:
        """Frames that are missing, or none."""
        if message.correlation_id != self._correlation_id or self.is_over:
            return
        if isinstance(message, LinkError) or not self._put(message):
            self._refused.add(member_id)

    def _put(self, block: RecordingBlock) -> bool:
        """Put frames in their place; False when they are not what belongs there."""
        agent, mender = self._agent, self._mender
        frames = np.frombuffer(bytearray(block.frames), np.uint8)
        params = log_params(agent.archive.recording(self._recording_id).descriptor)
        if block.position != mender.position or not 0 < len(frames) <= mender.limit - mender.position:
            return False
        if check_run(frames, 0, len(frames), block.position, params, is_recording=True) < len(frames):
            return False
        try:
            mender.put(frames)
        except (OSError, LogDamaged) as error:
            self._end(f"the log cannot be mended: {error}")
            return True
        self._put_bytes += len(frames)
        self._correlation_id += 1
        self._progress_ns = agent.now_ns
        self._asked.clear()
        self._refused.clear()
        return True


def serve_range(agent: "ConsensusModuleAgent", member_id: int, request: LogRangeRequest) -> None:
    """Send the frames that another member misses, as far as they are whole here and of the same term."""
    frames = frames_for(agent, request)
    answer: RecordingBlock | LinkError
    if len(frames):
        answer = RecordingBlock(request.correlation_id, request.from_position, frames.tobytes())
    else:
        text = f"log position {request.from_position} of term {request.leadership_term_id} is not here"
        answer = LinkError(request.correlation_id, LinkErrorCode.NOT_AVAILABLE, text)
    agent.links.send(member_id, link_frame(answer))


def frames_for(agent: "ConsensusModuleAgent", request: LogRangeRequest) -> np.ndarray:
    """Whole frames from the position that is asked for on, with session ids; empty without any."""
    nothing = np.zeros(0, np.uint8)
    recording_id = agent.log.recording_log.find_last_recording_id()
    if recording_id is None or not agent.archive.has_recording(recording_id):
        return nothing
    recording = agent.archive.recording(recording_id)
    begin = request.from_position
    found = _bytes_of_term(agent.log.recording_log, begin, recording.synced_position)
    if found is None or begin < recording.start_position:
        return nothing
    term, end = found
    if (term.leadership_term_id, term.term_base_log_position) != (
        request.leadership_term_id,
        request.term_base_log_position,
    ):
        return nothing
    return agent.archive.whole_frames(recording_id, begin, min(end, request.to_position), BLOCK_BYTES)
