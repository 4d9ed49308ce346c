"""The log as an Arrow stream, for whoever reads one."""

from __future__ import annotations

import pyarrow as pa

from cluster.log.columns import ROW_SCHEMA
from cluster.reader import LogReader
from tests.reader.real import expected, members


def test_the_log_is_one_stream_of_arrows_c_interface():
    """Read as DuckDB and polars do, by the capsule alone."""

    class Anybody:
        def __init__(self, stream):
            self.__arrow_c_stream__ = stream.__arrow_c_stream__

    with LogReader.open(dir=str(members() / "member-0")) as reader:
        whole = pa.RecordBatchReader.from_stream(Anybody(reader.to_arrow_reader())).read_all()
        assert whole.schema == ROW_SCHEMA
        assert whole == pa.Table.from_batches(reader.batches())

        names = (name for name in ("correlationId", "position"))
        timers = reader.to_arrow_reader(96, 105_216, columns=names, entry_types=["TIMER"]).read_all()
        assert timers.column_names == ["correlationId", "position"]
        wanted = [e["position"] for e in expected() if e["entryType"] == "TIMER" and e["position"] < 105_216]
        assert timers["position"].to_pylist() == wanted

        end = reader.end_position()
        assert reader.to_arrow_reader(end).read_all() == ROW_SCHEMA.empty_table(), "a stream without a batch"
