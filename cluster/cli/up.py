"""``cluster up``: a whole cluster on this machine, one process per member."""

from __future__ import annotations

import os
import socket
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.compile import compile_first
from cluster.cli.members import DEFAULT_DIRECTORY, DIRECTORY_VARIABLE
from cluster.cli.printable import leave_streams_to_services
from cluster.cli.verbs import OneObject, print_result
from cluster.errors import ClusterError, ConfigurationError, PortInUse, StorageErrors

if TYPE_CHECKING:
    from cluster.node.config import NodeConfig
    from cluster.node.service_errors import ServiceErrorText
    from cluster.node.supervisor import Member, Supervisor

MEMBER_COUNTS = (1, 3, 5, 7)
PORTS_PER_MEMBER = 10
PORTS_USED = 3  # of them
PORT_MAX = 65_535
CERTIFICATES = "certs"  # folder in the cluster's directory
CERTIFICATE_DAYS = 365
CLIENT = "client"  # the name in the certificate for clients

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster up
  cluster up --members 1 --dir /tmp/one --base-port 9100
  cluster up --service my_module:MyService --json
  cluster up --tls --dir /tmp/secured --base-port 9200
  cluster up --set snapshot_every_bytes=1g --set log_retained_snapshots=1

Member i listens on port base-port + 10 * i for gRPC, the next port for tcp clients, and the one after that
for the other members. ipc clients use DIR/member-i/driver/ingress.sock. All data is in DIR: the same command
starts the same cluster again. A member that dies is reported but not restarted, so that you can see how the
others go on. `cluster node --config DIR/member-i/node.toml` starts it again. `cluster restart --dir DIR`
restarts all members one after another, with the current code and DIR/member-i/node.toml.

--set sets a key of conf/node.toml on all members, by writing it to DIR/member-i/node.toml; give it again with
the next `up`. Exceptions of services go to standard error and to DIR/member-i/node.log. Output of services
goes to DIR/member-i/output.log.

With --tls, members, clients and readers use TLS, except over ipc. DIR/certs has the authority's certificate,
and client-client.pem for clients, in case members ask for a certificate. Give --tls again to start the same
cluster again.

Once there is a leader, the command prints the endpoints (first line, "endpoints: 0=..."), the leader, the
service, and where the files are. With --json it prints one object {"endpoints", "tcpEndpoints",
"ipcEndpoints", "leaderMemberId", "members": [{"memberId", "pid", "dir", "endpoints"}]}, and with --tls also
"tlsCa", "tlsCertificate" and "tlsKey", the paths for clients. Ctrl-C or SIGTERM stops all members cleanly.
"""


@app.command(epilog=EPILOG)
def up(
    members: Annotated[int, typer.Option(help="How many members: 1, 3, 5 or 7.")] = 3,
    directory: Annotated[
        Path,
        typer.Option(
            "--dir",
            "-d",
            envvar=DIRECTORY_VARIABLE,
            help="Folder of the members' directories; made if missing.",
        ),
    ] = Path(DEFAULT_DIRECTORY),
    service: Annotated[
        list[str],
        typer.Option(
            "--service",
            "-s",
            help="echo, or module:ClassName (the working directory is searched too).",
            metavar="NAME",
        ),
    ] = ["echo"],  # noqa: B006 - never changed
    base_port: Annotated[int, typer.Option(help="The first port; ten are set aside for each member.")] = 9000,
    tls: Annotated[
        bool, typer.Option("--tls", help="Use TLS; missing certificates are made in DIR/certs.")
    ] = False,
    settings: Annotated[
        list[str],
        typer.Option(
            "--set", help="Set a key of conf/node.toml on all members; may be repeated.", metavar="KEY=VALUE"
        ),
    ] = [],  # noqa: B006 - never changed
    as_json: OneObject = False,
) -> None:
    """Run a whole cluster on this machine, one process per member, until Ctrl-C or SIGTERM."""
    if members not in MEMBER_COUNTS:
        raise typer.BadParameter(f"{members}: expected 1, 3, 5 or 7", param_hint="--members")
    if not 1 <= base_port <= PORT_MAX - PORTS_PER_MEMBER * members:
        raise typer.BadParameter(
            f"{base_port}: expected a port with room for all members", param_hint="--base-port"
        )
    from cluster.node.memory import check_address_space

    check_address_space()
    compile_first()
    keys = plan_members(members, directory.absolute(), service, base_port)
    given = _given_keys(settings)
    if tls:
        for keys_of_member in keys:
            keys_of_member |= tls_keys(directory.absolute())

    from cluster.node.service_errors import ServiceErrorText

    keys = [given | keys_of_member for keys_of_member in keys]
    errors = ServiceErrorText()
    make_certificates = partial(_make_certificates, directory.absolute(), members) if tls else None
    supervisor = start_members(keys, errors, make_certificates)
    print_result(as_json, members_fields(supervisor), _banner(supervisor, directory))
    while supervisor.running and not supervisor.is_asked_to_stop:
        ended = supervisor.poll(60.0)
        _report_services(supervisor, errors)
        _report(supervisor, ended)
    running = supervisor.running
    supervisor.stop()
    failed = [member for member in running if member.status != 0]
    for member in failed:
        _complain(f"member {member.member_id} {member.error or how_it_ended(member)}")
    # With none left they were shut down, or have died.
    is_shut_down = all(member.status == 0 for member in supervisor.members)
    raise typer.Exit(0 if is_shut_down or (running and not failed) else 1)


def start_members(
    keys: list[dict[str, Any]],
    errors: ServiceErrorText,
    make_certificates: Callable[[], None] | None = None,
) -> Supervisor:
    """Start them; return when one leads. Raises PortInUse, DirectoryInUse, StorageError, Exit."""
    from cluster.archive.files import make_directories
    from cluster.node import config_text, process
    from cluster.node.supervisor import Supervisor

    configs = [config_text.load(overrides=keys_of_member) for keys_of_member in keys]
    process.warm_up(configs[0])
    _check_ports(configs)
    for loaded in configs:
        with StorageErrors(loaded.path, "the directory cannot be made"):
            make_directories(loaded.path)
    if make_certificates is not None:
        make_certificates()

    def run(config: NodeConfig, link: socket.socket) -> int:
        leave_streams_to_services()
        return process.run(config, link)

    supervisor = Supervisor(configs, run, process.run_again)
    if not _await_leader(supervisor, errors):
        is_orderly = supervisor.stop()
        raise typer.Exit(0 if is_orderly and supervisor.is_asked_to_stop else 1)
    try:
        # Only now are the directories ours: another cluster's may have been meant by mistake.
        for loaded, keys_of_member in zip(configs, keys, strict=True):
            config_text.write(loaded.path / "node.toml", keys_of_member)
    except ClusterError:
        supervisor.stop()
        raise
    return supervisor


def plan_members(count: int, directory: Path, services: list[str], base_port: int) -> list[dict[str, Any]]:
    """The keys of the members' configurations; ConfigurationError where another cluster lives."""
    others = [path.name for path in directory.glob("member-*") if path.name[7:].isdigit()]
    last = max(others, key=lambda name: int(name[7:]), default="member-0")
    if int(last[7:]) >= count:
        raise ConfigurationError(
            f"{directory}: has {last}, so it is of a cluster of more than {count} members"
        )
    for name in sorted(others):
        if (size := _cluster_size(directory / name / "node.toml")) not in (None, count):
            raise ConfigurationError(
                f"{directory}: {name}/node.toml is of a cluster of {size}, expected {count}; "
                "a cluster keeps its size"
            )
    folder = str(directory / "member-{member_id}")  # of the others too: they share their sockets
    ports = [base_port + PORTS_PER_MEMBER * i for i in range(count)]
    members = [f"{i},127.0.0.1:{port}" + f",127.0.0.1:{port + 2}" * 4 for i, port in enumerate(ports)]
    return [
        {
            "member_id": i,
            "members": members,
            "dir": folder,
            "services": services,
        }
        for i in range(count)
    ]


def _cluster_size(path: Path) -> int | None:
    """How many members a file names that `up` has written; None for no such file."""
    try:
        members = tomllib.loads(path.read_text()).get("members")
    except (OSError, ValueError):
        return None
    return len(members) if isinstance(members, list) else None


def _given_keys(settings: list[str]) -> dict[str, Any]:
    """What --set gives, each as text that its key reads. Raises BadParameter."""
    from cluster.node.config_keys import KEYS
    from cluster.node.config_text import near

    planned = ("member_id", "members", "dir", "services")
    found: dict[str, Any] = {}
    for setting in settings:
        key, is_pair, value = setting.partition("=")
        if not is_pair or key not in KEYS or key in planned:
            raise typer.BadParameter(
                f"{setting!r}: expected KEY=VALUE with a key of conf/node.toml, except {', '.join(planned)}"
                f"{'' if key in KEYS else near(key, list(KEYS))}",
                param_hint="--set",
            )
        found[key] = value
    return found


def tls_keys(directory: Path) -> dict[str, str]:
    """The keys of members whose certificates are in the cluster's directory."""
    names = {
        "tls_ca": "ca.pem",
        "tls_certificate": "member-{member_id}.pem",
        "tls_key": "member-{member_id}.key",
    }
    return {key: str(directory / CERTIFICATES / name) for key, name in names.items()}


def _make_certificates(directory: Path, count: int) -> None:
    """Of the members that have none yet, and of one client. Raises ClusterError."""
    from cluster.cli.certs import issue
    from cluster.node.authority import CertificateRequest

    folder = directory / CERTIFICATES
    requests = [CertificateRequest.of_member(i, 0, ()) for i in range(count)]
    requests.append(CertificateRequest.of_client(CLIENT))
    missing = [request for request in requests if not (folder / f"{request.file_name}.pem").exists()]
    if missing:
        issue(folder, missing, CERTIFICATE_DAYS)


def _check_ports(configs: list[NodeConfig]) -> None:
    """Raise PortInUse for the first port that is taken, DirectoryInUse when this cluster may run already."""
    from cluster.archive.directory_lock import check_is_free
    from cluster.archive.files import OsFiles
    from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME

    for loaded in configs:
        host, _, ingress_port = loaded.member.ingress_endpoint.rpartition(":")
        for port in range(int(ingress_port), int(ingress_port) + PORTS_USED):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError as error:
                    for each in configs:
                        check_is_free(OsFiles(), str(each.cluster_path), CLUSTER_MARK_FILE_NAME)
                    raise PortInUse(
                        f"{host}:{port}: {error.strerror}; choose other ports with --base-port"
                    ) from None


def _banner(supervisor: Supervisor, directory: Path) -> str:
    """What is there, and what to do with it."""
    configs = [member.config for member in supervisor.members]
    leader = supervisor.leader
    tls = configs[0].tls_files
    tls_options = "" if tls is None else f" --tls-ca {tls.ca}"
    return "\n".join(
        (
            f"endpoints: {endpoints(configs)}",
            f"leader: {'none' if leader is None else f'member {leader.member_id}'}",
            f"service: {', '.join(configs[0].services)}",
            f"directory: {directory}, with the events of each member in {directory}/member-*/node.log, "
            f"what services print in {directory}/member-*/output.log",
            f"next: echo hello | cluster send --endpoints {configs[0].member.ingress_endpoint}{tls_options}",
        )
    )


def endpoints(configs: list[NodeConfig]) -> str:
    """The gRPC endpoints, as ``--endpoints`` takes them."""
    return ",".join(f"{c.member_id}={c.member.ingress_endpoint}" for c in configs)


def members_fields(supervisor: Supervisor) -> dict[str, object]:
    """What ``--json`` prints."""
    configs = [member.config for member in supervisor.members]
    leader = supervisor.leader
    tls = configs[0].tls_files
    of_clients = {}
    if tls is not None:  # the certificate is there for members that ask for one
        client = Path(tls.ca).with_name(f"client-{CLIENT}.pem")
        paths = {"tlsCertificate": str(client), "tlsKey": str(client.with_suffix(".key"))}
        of_clients = {"tlsCa": tls.ca, **paths}
    return {
        **of_clients,
        "endpoints": endpoints(configs),
        "tcpEndpoints": ",".join(f"{c.member_id}=tcp:{c.tcp_ingress_of(c.member)}" for c in configs),
        "ipcEndpoints": ",".join(f"{c.member_id}=ipc:{c.ipc_path}" for c in configs),
        "leaderMemberId": None if leader is None else leader.member_id,
        "members": [
            {
                "memberId": member.member_id,
                "pid": member.pid,
                "dir": str(member.config.path),
                "endpoints": endpoints([member.config]),
            }
            for member in supervisor.members
        ],
    }


def _await_leader(supervisor: Supervisor, errors: ServiceErrorText) -> bool:
    """Whether a leader was found before a member failed or a signal came."""
    while supervisor.leader is None and not supervisor.is_asked_to_stop:
        ended = supervisor.poll(60.0)
        _report_services(supervisor, errors)
        for member in ended:
            _complain(f"member {member.member_id}: {member.error or how_it_ended(member)}")
            return False
    return supervisor.leader is not None


def _report_services(supervisor: Supervisor, errors: ServiceErrorText) -> None:
    """Print what the members' services have raised."""
    for member in supervisor.members:
        raised, member.service_errors = member.service_errors, []
        path = member.config.path
        where_logged = f"errors are in {path / 'node.log'}, what services print is in {path / 'output.log'}"
        for error in raised:
            sys.stderr.write(errors.of(member.member_id, error, where_logged))
    sys.stderr.flush()


def _report(supervisor: Supervisor, ended: list[Member]) -> None:
    from cluster.archive.files import OsFiles
    from cluster.reader.member_directory import holds_lock

    for member in ended:
        if supervisor.is_asked_to_stop:
            return
        # Others may have started a member that has ended here.
        paths = [str(each.config.cluster_path) for each in supervisor.members]
        running = sum(holds_lock(OsFiles(), path) is True for path in paths)
        why = f": {member.error}" if member.error else ""
        _complain(
            f"member {member.member_id} (pid {member.pid}) {how_it_ended(member)}{why}; "
            f"{running} of {len(paths)} members go on; "
            f"to start it again: cluster node --config {member.config.path / 'node.toml'}"
        )


def how_it_ended(member: Member) -> str:
    assert member.status is not None
    if member.status < 0:
        return f"was ended by signal {-member.status}"
    return f"ended with status {member.status}"


def _complain(line: str) -> None:
    sys.stderr.write(line + os.linesep)
    sys.stderr.flush()
