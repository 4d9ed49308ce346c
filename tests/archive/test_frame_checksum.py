"""A recording keeps what its frames hold, found from the frames, however the archive is configured now."""

import pytest

from cluster.archive import recording_words
from cluster.archive.archive_tool import add_checksums
from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import OsFiles
from cluster.archive.recording_verification import verify_recording
from cluster.log.checksum import Checksum, verify_checksums
from tests.archive.damaged import LOG, damage_of, entry_at, flip, opened
from tests.archive.logs import SEGMENT_LENGTH, SESSION_ID, TERM_LENGTH

HALF = LOG.entries[500][0]
KINDS = {None: None, "crc32": Checksum.CRC_32, "crc32c": Checksum.CRC_32C}
CHANGES = [(None, "crc32c"), ("crc32c", None), ("crc32", "crc32c")]


def begun(directory, checksum, *, end=HALF, is_stopped=True):
    """The log up to ``end``, recorded by an archive with that setting."""
    archive = opened(directory, checksum=checksum)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    last = max(begin for begin, entry_end in LOG.entries if entry_end <= end)
    recording.append(0, LOG.frames(0, last))
    recording.sync()
    recording.append(last, LOG.frames(last, end))
    recording.sync()
    archive.close() if is_stopped else archive.abandon()


def gone_on(directory, checksum, *, begin=HALF, end=None):
    """More of the log by an archive with another setting, under another session."""
    archive = opened(directory, checksum=checksum)
    assert archive.find_damage(0) is None
    recording = archive.extend(0, SESSION_ID + 1)
    recording.append(begin, LOG.frames(begin, end))
    archive.close()


@pytest.mark.parametrize(("before", "now"), CHANGES)
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_recording_is_opened_and_extended_as_it_was_begun(tmp_path, before, now, is_stopped):
    begun(tmp_path, before, is_stopped=is_stopped)
    gone_on(tmp_path, now)

    archive = opened(tmp_path, checksum=now)
    assert archive.find_damage(0) is None
    assert archive.recording(0).checksum == KINDS[before]
    run = archive.recording(0).read(0, LOG.position)
    if before is None:
        assert bytes(run) == bytes(LOG.frames(0))
    else:
        assert verify_checksums(KINDS[before], run, 0, len(run)) == LOG.position
    archive.close()


@pytest.mark.parametrize(("before", "now"), CHANGES)
def test_new_recordings_beside_it_get_what_is_configured(tmp_path, before, now):
    begun(tmp_path, before)
    archive = opened(tmp_path, checksum=now)
    other = archive.create_recording(
        stream_id=106, session_id=5, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    assert (archive.recording(0).checksum, other.checksum) == (KINDS[before], KINDS[now])
    archive.close()


@pytest.mark.parametrize(("before", "now"), CHANGES)
def test_a_catalog_entry_keeps_the_kind_of_its_frames(tmp_path, before, now):
    begun(tmp_path, before)
    gone_on(tmp_path, now)
    catalog = CatalogFile.open(OsFiles(), str(tmp_path))
    (entry,) = catalog.entries
    assert (entry.header.checksum == 0) == (before is None)
    verified = verify_recording(
        OsFiles(), str(tmp_path), catalog, entry, all_segments=True, checksum=KINDS[before]
    )
    assert verified.damage is None
    catalog.close()


@pytest.mark.parametrize("is_stopped", [True, False])
@pytest.mark.parametrize("now", [None, "crc32"])
def test_a_flipped_bit_is_found_whatever_is_configured_now(tmp_path, now, is_stopped):
    begun(tmp_path, "crc32c", end=LOG.position, is_stopped=is_stopped)
    begin, _ = entry_at(SEGMENT_LENGTH + 5_000)
    flip(tmp_path / f"0-{SEGMENT_LENGTH}.rec", begin - SEGMENT_LENGTH + 40)

    damage = damage_of(tmp_path, checksum=now)
    assert damage.position == begin
    assert "checksum mismatch" in damage.error.what


def test_verify_looks_at_the_checksums_that_are_there_without_being_told_of_them(tmp_path):
    begun(tmp_path, "crc32c", end=LOG.position)
    begin, _ = entry_at(5_000)
    flip(tmp_path / "0-0.rec", begin + 40)
    catalog = CatalogFile.open(OsFiles(), str(tmp_path))
    verified = verify_recording(OsFiles(), str(tmp_path), catalog, catalog.entries[0], all_segments=True)
    assert "checksum mismatch" in str(verified.damage)
    catalog.close()


def test_the_only_frame_of_a_recording_cannot_hide_what_it_held(tmp_path):
    begun(tmp_path, "crc32c", end=LOG.entries[0][1])
    flip(tmp_path / "0-0.rec", 40)
    assert damage_of(tmp_path, checksum=None).position == 0


def test_the_only_frame_of_a_recording_without_checksums_is_no_damage(tmp_path):
    """Not even if whoever wrote last, under another session, came to write nothing."""
    first = LOG.entries[0][1]
    begun(tmp_path, None, end=first)
    gone_on(tmp_path, "crc32c", begin=first, end=first)
    assert damage_of(tmp_path, checksum="crc32c") is None


def test_where_all_of_the_first_frames_are_damaged_others_tell(tmp_path):
    begun(tmp_path, "crc32c", end=LOG.position)
    data = bytearray((tmp_path / "0-0.rec").read_bytes())
    for begin, end in LOG.entries[:40]:
        data[begin + 32 : end : 32] = bytes(len(range(begin + 32, end, 32)))
    (tmp_path / "0-0.rec").write_bytes(data)
    assert damage_of(tmp_path, checksum=None).position == 0


@pytest.mark.parametrize("later_frames", [1, 500])
def test_a_recording_in_which_only_some_frames_hold_checksums_is_not_damaged(tmp_path, later_frames):
    """So it was where the setting was changed before recordings kept theirs; then nothing is verified."""
    end = LOG.entries[499 + later_frames][1]
    begun(tmp_path, "crc32c")
    archive = opened(tmp_path, checksum=None)
    recording = archive.extend(0, SESSION_ID)
    recording.words[recording_words.CHECKSUM] = 0
    recording.append(HALF, LOG.frames(HALF, end))
    archive.close()

    archive = opened(tmp_path, checksum="crc32c")
    assert archive.find_damage(0) is None
    assert archive.recording(0).checksum is None
    archive.close()


def test_a_recording_that_was_given_checksums_goes_on_with_them(tmp_path):
    begun(tmp_path, None)
    catalog = CatalogFile.open(OsFiles(), str(tmp_path), write=True)
    (entry,) = catalog.entries
    add_checksums(OsFiles(), str(tmp_path), catalog, entry, Checksum.CRC_32C, all_segments=True)
    catalog.close()
    gone_on(tmp_path, "none")

    archive = opened(tmp_path, checksum="none")
    assert (archive.recording(0).checksum, archive.find_damage(0)) == (Checksum.CRC_32C, None)
    archive.close()


@pytest.mark.parametrize(("configured", "kind"), [("crc32", "crc32"), ("crc32c", "crc32c"), (None, "crc32c")])
def test_where_no_frame_tells_and_the_catalogs_checksum_is_stale_the_configured_kind_goes_on(
    tmp_path, configured, kind
):
    """A crash within a change of the entry, of a recording that has lost all of its files."""
    begun(tmp_path, "crc32")
    for path in tmp_path.glob("*.rec"):
        path.unlink()
    catalog = CatalogFile.open(OsFiles(), str(tmp_path), write=True)
    catalog.set_checksum(0, catalog.entries[0].header.checksum ^ 0x0101)
    catalog.close()

    archive = opened(tmp_path, checksum=configured)
    assert archive.recording(0).checksum is KINDS[kind]
    archive.stop_recording(0)
    archive.close()
