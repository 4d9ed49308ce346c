"""What ``cluster demo`` prints, made of its report: the object that ``--json`` prints."""

from typing import Any

from rich.text import Text

MS_PER_CELL = 5  # of a gap that is drawn
CELLS_MAX = 30
LANE_CELLS = 60
EIGHTHS = " ▏▎▍▌▋▊▉█"
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")  # of terms, in turn

Report = dict[str, Any]


def headline(members: int, messages_per_s: int, kill_every_s: float) -> Text:
    return Text(
        f"{members} members on this machine, {messages_per_s:,} messages a second, "
        f"kill -9 of the leader every {kill_every_s:g} s"
    )


def scale() -> Text:
    """What stands above the lines of kills."""
    text = f"gap without a commit, one cell is {MS_PER_CELL} ms"
    return Text(f"{'':41}{text}", style="dim")


def kill_line(kill: Report) -> Text:
    """One kill: who was killed, the gap drawn to scale, who leads now."""
    gap_ms = kill["gapMs"]
    cells, rest = divmod(round(gap_ms * 8 / MS_PER_CELL), 8)
    bar = "█" * cells + EIGHTHS[rest].strip()
    if len(bar) > CELLS_MAX:
        bar = "█" * (CELLS_MAX - 1) + "▶"
    line = Text(f"{kill['atS']:5.1f} s  kill -9 of member {kill['memberId']}  ")
    line.append(f"{gap_ms:>6,} ms  ", "bold")
    line.append(bar.ljust(CELLS_MAX), colour(kill["leadershipTermId"]))
    line.append(f"  member {kill['nextLeaderMemberId']} leads")
    return line


def progress_line(
    elapsed_s: float, rate: float, committed: int, lost: int, doubled: int, sql: str, leader: str
) -> Text:
    """The line that is drawn again and again."""
    line = Text(f"{elapsed_s:5.1f} s  {rate:>9,.0f} messages/s  committed {committed:>11,}  ")
    line.append(_verdict(lost, doubled))
    line.append(f"  {leader}" + (f"  {sql}" if sql else ""))
    return line


def summary(report: Report) -> list[Text]:
    """What stands at the end."""
    sql, gaps = report["sql"], [kill["gapMs"] for kill in report["kills"]]
    lines = [Text(), *_lanes(report), Text()]
    lines.append(
        Text(
            f"{report['messages']:,} messages in {report['seconds']:.0f} s, kills: {len(gaps)}"
            + (f", the longest gap {max(gaps):,} ms" if gaps else "")
        )
    )
    verdict = _verdict(report["lost"], report["doubled"])
    lines.append(
        verdict + Text(f": counted by the client, and in the logs of all {report['members']} members")
    )
    if sql["messages"]:
        engine = {"duckdb": "SQL of DuckDB", "arrow": "Arrow"}[sql["engine"]]
        lines.append(
            Text(
                f"{engine} over the live log counted {sql['messages']:,} messages, "
                f"the newest {sql['ageMs']:,} ms old (median)"
            )
        )
    return lines


def next_steps() -> list[Text]:
    """What to type after the demo."""
    steps = (
        ("cluster up", "a cluster that stays; in other terminals:"),
        ("echo hello | cluster send --endpoints 127.0.0.1:9000", "the service answers"),
        ("cluster status", "healthy, or why not"),
        ("cluster log tail --dir cluster-data", "the committed log"),
        ("cluster bench --endpoints tcp:127.0.0.1:9001", "how much this machine takes"),
    )
    return [Text("next:", style="bold"), *(Text(f"  {command:<54}# {what}") for command, what in steps)]


def colour(leadership_term_id: int) -> str:
    return COLOURS[leadership_term_id % len(COLOURS)]


def _verdict(lost: int, doubled: int) -> Text:
    return Text(f"lost {lost:,}, doubled {doubled:,}", "bold red" if lost or doubled else "bold green")


def _lanes(report: Report) -> list[Text]:
    """A lane a member over the whole time: thick while it leads, in the term's colour, empty while dead."""
    cell_s = report["seconds"] / LANE_CELLS
    lanes = []
    for member in range(report["members"]):
        lane = Text(f"member {member}  ")
        for cell in range(LANE_CELLS):
            at_s = (cell + 0.5) * cell_s
            term = [term for term in report["terms"] if term["atS"] <= at_s][-1:]
            if any(k["memberId"] == member and k["atS"] <= at_s < k["levelAtS"] for k in report["kills"]):
                lane.append(" ")
            elif term and term[0]["leaderMemberId"] == member:
                lane.append("█", colour(term[0]["leadershipTermId"]))
            else:
                lane.append("─", "dim")
        lanes.append(lane)
    return lanes
