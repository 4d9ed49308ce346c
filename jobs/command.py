"""What the command lines of all jobs share: the options, and errors as one line.

``--help`` answers without Spark. Wrong usage ends with 2, a failed job with 1, a line on standard error each.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError, ConfigurationError
from spark_connector.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVAILABLE_NOW = "available-now"
_INTERVAL = re.compile(r"\d+(\.\d+)? *(ms|millisecond|s|second|m|min|minute|h|hour)s?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """One job's command line, checked."""

    source: dict[str, str]  # options of format("cluster"), by name
    table: str  # path of the Delta table; "" for a job that writes none
    checkpoint: str
    trigger: dict[str, Any]  # as DataStreamWriter.trigger takes it
    master: str
    settings: dict[str, str]  # Spark settings beside conf/spark-defaults.conf
    arguments: argparse.Namespace  # what the job added itself
    say: Callable[[str], None]  # where lines of progress go

    @classmethod
    def over(cls, source: dict[str, str], table: str, say: Callable[[str], None]) -> JobOptions:
        """For a job that another program runs: to the present end of the Log, from where the table is."""
        return cls(
            source=source,
            table=table,
            checkpoint=checkpoint_in(table),
            trigger={"availableNow": True},
            master="",
            settings={},
            arguments=argparse.Namespace(),
            say=say,
        )


def checkpoint_in(table: str) -> str:
    """Where a table's progress is kept by default; Delta passes over names that begin with ``_``."""
    return f"{table.rstrip('/')}/_checkpoint"


def parser(name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """The parser of job ``name`` with the options that every job has."""
    text = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(
        prog=f"python -m jobs.{name}",
        description=summary,
        epilog=f"example:\n  {example}",
        formatter_class=text,
    )
    source = made.add_argument_group("the Log")
    source.add_argument("--endpoints", metavar="LIST", help="members: 0=host:9000,1=host:9010,…")
    source.add_argument(
        "--cluster-dir", metavar="DIR", help="a member's directory on this host, ours or Aeron's"
    )
    source.add_argument("--archive-dir", metavar="DIR", help="its archive, where that lies elsewhere")
    source.add_argument(
        "--starting-offsets",
        metavar="WHERE",
        help='earliest, latest or {"position": n}, without a checkpoint; '
        "default: after what the table holds, which is earliest when there is none",
    )
    source.add_argument("--max-entries-per-trigger", metavar="N", help="entries of one batch at most")
    source.add_argument("--max-bytes-per-trigger", metavar="SIZE", help="log bytes of one batch, such as 64m")
    source.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[], help="any other option of the source"
    )
    run = made.add_argument_group("the run")
    run.add_argument("--checkpoint", metavar="DIR", help="where progress is kept; default: TABLE/_checkpoint")
    run.add_argument(
        "--trigger",
        metavar="WHEN",
        default=AVAILABLE_NOW,
        help=f"{AVAILABLE_NOW}, to the present end and stop (the default), or an interval: '5 seconds'",
    )
    run.add_argument(
        "--master", metavar="URL", default="local[*]", help="Spark master (default: %(default)s)"
    )
    run.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a Spark setting for this run"
    )
    return made


def add_table(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--table", metavar="DIR", required=True, help="path of the Delta table; made when missing"
    )


def options_of(made: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> JobOptions:
    """Parse ``argv``; raises ConfigurationError, before Spark starts, for what the source would refuse."""
    given = made.parse_args(argv)
    source = {
        "endpoints": given.endpoints,
        "clusterDir": given.cluster_dir,
        "archiveDir": given.archive_dir,
        "startingOffsets": given.starting_offsets,
        "maxEntriesPerTrigger": given.max_entries_per_trigger,
        "maxBytesPerTrigger": given.max_bytes_per_trigger,
        **dict(_pair("--option", item) for item in given.option),
    }
    source = {name: value for name, value in source.items() if value is not None}
    SourceOptions.parse(source)
    table = getattr(given, "table", "")
    checkpoint = given.checkpoint or (checkpoint_in(table) if table else "")
    if not checkpoint:
        raise ConfigurationError("--checkpoint is not given, and this job has no table to keep it in")
    return JobOptions(
        source=source,
        table=table,
        checkpoint=checkpoint,
        trigger=_trigger(given.trigger),
        master=given.master,
        settings=dict(_pair("--conf", item) for item in given.conf),
        arguments=given,
        say=_say,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def start(name: str, options: JobOptions) -> SparkSession:
    """The Spark session for job ``name``, once it is known that there is a log to read.

    Raises what opening the log raises: a directory that is none says so before Spark is started.
    """
    from jobs.session import spark_session
    from spark_connector.log import forget_reader, open_reader

    source = SourceOptions.parse(options.source)
    open_reader(source)
    forget_reader(source)
    return spark_session(name, options.master, options.settings)


def _pair(option: str, item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"{option} is {item!r}; expected NAME=VALUE")
    return name, value


def _trigger(text: str) -> dict[str, Any]:
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    if not _INTERVAL.fullmatch(text.strip()):
        raise ConfigurationError(
            f"--trigger is {text!r}; expected {AVAILABLE_NOW} or an interval such as '5 seconds'"
        )
    return {"processingTime": text}


def run_main(main: Callable[[], None]) -> None:
    """Run a job's ``main`` and turn what went wrong into one line and an exit status."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except ClusterError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_status)
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        print(one_line(str(error)), file=sys.stderr)
        sys.exit(1)


def one_line(message: str) -> str:
    """What a person needs of an error that crossed the JVM: our own error's text, else Spark's first line.

    Spark carries a Python error as the last lines of a traceback within its own message.
    """
    ours = re.findall(r"^(?:\w+\.)*errors\.\w+: (.+)$", message, re.MULTILINE)
    if ours:
        return str(ours[-1])
    return next((line.strip() for line in message.splitlines() if line.strip()), "the job failed")
