"""Answers from Spark: the Log, through a function of yours, back into the cluster as ingress.

The function takes the DataFrame of the Log (the columns of the format ``cluster``) and returns one with a
column ``payload``, of which each row becomes one message. It is called once, on the streaming DataFrame.

Answers are entries of the same Log and come back to the function: it has to know them from what it answers,
by its own payloads or by the sessions it listens to, or the two feed each other for ever.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.errors import ConfigurationError
from jobs.command import JobOptions, options_of, parser, run_main, start
from jobs.streaming import read_log, run, starting_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEMBERS = ("endpoints", "consensusEndpoints", "aeronDir")  # how source and sink name those of a cluster
Transform = Callable[["DataFrame"], "DataFrame"]

EXAMPLE = """python -m jobs.respond --endpoints 0=127.0.0.1:9000 --transform my:answers --checkpoint answers

with my.py:
  def answers(log):
      opened = log.where("entryType = 'SESSION_OPEN'")
      return opened.selectExpr("concat('welcome, session ', clusterSessionId) AS payload")"""


def transform_named(name: str) -> Transform:
    """The function that ``module:function`` names, found from the current directory too."""
    module_name, colon, function_name = name.partition(":")
    if not colon or not module_name or not function_name:
        raise ConfigurationError(f"--transform is {name!r}; expected module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"--transform is {name!r}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigurationError(f"--transform is {name!r}; module {module_name} has no such function")
    return function  # type: ignore[no-any-return]


def answers(transform: Transform, entries: DataFrame, name: str) -> DataFrame:
    """What ``transform`` makes of ``entries``, reduced to the column that the sink takes."""
    made = transform(entries)
    columns = getattr(made, "columns", None)
    if columns is None or "payload" not in columns:
        raise ConfigurationError(
            f"--transform {name} returned {columns or type(made).__name__}; "
            "expected a DataFrame with a payload column"
        )
    return made.select("payload")


def cluster_of(options: JobOptions) -> dict[str, str]:
    """Where the answers go: options of the sink. Raises ConfigurationError where no option says it."""
    to: str | None = options.arguments.to
    found = {name: options.source[name] for name in MEMBERS if name in options.source}
    if not to and not found:
        raise ConfigurationError("--to is not given, and without --endpoints there is nobody to answer to")
    return {"endpoints": to} if to else found


def respond(spark: SparkSession, options: JobOptions) -> None:
    """Run the answers of the user's function into the cluster."""
    given = options.arguments
    entries = read_log(spark, starting_at(options.source, None))
    made = answers(transform_named(given.transform), entries, given.transform)
    writer = made.writeStream.format("cluster").outputMode("append").options(**cluster_of(options))
    run(spark, writer, "respond", options)


def main() -> None:
    made = parser(
        "respond",
        "Answer the Log: send each row that a function of yours makes of it into the cluster, as a message.",
        EXAMPLE,
    )
    made.add_argument(
        "--transform",
        metavar="MODULE:FUNCTION",
        required=True,
        help="the function: takes a DataFrame of the Log, returns one with a payload column",
    )
    made.add_argument("--to", metavar="LIST", help="endpoints to answer to; default: those of --endpoints")
    options = options_of(made)
    transform_named(options.arguments.transform)
    cluster_of(options)
    respond(start("respond", options), options)


if __name__ == "__main__":
    run_main(main)
