"""A directory that another cluster's takes the place of while it is read."""

import pytest

from cluster.errors import DataLoss, LogDamaged
from cluster.reader import LogReader
from tests.archive.logs import T0, LogWriter
from tests.archive.members import write_member


@pytest.mark.parametrize("is_within", [False, True])
def test_a_directory_that_is_replaced_by_another_cluster_s_is_refused(tmp_path, is_within):
    """Frames of the other log may begin at the same positions: no row of it may pass for one of ours."""
    place, other = tmp_path / "place", tmp_path / "other"
    for folder, time in ((place, T0), (other, T0 + 1)):
        log = LogWriter(time=time)
        log.term(0)
        log.walk(1, 1000 + time - T0)
        write_member(folder, log)
    with LogReader.open(dir=str(place)) as reader:
        assert reader.identity is not None
        whole = list(reader.entries())
        blocks = reader.blocks(max_bytes=1000)
        if is_within:
            next(blocks)
        place.rename(tmp_path / "old")
        other.rename(place)
        with pytest.raises(DataLoss, match=rf"holds the log of cluster .*{T0 + 1}.* now, it was opened with"):
            list(blocks)
        with pytest.raises(DataLoss, match="it was opened with"):
            reader.end_position()
        place.rename(other)
        (tmp_path / "old").rename(place)
        assert list(reader.entries()) == whole


def test_a_damaged_first_term_is_not_taken_for_the_log_of_another_cluster(tmp_path):
    place, later = tmp_path / "place", tmp_path / "later"
    log = LogWriter(time=T0)
    log.term(0)
    for folder in (place, later):
        log.walk(1, 1000)
        write_member(folder, log, checksum="crc32c")
    segment = later / "archive" / "0-0.rec"
    data = bytearray(segment.read_bytes())
    data[57] ^= 8  # of the first term's timestamp
    segment.write_bytes(data)
    with LogReader.open(dir=str(place)) as reader:
        known = reader.identity
        assert known is not None
        place.rename(tmp_path / "old")
        later.rename(place)
        with pytest.raises(LogDamaged, match=r"0-0\.rec at offset 0: checksum mismatch"):
            list(reader.entries())
        assert reader.identity == known
    with LogReader.open(dir=str(place)) as reader:
        assert reader.identity is None
        assert reader.term_before(reader.end_position()) == "0:0:?:?"
