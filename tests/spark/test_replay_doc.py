"""docs/replay.md: its blocks run as they stand, and its tables say what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from cluster.testing import SimulatedCluster
from examples.order_book import OrderBook
from spark_connector.options.directory_options import ReplayOptions, SnapshotOptions
from spark_connector.replay.replay_columns import REPLAY_COLUMNS, STREAM_COLUMNS
from spark_connector.snapshots.snapshot_rows import SNAPSHOT_COLUMNS
from tests.spark.simulated import write_out

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "replay.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def c1(tmp_path_factory):
    """The folder of members that have an order book, and two snapshots."""
    cluster = SimulatedCluster(OrderBook)
    alice = cluster.connect("alice")
    for order in (b"buy 3 7", b"sell 1 7"):
        alice.offer(order)
        cluster.take_snapshot()
    return write_out(cluster, tmp_path_factory.mktemp("c1"))


@pytest.mark.slow
def test_the_blocks_of_the_text_run_one_after_another(spark, c1, capsys):
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(block.replace('"c1', f'"{c1}'), names)

    shown = capsys.readouterr().out
    assert "6 snapshots are what the replay saves" in shown
    assert "trade 2 1 7" in shown
    assert "turnoverWhatIf" in shown
    assert "4 answers" in shown


@pytest.mark.parametrize("columns", [SNAPSHOT_COLUMNS, REPLAY_COLUMNS, STREAM_COLUMNS])
def test_the_text_has_every_column(columns):
    table = [f"| `{name}` | {sql_type} | {comment} |" for name, (sql_type, comment) in columns.items()]

    assert "\n".join(table) in TEXT


@pytest.mark.parametrize("options", [SnapshotOptions, ReplayOptions])
def test_the_text_has_every_option_with_its_default(options):
    shown = [field.metadata for field in fields(options)]
    table = [f"| `{one['name']}` | {one['shown'] or '–'} | {one['meaning']} |" for one in shown]

    assert "\n".join(table) in TEXT
