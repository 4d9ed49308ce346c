"""A real Aeron Cluster's Log as a DataFrame, from what its own Java codecs decoded."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from jobs.command import JobOptions
from jobs.delta_table import read
from jobs.keeping import keep
from jobs.table_job import TableJob
from jobs.tables import tables_in
from spark_connector.schema import ROW_COLUMNS, ddl
from tests.jobs.without_spark import IN_THREE, run_alone
from tests.tree import SAFELY

DATA = Path(__file__).resolve().parent.parent / "data" / "aeron-cluster-1.53"

ENTRY_TYPE_OF_TEMPLATE = {
    1: "SESSION_MESSAGE",
    20: "TIMER",
    21: "SESSION_OPEN",
    22: "SESSION_CLOSE",
    23: "CLUSTER_ACTION",
    24: "NEW_LEADERSHIP_TERM",
}


@pytest.fixture(scope="session")
def decoded() -> list[dict[str, Any]]:
    """Each entry of the log in order, under the names of the format ``cluster``; payloads by length only."""
    entries = []
    for line in gzip.decompress((DATA / "log.jsonl.gz").read_bytes()).decode().splitlines():
        entry = json.loads(line)
        entry["entryType"] = ENTRY_TYPE_OF_TEMPLATE[entry.pop("templateId")]
        entry["clusterTime"] = entry["timestamp"]
        entry["timestamp"] = dt.datetime.fromtimestamp(entry["clusterTime"] / 1000, dt.UTC)
        entry["payload"] = bytes(entry["payloadLength"]) if "payloadLength" in entry else None
        if "encodedPrincipal" in entry:
            entry["encodedPrincipal"] = bytes.fromhex(entry["encodedPrincipal"])
        entries.append(entry)
    return entries


@pytest.fixture(scope="session")
def log(spark, decoded):
    """The same entries as a DataFrame."""
    rows = [tuple(entry.get(column) for column in ROW_COLUMNS) for entry in decoded]
    return spark.createDataFrame(rows, ddl(ROW_COLUMNS)).cache()


@pytest.fixture(scope="session")
def member_dir(tmp_path_factory) -> str:
    """The directory of a member of that cluster."""
    folder = tmp_path_factory.mktemp("aeron-cluster")
    with tarfile.open(DATA / "members.tar.xz") as members:
        wanted = [entry for entry in members if entry.name.startswith("member-1")]
        members.extractall(folder, wanted, **SAFELY)
    return str(folder / "member-1")


@pytest.fixture
def table(tmp_path) -> str:
    return str(tmp_path / "table")


def updated_by(job: TableJob, update: Callable[..., None]) -> TableJob:
    """The same job, whose batches go in by ``update``, a function of what the job's own is given."""

    other = type("Updated", (TableJob,), {"__slots__": (), "update": staticmethod(update)})
    return other(**{field.name: getattr(job, field.name) for field in fields(job)})


def rows_by(table, key: str) -> dict[int, dict[str, Any]]:
    """The rows of a DataFrame by ``key``, which must be unique."""
    rows = [row.asDict() for row in table.collect()]
    found = {row[key]: row for row in rows}
    assert len(found) == len(rows)
    return found


def naive(value):
    """A time as Spark hands it to Python: in the machine's zone, without naming it."""
    return value.astimezone().replace(tzinfo=None) if isinstance(value, dt.datetime) else value


def naive_rows(rows):
    """Expected rows by key, with times as Spark hands them to Python."""
    return {key: {column: naive(value) for column, value in row.items()} for key, row in rows.items()}


CUT = 418  # entries of the log are before the snapshot of the cluster that has them


def keep_all(spark, member_dir, place, tables=None) -> list[str]:
    """Keep all tables in the folder ``place`` up to the log's end, in two batches; what it says."""
    said: list[str] = []
    source = {"clusterDir": member_dir, "maxEntriesPerTrigger": str(CUT)}
    keep(spark, "tables", tables or tables_in(place), JobOptions.over(source, place, said.append))
    return said


def rows_of(spark, place) -> dict[str, dict[int, dict[str, Any]]]:
    """The rows of all tables in a folder, by name of the table and by key."""
    return {
        job.layout.name: rows_by(read(spark, table), job.layout.key)
        for table, job in tables_in(place).items()
    }


@pytest.fixture(scope="session")
def kept(spark, member_dir, tmp_path_factory) -> str:
    """The folder of all tables after two batches of the log; tests that change them take copies."""
    place = str(tmp_path_factory.mktemp("kept"))
    said = keep_all(spark, member_dir, place)
    assert [line.split(" in ")[0] for line in said[:-1]] == [
        "tables: batch 0, 418 rows", "tables: batch 1, 343 rows"
    ], "the log is read once"  # fmt: skip
    return place


@pytest.fixture(scope="session")
def kept_rows(spark, kept):
    """The rows of these tables."""
    return rows_of(spark, kept)


@pytest.fixture
def place(kept, tmp_path) -> str:
    """A copy of all tables, with their checkpoint."""
    return shutil.copytree(kept, str(tmp_path / "copy"))


@pytest.fixture(scope="session")
def small(member_dir, tmp_path_factory) -> Path:
    """The folder of all tables by delta-rs, three commits each, by a process that has no Spark."""
    place = tmp_path_factory.mktemp("small")
    said = run_alone("tables", member_dir, "--tables", str(place), *IN_THREE)
    assert said[0] == "log_to_delta: reading from 0 to 250,144"
    assert said[4:16:4] == [
        "log_to_delta: version 1, 289 rows, log position 102,528",
        "log_to_delta: version 2, 319 rows, log position 205,088",
        "log_to_delta: version 3, 153 rows, log position 250,144",
    ]
    assert said[-1] == "tables: done, 801 rows"
    return place
