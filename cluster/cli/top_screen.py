"""The screen of ``cluster top``: members as a table, what the leader does, and keys."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from cluster.cli.events import LastEvents
from cluster.cli.printable import plain
from cluster.cli.verdict import Member, judge_members
from cluster.errors import printable
from cluster.protocol.counter_types import BUCKETS_NS

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.segment import Segments
    from rich.table import Table

COLUMNS = {
    "member": "memberId", "role": "role", "election": "electionState", "module": "moduleState",
    "term": "leadershipTermId", "commit": "commitPosition", "append": "appendPosition", "lag": "lag",
    "per s": "bytesPerSecond", "service lag": "serviceLag", "sessions": "sessions",
    "elections": "elections", "backup": "backupState", "next query": "nextQuery", "errors": "errors",
    "clock ms": "clockOffsetMs", "certificate ends": "certificateEnds", "log": "logBytes",
    "disk free": "diskFree", "lag entries": "lagEntries", "lag ms": "lagMs", "log days": "logDays",
    "version": "version",
}  # fmt: skip
IN_BYTES = ("lag", "per s", "service lag", "log", "disk free")
UNBOUNDED = 10_000  # columns of a screen on which any table is as wide as it wants to be
WORDS = ("member", "role", "election", "module", "backup", "version")  # the others are numbers
TIMES = {"commitTimes": "commit", "syncTimes": "sync"}
LOOKS_MAX = 60  # that are remembered
BARS = " ▁▂▃▄▅▆▇█"
_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)

RATES = {"bytesPerSecond": "commitPosition", "messagesPerSecond": "ingressMessages"}


class History:
    """What the looks before have shown: how fast members commit and take messages, and how long they take."""

    def __init__(self) -> None:
        self.rates: deque[dict[str, int]] = deque(maxlen=LOOKS_MAX)  # of the leader, the newest last
        self._times: deque[dict[int, dict[str, list[int]]]] = deque(maxlen=LOOKS_MAX)  # by member and kind
        self._before: dict[tuple[int, str], tuple[float, int]] = {}  # by member and rate: when, and what then
        self.committed_before: int | None = None  # by any member, at the look before

    def added_to(self, members: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The members with their ``RATES``; None at the first look and while a member replays its log."""
        now = time.monotonic()
        before, self._before = self._before, {}
        committed = [position for (_, rate), (_, position) in before.items() if rate == "bytesPerSecond"]
        self.committed_before = max(committed, default=None)
        for member in members:
            is_closed = member["isAlive"] and member["electionState"] in ("CLOSED", None)
            for rate, key in RATES.items():
                place, value = (member["memberId"], rate), member.get(key)
                member[rate] = None
                if value is None or not is_closed:
                    continue
                self._before[place] = now, value
                since, earlier = before.get(place, (now, value))
                if since < now:
                    member[rate] = max(0, round((value - earlier) / (now - since)))
        leader = next((m for m in members if m["isAlive"] and m["role"] == "LEADER"), None)
        if leader is not None:
            self.rates.append({rate: leader[rate] or 0 for rate in RATES})
        self._times.append({m["memberId"]: {kind: m[kind] for kind in TIMES if m.get(kind)} for m in members})
        return members

    def quantile_ns(self, member: Member, kind: str, share: float) -> int | None:
        """The bound that such a share of a member's commits or syncs kept to; None beyond the last one.

        Of those since the oldest look; of all since its start where there were none.
        """
        newest: list[int] = member.get(kind) or []
        seen_before = self._times[0].get(member["memberId"], {}) if self._times else {}
        oldest = seen_before.get(kind, newest)
        counts = [max(0, new - old) for new, old in zip(newest, oldest, strict=False)]
        counts = counts if any(counts) else newest
        wanted, seen = share * sum(counts), 0
        for bound, count in zip(BUCKETS_NS, counts, strict=False):
            seen += count
            if count and seen >= wanted:
                return bound
        return None


def _console() -> Console:
    """Draws on standard output; what a label or an error holds is text and no markup."""
    from rich.console import Console

    return Console(file=plain(sys.stdout), highlight=False, markup=False, emoji=False, width=_width())


def _width() -> int | None:
    """Columns where there is no terminal; None: as the terminal or COLUMNS has them."""
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 160


def draw(members: list[Member], history: History, counters: bool, last: LastEvents) -> None:
    """One look, on standard output."""
    console = _console()
    for part in [*_header(members, history), *_screen(members, counters, console), *_events(last)]:
        console.print(part)


def watch_screen(
    look: Callable[[], list[Member]],
    history: History,
    interval_s: float,
    counters: bool,
    last: LastEvents,
) -> None:
    """Look again and again, until q or Ctrl-C."""
    from rich.console import Group
    from rich.live import Live

    view = _View(counters)
    members = history.added_to(look())
    next_look = time.monotonic() + interval_s
    with _Keys() as keys, Live(console=_console(), screen=True, auto_refresh=False) as live:
        while not view.is_left:
            shown = _screen(members, view.counters, live.console)
            parts = Group(*_header(members, history), *shown, *_events(last))
            live.update(view.part_of(parts, live.console), refresh=True)
            wait_s = None if view.is_paused else max(0.0, next_look - time.monotonic())
            if key := keys.next(wait_s):
                view.press(key, live.console.height)
            elif not view.is_paused:
                members = history.added_to(look())
                next_look = time.monotonic() + interval_s


class _Keys:
    """Keys of the terminal as they are pressed; none where standard input is no terminal."""

    NAMES: ClassVar = {
        b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[5~": "page up", b"\x1b[6~": "page down",
        b"\x1b[H": "home", b"\x1b[F": "end",
    }  # fmt: skip

    def __init__(self) -> None:
        self._saved: list[Any] | None = None
        self._pressed: deque[bytes] = deque()  # read, and not taken

    def __enter__(self) -> Self:
        if sys.stdin is not None and sys.stdin.isatty():
            self._saved = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_: object) -> None:
        if self._saved is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._saved)

    def next(self, timeout_s: float | None) -> str:
        """The next key, waited for so long or, with None, for ever; "" without one."""
        if self._saved is None:
            time.sleep(timeout_s or 0)
            return ""
        if not self._pressed:
            if not select.select([sys.stdin], [], [], timeout_s)[0]:
                return ""
            self._pressed += _KEY.findall(os.read(sys.stdin.fileno(), 1024)) or [b"q"]  # no terminal any more
        pressed = self._pressed.popleft()
        return self.NAMES.get(pressed.replace(b"\x1bO", b"\x1b["), pressed.decode(errors="replace"))


class _View:
    """What keys change: as in other programs of this kind."""

    FOOT = "q quit, p pause, c counters, arrows and pages scroll"

    def __init__(self, counters: bool) -> None:
        self.counters = counters
        self.is_left = False
        self.is_paused = False
        self._first = 0  # line
        self._line_count = 0

    def press(self, key: str, height: int) -> None:
        match key:
            case "q" | "Q":
                self.is_left = True
            case "p" | " ":
                self.is_paused = not self.is_paused
            case "c":
                self.counters = not self.counters
            case _:
                steps = {
                    **{"up": -1, "k": -1, "down": 1, "j": 1, "page up": 1 - height, "page down": height - 1},
                    **{"home": -self._line_count, "end": self._line_count},
                }
                self._first += steps.get(key, 0)

    def part_of(self, parts: Group, console: Console) -> Segments:
        """The lines from where it was scrolled to, and the keys."""
        from rich.segment import Segment, Segments

        lines = console.render_lines(parts, console.options.update(height=None), pad=False)
        room = max(1, console.height - 1)
        self._line_count = len(lines)
        self._first = min(max(0, self._first), max(0, len(lines) - room))
        shown = lines[self._first : self._first + room]
        shown += [[] for _ in range(room - len(shown))]
        foot = f"{'paused: ' if self.is_paused else ''}{self.FOOT}"
        out = [segment for line in shown for segment in (*line, Segment.line())]
        return Segments([*out, Segment(foot[: console.width])])


def _header(members: list[Member], history: History) -> list[str]:
    """The verdict with its reasons, and what the leader does; nothing where not all members are seen."""
    members = [member for member in _printable(members) if "backupState" not in member]
    count = max((member.get("memberCount") or 0 for member in members), default=0)
    if not members or len(members) < count:
        return []
    judged = judge_members(members, len(members), datetime.now(UTC), history.committed_before)
    facts = [f"{judged.verdict}: {judged.may_stop} of {len(members)} may stop"]
    lines = []
    if (leader := judged.leader) is not None:
        facts += [f"member {leader['memberId']} leads", f"term {leader['leadershipTermId']}"]
        if (uptime_ms := leader.get("uptimeMs")) is not None:
            facts.append(f"up {_duration(uptime_ms // 1_000)}")
        if leader.get("messagesPerSecond") is not None:
            facts.append(f"{leader['messagesPerSecond']:,} messages/s")
        if leader.get("bytesPerSecond") is not None:
            facts.append(f"{in_bytes(leader['bytesPerSecond'])}/s")
        lines += _times(leader, history) + _sparklines(history)
    return [", ".join(facts), *lines, *(f"{message.severity}: {message.text}" for message in judged.messages)]


def _times(leader: Member, history: History) -> list[str]:
    """How long its commits and syncs take."""
    texts = []
    for kind, name in TIMES.items():
        if leader.get(kind) and any(leader[kind]):
            half, most = (history.quantile_ns(leader, kind, share) for share in (0.5, 0.99))
            texts.append(f"{name} p50 {_at_most(half)}, p99 {_at_most(most)}")
    return ["; ".join(texts)] if texts else []


def _at_most(bound_ns: int | None) -> str:
    if bound_ns is None:
        return f"> {BUCKETS_NS[-1] / 1e9:g} s"
    return f"<= {bound_ns / 1e3:g} us" if bound_ns < 1_000_000 else f"<= {bound_ns / 1e6:g} ms"


def _sparklines(history: History) -> list[str]:
    """The leader's rates at the last looks, each from nothing to its greatest."""
    texts = []
    for rate, name in (("messagesPerSecond", "messages/s"), ("bytesPerSecond", "bytes/s")):
        values = [looked[rate] for looked in history.rates]
        if len(values) > 1 and max(values) > 0:
            bars = "".join(BARS[value * (len(BARS) - 1) // max(values)] for value in values)
            texts.append(f"{name:<10} {bars}")
    return texts


def in_bytes(count: int) -> str:
    """A number of bytes in the unit that fits."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:,.{0 if unit == 'B' or value >= 99.95 else 1}f} {unit}"


def _duration(seconds: int) -> str:
    """In the two largest units."""
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"


def _screen(members: list[dict[str, Any]], counters: bool, console: Console) -> list[RenderableType]:
    """The members as rows where the screen is wide enough for them, else as columns; then what failed."""
    members = _printable(members)
    parts: list[RenderableType] = [_fitting_table(members, console)]
    parts += [_failure(member) for member in members if "error" in member]
    parts += [
        f"member {member['memberId']} waits for members {', '.join(map(str, member['waitsFor']))}"
        for member in members
        if member.get("waitsFor")
    ]
    parts += _groups(members)
    if counters:
        parts += [_counters_table(member) for member in members]
    return parts


def _events(last: LastEvents) -> list[str]:
    lines = last.look()
    return ["", "last events", *lines] if lines else []


def _printable(value: Any) -> Any:
    """The members with every text of theirs as a terminal may get it."""
    if isinstance(value, dict):
        return {key: _printable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_printable(each) for each in value]
    return printable(value) if isinstance(value, str) else value


def table_lines(members: list[dict[str, Any]], indent: str) -> list[str]:
    """The table alone, as lines."""
    from rich.console import Console

    console = Console(highlight=False, width=_width(), color_system=None)
    console.width -= len(indent)
    with console.capture() as captured:
        console.print(_fitting_table(_printable(members), console))
    return [f"{indent}{line.rstrip()}" for line in captured.get().splitlines() if line.strip()]


def _fitting_table(members: list[dict[str, Any]], console: Console) -> Table:
    from rich.measure import Measurement

    table = _members_table(members, in_rows=True)
    if Measurement.get(console, console.options.update_width(UNBOUNDED), table).maximum > console.width:
        table = _members_table(members, in_rows=False)
    return table


def _groups(members: list[dict[str, Any]]) -> list[str]:
    """A line for each consumer group, by the member that has processed most of the log."""
    known = max(members, key=lambda member: member.get("commitPosition") or -1)
    return [
        f"consumer group {group['group']}: at {group['position']:,}, "
        f"{group['bytesBehind']:,} bytes before the commit position"
        for group in known.get("consumers", ())
    ]


def _members_table(members: list[dict[str, Any]], in_rows: bool) -> Table:
    """A row a member or, for a narrow screen, a column; what is known of none is left out."""
    from rich import box
    from rich.table import Table

    columns = {
        heading: [_cell(_in_unit(heading, member.get(key))) for member in members]
        for heading, key in COLUMNS.items()
        if heading in ("member", "role") or any(member.get(key) is not None for member in members)
    }
    columns["role"] = [_role(member) for member in members]
    styles = [
        "dim" if not member["isAlive"] else "bold" if member["role"] == "LEADER" else "" for member in members
    ]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    if in_rows:
        for heading in columns:
            table.add_column(heading, justify="left" if heading in WORDS else "right")
        for line, style in zip(zip(*columns.values(), strict=True), styles, strict=True):
            table.add_row(*line, style=style)
    else:
        table.add_column("member")
        for cell, style in zip(columns.pop("member"), styles, strict=True):
            table.add_column(cell, style=style, overflow="fold")
        for heading, cells in columns.items():
            table.add_row(heading, *cells)
    return table


def _role(member: dict[str, Any]) -> str:
    if member["isAlive"]:
        return _cell(member["role"])
    return "no answer" if "error" in member else "not running"


def _failure(member: dict[str, Any]) -> str:
    """Why a member did not answer; the reason names its endpoint."""
    error = str(member["error"])
    return error if member["memberId"] is None else f"member {member['memberId']}: {error}"


def _counters_table(member: dict[str, Any]) -> Table:
    from rich import box
    from rich.table import Table

    whose = "the backup" if member["memberId"] is None else f"member {member['memberId']}"
    listing = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"counters of {whose}")
    for heading in ("id", "type", "value"):
        listing.add_column(heading, justify="right")
    listing.add_column("label")
    for counter in member.get("counters", ()):
        listing.add_row(str(counter["id"]), str(counter["typeId"]), f"{counter['value']:,}", counter["label"])
    return listing


def _in_unit(heading: str, value: Any) -> Any:
    return in_bytes(value) if heading in IN_BYTES and value is not None else value


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value >= 100:
        value = round(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
