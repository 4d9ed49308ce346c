"""The verb of ``cluster tool`` by which an operator lets a member go on without what is lost."""

from typing import Annotated

import typer

from cluster.archive.files import OsFiles
from cluster.cli.host_audit import note_on_host
from cluster.cli.members import OwnDirectory
from cluster.cli.running_member import home_of, lock_directory, mark_of
from cluster.cli.verbs import AsJson, print_result, tool_example
from cluster.errors import ConfigurationError
from cluster.member.disk.data_loss import OTHERS_FORGOTTEN, accept_being_alone, what_is_forgotten
from cluster.member.disk.data_loss import accept_data_loss as accept
from cluster.reader.member_directory import find_archive_directory, find_cluster_directory
from cluster.transport.clock import epoch_ms

app = typer.Typer(rich_markup_mode=None, add_completion=False)

# What is said, and asked.
_PROMISES_QUESTION = (
    "member {member_id} has forgotten: {forgotten}",
    "What no other member holds of that is lost. Its id, to go on",
)
_ALONE_QUESTION = (
    "member {member_id} is to be the only one of a new cluster, without {forgotten}",
    "No member of the old cluster may run, now or later. Its id, to go on",
)


@app.command(
    epilog=tool_example(
        "accept-data-loss --dir cluster-data/member-2 --member 2",
        "accept-data-loss --dir member-2 --alone",
        more="Use it only if no member of the cluster can lead any more; node.log says which members this\n"
        "one waits for. What it had acknowledged and no other member has is lost for good. The files\n"
        "data-loss-accepted and node.log record the decision.",
    ),
)
def accept_data_loss(
    directory: OwnDirectory,
    member: Annotated[
        int | None, typer.Option("--member", help="The member's id; without it the command asks for it.")
    ] = None,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone", help="Make it the only member of a new cluster; the old one must be stopped."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let a stopped member that has lost its votes or part of its log take part with what it has."""
    from cluster.node.node_log import NodeLog

    files, member_id = OsFiles(), mark_of(str(directory)).member_id
    with lock_directory(str(directory)):
        cluster = find_cluster_directory(files, str(directory))
        forgotten = OTHERS_FORGOTTEN if alone else what_is_forgotten(files, cluster)
        if member is None and forgotten:
            what, question = _ALONE_QUESTION if alone else _PROMISES_QUESTION
            typer.echo(what.format(member_id=member_id, forgotten=forgotten), err=True)
            member = typer.prompt(question, type=int, err=True)
        if member not in (None, member_id):
            raise ConfigurationError(f"{directory} is of member {member_id}, not of member {member}")
        if alone:
            archive = find_archive_directory(files, str(directory))
            accept_being_alone(files, cluster, archive, member_id, epoch_ms())
        else:
            forgotten = accept(files, cluster, epoch_ms())
    home = home_of(directory)
    log = NodeLog(home / "node.log", "info", member=member_id)
    log.info("data loss accepted by an operator", forgotten=forgotten)
    log.close()
    note_on_host(home, "ACCEPT_DATA_LOSS", f"done: {forgotten}")
    does = "is a cluster of one from now on" if alone else "votes with what it has"
    done = {"member": member_id, "forgotten": forgotten}
    print_result(as_json, done, f"member {member_id} {does}; forgotten: {forgotten}")
