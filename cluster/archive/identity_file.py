"""identity.dat: which cluster a directory is of, in its cluster folder and, the same, in its archive folder.

A ClusterIdentity without a header, in files of ``message_file.py``. One good file is enough, and what it says
goes into both.
"""

from typing import NamedTuple

from cluster.archive.files import Files
from cluster.archive.message_file import read_checked, store_checked
from cluster.errors import LogDamaged, OtherMembers, StorageErrors
from cluster.protocol.identity import ClusterIdentity

IDENTITY_FILE_NAME = "identity.dat"


class FoundIdentity(NamedTuple):
    """What the files say; ``identity`` is None where none of them is good."""

    identity: ClusterIdentity | None
    path: str  # of the file that says it, or that would
    damage: tuple[LogDamaged, ...]
    is_in_both: bool = False


def read_identity(files: Files, cluster_directory: str, archive_directory: str) -> FoundIdentity:
    """Read both files. Raises OtherMembers where they are good and differ, StorageError."""
    found: list[tuple[str, ClusterIdentity]] = []
    damage: list[LogDamaged] = []
    for path in _paths(cluster_directory, archive_directory):
        try:
            if (identity := _read(files, path)) is not None:
                found.append((path, identity))
        except LogDamaged as error:
            damage.append(error)
    if not found:
        return FoundIdentity(None, _paths(cluster_directory, archive_directory)[0], tuple(damage))
    path, identity = found[0]  # is written first
    for other_path, other in found[1:]:
        if other.generation != identity.generation or _differ(other.member_ids, identity.member_ids):
            raise OtherMembers(
                f"{path}: {identity_line(identity)}, expected what {other_path} says: {identity_line(other)}"
            )
    is_in_both = [other for _, other in found] == [identity, identity]
    return FoundIdentity(identity, path, tuple(damage), is_in_both)


def identity_line(identity: ClusterIdentity) -> str:
    """For people."""
    members = ", ".join(map(str, identity.member_ids)) or "those of its first start"
    return f"generation {identity.generation}, members {members}"


def _differ(member_ids: tuple[int, ...], other_ids: tuple[int, ...]) -> bool:
    return bool(member_ids and other_ids) and member_ids != other_ids


def _read(files: Files, path: str) -> ClusterIdentity | None:
    body = read_checked(files, path)
    if body is None:
        return None
    try:
        return ClusterIdentity.decode_record(body)
    except LogDamaged as damage:
        raise damage.at(path) from None


def write_identity(
    files: Files, cluster_directory: str, archive_directory: str, identity: ClusterIdentity
) -> None:
    """Put it into both files; in between they do not contradict each other. Raises StorageError."""
    first, second = _paths(cluster_directory, archive_directory)
    _remove_another(files, second, identity)
    for path in (first, second):
        store_checked(files, path, identity.encode_body())


def recall_identity(files: Files, cluster_directory: str, identity: ClusterIdentity) -> None:
    """Put it into the file of the cluster folder, in case both were lost. Raises StorageError."""
    store_checked(files, _paths(cluster_directory, "")[0], identity.encode_body())


def _remove_another(files: Files, path: str, identity: ClusterIdentity) -> None:
    """A file that the other one would contradict."""
    try:
        kept = _read(files, path)
    except LogDamaged:
        return
    if kept is None or (kept.generation, kept.member_ids) == (identity.generation, identity.member_ids):
        return
    with StorageErrors(path, "removing failed"):
        files.unlink(path)
        files.sync_directory(path.rpartition("/")[0])


def _paths(cluster_directory: str, archive_directory: str) -> tuple[str, str]:
    return f"{cluster_directory}/{IDENTITY_FILE_NAME}", f"{archive_directory}/{IDENTITY_FILE_NAME}"
