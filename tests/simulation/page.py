"""A seed's history as a page, as ``cluster sim --story`` writes it: what broke is last, with what led there.

What led there is found backwards, by what the violation names: ballots and leaders of its terms, reports and
commits of its positions, the last messages of its sessions and timers; and of its members what they became,
what was done to them, and what the first of them had heard last of every other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from cluster.cli.live_story import page
from cluster.testing.stories.narration import as_seed
from cluster.testing.wire import Happening
from tests.simulation.history import History

INVARIANTS = Path(__file__).resolve().parents[2] / "docs" / "invariants.md"
FRAME_ALIGNMENT = 32  # of positions
SAID_OF_ID_MAX = 10  # messages

_BALLOTS = {
    "RequestVote": "{0} stands for term {2}, and asks {1} for its vote.",
    "Vote vote=True": "{0} votes for {1} in term {2}.",
    "Vote vote=False": "{0} refuses {1} its vote in term {2}.",
    "NewLeadershipTerm": "{0} tells {1} that it leads term {2}.",
}
_POSITIONS = {
    "AppendPosition": "{0} reports to {1} that it has the log to {2}.",
    "CommitPosition": "{0} tells {1} that the log is committed to {2}.",
}
_IDS = {"session": "clusterSessionId", "timer": "correlationId"}
_BECAME = re.compile(r"election (\w+) -> (\w+): (.*)|(starts|is killed|ends).*")

Said = Iterator[tuple[int, str]]


def page_of(history: History, violation: str) -> str:
    """The page of a history that keeps its story, and has been played."""
    wire, world = history.network.wire, history.world
    assert wire is not None, "expected keeps_story=True"

    def heard_ns(happening: Happening) -> int | None:
        return wire.heard_ns.get(happening.number)

    happenings = wire.happenings()
    sentences, end = {}, "All invariants hold."
    if violation:
        sentences = led_to(violation, happenings, heard_ns)
        end = f"{violation}. {statement_of(violation.partition(':')[0])}"
        accused = next(iter(members_in(violation)), "history")
        happenings.append(Happening(world.now_ns, accused, "", violation))
    sentences[len(happenings) - 1] = end
    return page(as_seed(world.seed, happenings, sentences, heard_ns, fails=bool(violation)))


def statement_of(invariant: str) -> str:
    """What always holds by docs/invariants.md."""
    lines = INVARIANTS.read_text()
    found = re.search(rf"^- \*\*{invariant}\*\* (.*?)\n(?=- |\n|\Z)", lines, re.DOTALL | re.MULTILINE)
    return "" if found is None else f"{invariant} says: {' '.join(found[1].split())}"


def members_in(violation: str) -> list[str]:
    """Those that it names, the first first."""
    ids = re.findall(r"member (\d+)", violation) + re.findall(
        r"\d+", "".join(re.findall(r"\[.*?\]", violation))
    )
    return [f"member {member_id}" for member_id in dict.fromkeys(ids)]


def led_to(
    violation: str, happenings: Sequence[Happening], heard_ns: Callable[[Happening], int | None]
) -> dict[int, str]:
    """A sentence for each happening, by its place, that has to do with what the violation names."""
    terms = [int(term) for term in re.findall(r"term (\d+)", violation)]
    numbers = [int(number) for number in re.findall(r"(?<![\w-])\d+", violation)]
    positions = [number for number in numbers if number and number % FRAME_ALIGNMENT == 0]
    members = members_in(violation)
    said: dict[int, str] = {}
    for place, text in (
        *_of_ballots(terms, happenings),
        *_of_positions(positions, happenings),
        *_of_ids(violation, happenings),
        *_of_members(members, happenings),
        *_heard_last(members[:1], happenings, heard_ns),
    ):
        said.setdefault(place, text)
    return said


def _of_ballots(terms: Collection[int], happenings: Sequence[Happening]) -> Said:
    """The first of each kind between each two, of each term."""
    seen = set()
    for place, each in enumerate(happenings):
        kind = next((kind for kind in _BALLOTS if each.text.startswith(f"{kind} ")), None)
        field = "leadershipTermId" if kind == "NewLeadershipTerm" else "candidateTermId"
        term = _number(field, each.text)
        key = kind, each.sender, each.receiver, term
        if kind is not None and term in terms and key not in seen:
            seen.add(key)
            yield place, _BALLOTS[kind].format(each.sender, each.receiver, term)


def _of_positions(positions: Collection[int], happenings: Sequence[Happening]) -> Said:
    """The first of each kind between each two that goes as far."""
    seen = set()
    for place, each in enumerate(happenings):
        if each.name not in _POSITIONS:
            continue
        position = _number("logPosition", each.text)
        for wanted in positions:
            key = each.name, each.sender, each.receiver, wanted
            if position >= wanted and key not in seen:
                seen.add(key)
                yield place, _POSITIONS[each.name].format(each.sender, each.receiver, position)


def _of_ids(violation: str, happenings: Sequence[Happening]) -> Said:
    """What was said last of each session and timer."""
    for what, field in _IDS.items():
        for number in re.findall(rf"\b{what} (\d+)", violation):
            pattern = re.compile(rf"\b{field}={number}\b")
            places = [i for i, each in enumerate(happenings) if each.receiver and pattern.search(each.text)]
            for place in places[-SAID_OF_ID_MAX:]:
                sender, receiver = happenings[place].sender, happenings[place].receiver
                yield place, f"{sender} speaks to {receiver} of {what} {number}."


def _of_members(members: Collection[str], happenings: Sequence[Happening]) -> Said:
    """The last life and fault of each, and its last election."""
    last: dict[tuple[str, str], tuple[int, str]] = {}
    elections: dict[str, dict[int, str]] = {}
    for place, each in enumerate(happenings):
        if each.sender == "nemesis":
            for member in members:
                if re.search(rf"\b{member}\b", each.text):
                    last[member, "fault"] = place, f"A fault: {each.text}."
        elif each.sender in members and not each.receiver and (match := _BECAME.match(each.text)):
            before, state, why, life = match.groups()
            if life:
                last[each.sender, life] = place, f"{each.sender} {each.text}."
                continue
            if before == "INIT":
                elections[each.sender] = {}
            text = f"{each.sender} goes from {before} to {state}: {why}."
            elections.setdefault(each.sender, {})[place] = text
    yield from last.values()
    for election in elections.values():
        yield from election.items()


def _heard_last(
    members: Collection[str], happenings: Sequence[Happening], heard_ns: Callable[[Happening], int | None]
) -> Said:
    last = {}
    for place, each in enumerate(happenings):
        is_heard = each.receiver in members and re.fullmatch(r"member \d+", each.sender)
        if is_heard and heard_ns(each) is not None:
            last[each.sender] = place, f"It is the last that {each.receiver} hears of {each.sender}."
    yield from last.values()


def _number(field: str, text: str) -> int:
    found = re.search(rf"\b{field}=(-?\d+)", text)
    return -1 if found is None else int(found[1])
