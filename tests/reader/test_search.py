"""Entries found by their time or term: the right one, and without reading the whole log."""

import pytest

from cluster.reader import LogReader
from cluster.reader.search import first_entry
from tests.spark.logs import open_log

BEGIN_MS = 1_800_000_000_000
ENTRIES = 200  # of 2 kB: seven term buffers


@pytest.fixture
def log(tmp_path):
    made, session_id = open_log(tmp_path / "member-0", time=BEGIN_MS)
    for number in range(ENTRIES):
        made.time = BEGIN_MS + number // 3  # several entries share a time
        made.messages(session_id, [b"x" * 2000])
    made.commit()
    yield made
    made.stop()


def test_the_entry_found_is_that_of_a_scan(log):
    with LogReader.open(dir=str(log.directory)) as reader:
        entries = [(entry["position"], entry["clusterTime"]) for entry in reader.entries()]
        end = reader.end_position()
        for begin in (0, entries[50][0], entries[-1][0]):
            for time_ms in range(BEGIN_MS - 1, BEGIN_MS + ENTRIES // 3 + 2):
                found = first_entry(reader, "timestamp", 1000 * time_ms, begin, end)
                scanned = (at for at, time in entries if at >= begin and time >= time_ms)
                assert found == next(scanned, None), (begin, time_ms)


def test_an_empty_range_has_no_entry(log):
    with LogReader.open(dir=str(log.directory)) as reader:
        assert first_entry(reader, "timestamp", 0, log.position, log.position) is None


def test_one_term_buffer_is_scanned_and_of_others_one_entry_is_read(log, monkeypatch):
    ranges = []
    batches = LogReader.batches

    def counted(reader, begin, end, **options):
        for batch in batches(reader, begin, end, **options):
            ranges.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(LogReader, "batches", counted)
    with LogReader.open(dir=str(log.directory)) as reader:
        end = reader.end_position()
        first_entry(reader, "timestamp", 1000 * (BEGIN_MS + 40), 0, end)
        *probes, scanned = ranges
        assert probes == [1] * len(probes) and len(probes) <= 3, "of seven"
        assert scanned
