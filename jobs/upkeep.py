"""What the jobs share that look after tables which are there: their options, and which tables they mean."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cluster import ConfigurationError
from jobs.command import add_run, bare_parser, pairs, table_place
from jobs.delta_table import exists
from jobs.keeping import Tables
from jobs.tables import TABLES, tables_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def parser(name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """The parser of job ``name`` with the options of all that look after tables."""
    made = bare_parser(name, summary, example)
    made.add_argument(
        "--tables",
        metavar="DIR",
        type=table_place,
        required=True,
        help=f"folder of the tables {', '.join(TABLES)}, or spark_catalog.SCHEMA",
    )
    made.add_argument(
        "--only", metavar="NAMES", default="", help="only these tables, with commas (default: all)"
    )
    add_run(made)
    return made


def session_of(name: str, given: argparse.Namespace) -> SparkSession:
    """The session of job ``name``. Raises ConfigurationError for a ``--conf`` that is no pair."""
    settings = pairs("--conf", given.conf)
    from jobs.session import spark_session  # after all that may be wrong in the command line

    return spark_session(name, given.master, settings)


def tables_meant(spark: SparkSession, given: argparse.Namespace) -> Tables:
    """The tables that a command line names and that are there. Raises ConfigurationError for none."""
    names = given.only.split(",") if given.only else list(TABLES)
    for name in names:
        if name not in TABLES:
            raise ConfigurationError(f"--only names {name!r}; expected some of {', '.join(TABLES)}")
    meant = {
        table: job
        for table, job in tables_in(given.tables).items()
        if job.layout.name in names and exists(spark, table)
    }
    if not meant:
        raise ConfigurationError(f"there is none of the Delta tables {', '.join(names)} in {given.tables}")
    return meant
