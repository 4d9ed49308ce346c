"""``cluster format``: an empty directory becomes one of a named cluster, before it has a member."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.node import DirectoryOverFile, MemberIdOverFile
from cluster.cli.verbs import AsJson, print_result
from cluster.errors import OtherMembers

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster format --config conf/member-0.toml --name orders
  cluster format --config cluster.toml --member-id 2 --name orders --json

Run it once for each member, with the same name for all members of a cluster. The directory then starts only
with the member ids and the cluster_id in the file, and members of a cluster with another name do not count it
as theirs. The command does nothing if the directory is bound to that cluster already. It fails if it is bound
to another one, or has a member's files.
"""


@app.command("format", epilog=EPILOG)
def format_directory(
    config: Annotated[Path, typer.Option(help="The member's TOML file.")],
    name: Annotated[str, typer.Option(help="The cluster's name, the same for all its members.")],
    member_id: MemberIdOverFile = None,
    directory: DirectoryOverFile = None,
    as_json: AsJson = False,
) -> None:
    """Bind an empty directory to a named cluster, before the member's first start."""
    from cluster.archive.files import OsFiles, make_directories
    from cluster.archive.identity_file import identity_line, read_identity, write_identity
    from cluster.node import config_text
    from cluster.protocol.identity import ClusterIdentity, generation_of

    loaded = config_text.load(config, overrides={"member_id": member_id, "dir": directory})
    folders = loaded.cluster_path, loaded.archive_path
    identity = ClusterIdentity(generation_of(f"format {name}")).with_members(
        loaded.cluster_id, loaded.member_ids
    )
    found = read_identity(OsFiles(), str(folders[0]), str(folders[1])).identity
    known = None if found is None else found.replace(first_term_timestamp=None, first_log_session_id=None)
    if known not in (None, identity):
        assert known is not None
        raise OtherMembers(f"{loaded.path}: is of {identity_line(known)}, expected {identity_line(identity)}")
    if known is None:
        if taken := [str(path) for folder in folders if folder.exists() for path in folder.iterdir()]:
            raise OtherMembers(f"{loaded.path}: {min(taken)} is here, expected an empty directory")
        for folder in folders:
            make_directories(folder)
        write_identity(OsFiles(), str(folders[0]), str(folders[1]), identity)
    described = {"dir": str(loaded.path), "generation": identity.generation, "isNew": known is None}
    line = f"{loaded.path}: {identity_line(identity)}"
    print_result(as_json, described, line if known is None else f"{line}, as before")
