"""Walks the frames of a recording's files and checks that each is the one its position calls for."""

from collections.abc import Iterator

import numpy as np

from cluster.archive.segments import Segments
from cluster.errors import LogDamaged
from cluster.log.frames import LogParams
from cluster.log.runs import headers
from cluster.log.scan import FINE, FRAME_LENGTH, STREAM, TERM_END, TERM_ID, TERM_OFFSET, fault_at, find_fault
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import (
    DATA_FRAME_HEADER,
    FLAGS_UNFRAGMENTED,
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_PAD,
    align,
    header_at,
    term_id_at,
    term_offset_at,
)

CHUNK = 1024 * 1024


def log_params(descriptor: RecordingDescriptor) -> LogParams:
    """Geometry and ids of a recording's frames, for the kernels."""
    return LogParams(
        term_length=descriptor.term_buffer_length,
        mtu=descriptor.mtu_length,
        initial_term_id=descriptor.initial_term_id,
        session_id=descriptor.session_id,
        stream_id=descriptor.stream_id,
    )


class FrameWalk:
    """Yields ``(position, data)``: runs of whole frames in their places, from ``position`` up to ``end``.

    A run lies within one segment. When the walk is over, ``position`` is where it came to, and ``fault`` says
    what is wrong there: "" at ``end`` and where nothing was written yet (then ``is_unwritten``).
    Sessions are not checked: a recording holds those of all its leaders, or checksums in their place.
    Bytes of a padding frame's body may be anything. Raises what reading raises.
    """

    def __init__(
        self, segments: Segments, params: LogParams, position: int, end: int, *, chunk_length: int = CHUNK
    ) -> None:
        self.position = position
        self.fault = ""
        self.is_unwritten = False
        self._expected = ""
        self._there = 0  # of the bytes read last, how many the file has
        self._segments = segments
        self._params = params
        self._end = end
        self.chunk_length = max(chunk_length, HEADER_LENGTH)

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        wanted = self.chunk_length
        while self.position < self._end:
            data = self._read(wanted)
            valid, fault = find_fault(data, 0, len(data), self.position, self._params, is_recording=True)
            if valid > self._there:
                valid = self._uncut(data, valid)
                if valid == 0:
                    self.fault = f"frame of {header_at(data).frame_length} bytes"
                    self._expected = f"but the file ends after {self._there} of them"
                    return
            if valid > 0:
                position, self.position = self.position, self.position + valid
                wanted = self.chunk_length
                yield position, data[:valid]
                continue
            assert fault != FINE
            length = header_at(data).frame_length
            if length <= 0:
                self.is_unwritten = True
                self._expected = f"expected frames to {self._end}"
                return
            if fault == FRAME_LENGTH and len(data) < align(length) <= self._rest():
                wanted = align(length)  # longer than a chunk, as padding may be
                continue
            if len(data) >= HEADER_LENGTH and len(data) < align(length):
                self.fault = f"frame of {length} bytes"
                self._expected = f"expected at most {self._rest()}"
            else:
                self.fault = fault_at(data, 0, len(data), self.position, self._params, is_recording=True)
                self._expected = self._expectation(fault)
            return

    def damage(self) -> LogDamaged:
        """The fault as an error that names file and offset."""
        what = f"{self.fault or 'no frame was written here'} at log position {self.position}"
        if self._expected:
            what = f"{what}, {self._expected}"
        return self._segments.damage_at(self.position, what)

    def _expectation(self, fault: int) -> str:
        """What the place called for, where a word says it."""
        params = self._params
        bits = params.position_bits
        offset = term_offset_at(self.position, bits)
        wanted = {
            FRAME_LENGTH: f"from {HEADER_LENGTH} to {params.mtu}",
            TERM_OFFSET: str(offset),
            TERM_ID: str(term_id_at(self.position, bits, params.initial_term_id)),
            STREAM: str(params.stream_id),
            TERM_END: f"at most {params.term_length - offset}",
        }.get(fault)
        return "" if wanted is None else f"expected {wanted}"

    def _rest(self) -> int:
        """Bytes up to the end, or to the end of the segment when that is nearer."""
        base = self._segments.base_of(self.position)
        return min(self._end, base + self._segments.segment_length) - self.position

    def _read(self, wanted: int) -> np.ndarray:
        """Bytes from ``position`` on; where the file ends early, zeros, as in a sparse file."""
        data = np.zeros(min(wanted, self._rest()), np.uint8)
        self._there = self._segments.read_into(self.position, data)
        return data

    def _uncut(self, data: np.ndarray, end: int) -> int:
        """The end of the frames before ``end`` that the file has whole: what it lacks was read as zeros."""
        for offset, header in headers(data, 0, end):
            length = HEADER_LENGTH if header.type == TYPE_PAD else header.frame_length
            if offset + length > self._there:
                return offset
        return end


def next_frame_after(segments: Segments, params: LogParams, position: int, end: int) -> int | None:
    """The first position after ``position`` where a header stands that belongs there; None before ``end``.

    How a walk goes on after damage: whatever 32 bytes carry their own term offset, term id and stream. Only
    segments that are there are looked at: ``end`` may come from a damaged catalog and be any number.
    """
    bits = params.position_bits
    position += HEADER_LENGTH
    for base in segments.bases():
        if base != segments.base_of(base):
            continue  # a file of other lengths
        position = max(position, base)
        segment_end = min(end, base + segments.segment_length)
        while position < segment_end:
            length = min(CHUNK, segment_end - position)
            data = np.zeros(length, np.uint8)
            segments.read_into(position, data)
            frames = data[: length & -HEADER_LENGTH].view(DATA_FRAME_HEADER)
            positions = position + HEADER_LENGTH * np.arange(len(frames), dtype=np.int64)
            term_ids = ((positions >> bits) + params.initial_term_id).astype(np.int32)
            term_offsets = positions & (params.term_length - 1)
            lengths = frames["frame_length"]
            found = (
                (lengths >= HEADER_LENGTH)
                & (term_offsets + lengths <= params.term_length)
                & (frames["term_offset"] == term_offsets)
                & (frames["term_id"] == term_ids)
                & (frames["stream_id"] == params.stream_id)
                & (frames["version"] == 0)
                & (frames["flags"] | FLAGS_UNFRAGMENTED == FLAGS_UNFRAGMENTED)
                & ((frames["type"] == TYPE_PAD) | (frames["type"] == TYPE_DATA) & (lengths <= params.mtu))
            )
            if (hits := np.flatnonzero(found)).size:
                return int(positions[hits[0]])
            position += length
    return None
