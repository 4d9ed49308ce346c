"""``cluster service``: a member's service, in a process of its own."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.printable import leave_streams_to_services

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster service --dir cluster-data/member-0
  cluster service --driver-dir /dev/shm/driver-0 --service-id 1

By default a member starts the processes of its services itself (service_mode = auto or process). With
service_mode = external it waits for this command. The class and its configuration come from the member; the
working directory is searched for the class, too. The process ends when its member ends, or on
SIGTERM or Ctrl-C.
"""


@app.command(epilog=EPILOG)
def service(
    directory: Annotated[Path | None, typer.Option("--dir", "-d", help="The member's directory.")] = None,
    driver_directory: Annotated[
        Path | None, typer.Option("--driver-dir", help="Folder of the member's sockets, if not DIR/driver.")
    ] = None,
    service_id: Annotated[int, typer.Option(help="Id of the service.", min=0, max=9)] = 0,
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
