"""What is damaged of a recording is written again in its place, and what is whole after it stays."""

import errno
from itertools import pairwise

import numpy as np
import pytest

from cluster.archive.files import OsFile
from tests.archive.damaged import LOG, damage_of, entry_at, flip, opened, recorded, unreadable_at
from tests.archive.logs import SEGMENT_LENGTH


def whole_log(directory):
    """The recording's bytes as another member has them: the same, checksums included."""
    recorded(directory / "other")
    return opened(directory / "other")


def damaged(directory, *places):
    recorded(directory)
    for place in places:
        begin, _ = entry_at(place)
        base = begin // SEGMENT_LENGTH * SEGMENT_LENGTH
        flip(directory / f"0-{base}.rec", begin - base + 40)


def repaired(directory, other, max_length=4_096):
    """How many bytes were put, until all was whole."""
    archive = opened(directory)
    repair = archive.open_repair(archive.find_damage(0))
    put = 0
    while not repair.is_done:
        frames = other.whole_frames(0, repair.position, repair.limit, max_length)
        put += len(frames)
        repair.put(frames)
    repair.close()
    archive.forget_files(0)
    assert archive.find_damage(0) is None
    archive.close()
    return put


def check_same(directory):
    for path in (directory / "other").glob("*.rec"):
        assert (directory / path.name).read_bytes() == path.read_bytes(), path.name
    assert not list(directory.glob("*.next"))


@pytest.mark.parametrize(
    "places",
    [
        (0,),
        (3_000, 9_000),
        (100, SEGMENT_LENGTH + 5_000),
        (SEGMENT_LENGTH,),
        (SEGMENT_LENGTH - 4_000, SEGMENT_LENGTH, 2 * SEGMENT_LENGTH + 7_000),
    ],
)
def test_flipped_bits_are_replaced_by_what_another_has_and_nothing_else_is_asked_for(tmp_path, places):
    other = whole_log(tmp_path)
    damaged(tmp_path, *places)
    inodes = {path.name: path.stat().st_ino for path in tmp_path.glob("*.rec")}

    put = repaired(tmp_path, other)

    assert put <= 4_096 * len(places)
    check_same(tmp_path)
    changed = {path.name for path in tmp_path.glob("*.rec") if path.stat().st_ino != inodes[path.name]}
    assert changed == {f"0-{place // SEGMENT_LENGTH * SEGMENT_LENGTH}.rec" for place in places} or places[
        0
    ] == (SEGMENT_LENGTH - 500)
    other.abandon()


@pytest.mark.parametrize("bases", [(0,), (SEGMENT_LENGTH,), (0, SEGMENT_LENGTH)])
@pytest.mark.parametrize("max_length", [2_048, 1 << 20])
def test_segments_that_are_lost_are_written_anew(tmp_path, bases, max_length):
    other = whole_log(tmp_path)
    damaged(tmp_path)
    for base in bases:
        (tmp_path / f"0-{base}.rec").unlink()

    assert repaired(tmp_path, other, max_length) == SEGMENT_LENGTH * len(bases)

    check_same(tmp_path)
    other.abandon()


def test_two_that_are_damaged_at_different_places_mend_each_other(tmp_path):
    places = [2_000, 9_000, SEGMENT_LENGTH + 100]
    damaged(tmp_path / "one", *places[::2])
    damaged(tmp_path / "two", places[1])
    one = opened(tmp_path / "one")

    repaired(tmp_path / "two", one)
    one.abandon()
    two = opened(tmp_path / "two")
    repaired(tmp_path / "one", two)
    two.abandon()

    recorded(tmp_path / "one" / "other")
    check_same(tmp_path / "one")


def test_a_bad_sector_keeps_nobody_from_giving_what_is_before_it(tmp_path, monkeypatch):
    recorded(tmp_path)
    bad = 20_000
    unreadable_at(monkeypatch, 0, bad)
    archive = opened(tmp_path)

    frames = archive.whole_frames(0, 0, SEGMENT_LENGTH, 1 << 16)

    assert 0 < len(frames) <= bad
    begin, _ = entry_at(bad)
    assert not len(archive.whole_frames(0, begin, SEGMENT_LENGTH, 1 << 16))
    archive.abandon()


def test_what_is_damaged_here_is_given_to_nobody(tmp_path):
    damaged(tmp_path, 3_000)
    begin, end = entry_at(3_000)
    archive = opened(tmp_path)

    frames = [archive.whole_frames(0, position, SEGMENT_LENGTH, 1 << 16) for position in (0, begin, end)]

    assert [len(run) for run in frames[:2]] == [begin, 0]
    assert len(frames[2]) > 0
    archive.abandon()


def test_a_crash_or_a_full_disk_on_the_way_leaves_what_there_was(tmp_path, monkeypatch):
    other = whole_log(tmp_path)
    damaged(tmp_path, 3_000, SEGMENT_LENGTH + 100)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.rec")}
    archive = opened(tmp_path)
    repair = archive.open_repair(archive.find_damage(0))
    position = repair.position

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(OsFile, "allocate", full)
        with pytest.raises(OSError, match="No space"):
            repair.put(other.whole_frames(0, position, repair.limit, 4_096))
    repair.close()
    archive.abandon()

    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.rec")} == before
    assert damage_of(tmp_path).position == position
    repaired(tmp_path, other)
    check_same(tmp_path)
    other.abandon()


def test_where_the_end_of_a_log_is_not_known_it_is_not_mended(tmp_path):
    recorded(tmp_path, is_stopped=False)
    last = LOG.entries[-1][1]
    (tmp_path / f"0-{last // SEGMENT_LENGTH * SEGMENT_LENGTH}.rec").unlink()
    archive = opened(tmp_path)

    assert archive.open_repair(archive.find_damage(0)) is None
    archive.abandon()


def test_every_frame_can_be_given_alone(tmp_path):
    other = whole_log(tmp_path)
    ends = [0, *(end for _, end in LOG.entries)]
    for begin, end in list(pairwise(ends))[:50]:
        frames = other.whole_frames(0, begin, end, 1 << 16)
        assert isinstance(frames, np.ndarray)
        assert len(frames) == end - begin
    other.abandon()
