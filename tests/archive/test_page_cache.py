"""What lies far behind a recording's end leaves the page cache, chunk by chunk, over segments and purges."""

from cluster.archive.page_cache import CHUNK, PageCache
from cluster.archive.segments import Segments
from tests.archive.faulty_files import FaultyDisk
from tests.archive.logs import a_descriptor

MIB = 1024 * 1024
SEGMENT = 8 * MIB


def a_cache(length, *, begin=0, segments=4):
    disk = FaultyDisk()
    descriptor = a_descriptor(0, start_position=0, stop_position=begin)
    found = Segments(disk, "/a", descriptor.replace(segment_file_length=SEGMENT))
    for number in range(segments):
        disk.open(found.path(number * SEGMENT), create=True).close()
    return disk, found, PageCache(found, begin, length)


def test_chunks_leave_once_and_in_order_when_the_end_has_moved_on():
    disk, _, cache = a_cache(6 * MIB)
    for end in range(0, 24 * MIB + 1, MIB):
        cache.let_go(end)
        assert cache.due_at > end

    assert disk.uncached == [
        ("/a/0-0.rec", 0, CHUNK),
        ("/a/0-0.rec", CHUNK, CHUNK),
        ("/a/0-8388608.rec", 0, CHUNK),
        ("/a/0-8388608.rec", CHUNK, CHUNK),
    ]


def test_a_step_over_segments_takes_each():
    disk, _, cache = a_cache(MIB)
    cache.let_go(21 * MIB)
    assert disk.uncached == [
        ("/a/0-0.rec", 0, SEGMENT),
        ("/a/0-8388608.rec", 0, SEGMENT),
        ("/a/0-16777216.rec", 0, CHUNK),
    ]


def test_a_recording_that_goes_on_leaves_alone_what_it_began_behind():
    disk, _, cache = a_cache(MIB, begin=13 * MIB)
    cache.let_go(18 * MIB)
    assert disk.uncached == [("/a/0-8388608.rec", CHUNK, CHUNK)]


def test_purged_segments_are_passed_over():
    disk, segments, cache = a_cache(MIB)
    disk.unlink(segments.path(0))
    cache.let_go(9 * MIB)
    assert disk.uncached == []
    segments.start_position = SEGMENT
    cache.let_go(21 * MIB)
    assert disk.uncached == [("/a/0-8388608.rec", 0, SEGMENT), ("/a/0-16777216.rec", 0, CHUNK)]


def test_with_a_length_of_zero_the_kernel_decides():
    disk, _, cache = a_cache(0)
    cache.let_go(1 << 40)
    assert disk.uncached == []
