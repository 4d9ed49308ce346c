"""Which segment file holds a position."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.archive.files import OsFiles
from cluster.archive.segments import Segments
from tests.archive.logs import a_descriptor


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.sampled_from([65_536, 131_072]))
def test_a_segment_begins_a_whole_number_of_segments_after_the_starts_term(start, more, segment_length):
    position = start + more
    descriptor = a_descriptor(0, start_position=start, stop_position=position)
    segments = Segments(OsFiles(), "", descriptor.replace(segment_file_length=segment_length))
    base = segments.base_of(position)

    assert base <= position < base + segment_length
    assert (base - start // 65_536 * 65_536) % segment_length == 0
