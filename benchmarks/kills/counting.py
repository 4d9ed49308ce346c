"""What is in the members' archives and in the Delta table, read without the connector and without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.kills.application import ANSWER, QUESTION
from cluster import LogReader

COLUMNS = ("position", "payload")


@dataclass(frozen=True, slots=True)
class Count:
    """Of the answers to ``rows`` questions: how many lack, and how many are there more than once."""

    rows: int
    lost: int
    doubled: int


def log_of(directory: Path) -> pa.Table:
    """Position and payload of every entry that the member's files hold."""
    with LogReader.open(dir=str(directory)) as reader:
        return pa.Table.from_batches(list(reader.batches(columns=COLUMNS)))


def count(log: pa.Table) -> Count:
    """Hold the answers against the questions. What is answered is asked, or it counts as doubled."""
    payloads = log["payload"].drop_null().cast(pa.string())
    questions = payloads.filter(pc.starts_with(payloads, QUESTION))
    answers = payloads.filter(pc.starts_with(payloads, ANSWER))
    answered = pc.utf8_slice_codeunits(answers, len(ANSWER))
    found = pc.count_distinct(answered.filter(pc.is_in(answered, questions))).as_py()
    asked = pc.count_distinct(questions).as_py()
    return Count(asked, asked - found, len(answers) - found + len(questions) - asked)


def delta_rows(table: Path) -> pa.Table:
    """The same of a Delta table that is only appended to, in the order of positions."""
    files = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            assert "remove" not in action, f"{commit}: the log is only appended to"
            if "add" in action:
                files.append(table / unquote(action["add"]["path"]))
    tables = [pq.read_table(file, columns=list(COLUMNS)) for file in files]
    return (
        pa.concat_tables(tables).sort_by("position") if tables else pa.table({name: [] for name in COLUMNS})
    )


def check_delta(log: pa.Table, table: Path) -> None:
    """AssertionError unless the Delta table has the log's entries, each once."""
    rows = delta_rows(table)
    for name in COLUMNS:
        kept, entries = rows[name].combine_chunks(), log[name].combine_chunks()
        assert kept.cast(entries.type).equals(entries), (
            f"{name}: {len(kept)} rows in Delta, {len(entries)} in the log"
        )
