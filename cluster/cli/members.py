"""Which members a command is meant for: options that several commands have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cluster.errors import ClusterError, ConfigurationError, NotAClusterDirectory
from cluster.transport.endpoint import ENDPOINTS_VARIABLE, Endpoint

if TYPE_CHECKING:
    from cluster.protocol.link import LogStatus
    from cluster.transport.tls import TlsFiles

DIRECTORY_VARIABLE = "CLUSTER_DIR"
DEFAULT_DIRECTORY = "cluster-data"
DIRECTORY_DEFAULT = f"{DIRECTORY_VARIABLE} or ./{DEFAULT_DIRECTORY}"  # as --help has it

# Of a command that needs them.
Endpoints = Annotated[
    str,
    typer.Option(
        "--endpoints",
        "-e",
        envvar=ENDPOINTS_VARIABLE,
        metavar="LIST",
        help="Members: host:port,... (gRPC), tcp:host:port,... or ipc:/path,..., or each as 0=host:port.",
    ),
]
# Of a command that can look at a directory instead.
OptionalEndpoints = Annotated[
    str | None,
    typer.Option(
        "--endpoints",
        "-e",
        metavar="LIST",
        help=f"Members to ask instead: host:port,... or 0=host:port,1=...; or set {ENDPOINTS_VARIABLE}.",
    ),
]

# Of a command that can read a real Aeron Cluster.
ConsensusEndpoints = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Or consensus endpoints, host:port,..., of a real Aeron Cluster that runs.",
    ),
]
MediaDriverDirectory = Annotated[
    Path | None,
    typer.Option("--aeron-dir", help="With --consensus-endpoints: of the media driver on this host."),
]


def check_is_alone(given: str | None, *others: object, option: str = "--consensus-endpoints") -> None:
    """Raise BadParameter for a real Aeron Cluster that is given beside other members or directories."""
    if given is not None and any(other is not None for other in others):
        raise typer.BadParameter("give it without --endpoints and directories", param_hint=option)


class AeronPlace(NamedTuple):
    """A real Aeron Cluster that runs, and the directory of the media driver by which it is reached."""

    consensus_endpoints: str
    aeron_dir: str | None


def text_or_none(path: Path | None) -> str | None:
    return None if path is None else str(path)


def default_directory() -> Path:
    """Of a command that is given none. Raises NotAClusterDirectory where there is none either."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    directory = Path(named or DEFAULT_DIRECTORY)
    if not named and not directory.exists():
        raise NotAClusterDirectory(
            f"{directory}: no such directory; expected a cluster's, a member's or a backup's, by --dir or "
            f"{DIRECTORY_VARIABLE}, or running members, by --endpoints or {ENDPOINTS_VARIABLE}"
        )
    return directory


def _serving(directory: Path) -> Path:
    from cluster.archive.files import OsFiles
    from cluster.reader.member_directory import serving_member

    return Path(serving_member(OsFiles(), str(directory)))


def directory_option(help: str, callback: Callable[[Path], Path] | None = None) -> Any:
    """``--dir`` of a command that always looks into a directory."""
    return typer.Option(
        "--dir",
        "-d",
        help=help,
        callback=callback,
        default_factory=default_directory,
        show_default=DIRECTORY_DEFAULT,
    )


def optional_directory(help: str) -> Any:
    """``--dir`` of a command that can ask members instead: see ``place``."""
    return typer.Option("--dir", "-d", help=help, show_default=DIRECTORY_DEFAULT)


ANY_MEMBER = "A member's directory, or what it holds, or a whole cluster's: then its first that runs."
# Of a command that reads what every member has.
AnyMemberDirectory = Annotated[Path, directory_option(ANY_MEMBER, _serving)]
OptionalMemberDirectory = Annotated[Path | None, optional_directory(ANY_MEMBER)]
ArchiveDirectory = Annotated[
    Path | None, typer.Option("--archive-dir", help="Its archive directory, where it lies apart.")
]


def place(directory: Path | None, endpoints: str | None) -> tuple[Path | None, str | None]:
    """Where to look, or whom to ask: one of the two, which is given or comes from the environment.

    Raises BadParameter when both are given, NotAClusterDirectory when there is neither.
    """
    if directory is not None:
        if endpoints is not None:
            raise typer.BadParameter("give one of --dir and --endpoints", param_hint="--dir")
        return directory, None
    endpoints = endpoints or os.environ.get(ENDPOINTS_VARIABLE)
    return (None, endpoints) if endpoints else (default_directory(), None)


def member_place(directory: Path | None, endpoints: str | None) -> tuple[Path | None, str | None]:
    """As ``place``: of a whole cluster's directory the first member that runs."""
    directory, endpoints = place(directory, endpoints)
    return (None if directory is None else _serving(directory)), endpoints


class Shown(NamedTuple):
    """What members are shown that are asked; of None, what the environment names."""

    credentials: bytes | None = None
    tls: TlsFiles | None = None


FROM_ENVIRONMENT = Shown()


def ask_members(
    endpoints: dict[int, Endpoint], shown: Shown = FROM_ENVIRONMENT
) -> dict[int, LogStatus | ClusterError]:
    """How each stands, or why not, by id; ``endpoints`` gets ids and members that are reported."""
    from cluster.transport.member_status import adopt_reported, member_status

    are_all_given = all(member_id >= 0 for member_id in endpoints)
    answers: dict[int, LogStatus | ClusterError] = {}
    while (key := next((key for key in endpoints if key not in answers), None)) is not None:
        try:
            status = member_status(endpoints[key], tls=shown.tls, credentials=shown.credentials)
        except ConfigurationError:
            raise
        except ClusterError as error:
            answers[key] = error
            continue
        if key < 0:
            endpoints[status.member_id] = endpoints.pop(key)
        answers[status.member_id if key < 0 else key] = status
        if not are_all_given:
            adopt_reported(endpoints, status)
    return {key: answers[key] for key in sorted(endpoints)}
