"""The verbs of ``cluster tool`` that give a cluster other members: old ones are closed, new ones made."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.archive.closed_file import CLOSED_FILE_NAME, read_last_words
from cluster.archive.files import OsFiles
from cluster.backup.close import close_member as close
from cluster.backup.close import words_line
from cluster.backup.make import make_member, next_members, source_of
from cluster.backup.restore import MemberFolders, Place
from cluster.cli.host_audit import note_on_host
from cluster.cli.members import ArchiveDirectory, NewFolder, OnlyMember, own_directory
from cluster.cli.running_member import home_of, mark_of
from cluster.cli.verbs import AsJson, print_result, tool_example
from cluster.errors import ConfigurationError
from cluster.protocol.last_words import LastWords
from cluster.reader.member_directory import find_cluster_directory, members_in
from cluster.transport.clock import boot_id, epoch_ms

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=tool_example(
        "close-member --dir cluster-data/member-0",
        more="It prints the member's last words (the end of its log, its last vote) and the small file that\n"
        "has them. make-members needs the last words of a majority of the old members.",
    ),
)
def close_member(
    directory: Annotated[Path, own_directory("A member's directory; the member must be stopped.")],
    archive_directory: ArchiveDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Close a stopped member for good, so that other members can replace it; it does not start again."""
    member_id = mark_of(str(directory)).member_id
    folders = MemberFolders.find(OsFiles(), str(directory), archive_directory)
    words = close(folders, member_id, boot_id=boot_id(), epoch_ms=epoch_ms)
    note_on_host(home_of(directory), "CLOSE_MEMBER")
    path = f"{folders.cluster}/{CLOSED_FILE_NAME}"
    described = {
        "member": member_id,
        "cluster": words.identity.cluster_id,
        "generation": words.identity.generation,
        "members": list(words.identity.member_ids),
        "firstTermTimestamp": words.identity.first_term_timestamp,
        "firstLogSessionId": words.identity.first_log_session_id,
        "candidateTermId": words.candidate_term_id,
        "leadershipTermId": words.leadership_term_id,
        "logPosition": words.log_position,
        "knowsPromises": words.knows_promises,
        "isLogWhole": words.is_log_whole,
        "words": path,
    }
    print_result(as_json, described, f"{words_line(words)}\n{path}")


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted(int(word) for word in text.split(",")))
    except ValueError:
        raise typer.BadParameter(f"{text}: expected ids as 0,1,2", param_hint="--member-ids") from None


@app.command(
    epilog=tool_example(
        "make-members --from cluster-data --to grown --member-ids 0,1,2,3,4",
        "make-members --from member-1 --words closed-0 --words closed-2 --to grown --member-ids 0,1,2,3,4",
        more="The directories are laid out as for `cluster up`: `cluster up --dir grown --members 5` starts\n"
        "them. After a crash, run the command again: it makes what is missing. Open sessions are closed\n"
        "with TIMEOUT.",
    ),
)
def make_members(
    source: Annotated[
        Path,
        typer.Option("--from", help="A closed member's directory, or a whole cluster's with closed members."),
    ],
    to: NewFolder,
    member_ids: Annotated[str, typer.Option(help="The ids of all members from now on, such as 0,1,2.")],
    words: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="A copy of another member's closed.dat; may be repeated."),
    ] = None,
    member_id: OnlyMember = None,
    archive_directory: ArchiveDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Make the directories of a cluster's new members from closed ones, with the best log among them."""
    files, ids = OsFiles(), _ids(member_ids)
    if member_id is not None and member_id not in ids:
        raise ConfigurationError(f"--member {member_id}: expected one of {member_ids}")
    closed = _closed(str(source))
    copied = [read_last_words(files, str(path)) for path in words or ()]
    if not closed and not copied:
        raise ConfigurationError(
            f"{source}: no member is closed; first close a majority of them: cluster tool close-member"
        )
    made = next_members([*closed.values(), *copied], ids)
    log = MemberFolders.find(files, source_of(made, closed), archive_directory)
    for number in ids if member_id is None else (member_id,):
        directory = f"{to}/member-{number}"
        is_new = make_member(log, Place(files, directory), made, epoch_ms=epoch_ms)
        described = {
            "dir": directory,
            "members": list(ids),
            "generation": made.generation,
            "endPosition": made.best.log_position,
            "leadershipTermId": made.best.leadership_term_id,
            "candidateTermId": made.founding.candidate_term_id,
            "isNew": is_new,
        }
        line = (
            f"{directory}: {'' if is_new else 'was made before: '}the log to {made.best.log_position} of "
            f"member {made.best.member_id}, generation {made.generation}, members {member_ids}"
        )
        print_result(as_json, described, line)


def _closed(directory: str) -> dict[str, LastWords]:
    """The last words of closed members, by their directories."""
    files = OsFiles()
    members = members_in(files, directory) or [directory]
    paths = {member: f"{find_cluster_directory(files, member)}/{CLOSED_FILE_NAME}" for member in members}
    return {
        member: read_last_words(files, path)
        for member, path in paths.items()
        if len(paths) == 1 or files.exists(path)
    }
