"""LogReader over several directories of one cluster: one log, whichever of them fails."""

import shutil

import pytest

from benchmarks.synthetic_log import LogWriter
from cluster.errors import ConfigurationError, DataLoss, LogDamaged, LogPurged, NotAClusterDirectory
from cluster.reader import LogReader
from cluster.reader.directories import CopyExtent, DirectoriesLog, join_copies, shared_end
from tests.spark.logs import TERM_LENGTH, open_log

SENT = [b"%3d" % number * 300 for number in range(300)]


def read(*directories, **options):
    return LogReader(DirectoriesLog([str(directory) for directory in directories], **options))


def payloads(reader, *bounds, **options):
    batches = reader.batches(*bounds, columns=["payload"], entry_types=["SESSION_MESSAGE"], **options)
    return [payload for batch in batches for payload in batch.column(0).to_pylist()]


def stopped(directory, **options):
    log = LogWriter(directory, term_length=TERM_LENGTH, segment_length=TERM_LENGTH, **options)
    log.term()
    log.messages(log.open_session(), SENT)
    return log


@pytest.fixture
def copies(tmp_path):
    """Three directories with one log, of members that were stopped."""
    stopped(tmp_path / "0").stop()
    for name in ("1", "2"):
        shutil.copytree(tmp_path / "0", tmp_path / name)
    return [tmp_path / name for name in ("0", "1", "2")]


def segments(directory):
    return sorted(directory.glob("archive/*.rec"), key=lambda path: int(path.stem.split("-")[1]))


def damage(directory, segment):
    with segments(directory)[segment].open("r+b") as file:
        file.seek(20_000)
        file.write(b"\xff" * 4000)


def test_a_directory_that_is_gone_leaves_the_log_as_it_was(copies):
    with read(*copies) as reader:
        assert payloads(reader) == SENT
        end = reader.end_position()
        shutil.rmtree(copies[0])
        shutil.rmtree(copies[1])
        assert payloads(reader) == SENT
        assert reader.end_position() == reader.commit_position() == end
        assert [str(copies[0]) in line for line in reader.warnings] == [True, False]
    with read(*copies) as reader:
        assert payloads(reader, 0, end, is_committed=True) == SENT


def test_it_is_read_while_the_directory_goes_between_two_blocks(copies):
    with read(*copies) as reader:
        blocks = reader.blocks(max_bytes=5000)
        found = [next(blocks)]
        shutil.rmtree(copies[0])
        found += blocks
    with read(copies[1]) as reader:
        assert b"".join(block.tobytes() for _, block in found) == b"".join(
            block.tobytes() for _, block in reader.blocks()
        )


def test_what_is_damaged_in_one_is_read_from_the_next(copies):
    damage(copies[0], 0)
    damage(copies[1], 1)
    damage(copies[2], 2)
    with read(*copies) as reader:
        assert payloads(reader) == SENT
        assert ["checksum mismatch" in line for line in reader.warnings] == [True, True]
    damage(copies[1], 0)
    damage(copies[2], 0)
    with read(*copies) as reader, pytest.raises(LogDamaged, match="no directory has"):
        payloads(reader)


def test_a_purged_head_of_one_continues_from_another(tmp_path):
    whole = stopped(tmp_path / "0")
    purged = stopped(tmp_path / "1")
    assert purged._recording.purge_to(2 * TERM_LENGTH) == 2 * TERM_LENGTH
    whole.stop(), purged.stop()
    for order in (("1", "0"), ("0", "1")):
        with read(*(tmp_path / name for name in order)) as reader:
            assert reader.start_position == 0
            assert payloads(reader) == SENT
            assert (
                payloads(reader, 0, 3 * TERM_LENGTH)
                + payloads(reader, reader.boundary_at_or_after(3 * TERM_LENGTH))
                == SENT
            )
    shutil.rmtree(tmp_path / "0")
    with read(tmp_path / "0", tmp_path / "1") as reader:
        assert reader.start_position == 2 * TERM_LENGTH
        with pytest.raises(LogPurged) as purge:
            payloads(reader, 0)
        assert purge.value.start_position == 2 * TERM_LENGTH


def test_a_stream_follows_the_member_that_is_ahead_and_lives_on_without_it(tmp_path):
    ahead, session = open_log(tmp_path / "0")
    behind, _ = open_log(tmp_path / "1")
    try:
        behind.lines(session, 0, 5), ahead.lines(session, 0, 5)
        with read(behind.directory, ahead.directory) as reader:
            assert reader.is_live
            sent = ahead.lines(session, 5, 5)
            end = reader.commit_position()
            assert end == ahead.position
            assert payloads(reader, behind.position, end, is_committed=True) == sent
            shutil.rmtree(ahead.directory)
            assert reader.commit_position() == end  # never less than before
            with pytest.raises(DataLoss, match="the log ends at"):
                payloads(reader, 0, end, is_committed=True)
            assert behind.lines(session, 5, 5) == sent
            assert payloads(reader, 0, end, is_committed=True)[5:] == sent
    finally:
        behind.stop()


def test_a_tail_that_was_never_committed_is_not_read(tmp_path):
    """Member 0 crashed with entries that only it has; member 1 leads the next term over their positions."""
    crashed, session = open_log(tmp_path / "0")
    log, _ = open_log(tmp_path / "1")
    crashed.lines(session, 0, 5), log.lines(session, 0, 5)
    crashed.messages(session, [b"never committed"] * 50)
    crashed._recording.sync()
    crashed.abandon()
    log.term(1)
    sent = log.lines(session, 5, 60)
    with read(crashed.directory, log.directory) as reader:
        assert payloads(reader, 0, reader.commit_position(), is_committed=True)[5:] == sent
        log.stop()
        assert payloads(reader)[5:] == sent
    for file in (crashed.directory / "driver").iterdir():
        file.unlink()  # as of a real Aeron Cluster: nothing says how much of the log was committed
    with read(crashed.directory, log.directory) as reader:
        assert payloads(reader)[5:] == sent


def test_a_message_of_which_a_part_was_committed_is_read_where_all_of_it_was(tmp_path):
    crashed, session = open_log(tmp_path / "0")
    log, _ = open_log(tmp_path / "1")
    begin = log.position
    crashed.messages(session, [b"crashed" * 600])
    crashed.commit(begin + 1408)
    crashed.abandon()
    log.messages(session, [b"went on" * 600])
    log.commit()
    try:
        with read(crashed.directory, log.directory) as reader:
            assert payloads(reader) == [b"went on" * 600]
    finally:
        log.stop()


def extent(dir, start, committed, end, terms, is_live=False):
    return CopyExtent(dir, None, is_live, start, committed, end, terms)


def test_the_copy_with_the_newest_term_says_how_far_a_log_at_rest_goes():
    longer = extent("longer", 0, 900, 900, [(0, 0)])
    newer = extent("newer", 0, 500, 500, [(0, 0), (1, 400)])
    found = join_copies([longer, newer])
    assert found.tip.dir == "newer"
    assert [copy.limit for copy in found.copies] == [400, 500]
    assert found.committed == 500


@pytest.mark.parametrize(
    ("terms", "others", "end"),
    [
        ([(0, 0)], [(0, 0)], None),
        ([(0, 0)], [(0, 0), (1, 400)], 400),
        ([(0, 0), (1, 300)], [(0, 0), (2, 400)], 300),
        ([(0, 0), (1, 300), (2, 400)], [(0, 0), (2, 400)], None),
        ([], [(2, 400)], None),
    ],
)
def test_logs_are_the_same_up_to_the_end_of_the_newest_term_that_both_have(terms, others, end):
    assert shared_end(terms, others) == shared_end(others, terms) == end


def test_a_gap_ends_the_log_that_is_there():
    old = extent("old", 0, 100, 100, [(0, 0)])
    new = extent("new", 200, 500, 500, [(0, 0)])
    older = extent("older", 50, 220, 220, [(0, 0)])
    assert join_copies([old, new]).start == 200
    assert join_copies([old, new, older]).start == 0


def test_directories_that_cannot_be_meant_are_refused(tmp_path, copies):
    with pytest.raises(NotAClusterDirectory, match=r"none of the directories.*/x: no such.*/y: no such"):
        read(tmp_path / "x", tmp_path / "y")
    stopped(tmp_path / "other", time=1_900_000_000_000).stop()
    with pytest.raises(ConfigurationError, match="/other holds the log of cluster 0:1900000000000:"):
        read(copies[0], tmp_path / "other")
    with pytest.raises(ConfigurationError, match="2 directories, but 1 archive directories"):
        read(*copies[:2], archive_dirs=[str(copies[0] / "archive")])
    with pytest.raises(ConfigurationError, match="give archive_dir alone"):
        LogReader.open(dir=[str(copies[0])], cluster_dir=str(copies[0]))
    with pytest.raises(ConfigurationError, match="several archive directories"):
        LogReader.open(dir=str(copies[0]), archive_dir=[str(copies[0])])


def test_a_directory_that_failed_is_opened_again(tmp_path, copies):
    now = [0]
    copies[1].rename(tmp_path / "away")
    with read(*copies[:2], now_ns=lambda: now[0]) as reader:
        (tmp_path / "away").rename(copies[1])
        shutil.rmtree(copies[0])
        with pytest.raises(NotAClusterDirectory, match="none of the directories"):
            payloads(reader)
        now[0] += 1_000_000_000
        assert payloads(reader) == SENT
