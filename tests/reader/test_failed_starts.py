"""What a reader sees of a member whose next start has failed, or will fail."""

from cluster.counters import CountersFile
from cluster.reader import LogReader
from tests.archive.logs import a_log
from tests.archive.members import write_member


def test_a_start_that_failed_has_not_said_what_of_a_stopped_log_is_committed(tmp_path):
    """It begins a new counters file, and its disk fails it before it knows its log."""
    log = a_log(50)
    write_member(tmp_path, log)
    CountersFile.create(str(tmp_path / "driver" / "cnc.dat"), pid=1, now_ms=0).close(orderly=False)
    with LogReader.open(dir=str(tmp_path)) as reader:
        assert reader.commit_position() == 0
        assert reader.end_position() == log.position
    for lock in tmp_path.glob("*/*-mark.lock"):  # of our members only
        lock.unlink()
    with LogReader.open(dir=str(tmp_path)) as reader:
        assert reader.commit_position() == log.position, "Aeron frees its counters when it ends"


def test_of_a_crashed_member_whose_segments_are_gone_nothing_is_readable(tmp_path):
    write_member(tmp_path, a_log(50), is_clean=False)
    for segment in (tmp_path / "archive").glob("*.rec"):
        segment.unlink()
    with LogReader.open(dir=str(tmp_path)) as reader:
        assert reader.end_position() == 0
        assert list(reader) == []
