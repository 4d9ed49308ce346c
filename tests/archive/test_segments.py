"""Which segment file holds a position, and how a file becomes one."""

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.archive.files import OsFiles
from cluster.archive.segments import Segments
from tests.archive.faulty_files import DIRECTORY, FaultyDisk
from tests.archive.logs import a_descriptor


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.sampled_from([65_536, 131_072]))
def test_a_segment_begins_a_whole_number_of_segments_after_the_starts_term(start, more, segment_length):
    position = start + more
    descriptor = a_descriptor(0, start_position=start, stop_position=position)
    segments = Segments(OsFiles(), "", descriptor.replace(segment_file_length=segment_length))
    base = segments.base_of(position)

    assert base <= position < base + segment_length
    assert (base - start // 65_536 * 65_536) % segment_length == 0


KEPT = np.full(8192, 7, np.uint8)
TAIL = np.full(4096, 8, np.uint8)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_renewed_segment_keeps_survives_a_power_cut_and_is_read_from_the_new_file(seed):
    disk = FaultyDisk(seed)
    segments = Segments(disk, DIRECTORY, a_descriptor(0, stop_position=len(KEPT)))
    with closing(segments.create(segments.path(0))) as old:
        old.file.pwrite(KEPT, 0)
        old.file.pwrite(TAIL, len(KEPT))
        old.file.fullsync()
    disk.sync_directory(DIRECTORY)
    end = len(KEPT) + len(TAIL)
    assert segments.read(len(KEPT), end).all()

    segments.renew(0, len(KEPT))

    assert not segments.read(len(KEPT), end).any(), "by the same reader"
    disk.lose_power()
    again = Segments(disk, DIRECTORY, a_descriptor(0, stop_position=len(KEPT)))
    assert (again.read(0, len(KEPT)) == KEPT).all()
    assert not again.read(len(KEPT), end).any()


def test_a_segment_that_the_disk_has_no_room_for_leaves_no_file_in_the_way_of_the_next():
    disk = FaultyDisk()
    segments = Segments(disk, DIRECTORY, a_descriptor(0, stop_position=0))
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        segments.create(segments.next_path())

    assert not disk.exists(segments.next_path())
    disk.is_full = False
    segments.create(segments.next_path()).close()
