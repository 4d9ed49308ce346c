"""``cluster live``: a page that shows a cluster as it runs, or as it was."""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.connecting import connects
from cluster.cli.durations import duration_option
from cluster.cli.live_clients import ClientRates
from cluster.cli.members import OptionalEndpoints, optional_directory, place, text_or_none
from cluster.cli.status_document import status_document
from cluster.errors import NotAClusterDirectory, PortInUse

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from cluster.cli.live_buttons import MemberButtons
    from cluster.cli.live_story import Looks
    from cluster.reader.log_reader import LogReader

app = typer.Typer(rich_markup_mode=None, add_completion=False)

LOOK_INTERVAL_S = 0.5

EPILOG = """\b
Examples:
  cluster live
  cluster live --endpoints 127.0.0.1:9000 --port 8080
  cluster live --dir cluster-data --out story.html --seconds 30s
  cluster live --story story.html
  cluster live --buttons

The page is served on loopback, loads nothing from the network, and asks for the status at most twice a
second, and only while it is shown. If the cluster has stopped, the page plays the roles, elections and terms
in the members' logs, and how far the log had come by then. --out writes a story instead: a single file that
can be mailed, with --seconds of a running cluster or the logs of a stopped one. --story serves such a file,
or one of `cluster story --out`. With --buttons, anyone who has the printed address can kill, stop and start
the members, and see their messages on the page.
"""


@app.command(epilog=EPILOG)
@connects
def live(
    directory: Annotated[
        Path | None,
        optional_directory("A whole cluster's directory, or a copy of one."),
    ] = None,
    endpoints: OptionalEndpoints = None,
    story: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show this story, as --out writes it.")
    ] = None,
    with_buttons: Annotated[
        bool,
        typer.Option("--buttons", help="Show buttons that kill, stop and start members of `cluster up`."),
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the page; 0 picks a free one.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a story to this file, and serve nothing.")
    ] = None,
    seconds: Annotated[
        float, duration_option(help="Length of the story of a running cluster.", default="10s")
    ] = 10.0,
) -> None:
    """Show a cluster on a web page: its members, terms, positions, rates and events."""
    from cluster.cli.live_buttons import MemberButtons
    from cluster.cli.live_story import Frame, frames_of_events, page, story_page, write_text

    if sum(given is not None for given in (directory, endpoints, story)) > 1:
        raise typer.BadParameter("give only one of --dir, --endpoints and --story", param_hint="--dir")
    if story is not None:
        _serve(story_page(story), None, port)
        return
    directory, endpoints = place(directory, endpoints)
    looks = looks_at(directory, endpoints)
    status = status_document(directory, endpoints)
    first: Frame = {"status": status, "events": [], "messages": [], "clients": []}
    frames = None
    if directory is not None and not any(member["isAlive"] for member in first["status"]["members"]):
        try:
            frames = frames_of_events(directory, first["status"], partial(open_log, directory, None))
        except NotAClusterDirectory:  # a copy without its logs
            frames = [first]
    if out is None:
        buttons = None if directory is None or not with_buttons else MemberButtons(directory)
        _serve(page(frames), None if frames else looks, port, buttons)
        return
    if frames is None:
        frames = [first]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(LOOK_INTERVAL_S)
            frames.append(looks.frame())
    write_text(out, page(frames))
    print(f"{out}: {len(frames)} frames")


def looks_at(directory: Path | None, endpoints: str | None) -> Looks:
    """What the page asks for again and again."""
    from cluster.cli.events import last_logs
    from cluster.cli.live_story import Looks

    def look(committed_before: int | None = None) -> dict[str, Any]:
        return status_document(directory, endpoints, committed_before=committed_before)

    return Looks(look, last_logs(directory, endpoints), ClientRates(partial(open_log, directory, endpoints)))


def open_log(directory: Path | None, endpoints: str | None) -> LogReader:
    """The committed log of the members that are shown."""
    from cluster.reader.log_reader import LogReader

    return LogReader.open(dir=text_or_none(directory), endpoints=endpoints)


def serve_demo(_: Connection, directory: Path, sock: socket.socket) -> None:
    """Serve the page of a cluster that this host runs, until the process is ended."""
    from cluster.cli.live_pages import LivePages
    from cluster.cli.live_story import page

    asyncio.run(LivePages(page(None), looks_at(directory, None)).port(sock).run())


def _serve(text: str, looks: Looks | None, port: int, buttons: MemberButtons | None = None) -> None:
    """Serve the page until Ctrl-C; where ``looks`` are given, its frames too."""
    from cluster.cli.live_pages import LivePages

    try:
        sock = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise PortInUse(f"127.0.0.1:{port}: {error.strerror}") from None
    key = "" if buttons is None else f"?key={buttons.key}"
    print(f"http://127.0.0.1:{sock.getsockname()[1]}/{key}", flush=True)
    pages = LivePages(text, looks, buttons)
    asyncio.run(pages.port(sock).run())
