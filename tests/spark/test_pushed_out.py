"""What a Python worker of Spark makes reaches the JVM before the next batch is made."""

import io

import pyarrow as pa
import pytest

from spark_connector.source.pushed_out import PUSHING_BYTES, pushed_out

BUFFER_BYTES = 65536


class Sent(io.RawIOBase):
    """What has left the worker."""

    def __init__(self):
        self.data = bytearray()

    def writable(self):
        return True

    def write(self, data):
        self.data += data
        return len(data)

    @property
    def rows(self):
        """In whole batches."""
        count = 0
        try:
            for batch in pa.ipc.open_stream(io.BytesIO(self.data)):
                count += batch.num_rows
        except (pa.ArrowInvalid, OSError):  # the rest of the next one is not there
            pass
        return count


def batch_of(rows, payload_length):
    payloads = [b"%0*d" % (payload_length, row) for row in range(rows)]
    return pa.record_batch({"position": pa.array(range(rows)), "payload": pa.array(payloads)})


def rows_there(batch, split):
    """How many rows of the first batch have left when the second is made, as PySpark's serializer writes."""
    sent = Sent()
    out = io.BufferedWriter(sent, BUFFER_BYTES)
    with pa.ipc.new_stream(out, batch.schema) as writer:
        for part in split(batch):
            writer.write_batch(part)
        return sent.rows


@pytest.mark.parametrize("payload_length", [1, 100, 5_001])
def test_most_of_a_batch_is_out_before_the_next_one_is_made(payload_length):
    batch = batch_of(32_767 if payload_length < 5_000 else 1_999, payload_length)
    pushed = rows_there(batch, pushed_out)

    assert rows_there(batch, lambda rows: [rows]) == 0, "Arrow pads its end, by some bytes"
    assert batch.num_rows * (1 - 2 * PUSHING_BYTES / batch.nbytes) <= pushed


def test_the_rows_are_the_same_in_the_same_order():
    batch = batch_of(32_768, 100)
    first, second = pushed_out(batch)

    assert pa.Table.from_batches([first, second]).equals(pa.Table.from_batches([batch]))
    assert PUSHING_BYTES * 0.9 < second.nbytes < PUSHING_BYTES * 1.1


def test_small_batches_stay_whole():
    for rows in (0, 1, 2_000):
        batch = batch_of(rows, 100)
        assert list(pushed_out(batch)) == [batch]
