"""Finds what belongs to a member on disk: its cluster directory, its archive, its counters.

    DIR/cluster  recording.log, cluster-mark.dat      a member of ours, or of a set as Aeron's tools make them
    DIR/archive  archive.catalog, segments
    DIR/driver   cnc.dat                              of ours only; a real one is named in the mark file

Any two folders do when they are given apart, and any folder that holds, itself or in its subfolders,
exactly one recording log and one catalog.
"""

from contextlib import closing
from dataclasses import dataclass

from cluster.archive.directory_lock import is_active, lock_path, read_mark_header
from cluster.archive.files import Files, OsFiles
from cluster.errors import NotAClusterDirectory, StorageErrors
from cluster.protocol.catalog import CATALOG_FILE_NAME
from cluster.protocol.cnc import CNC_FILE_NAME
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME, ClusterMarkFileHeader
from cluster.protocol.recording_log import RECORDING_LOG_FILE_NAME
from cluster.transport.clock import epoch_ms

_CLUSTER_FILES = (RECORDING_LOG_FILE_NAME, CLUSTER_MARK_FILE_NAME, "cluster-mark.lnk")


@dataclass(frozen=True, slots=True)
class MemberDirectory:
    """Where a member's files are; ``cluster`` is None when only an archive was found."""

    cluster: str | None
    archive: str
    driver: str | None = None  # folder of our own counters file, if it is there


def find_member(
    files: Files, dir: str | None, archive_dir: str | None = None, cluster_dir: str | None = None
) -> MemberDirectory:
    """The directories of the member at ``dir``, or given apart. Raises NotAClusterDirectory."""
    cluster = _existing(files, cluster_dir)
    archive = _existing(files, archive_dir)
    member = _existing(files, dir)
    if member is not None:
        if cluster is None:
            cluster = _holder(files, member, _CLUSTER_FILES)
        if archive is None:
            archive = _holder(files, member, (CATALOG_FILE_NAME,))
            if archive is None and cluster == member:
                archive = _holder(files, _parent(member), (CATALOG_FILE_NAME,))
    if archive is None:
        raise _nothing_found(files, member or cluster)
    driver = None
    for home in (member, cluster and _parent(cluster), _parent(archive)):
        if home and driver is None and files.exists(f"{home}/driver/{CNC_FILE_NAME}"):
            driver = f"{home}/driver"
    return MemberDirectory(cluster, archive, driver)


def find_cluster_directory(files: Files, dir: str) -> str:
    """The cluster directory that ``dir`` is or holds. Raises NotAClusterDirectory."""
    return _found(files, dir, _CLUSTER_FILES)


def find_archive_directory(files: Files, dir: str) -> str:
    """The archive directory that ``dir`` is or holds. Raises NotAClusterDirectory."""
    return _found(files, dir, (CATALOG_FILE_NAME,))


def _found(files: Files, dir: str, names: tuple[str, ...]) -> str:
    member = _existing(files, dir)
    assert member is not None
    found = _holder(files, member, names)
    if found is None:
        raise _nothing_found(files, member, names[0])
    return found


def members_in(files: Files, dir: str) -> list[str]:
    """The members' directories in the folder of a whole cluster; none in a member's own."""
    if not files.is_directory(dir) or _holder(files, dir, _CLUSTER_FILES) is not None:
        return []
    folder = dir.rstrip("/") or "/"
    return [
        path
        for path in (f"{folder}/{name}" for name in sorted(_subfolders(files, folder)))
        if _holder(files, path, _CLUSTER_FILES) is not None
    ]


def holds_lock(files: OsFiles, folder: str, mark_file_name: str = CLUSTER_MARK_FILE_NAME) -> bool | None:
    """Whether a process holds the lock beside the mark file; None where no member of ours ever was."""
    try:
        return files.is_locked(lock_path(folder, mark_file_name))
    except FileNotFoundError:
        return None


def is_running(files: OsFiles, member: str) -> bool:
    """Whether the member's process lives: it holds its lock or, a real Aeron's, keeps its mark file fresh."""
    cluster = find_cluster_directory(files, member)
    if (locked := holds_lock(files, cluster)) is not None:
        return locked
    mark = read_cluster_mark(files, cluster)
    return mark is not None and is_active(mark, epoch_ms())


def serving_member(files: OsFiles, dir: str) -> str:
    """The member to read: ``dir`` or, of a whole cluster, the first that runs, else the first."""
    members = members_in(files, dir)
    return next((member for member in members if is_running(files, member)), members[0] if members else dir)


def mark_directory(files: Files, cluster: str, name: str = CLUSTER_MARK_FILE_NAME) -> str:
    """Where a mark file lies: in the folder that its link file names, else in the cluster directory."""
    link = f"{cluster}/{name.removesuffix('.dat')}.lnk"
    if not files.exists(link):
        return cluster
    with closing(files.open(link)) as file:
        return file.pread(file.size(), 0).decode("ascii", "replace").strip()


def read_cluster_mark(files: Files, cluster: str) -> ClusterMarkFileHeader | None:
    """The consensus module's (or backup's) mark file; None when there is none. Raises LogDamaged."""
    path = f"{mark_directory(files, cluster)}/{CLUSTER_MARK_FILE_NAME}"
    if not files.exists(path):
        return None
    with StorageErrors(path, "reading failed"):
        header = read_mark_header(files, path)
    assert isinstance(header, ClusterMarkFileHeader)
    return header


def counters_paths(
    files: Files, member: MemberDirectory, mark: ClusterMarkFileHeader | None, aeron_dir: str | None
) -> list[str]:
    """Counters files that may be this member's, the likeliest first."""
    folders = [aeron_dir] if aeron_dir else [member.driver, mark.aeron_directory if mark else None]
    paths = [f"{folder}/{CNC_FILE_NAME}" for folder in folders if folder]
    return [path for path in dict.fromkeys(paths) if files.exists(path)]


def _existing(files: Files, dir: str | None) -> str | None:
    if dir is None:
        return None
    path = dir.rstrip("/") or "/"
    if not files.exists(path):
        raise NotAClusterDirectory(f"{path}: no such directory")
    if not files.is_directory(path):
        raise NotAClusterDirectory(f"{path}: is a file, expected a member's directory")
    return path


def _holder(files: Files, folder: str, names: tuple[str, ...]) -> str | None:
    """The folder, or its one subfolder, that holds one of the files."""
    inside = _list(files, folder)
    if not set(names).isdisjoint(inside):
        return folder
    subfolders = [path for path in (f"{folder}/{entry}" for entry in inside) if files.is_directory(path)]
    found = [path for path in subfolders if any(files.exists(f"{path}/{name}") for name in names)]
    return found[0] if len(found) == 1 else None


def _subfolders(files: Files, folder: str) -> list[str]:
    return [name for name in _list(files, folder) if files.is_directory(f"{folder}/{name}")]


def _list(files: Files, folder: str) -> list[str]:
    with StorageErrors(folder, "reading the directory failed"):
        return files.list_directory(folder)


def _parent(path: str) -> str:
    head, _, _ = path.rpartition("/")
    return head or ("/" if path.startswith("/") else ".")


def _nothing_found(files: Files, folder: str | None, name: str = CATALOG_FILE_NAME) -> NotAClusterDirectory:
    """The error, which names what is in the subfolders."""
    if folder is None:
        return NotAClusterDirectory("name a member's directory")
    members = [
        entry
        for entry in sorted(_subfolders(files, folder))
        if _holder(files, f"{folder}/{entry}", (CATALOG_FILE_NAME,)) is not None
    ]
    if not members:
        return NotAClusterDirectory(f"{folder}: not a member's directory, no {name} is in it")
    of = "archives" if name == CATALOG_FILE_NAME else "members"
    if len(members) == 1:
        what = f"holds no {of[:-1]} itself, {members[0]} in it does; name that"
    else:
        what = f"holds several {of} ({', '.join(members)}); name one of them"
    return NotAClusterDirectory(f"{folder}: {what}", directory=folder, member=f"{folder}/{members[0]}")
