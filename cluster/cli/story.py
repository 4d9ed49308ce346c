"""``cluster story``: what Aeron's documents describe step by step, played and described."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.sim import sim
from cluster.cli.verbs import json_option, print_result

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster story
  cluster story client-redirect
  cluster story lost-vote --mermaid
  cluster story leader-dies --out story.html
  cluster story --seed 17 --out story.html

Members, services and clients run in memory and in virtual time, so a story takes a moment and is the same
each time. Each sentence explains the lines after it. --seed plays a history of faults instead, with the
service echo; `cluster sim` plays others, with your services. A line has the time in seconds, the sender, the
receiver, and the message with its fields; "Log:" is an entry on its way to a follower.
"""


@app.command(epilog=EPILOG)
def story(
    name: Annotated[str, typer.Argument(help="Name of the story; without it, all are listed.")] = "",
    as_json: Annotated[bool, json_option("Print the story as JSON.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid sequence diagram.")] = False,
    seed: Annotated[int | None, typer.Option(help="Play this history of the simulator instead.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "--html", metavar="FILE", help="Write a web page that plays the story."),
    ] = None,
    shiviz: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a log for ShiViz.")] = None,
) -> None:
    """Play a scene of a cluster's life in memory: each step, with its messages."""
    from cluster.cli.live_story import page, write_text
    from cluster.testing.stories import STORIES
    from cluster.testing.stories.narration import as_diagram, as_document, as_shiviz, as_text

    if seed is not None:
        if name or mermaid or shiviz is not None:
            raise typer.BadParameter("takes no name, and --out or --json alone", param_hint="--seed")
        return sim("echo", seed=seed, story=out, as_json=as_json)
    if not name:
        for known in STORIES.values():
            listed = {"name": known.name, "title": known.title, "page": known.page}
            print_result(as_json, listed, f"{known.name:<28} {known.title}")
        return
    if name not in STORIES:
        raise typer.BadParameter(f"{name!r} is no story; `cluster story` lists them all", param_hint="NAME")
    known = STORIES[name]
    played = known.play()
    document = as_document(name, known.title, known.page, played)
    if out is not None:
        write_text(out, page(document))
    if shiviz is not None:
        write_text(shiviz, "\n".join([*as_shiviz(played), ""]))
    if out is not None or shiviz is not None:
        print(*(f"{path}: {len(played)} lines" for path in (out, shiviz) if path is not None), sep="\n")
    else:
        text = "\n".join(as_diagram(played) if mermaid else as_text(known, played))
        print_result(as_json, document, text)
