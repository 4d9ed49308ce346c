"""The header of an entry's first frame as columns, where they are asked for by name."""

import pytest

from cluster.log.columns import FRAME_SCHEMA, ROW_SCHEMA
from cluster.protocol.frame import header_at
from cluster.reader import LogReader
from tests.spark.logs import open_log


@pytest.fixture
def log(tmp_path):
    made, session_id = open_log(tmp_path / "member-0")
    made.messages(session_id, [b"%d." % number * (number % 9 * 250 + 1) for number in range(200)])
    made.timer(7)
    made.commit()
    yield made
    made.stop()


def as_recorded(reader):
    """Each entry's columns from its frame, read one at a time."""
    for entry in reader.entries(columns=["position"]):
        _, block = next(reader.blocks(entry["position"], entry["position"] + 1))
        header = header_at(block)
        yield (
            header.flags,
            header.term_id,
            header.term_offset,
            header.session_id,
            header.stream_id,
            header.reserved_value,
        )


@pytest.mark.parametrize("rows_per_batch", [None, 1, 7])
def test_they_are_those_of_the_first_frame_of_each_entry(log, rows_per_batch):
    with LogReader.open(dir=str(log.directory)) as reader:
        rows = []
        for batch in reader.batches(columns=FRAME_SCHEMA.names, rows_per_batch=rows_per_batch):
            assert batch.schema == FRAME_SCHEMA
            rows += zip(*(column.to_pylist() for column in batch.columns))
        recorded = list(as_recorded(reader))

    assert rows == recorded and len(rows) == 203
    assert {row[0] for row in rows} == {0xC0, 0x80}, "whole, and the first of several"


def test_they_stand_where_they_are_asked_for_beside_others_and_filters(log):
    with LogReader.open(dir=str(log.directory)) as reader:
        names = ["termOffset", "payload", "frameFlags", "position"]
        (batch,) = reader.batches(columns=names, entry_types=["TIMER"])
        assert batch.schema.names == names
        (row,) = batch.to_pylist()
        (timer,) = reader.entries(entry_types=["TIMER"])
        assert row == {
            "termOffset": timer["position"] % reader.term_length,
            "payload": None,
            "frameFlags": 0xC0,
            "position": timer["position"],
        }
        assert next(reader.batches()).schema == ROW_SCHEMA, "only for who asks"
