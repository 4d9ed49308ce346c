"""The log as an Arrow stream, for whoever reads one."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import get_args, get_type_hints

import pyarrow as pa
import pytest

from cluster import ClusterClient, Entry
from cluster.log.columns import FRAME_SCHEMA, ROW_SCHEMA
from cluster.reader import LogReader
from tests.node.processes import await_that
from tests.node.three import Three
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


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with ExitStack() as opened:
        three = Three(tmp_path_factory.mktemp("three"), opened)
        await_that(lambda: three.leader() is not None, "a leader")
        yield three


@pytest.mark.parametrize("over", ["endpoints", "dir"])
def test_duckdb_and_polars_read_the_log_of_a_cluster_that_runs(running, over):
    """Each stream ends where the log was committed when it was made; the next one has what came since."""
    import duckdb  # what takes a second to import, and nobody else needs
    import polars

    place = {"endpoints": running.endpoints, "dir": str(running.leader().config.path)}
    with (
        LogReader.open(**{over: place[over]}) as reader,
        ClusterClient.connect(running.endpoints) as client,
    ):
        sent = []

        def send(*payloads):
            for payload in payloads:
                client.offer(payload)
            client.await_committed(20)
            reader.await_token(client.token(), 20)
            sent.extend(payloads)

        def stream():
            return reader.to_arrow_reader(entry_types=["SESSION_MESSAGE"])

        before = polars.DataFrame(stream()).height
        send(b"one", b"two" * 2_000, b"three")
        database = duckdb.connect()
        database.register("log", stream())
        send(b"four")
        session = client.cluster_session_id
        wanted = f"SELECT payload, timestamp <= now() FROM log WHERE clusterSessionId = {session}"
        rows = database.sql(f"{wanted} ORDER BY position").fetchall()
        assert rows == [(payload, True) for payload in sent[:3]]

        frame = polars.DataFrame(stream())
        assert frame["payload"].to_list()[before:] == sent
        assert frame["timestamp"].dtype == polars.Datetime("us", "UTC")
        assert frame.filter(polars.col("position") >= polars.col("endPosition")).is_empty()


def test_an_entrys_type_names_every_column_with_its_kind():
    kinds = {
        pa.int64(): int,
        pa.int32(): int,
        pa.string(): str,
        pa.binary(): bytes,
        pa.timestamp("us", tz="UTC"): datetime,
    }
    named = {
        name: get_args(kind)[0] if get_args(kind) else kind for name, kind in get_type_hints(Entry).items()
    }
    assert named == {field.name: kinds[field.type] for field in (*ROW_SCHEMA, *FRAME_SCHEMA)}
