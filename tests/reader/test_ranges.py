"""Ranges that a reader is asked for: where entries begin in them, and what is not there."""

from itertools import pairwise

import pytest

from cluster.errors import DataLoss
from cluster.reader import LogReader
from tests.archive.logs import SEGMENT_LENGTH, a_log
from tests.archive.members import Member


@pytest.fixture
def log():
    return a_log(1000)


@pytest.fixture
def member(tmp_path):
    return Member(tmp_path)


@pytest.fixture
def open_reader(member):
    return lambda: LogReader.open(dir=str(member.directory))


def test_a_boundary_is_where_the_next_entry_begins(log, member, open_reader):
    member.write(log)
    begins = {begin for begin, _ in log.entries} | {end for _, end in log.entries}
    with open_reader() as reader:
        for before, _ in list(pairwise(log.entries))[::100]:
            for position in (before[0], before[0] + 1, before[1] - 1, before[1]):
                boundary = min(begin for begin in begins if begin >= position)
                assert reader.boundary_at_or_after(position) == boundary
                assert reader.boundary_at_or_after(position, known=before[0], is_committed=True) == boundary
        assert reader.boundary_at_or_after(log.position + 4096) == log.position + 4096


def test_a_boundary_is_never_looked_for_above_the_position_because_the_log_begins_there(
    log, member, open_reader
):
    member.write(log)
    start = member.recording.purge_to(2 * SEGMENT_LENGTH)
    with open_reader() as reader:
        for known in (None, 0):
            with pytest.raises(DataLoss, match=f"position 0 was purged, the log begins at {start}"):
                reader.boundary_at_or_after(0, known=known)
        assert reader.boundary_at_or_after(start) == start


def test_a_range_that_is_said_to_be_committed_and_is_not_here_is_data_loss(log, member, open_reader):
    end = log.entries[49][1]
    member.write(log, end)
    with open_reader() as reader:
        assert list(reader.batches(0, end, is_committed=True))
        with pytest.raises(DataLoss, match=f"ends at position {end} here, up to {log.position} was asked"):
            list(reader.batches(0, log.position, is_committed=True))
