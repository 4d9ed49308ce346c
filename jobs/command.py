"""What the command lines of all jobs share: the options, and errors as one line.

``--help`` answers without Spark. Wrong usage ends with 2, a failed job with 1, a line on standard error each.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError, ConfigurationError, printable
from jobs.delta_table import is_name
from jobs.schemas import DELTA_RS, SPARK
from spark_connector.log import SourceLog, forget_reader
from spark_connector.offsets import Offset, check_cluster
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.options.places import EARLIEST
from spark_connector.source.resolving import resolve_start
from spark_connector.starting import NOT_UP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVAILABLE_NOW = "available-now"
SESSION_CATALOG = "spark_catalog"
JVM_ENDED = "Spark's JVM has ended in the middle of the job; the next start repeats the batch at work"
# Options of the source that leave out entries or columns, or make others of them.
NOT_OF_TABLES = (
    "columns", "decode", "decodeMode", "endingOffsets", "endingTimestamp", "entryTypes", "includeFrameHeader",
    "kinds", "service", "serviceId", "sessions", "templateIds",
)  # fmt: skip
PLACES = frozenset({"aeronArchive", "archiveDir", "clusterDir", "consensusEndpoints", "endpoints"})
DIRECTORY = "cluster-data"  # what `cluster up` makes
NOT_FROM_BEGIN = ("failOnDataLoss", "startingOffsets", "startingTimestamp")
_OPTIONS = {name.lower(): name for name in SourceOptions.names()}
_CALL = "An error occurred while calling "  # py4j's line before that of Java's error
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
INTERVAL = re.compile(
    r"(?P<number>[0-9]{1,9}(\.[0-9]+)?) *(?P<unit>ms|millisecond|s|second|m|min|minute|h|hour)s?"
)
_MS_OF = {"ms": 1, "millisecond": 1, "s": 1000, "second": 1000, "m": 60_000, "min": 60_000, "minute": 60_000}
_MS_OF |= {"h": 3_600_000, "hour": 3_600_000}


@dataclass(frozen=True, slots=True)
class JobOptions:
    """One job's command line, checked."""

    source: dict[str, str]  # options of format("cluster"), by name
    table: str  # the Delta table, as ``table_place`` gives it; "" for a job that writes none
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
            arguments=argparse.Namespace(checkpoint=None, conf=None),
            say=say,
        )


def absolute(path: str) -> str:
    """``path`` from the root on, as Delta's SQL takes it, but for a scheme; ``~/`` is the home directory."""
    return path if _SCHEME.match(path) else str(Path(os.path.expanduser(path)).resolve())


def table_place(text: str) -> str:
    """A catalog's name, or a path made ``absolute``. Raises ConfigurationError."""
    if not text.strip():
        raise ConfigurationError(f"--table is {text!r}; expected a path, or schema.table of Spark's catalog")
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isidentifier() for part in parts):
        return absolute(text)
    if len(parts) == 3 and parts.pop(0) != SESSION_CATALOG:
        raise ConfigurationError(
            f"--table is {text!r}; expected schema.table of the catalog {SESSION_CATALOG}, "
            f"the one that Delta's builders use, or a path, such as ./{text}"
        )
    return ".".join(parts)


def check_reads_all(source: dict[str, str], from_begin: bool = False) -> None:
    """Raise ConfigurationError for an option by which a table lacks log, ``from_begin``: its beginning."""
    for name in (*NOT_OF_TABLES, *(NOT_FROM_BEGIN if from_begin else ())):
        if name in source:
            raise ConfigurationError(
                f"option {name} is {source[name]!r}, and a table has all that the Log says; expected none"
            )


def check_is_no_folder(place: str) -> None:
    """Raise ConfigurationError where ``place`` has tables or files of others, which a VACUUM would delete."""
    if is_name(place) or _SCHEME.match(place) or not Path(place).exists():
        return
    if not Path(place).is_dir():
        raise ConfigurationError(f"--table is {place}, a file; expected a table, or a new folder")
    if found := sorted(Path(place).glob("*/_delta_log")):
        names = ", ".join(path.parent.name for path in found)
        raise ConfigurationError(f"--table is {place}, a folder with the tables {names}; expected a table")
    # A job that died before its first commit may have left files with these names.
    others = [path.name for path in Path(place).iterdir() if not path.name.startswith(("_", ".", "part-"))]
    if others and not Path(place, "_delta_log").exists():
        raise ConfigurationError(
            f"--table is {place}, a folder with other files, such as {min(others)}; "
            "expected a table, or a new folder"
        )


def check_is_no_table(place: str) -> None:
    """Raise ConfigurationError where ``place``, a folder of tables, is a table."""
    if not is_name(place) and not _SCHEME.match(place) and Path(place, "_delta_log").exists():
        raise ConfigurationError(f"--tables is {place}, a table; expected a folder of tables, or a new one")


def checkpoint_in(table: str) -> str:
    """Where a table's progress is kept by default; Delta passes over names that begin with ``_``."""
    return f"{table.rstrip('/')}/_checkpoint"


def parser(name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """The parser of job ``name`` with the options that every job has that keeps on reading the Log."""
    made = bare_parser(name, summary, example)
    source = add_log(made)
    source.add_argument(
        "--starting-offsets",
        metavar="WHERE",
        help='earliest, latest or {"position": n}, without a checkpoint; '
        "default: after what the table holds, which is earliest when there is none",
    )
    source.add_argument("--max-entries-per-trigger", metavar="N", help="most entries in one batch")
    source.add_argument(
        "--max-bytes-per-trigger", metavar="SIZE", help="most bytes of log in one batch, such as 64m"
    )
    run = add_run(made)
    run.add_argument(
        "--checkpoint", metavar="DIR", help="folder of the query's progress; default: TABLE/_checkpoint"
    )
    run.add_argument(
        "--trigger",
        metavar="WHEN",
        default=AVAILABLE_NOW,
        help=f"{AVAILABLE_NOW}: read to the present end and stop (the default); or an interval: '5 seconds'",
    )
    return made


def bare_parser(name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """A parser of job ``name`` without any option. ``cluster job`` names itself as the program."""
    module = f"python -m jobs.{name}"
    program = sys.argv[0] if sys.argv[0].startswith("cluster job ") else module
    return argparse.ArgumentParser(
        prog=program,
        description=summary,
        epilog=f"example:\n  {example.replace(module, program)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --table is not --tables
    )


def add_log(made: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Options that say which Log is read."""
    source = made.add_argument_group("the Log")
    source.add_argument(
        "--endpoints", metavar="LIST", help="members: 0=host:9000,1=host:9010,…; or set CLUSTER_ENDPOINTS"
    )
    source.add_argument(
        "--dir",
        "--cluster-dir",
        dest="cluster_dir",
        metavar="DIR",
        help="a member's directory on this host, of this project's or of a real Aeron Cluster; several with "
        f"commas; default: CLUSTER_DIR or {DIRECTORY}",
    )
    source.add_argument(
        "--archive-dir", metavar="DIR", help="the member's archive directory, if it is elsewhere"
    )
    source.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[], help="any other option of the source"
    )
    return source


def add_run(made: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Options of the Spark application."""
    run = made.add_argument_group("the run")
    run.add_argument(
        "--master", metavar="URL", default="local[*]", help="Spark master (default: %(default)s)"
    )
    run.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a Spark setting for this run"
    )
    return run


def add_table(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--table",
        metavar="TABLE",
        required=True,
        help="the Delta table: a path, or schema.table of Spark's catalog; made if missing",
    )


def add_writer(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--writer",
        choices=(SPARK, DELTA_RS),
        default=SPARK,
        help=f"who writes: {SPARK} (the default), or {DELTA_RS}, which needs no Spark and no Java; "
        "a table keeps the writer that made it",
    )


def options_of(made: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> JobOptions:
    """Parse ``argv``; raises ConfigurationError, before Spark starts, for what the source would refuse."""
    given = made.parse_args(argv)
    source = source_of(given)
    table = table_place(given.table) if "table" in given else ""
    return JobOptions(
        source=source,
        table=table,
        checkpoint="" if vars(given).get("writer") == DELTA_RS else _checkpoint(given.checkpoint, table),
        trigger=_trigger(given.trigger),
        master=given.master,
        settings=pairs("--conf", given.conf),
        arguments=given,
        say=say,
    )


def _absolute_all(paths: str) -> str:
    return ",".join(absolute(path.strip()) if path.strip() else "" for path in paths.split(","))


def source_of(given: argparse.Namespace) -> dict[str, str]:
    """The source's options on a command line. Raises ConfigurationError before Spark starts."""
    named = vars(given)
    source = {
        "endpoints": given.endpoints,
        "clusterDir": given.cluster_dir and _absolute_all(given.cluster_dir),
        "archiveDir": given.archive_dir and _absolute_all(given.archive_dir),
        "startingOffsets": named.get("starting_offsets"),
        "maxEntriesPerTrigger": named.get("max_entries_per_trigger"),
        "maxBytesPerTrigger": named.get("max_bytes_per_trigger"),
        **{
            _OPTIONS.get(name.lower(), name): value for name, value in pairs("--option", given.option).items()
        },
    }
    source = {name: value for name, value in source.items() if value is not None}
    if PLACES.isdisjoint(source):
        source |= _default_place()
    SourceOptions.parse(source)
    return source


def _default_place() -> dict[str, str]:
    """Which Log is read when no option says so, as the commands have it; none where there is none."""
    if endpoints := os.environ.get("CLUSTER_ENDPOINTS"):
        return {"endpoints": endpoints}
    directory = os.environ.get("CLUSTER_DIR") or DIRECTORY
    return {"clusterDir": absolute(directory)} if directory != DIRECTORY or Path(directory).exists() else {}


def _checkpoint(given: str | None, table: str) -> str:
    if given:
        return absolute(given)
    if not table:
        raise ConfigurationError("--checkpoint is not given, and this job has no table to keep it in")
    if is_name(table):
        raise ConfigurationError(f"--checkpoint is not given, and the catalog's {table} has no place for it")
    return checkpoint_in(table)


def say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def start(name: str, options: JobOptions) -> SparkSession:
    """The Spark session of a job, once there is known to be a log. Raises what opening it raises."""
    from jobs.session import spark_session

    source = SourceOptions.parse(options.source)
    log = SourceLog(source)
    end = log.committed_end()
    begin = _begin(options, source, log, end)
    and_on = "" if "availableNow" in options.trigger else " and on"
    options.say(f"{name}: reading from {begin} to {end:,}{and_on}")
    forget_reader(source)
    return spark_session(name, options.master, options.settings)


def _begin(options: JobOptions, source: SourceOptions, log: SourceLog, end: int) -> str:
    """Where a job begins to read, as known without Spark. Raises DataLoss for another cluster."""
    if _SCHEME.match(options.checkpoint):
        return "where it left off"
    planned = _planned(Path(options.checkpoint))
    if planned is not None:
        check_cluster(planned, log.cluster)
        log.check_history(planned)
        return f"{planned.position:,}"
    if source.starting_offsets is None and source.starting_timestamp is None:
        if options.table and _has_table(options.table):
            return "the end of its table"
        return f"{log.start_position:,}"
    return f"{resolve_start(log, source, EARLIEST, end):,}"


def _has_table(place: str) -> bool:
    """Whether there is a table, or one in the folder of several; one of the catalog may be."""
    return is_name(place) or any(any(Path(place).glob(f"{depth}_delta_log")) for depth in ("", "*/"))


def _planned(checkpoint: Path) -> Offset | None:
    """Where a query goes on over ``checkpoint``, or None. Raises ConfigurationError for a torn offset."""
    files = (path for path in checkpoint.glob("offsets/[0-9]*") if path.name.isdecimal())
    newest = max(files, key=lambda path: int(path.name), default=None)
    if newest is None:
        return None
    try:
        given = json.loads(newest.read_text().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise ConfigurationError(
            f"{newest} is damaged ({error}); expected an offset that Spark wrote. With another --checkpoint "
            "a job goes on behind what its tables hold"
        ) from None
    offset = Offset.from_json(given)
    is_done = (checkpoint / "commits" / newest.name).exists()
    if is_done or offset.from_position is None:
        return offset
    return Offset(offset.cluster, offset.from_position)


def pairs(option: str, items: Sequence[str]) -> dict[str, str]:
    """What an option that is given several times says. Raises ConfigurationError for what is no pair."""
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"{option} is {item!r}; expected NAME=VALUE")
        found[name] = value
    return found


def _trigger(text: str) -> dict[str, Any]:
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    found = INTERVAL.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigurationError(
            f"--trigger is {text!r}; expected {AVAILABLE_NOW} or an interval such as '5 seconds'"
        )
    milliseconds = round(float(found["number"]) * _MS_OF[found["unit"]])
    return {"processingTime": f"{milliseconds} milliseconds"}  # Spark has no short names, and few fractions


def run_main(main: Callable[[], None]) -> None:
    """Run a job's ``main`` and turn what went wrong into one line and an exit status."""
    # py4j logs, with a traceback, that Ctrl-C came while it waited for the JVM, and that the JVM is gone.
    logging.getLogger().addFilter(lambda record: not _is_of_the_gateway(record))
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except ClusterError as error:
        say(str(error).replace("\n", " "))
        sys.exit(error.exit_status)
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j", "delta"):
            raise
        has_ended = type(error).__name__ == "Py4JNetworkError"
        say(JVM_ENDED if has_ended else one_line(str(error)))
        sys.exit(1)


def _is_of_the_gateway(record: logging.LogRecord) -> bool:
    error = None if record.exc_info is None else record.exc_info[1]
    return isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Py4JNetworkError"


def one_line(message: str) -> str:
    """Our own error's text, which Spark carries at the end of a traceback, else Spark's first line."""
    if NOT_UP in message:
        return f"{NOT_UP} within its ten seconds. Nothing was lost: start the job again, when less else runs"
    ours = re.findall(r"^(?:\w+\.)*errors\.\w+: (.+)$", message, re.MULTILINE)
    if ours:
        return str(ours[-1])
    lines = (line.strip().removeprefix(": ") for line in message.splitlines())
    return next((line for line in lines if line and not line.startswith(_CALL)), "the job failed")
