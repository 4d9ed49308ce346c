"""Where a recording ends after an unclean stop: the cases of Aeron's own recovery, and what ours adds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cluster.archive.archive import Archive
from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import OsFiles
from cluster.errors import LogDamaged
from tests.archive.logs import SEGMENT_LENGTH, SESSION_ID, TERM_LENGTH, Clock, LogWriter, a_log

PAGE = 4096


def foreign_recording(directory: Path, data: np.ndarray, *, base: int = 0, level: int = 0) -> Path:
    """A recording that a real archive left open: no proof file, its last segment holding ``data``."""
    clock = Clock()
    archive = Archive.open(
        str(directory), file_sync_level=level, segment_length=SEGMENT_LENGTH, epoch_ms=clock
    )
    archive.create_recording(
        stream_id=100,
        session_id=SESSION_ID,
        initial_term_id=0,
        term_length=TERM_LENGTH,
        mtu=8192,
        start_position=base,
    )
    archive.abandon()
    for path in directory.glob("*.proof"):
        path.unlink()
    segment = directory / f"0-{base}.rec"
    segment.write_bytes(data.tobytes().ljust(SEGMENT_LENGTH, b"\0"))
    return segment


def recovered(directory: Path, **options: object) -> Archive:
    options = {"segment_length": SEGMENT_LENGTH, "epoch_ms": Clock(), "file_sync_level": 0, **options}
    return Archive.open(str(directory), **options)  # type: ignore[arg-type]


def big_frames() -> LogWriter:
    """A log whose messages take more than a page in one frame."""
    log = a_log(3, mtu=8192)
    log.message(b"x" * 6000)
    return log


def test_frames_then_zeros_end_behind_the_last_frame(tmp_path):
    log = a_log(20)
    foreign_recording(tmp_path, log.frames())
    archive = recovered(tmp_path)
    assert archive.recordings()[0].stop_position == log.position
    assert [(found.stop_position, found.evidence) for found in archive.recovered] == [
        (log.position, "frame headers")
    ]


def test_a_last_frame_over_two_pages_with_data_in_both_is_whole(tmp_path):
    log = big_frames()
    foreign_recording(tmp_path, log.frames())
    assert recovered(tmp_path).recordings()[0].stop_position == log.position


def test_a_1812_a_last_frame_that_misses_a_page_is_cut_off(tmp_path):
    """aeron-io/aeron issue 1812: such a frame kept an archive from starting."""
    log = big_frames()
    data = log.frames().copy()
    begin, end = log.entries[-1]
    page = (begin // PAGE + 1) * PAGE
    data[page:end] = 0
    segment = foreign_recording(tmp_path, data)
    archive = recovered(tmp_path)
    assert archive.recordings()[0].stop_position == begin
    assert str(archive.recovered[0]) == (
        f"recording 0 ends at {begin} by its frame headers: a page of the last frame is empty"
    )
    assert not any(segment.read_bytes()[begin:]), "a frame of which half is there must never join on"


def test_a_bare_padding_header_at_the_end_is_whole(tmp_path):
    log = a_log(10)
    while TERM_LENGTH - log.position > 5000:
        log.message(b"y" * 1000)
    padding_at = log.position
    log.message(b"z" * 8000)  # does not fit: the term is padded
    data = log.frames(0, TERM_LENGTH).copy()
    data[padding_at + 32 :] = 0
    foreign_recording(tmp_path, data)
    assert recovered(tmp_path).recordings()[0].stop_position == TERM_LENGTH


def test_no_segment_means_an_empty_recording(tmp_path):
    segment = foreign_recording(tmp_path, np.zeros(0, np.uint8))
    segment.unlink()
    archive = recovered(tmp_path)
    assert archive.recordings()[0].stop_position == 0
    recording = archive.extend(0, SESSION_ID)
    log = a_log(3)
    recording.append(0, log.frames())
    recording.sync()
    archive.close()


def test_an_empty_last_segment_ends_the_recording_at_its_base(tmp_path):
    log = a_log(700)
    foreign_recording(tmp_path, log.frames(0, SEGMENT_LENGTH))
    (tmp_path / f"0-{SEGMENT_LENGTH}.rec").write_bytes(bytes(SEGMENT_LENGTH))
    assert recovered(tmp_path).recordings()[0].stop_position == SEGMENT_LENGTH


def test_a_segment_file_that_ends_where_its_data_ends_is_taken_as_sparse(tmp_path):
    log = a_log(20)
    segment = foreign_recording(tmp_path, log.frames())
    segment.write_bytes(log.frames().tobytes())
    archive = recovered(tmp_path)
    assert archive.recordings()[0].stop_position == log.position
    archive.extend(0, SESSION_ID)
    assert segment.stat().st_size == SEGMENT_LENGTH


@pytest.mark.parametrize(
    ("offset", "what"),
    [
        (1, "frame length"),
        (8, "term offset"),
        (16, "stream id"),
        (20, "term id"),
        (6, "version, flags and type"),
    ],
)
def test_a_bad_header_with_frames_behind_it_is_damage_and_is_not_cut(tmp_path, offset, what):
    log = a_log(20)
    data = log.frames().copy()
    bad = log.entries[7][0]
    data[bad + offset] ^= 0x44
    segment = foreign_recording(tmp_path, data)
    with pytest.raises(LogDamaged, match=rf"0-0\.rec at offset {bad}: {what}.*frames follow") as error:
        recovered(tmp_path)
    assert (error.value.path, error.value.offset) == (str(segment), bad)


def test_a_bad_header_at_the_very_end_is_a_torn_write_and_is_cut(tmp_path):
    log = a_log(20)
    data = log.frames().copy()
    begin, _ = log.entries[-1]
    data[begin + 20] ^= 0x44
    foreign_recording(tmp_path, data)
    archive = recovered(tmp_path)
    assert archive.recordings()[0].stop_position == begin
    assert archive.recovered[0].fault.startswith("term id")


def test_a_gap_before_frames_is_damage_unless_nothing_was_ever_synced(tmp_path):
    log = a_log(40)
    data = log.frames().copy()
    begin, end = log.entries[20]
    data[begin:end] = 0
    foreign_recording(tmp_path, data)
    with pytest.raises(LogDamaged, match=r"nothing was written here.*frames follow"):
        recovered(tmp_path, file_sync_level=1)
    assert recovered(tmp_path, file_sync_level=0).recordings()[0].stop_position == begin


def test_a_missing_segment_is_named(tmp_path):
    log = a_log(1000)
    foreign_recording(tmp_path, log.frames(0, SEGMENT_LENGTH))
    (tmp_path / f"0-{2 * SEGMENT_LENGTH}.rec").write_bytes(bytes(SEGMENT_LENGTH))
    with pytest.raises(LogDamaged, match=rf"0-{SEGMENT_LENGTH}\.rec: the segment file is missing"):
        recovered(tmp_path)


def test_checksums_find_the_torn_frame_that_headers_cannot(tmp_path):
    log = a_log(20)
    archive = recovered(tmp_path, checksum="crc32c")
    archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    ).append(0, log.frames())
    archive.abandon()
    begin, end = log.entries[-1]
    segment = tmp_path / "0-0.rec"
    data = bytearray(segment.read_bytes())
    data[end - 40] ^= 1
    segment.write_bytes(data)
    archive = recovered(tmp_path, checksum="crc32c")
    assert archive.recordings()[0].stop_position == begin
    assert archive.recovered[0].fault == "checksum mismatch"


def test_checksums_tell_damage_from_a_torn_end(tmp_path):
    log = a_log(20)
    archive = recovered(tmp_path, checksum="crc32")
    archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    ).append(0, log.frames())
    archive.abandon()
    segment = tmp_path / "0-0.rec"
    data = bytearray(segment.read_bytes())
    data[log.entries[5][0] + 40] ^= 1
    segment.write_bytes(data)
    with pytest.raises(LogDamaged, match=r"checksum mismatch.*frames follow"):
        recovered(tmp_path, checksum="crc32")


def test_the_proof_of_another_session_is_not_believed(tmp_path):
    """A real archive may have gone on with our recording, under a session of its own."""
    log = a_log(40)
    half = log.entries[20][1]
    archive = recovered(tmp_path, file_sync_level=1)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    recording.append(0, log.frames(0, half))
    recording.sync()
    archive.abandon()
    catalog = CatalogFile.open(OsFiles(), str(tmp_path), write=True)
    catalog.extend(0, SESSION_ID + 7)
    catalog.close()
    segment = tmp_path / "0-0.rec"
    segment.write_bytes(log.frames().tobytes().ljust(SEGMENT_LENGTH, b"\0"))
    archive = recovered(tmp_path, file_sync_level=1)
    assert archive.recordings()[0].stop_position == log.position
    assert archive.recovered[0].evidence == "frame headers"


def test_a_purged_recording_recovers_from_its_first_segment(tmp_path):
    log = a_log(1000)
    archive = recovered(tmp_path, file_sync_level=1)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    recording.append(0, log.frames())
    recording.sync()
    recording.purge_to(2 * SEGMENT_LENGTH)
    archive.abandon()
    archive = recovered(tmp_path, file_sync_level=1)
    descriptor = archive.recordings()[0]
    assert (descriptor.start_position, descriptor.stop_position) == (2 * SEGMENT_LENGTH, log.position)


@pytest.mark.parametrize("name", ["archive.catalog", "0-0.rec"])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_bytes_are_there_opening_ends_or_names_the_file(tmp_path, name, seed):
    rng = np.random.default_rng(seed)
    foreign_recording(tmp_path, a_log(20).frames())
    path = tmp_path / name
    data = np.frombuffer(path.read_bytes(), np.uint8).copy()
    window = min(len(data), 600)
    places = rng.integers(0, window, 12)
    data[places] = rng.integers(0, 256, 12)
    path.write_bytes(data.tobytes()[: rng.integers(0, 2 * window) if seed % 3 == 0 else None])
    try:
        recovered(tmp_path).close()
    except LogDamaged as damage:
        assert damage.path is not None and Path(damage.path).parent == tmp_path
