"""What the demo says at its end: delays by carrier, counts from three sides, where everything is, and SQL."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from jobs.delta_table import read as read_table
from jobs.demo import counts, statistics
from jobs.demo.screen import Screen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Found:
    """What the Delta tables hold at the end."""

    carriers: list[dict[str, Any]]  # statistics by carrier, as they came back through the Log
    log: Counter[str]  # rows of the table of the Log by kind
    tables: Counter[str]  # what the other three tables have of the same entries


def read(spark: SparkSession, delta: Path, carrier_names: dict[str, str]) -> Found:
    """Read everything back from the Delta tables under ``delta``."""
    log = read_table(spark, str(delta / "log"))
    rows = statistics.per_carrier(statistics.newest(log)).collect()
    carriers = [row.asDict() | {"name": carrier_names[row["carrier"]]} for row in rows]
    return Found(carriers, counts.of_table(log), of_tables(spark, delta))


def of_tables(spark: SparkSession, delta: Path) -> Counter[str]:
    """The entries that the tables of sessions, timers and terms have; ``total`` is the terms' count."""

    def total(table: str, *columns: str) -> int:
        (row,) = read_table(spark, str(delta / table)).selectExpr(*columns).collect()
        return sum(value or 0 for value in row)

    return Counter(
        {
            counts.TIMERS: total("timers", "sum(firings)"),
            counts.SESSIONS: total("sessions", "count(openPosition)", "count(closePosition)"),
            counts.TERMS: total("leadership_terms", "count(*)"),
            "total": total("leadership_terms", "sum(entries)"),
        }
    )


def show(screen: Screen, found: Found, sent: Counter[str], log: Counter[str]) -> bool:
    """Print the tables; true when all sides agree."""
    screen.console.print(_delays(found.carriers))
    agree = agrees(found, sent, log)
    screen.console.print(_counts(found, sent, log))
    if agree:
        screen.say(
            "[green]✓[/] three sides counted the same: everything sent is in the Log and in Delta, once"
        )
    else:
        screen.say("[red]✗ the sides differ; see the marked rows[/]")
    return agree


def agrees(found: Found, sent: Counter[str], log: Counter[str]) -> bool:
    """Whether senders, Log, Delta's tables and the statistics count the same entries."""
    return (
        all(sent[kind] == log[kind] == found.log[kind] for kind in counts.KINDS)
        and all(found.tables[kind] == log[kind] for kind in (counts.TIMERS, counts.SESSIONS, counts.TERMS))
        and found.tables["total"] == log.total()
        and sum(row["flights"] for row in found.carriers) == sent[counts.FLIGHTS]
    )


def _delays(carriers: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Arrival delays in minutes, as they came back through the Log",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,  # a terminal of 80 columns holds it then
        pad_edge=False,
    )
    for column in ("carrier", "flights", "cancelled", "mean", "late", "worst", "worst route"):
        table.add_column(
            column, justify="left" if column in ("carrier", "worst route") else "right", no_wrap=True
        )
    for row in carriers:
        table.add_row(
            short_name(row["name"]),
            f"{row['flights']:,}",
            f"{row['cancelled']:,}",
            "" if row["meanDelay"] is None else f"{row['meanDelay']:+.1f}",
            "" if row["lateShare"] is None else f"{row['lateShare']:.0%}",
            "" if row["worst"] is None else f"{row['worst']:,}",
            row["worstRoute"] or "",
        )
    return table


def short_name(carrier: str) -> str:
    """An airline as people say it."""
    for legal_form in (" Inc.", " Co.", " Corporation"):
        carrier = carrier.removesuffix(legal_form)
    return carrier


def _counts(found: Found, sent: Counter[str], log: Counter[str]) -> Table:
    table = Table(
        title="Entries, counted from three sides", title_justify="left", show_footer=True, box=box.SIMPLE_HEAD
    )
    table.add_column("", "total")
    sides = (("sent", sent), ("in the Log", log), ("in Delta", found.log))
    for name, side in sides:
        table.add_column(name, f"{side.total():,}", justify="right")
    table.add_column("")
    for kind in counts.KINDS:
        values = [side[kind] for _, side in sides]
        if any(values):
            same = len(set(values)) == 1
            table.add_row(kind, *(f"{value:,}" for value in values), "[green]✓[/]" if same else "[red]✗[/]")
    return table


def say_where(screen: Screen, home: Path, picture: Path, status: int) -> None:
    """Where everything is, and how the cluster ended."""
    screen.say("")
    for name in ("log", "sessions", "timers", "leadership_terms"):
        screen.say(f"  Delta table {name:<17} {home / 'delta' / name}")
    screen.say(f"  picture                       {picture}")
    screen.say(f"  members' directories          {home / 'cluster'}")
    screen.say("")
    ended = "stopped in order" if status == 0 else f"[red]ended with status {status}[/]"
    screen.say(f"three members {ended}; {screen.elapsed_s:.0f} s in all")
    screen.say("")
    screen.say("next, over the table of the Log:")
    screen.say(f"  {query_of(home)}")


def query_of(home: Path) -> str:
    """What to type for SQL of one's own, with Delta's jars and settings from ``conf/``."""
    select = "SELECT entryType, count(*), max(timestamp) FROM delta.`{}` GROUP BY 1 ORDER BY 2"
    return f"SPARK_CONF_DIR=conf spark-sql -e '{select.format(home / 'delta' / 'log')}'"
