"""``cluster service``: a member's service, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.printable import leave_streams_to_services

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster service --dir cluster-data/member-0
  cluster service --driver-dir /dev/shm/driver-0 --service-id 1

A member starts the processes of its services by itself (service_mode in its configuration: process). With
service_mode = external it starts none, and waits for this command. The member says which class it is, and
all that is configured of it; the class is found from the working directory too. The process ends with its
member, and with SIGTERM or Ctrl-C.
"""


@app.command(epilog=EPILOG)
def service(
    directory: Annotated[Path | None, typer.Option("--dir", "-d", help="The member's directory.")] = None,
    driver_directory: Annotated[
        Path | None, typer.Option("--driver-dir", help="Where its sockets are, if not in DIR/driver.")
    ] = None,
    service_id: Annotated[int, typer.Option(help="Which of the member's services.", min=0, max=9)] = 0,
    is_child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
) -> None:
    """Run one of a member's services in a process of its own."""
    if (directory is None) == (driver_directory is None):
        raise typer.BadParameter("give either --dir or --driver-dir", param_hint="--dir, --driver-dir")

    from cluster.archive.files import OsFiles
    from cluster.node.service_host import run_service
    from cluster.reader.member_directory import find_cluster_directory

    if directory is not None:
        find_cluster_directory(OsFiles(), str(directory))  # raises where it is no member's
    leave_streams_to_services()
    run_service(str(driver_directory or f"{directory}/driver"), service_id, is_child=is_child)
