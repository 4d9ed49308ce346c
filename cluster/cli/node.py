"""``cluster node``: one member from a configuration file."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.compile import compile_first
from cluster.cli.members import own_directory
from cluster.cli.printable import AsideStream, leave_streams_to_services
from cluster.cli.verbs import OneObject, print_result
from cluster.errors import ServiceError

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster node --config conf/member-0.toml
  cluster node --config cluster.toml --member 2
  CLUSTER_MAX_SESSIONS=64 cluster node --config conf/node.toml --dir /data/node
  cluster node --check conf/member-0.toml

conf/node.toml explains every key and its default; the environment variable CLUSTER_KEY overrides the key in
the file. When the member listens, one line is printed: "member 0: 127.0.0.1:9000", or with --json an object
{"memberId", "pid", "dir", "endpoint", "tcpEndpoint", "ipcEndpoint"}. The member writes events to
DIR/node.log. SIGTERM or Ctrl-C stops it cleanly, and the other members go on. SIGRTMIN stops it with status
75, which asks the supervisor to start it again (`cluster restart`). SIGHUP reopens the logs, and applies
changed keys for which --check says SIGHUP.

--check runs nothing. It prints each key that is set, its value, where that comes from, and what it takes to
apply a change. With --json it prints all keys: {"file", "keys": [{"key", "value", "text", "source",
"takes"}], "problems"}. Exit status: 0 if a member can start with it; 1 if not on this host; 2 if the file is
not a valid configuration.
"""


MemberIdOverFile = Annotated[
    int | None,
    typer.Option("--member", "--member-id", help="The member's id, instead of the file's member_id."),
]
DirectoryOverFile = Annotated[str | None, own_directory("The member's directory, instead of the file's dir.")]


@app.command(epilog=EPILOG)
def node(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="The member's TOML file.")] = None,
    check: Annotated[Path | None, typer.Option(help="Check this TOML file, and run nothing.")] = None,
    member_id: MemberIdOverFile = None,
    directory: DirectoryOverFile = None,
    as_json: OneObject = False,
) -> None:
    """Run one member of a cluster until Ctrl-C or SIGTERM."""
    from cluster.node import config_text
    from cluster.node.memory import check_address_space

    overrides = {"member_id": member_id, "dir": directory}
    if check is not None and config is None:
        from cluster.cli import node_check

        raise typer.Exit(0 if node_check.check(check, overrides, as_json=as_json) else 1)
    if config is None or check is not None:
        raise typer.BadParameter("give either --config or --check", param_hint="--config")
    check_address_space()
    compile_first()
    read_config = partial(config_text.load, config, overrides=overrides)
    loaded = read_config()
    for line in config_text.unknown_variables(os.environ):
        sys.stderr.write(line + "\n")
    if moved := config_text.noted_if_moved(config, loaded):
        sys.stderr.write(f"warning: {moved}\n")

    from cluster.node import process
    from cluster.node.service_errors import ServiceErrorText, service_error_fields

    def on_listening() -> None:
        tcp = loaded.tcp_ingress_of(loaded.member)
        described = {
            "memberId": loaded.member_id,
            "pid": os.getpid(),
            "dir": str(loaded.path),
            "endpoint": loaded.member.ingress_endpoint,
            "tcpEndpoint": f"tcp:{tcp}" if tcp else "",
            "ipcEndpoint": f"ipc:{loaded.ipc_path}" if loaded.ipc_ingress else "",
        }
        print_result(as_json, described, f"member {loaded.member_id}: {described['endpoint']}")

    texts, errors = ServiceErrorText(), AsideStream(sys.stderr)

    def on_service_error(error: ServiceError, count: int) -> None:
        where_logged = f"errors are in {loaded.path / 'node.log'}"
        errors.write(texts.of(loaded.member_id, service_error_fields(error, count), where_logged))

    process.warm_up(loaded)
    leave_streams_to_services()
    try:
        status = process.run(
            loaded, on_listening=on_listening, on_service_error=on_service_error, read_config=read_config
        )
    finally:
        errors.close()
    raise typer.Exit(status)
