"""Which members a command is meant for: options that several commands have."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cluster.errors import ClusterError, ConfigurationError, NotAClusterDirectory
from cluster.transport.endpoint import ENDPOINTS_VARIABLE, Endpoint, parse_endpoints

if TYPE_CHECKING:
    from cluster.protocol.link import LogStatus
    from cluster.transport.tls import TlsFiles

DIRECTORY_VARIABLE = "CLUSTER_DIR"
DEFAULT_DIRECTORY = "cluster-data"
ASKED_AT_ONCE = 16  # members
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
        help=f"Ask running members instead: host:port,... or 0=host:port,1=...; or set {ENDPOINTS_VARIABLE}.",
    ),
]

# Of a command that can read a real Aeron Cluster.
ConsensusEndpoints = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Read a running real Aeron Cluster instead, by its consensus endpoints: host:port,...",
    ),
]
MediaDriverDirectory = Annotated[
    Path | None,
    typer.Option(
        "--aeron-dir",
        help="With --consensus-endpoints: the media driver's directory [default: /dev/shm/aeron-USER].",
    ),
]


def check_is_alone(given: str | None, *others: object, option: str = "--consensus-endpoints") -> None:
    """Raise BadParameter for a real Aeron Cluster that is given beside other members or directories."""
    if given is not None and any(other is not None for other in others):
        raise typer.BadParameter(
            "give no other place beside it, such as --endpoints or --dir", param_hint=option
        )


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
            f"{directory}: no such directory; start a cluster here with `cluster up`, or name a directory "
            f"with --dir ({DIRECTORY_VARIABLE}), or members with --endpoints ({ENDPOINTS_VARIABLE})"
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


def own_directory(help: str) -> Any:
    """``--dir`` of a command that never looks for a directory by itself."""
    return typer.Option("--dir", "-d", help=help)


def optional_directory(help: str) -> Any:
    """``--dir`` of a command that can ask members instead: see ``place``."""
    return typer.Option("--dir", "-d", help=help, show_default=DIRECTORY_DEFAULT)


ANY_MEMBER = (
    "A member's directory or its cluster directory; or a whole cluster's, for its first running member."
)
# Of a command that reads what every member has.
AnyMemberDirectory = Annotated[Path, directory_option(ANY_MEMBER, _serving)]
OptionalMemberDirectory = Annotated[Path | None, optional_directory(ANY_MEMBER)]
OwnDirectory = Annotated[Path, own_directory("A member's directory, or its cluster directory.")]
ArchiveDirectory = Annotated[
    Path | None, typer.Option("--archive-dir", help="The member's archive directory, if it is elsewhere.")
]
# Of a command that makes members' directories.
NewFolder = Annotated[
    Path, typer.Option("--to", help="Folder in which to make the members' directories, member-0 and so on.")
]
OnlyMember = Annotated[
    int | None, typer.Option("--member", "--member-id", help="Make only this member's directory.", min=0)
]


def place(directory: Path | None, endpoints: str | None) -> tuple[Path | None, str | None]:
    """Where to look, or whom to ask: one of the two, which is given or comes from the environment.

    Raises BadParameter when both are given, NotAClusterDirectory when there is neither.
    """
    if directory is not None:
        if endpoints is not None:
            raise typer.BadParameter("give either --dir or --endpoints, not both", param_hint="--dir")
        return directory, None
    endpoints = endpoints or os.environ.get(ENDPOINTS_VARIABLE)
    return (None, endpoints) if endpoints else (default_directory(), None)


def member_place(directory: Path | None, endpoints: str | None) -> tuple[Path | None, str | None]:
    """As ``place``: of a whole cluster's directory the first member that runs."""
    directory, endpoints = place(directory, endpoints)
    return (None if directory is None else _serving(directory)), endpoints


def members_at(endpoints: str) -> dict[int, Endpoint]:
    """Members that will be asked for their ids and for the other members: whatever ids were given."""
    return {-1 - i: endpoint for i, endpoint in enumerate(parse_endpoints(endpoints).values())}


class Shown(NamedTuple):
    """What members are shown that are asked; of None, what the environment names."""

    credentials: bytes | None = None
    tls: TlsFiles | None = None


FROM_ENVIRONMENT = Shown()


def ask_members(
    endpoints: dict[int, Endpoint], shown: Shown = FROM_ENVIRONMENT
) -> dict[int, LogStatus | ClusterError]:
    """How each stands, or why not, by id; ``endpoints`` gets ids and members that are reported.

    All are asked at once, whoever is reported as soon as it is: those that are silent cost one time-out.
    """
    from cluster.transport.member_status import adopt_reported

    are_all_given = all(member_id >= 0 for member_id in endpoints)
    answers: dict[int, LogStatus | ClusterError] = {}
    heard: dict[Endpoint, LogStatus | ClusterError | None] = {}  # None: it has not answered yet
    asking: dict[Future[LogStatus | ClusterError], Endpoint] = {}
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        while True:
            for key, endpoint in endpoints.items():
                if key in answers:
                    continue
                if endpoint not in heard:
                    heard[endpoint] = None
                    asking[pool.submit(_ask, endpoint, shown)] = endpoint
                elif (answer := heard[endpoint]) is not None:
                    answers[key] = answer
            if not asking:
                return {key: answers[key] for key in sorted(endpoints)}
            for done in wait(asking, return_when=FIRST_COMPLETED).done:
                endpoint = asking.pop(done)
                answer = heard[endpoint] = done.result()
                if isinstance(answer, ClusterError):
                    continue
                for key in [key for key, each in endpoints.items() if key < 0 and each == endpoint]:
                    del endpoints[key]
                    endpoints[answer.member_id], answers[answer.member_id] = endpoint, answer
                if not are_all_given:
                    adopt_reported(endpoints, answer)


def each_once(answers: dict[int, LogStatus | ClusterError]) -> dict[int, LogStatus | ClusterError]:
    """Once a member has answered, a silent address without an id is another name of one that it reports."""
    has_answered = any(not isinstance(answer, ClusterError) for answer in answers.values())
    return {key: answer for key, answer in answers.items() if key >= 0 or not has_answered}


def _ask(endpoint: Endpoint, shown: Shown) -> LogStatus | ClusterError:
    """Raises ConfigurationError."""
    from cluster.transport.member_status import member_status

    try:
        return member_status(endpoint, tls=shown.tls, credentials=shown.credentials)
    except ConfigurationError:
        raise
    except ClusterError as error:
        return error
