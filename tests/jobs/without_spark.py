"""Runs of the jobs with delta-rs, in this process or in one in which Spark cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import deltalake

from jobs.command import add_table, add_writer, options_of, parser
from jobs.delta_rs import keep
from jobs.schemas import DELTA_RS
from jobs.tables import tables_in

IN_THREE = ("--max-bytes-per-trigger", "100k")

# Imports of Spark fail in a process that begins so.
_WITHOUT_SPARK = """
import runpy, sys
sys.modules.update(pyspark=None, delta=None, py4j=None)
sys.argv[0] = sys.argv.pop(1)
runpy.run_module(f"jobs.{sys.argv[0]}", run_name="__main__")
"""


def options(member_dir, table, *arguments):
    """Those of a command line that has the writer delta-rs."""
    return _options(table, "--cluster-dir", member_dir, *arguments)


def _options(table, *arguments):
    made = parser("log_to_delta", "", "")
    add_table(made)
    add_writer(made)
    return options_of(made, ["--writer", DELTA_RS, "--table", str(table), *arguments])


def run(member_dir, table, *arguments):
    """Keep the one table that the folder of all would have under the name of ``table``."""
    run_over(("--cluster-dir", member_dir), table, *arguments)


def run_over(where, table, *arguments):
    """The same of a log that two words of the command line name."""
    jobs = tables_in(str(Path(table).parent))
    job = jobs[str(table)]
    keep(job.name, {str(table): job}, _options(table, *where, *arguments))


def run_alone(name, member_dir, *arguments):
    """Job ``name`` in a process that has no Spark; returns the lines that it says."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK, name, "--writer", DELTA_RS, "--cluster-dir", member_dir,
         *arguments],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def rows(table):
    """By their keys, which are the first columns."""
    found = [tuple(row.values()) for row in deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()]
    assert len({row[0] for row in found}) == len(found)
    return sorted(found, key=lambda row: row[0])
