"""What a reader remembers of a member's files, and when it looks at them again."""

from types import SimpleNamespace

import pytest

from cluster.counters import CountersFile
from cluster.errors import DataLoss
from cluster.protocol.catalog import NULL_POSITION
from cluster.reader import LogReader, extent
from cluster.reader.extent import Extent, MemberState, Running
from tests.archive.logs import T0, a_descriptor, a_log
from tests.archive.members import allocate_counters, write_member


@pytest.fixture
def state(monkeypatch):
    """Of a member that does not run, whose log ended at 960 when it was looked at last."""
    monkeypatch.setattr(extent, "counters_paths", lambda *_: [])
    state = MemberState.__new__(MemberState)
    state.files = state._counters = state._found = state._aeron_dir = None
    state.member = SimpleNamespace(archive="archive", cluster="cluster")
    state.mark, state.generation = "the mark of an earlier run", 0
    state.descriptor, state._at_rest = a_descriptor(0, stop_position=960), Extent(960, 960, 960)
    return state


def test_an_end_that_was_found_holds_until_the_catalog_has_another_one(state):
    state._find_descriptor = lambda: state.descriptor
    state._read_mark = lambda: None
    assert state.extent(None) == Extent(960, 960, 960)

    state._find_descriptor = lambda: a_descriptor(0, stop_position=1920)
    state._stored_commit_position = lambda: None
    assert state.extent(None) == Extent(1920, 1920, 1920)
    assert state.generation == 1, "whoever has its files open opens them again"


def test_an_end_that_was_found_does_not_outlast_a_run_that_changed_no_catalog(state):
    """Of a member that crashed before it and after it."""
    state.descriptor = a_descriptor(0, stop_position=NULL_POSITION)
    state._find_descriptor = lambda: state.descriptor
    counter = SimpleNamespace(get=lambda: 1920)
    state.live = lambda: Running(counter, counter)
    assert state.extent(None) == Extent(1920, 1920, 1920)

    state.live = lambda: None
    state._crashed_extent = lambda checksum: Extent(1888, 1888, 1888)
    assert state.extent(None) == Extent(1888, 1888, 1888)


def test_counters_that_were_found_are_those_of_the_recording_as_the_catalog_has_it(state):
    counter = SimpleNamespace(is_there=lambda: True)
    state._found_for = state.descriptor
    assert state._is_current(Running(counter, counter))
    state.descriptor = a_descriptor(0, stop_position=1920)
    assert not state._is_current(Running(counter, counter))


def test_a_log_that_is_another_recording_is_not_gone_on_with(state):
    state._find_descriptor = lambda: a_descriptor(1, stop_position=960)
    with pytest.raises(DataLoss, match="the log is recording 1 now, it was 0"):
        state.refresh()


@pytest.mark.parametrize(
    ("there", "known"), [("the mark of this run", None), (None, "the mark of an earlier run")]
)
def test_the_process_of_a_directory_is_looked_for_by_its_newest_mark(state, there, known):
    state._read_mark = lambda: there
    assert state.live() is None
    assert state.mark == (known or there)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_last_frame_with_an_empty_page_is_read_where_it_is_known_to_be_committed(tmp_path, is_committed):
    """A killed node of Aeron's leaves no proof of what is whole, but its commit position."""
    log = a_log(3, mtu=8192)
    log.message(b"x" * 900 + bytes(7000))
    begin, end = log.entries[-1]
    write_member(tmp_path, log, is_clean=False)
    (tmp_path / "archive" / "recording-0.proof").unlink()
    counters = CountersFile.create(str(tmp_path / "driver" / "cnc.dat"), pid=1, now_ms=T0)
    allocate_counters(counters, commit_position=end if is_committed else begin)
    counters.close(orderly=False)
    with LogReader.open(dir=str(tmp_path)) as reader:
        assert not reader.is_live
        assert reader.end_position() == (end if is_committed else begin)
