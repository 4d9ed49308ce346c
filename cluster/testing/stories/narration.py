"""A story as text, document, sequence diagram or log for ShiViz."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cluster.testing.stories.stage import Story, StoryLine
from cluster.testing.wire import Happening
from cluster.testing.world import SECOND

SHOWN_IN_DIAGRAM = 60  # characters of a message
LINES_MAX = 20_000  # of a seed's history


def as_text(story: Story, lines: list[StoryLine]) -> Iterator[str]:
    """Sentences, each before the line that it is about."""
    yield f"{story.title} ({story.page})"
    number = 0
    for line in lines:
        if line.sentence:
            number += 1
            yield f"\n{number}. {line.sentence}"
        happening = line.happening
        where = f"{happening.sender} -> {happening.receiver}" if happening.receiver else happening.sender
        cut = "  (held: the path is cut)" if happening.is_cut else ""
        yield f"  {happening.time_ns / SECOND:10.6f}  {where:<33} {happening.text}{cut}"


def as_document(name: str, title: str, page: str, lines: Iterable[StoryLine]) -> dict[str, Any]:
    """For programs; times in nanoseconds from the beginning of the cluster."""
    shown = [
        {
            "timeNs": line.happening.time_ns,
            "from": line.happening.sender,
            "to": line.happening.receiver or None,
            "text": line.happening.text,
            "isHeld": line.happening.is_cut,
            "sentence": line.sentence or None,
            "heardNs": line.heard_ns,
        }
        for line in lines
    ]
    return {"name": name, "title": title, "page": page, "lines": shown}


def as_seed(
    seed: int,
    happenings: Sequence[Happening],
    sentences: Mapping[int, str],
    heard_ns: Callable[[Happening], int | None],
    *,
    fails: bool,
) -> dict[str, Any]:
    """A seed's history, its last ``LINES_MAX`` lines; sentences are by place. What it ended with is last."""
    first = max(0, len(happenings) - LINES_MAX)
    lines = [
        StoryLine(happening, sentences.get(i, ""), heard_ns(happening))
        for i, happening in enumerate(happenings[first:], first)
    ]
    shown = sum(bool(line.sentence) for line in lines)
    title = f"Seed {seed} {'fails' if fails else 'passes'}"
    return as_document(f"seed-{seed}", title, f"◀ and ▶ go through what led to it, in {shown} steps", lines)


def as_shiviz(lines: list[StoryLine]) -> Iterator[str]:
    """A log for ShiViz: what each did and when it read what was sent to it, each line with a vector clock."""
    events = [(line.happening.time_ns, 0, i) for i, line in enumerate(lines)]
    events += [(line.heard_ns, 1, i) for i, line in enumerate(lines) if line.heard_ns is not None]
    clocks: dict[str, Counter[str]] = {}
    sent: dict[int, Counter[str]] = {}
    yield "(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})"
    yield ""  # no delimiter: it is one execution
    for _, is_read, i in sorted(events):
        happening = lines[i].happening
        actor = (happening.receiver if is_read else happening.sender).replace(" ", "-")
        clock = clocks.setdefault(actor, Counter())
        clock[actor] += 1
        if is_read:
            clock |= sent[i]
            clocks[actor] = clock
        else:
            sent[i] = clock.copy()
        yield ("reads " if is_read else "") + happening.text
        yield f"{actor} {json.dumps(clock)}"


def as_diagram(lines: list[StoryLine]) -> Iterator[str]:
    """A sequence diagram of mermaid: what the sentences are about, in order."""
    shown = [line for line in lines if line.sentence]
    actors = sorted({actor for line in shown for actor in line.happening[1:3] if actor}, key=_place)
    names = {actor: f"a{number}" for number, actor in enumerate(actors)}
    yield "sequenceDiagram"
    for actor, name in names.items():
        yield f"    participant {name} as {actor}"
    for number, line in enumerate(shown, 1):
        happening = line.happening
        text = happening.text.replace(";", ",").replace(" -> ", " → ")
        text = text if len(text) <= SHOWN_IN_DIAGRAM else text[:SHOWN_IN_DIAGRAM] + "…"
        if happening.receiver:
            arrow = "--x" if happening.is_cut else "->>"
            yield f"    {names[happening.sender]}{arrow}{names[happening.receiver]}: {number}. {text}"
        else:
            yield f"    Note over {names[happening.sender]}: {number}. {text}"


def _place(actor: str) -> tuple[int, str]:
    """Clients, then each member with its service."""
    return (1, actor[-1] + actor) if actor[:-1].endswith("member ") else (0, actor)
