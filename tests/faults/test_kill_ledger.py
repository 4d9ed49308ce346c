"""The ledger of kills cannot lose a line unseen, and the count finds what is lost and doubled."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.kills.counting import Count, check_delta, count
from benchmarks.kills.ledger import RESULTS, RESULTS_OF_AERON, Ledger


def a_round(seed, **kills):
    return {"seed": seed, "kills": kills, "rows": 100, "lost": 0, "doubled": 0}


def test_a_run_adds_to_what_earlier_ones_wrote(tmp_path):
    path = tmp_path / "kills.jsonl"
    Ledger(path).add(a_round(1, driver=2, worker=3))
    later = Ledger(path)
    assert later.next_seed == 2
    later.add(a_round(2, driver=1))

    assert Ledger(path).totals() == {
        "rounds": 2, "kills": 6, "driver": 3, "worker": 3, "rows": 200, "lost": 0, "doubled": 0
    }  # fmt: skip


@pytest.mark.parametrize("change", [lambda lines: lines[1:], lambda lines: [lines[0], lines[2]]])
def test_a_line_that_was_left_out_is_seen(tmp_path, change):
    path = tmp_path / "kills.jsonl"
    for seed in (1, 2, 3):
        Ledger(path).add(a_round(seed, driver=1))
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    with pytest.raises(ValueError, match=r"kills\.jsonl:\d: previous is '\w+', expected '\w*'"):
        Ledger(path)


def test_a_line_that_was_changed_is_seen(tmp_path):
    path = tmp_path / "kills.jsonl"
    for seed in (1, 2):
        Ledger(path).add(a_round(seed, driver=1))
    path.write_text(path.read_text().replace('"lost": 0', '"lost": 1', 1))
    with pytest.raises(ValueError, match="previous is"):
        Ledger(path)


@pytest.mark.parametrize("path", [RESULTS, RESULTS_OF_AERON], ids=lambda path: path.stem)
def test_the_ledgers_of_the_tree_are_whole_and_nothing_was_lost_or_doubled(path):
    totals = Ledger(path).totals()
    assert totals["kills"] > 0
    assert (totals["lost"], totals["doubled"]) == (0, 0)


def log(*payloads):
    columns = {"position": range(0, 64 * len(payloads), 64), "payload": pa.array(payloads, pa.binary())}
    return pa.table(columns)


@pytest.mark.parametrize(
    "payloads, expected",
    [
        ((b"ask-1:1", b"answer ask-1:1", None, b"other"), Count(1, 0, 0)),
        ((b"ask-1:1", b"ask-1:2", b"answer ask-1:2"), Count(2, 1, 0)),
        ((b"ask-1:1", b"answer ask-1:1", b"answer ask-1:1"), Count(1, 0, 1)),
        ((b"ask-1:1", b"answer ask-1:1", b"answer ask-1:2"), Count(1, 0, 1)),
        ((b"ask-1:1", b"ask-1:1", b"answer ask-1:1"), Count(1, 0, 1)),
    ],
)
def test_what_is_lost_and_doubled_is_counted(payloads, expected):
    assert count(log(*payloads)) == expected


@pytest.mark.parametrize("wrong", [[b"a"], [b"a", b"b", b"b"], [b"a", b"c"]])
def test_a_delta_table_that_is_not_the_log_is_seen(tmp_path, wrong):
    """Its files are found by its own log, and may be named with what an address may not hold."""
    (tmp_path / "_delta_log").mkdir()
    added = json.dumps({"add": {"path": "part%201.parquet"}})
    (tmp_path / "_delta_log" / "00.json").write_text(json.dumps({"metaData": {}}) + "\n" + added + "\n")
    entries = log(b"a", b"b")
    pq.write_table(entries.take([1, 0]), tmp_path / "part 1.parquet")
    check_delta(entries, tmp_path)
    pq.write_table(log(*wrong), tmp_path / "part 1.parquet")
    with pytest.raises(AssertionError, match="rows in Delta, 2 in the log"):
        check_delta(entries, tmp_path)
