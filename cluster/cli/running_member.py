"""The running member of a directory: its mark file, its counters, whether it leads, and what it says."""

from pathlib import Path

from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import OsFiles
from cluster.cli.members import FROM_ENVIRONMENT, Shown
from cluster.counters import CountersReader
from cluster.errors import ClusterError, NotAClusterDirectory, NotLeader
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ElectionState, Role
from cluster.protocol.link import LogStatus
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME, ClusterMarkFileHeader
from cluster.reader.member_directory import (
    MemberDirectory,
    counters_paths,
    find_cluster_directory,
    holds_lock,
    is_running,
    members_in,
    read_cluster_mark,
)
from cluster.transport.clock import epoch_ms
from cluster.transport.endpoint import parse_endpoint


def mark_of(directory: str) -> ClusterMarkFileHeader:
    """The consensus module's mark file. Raises NotAClusterDirectory."""
    files = OsFiles()
    mark = read_cluster_mark(files, find_cluster_directory(files, directory))
    if mark is None:
        raise NotAClusterDirectory(f"{directory}: no cluster-mark.dat is here")
    return mark


def mark_or_none(directory: str) -> ClusterMarkFileHeader | None:
    """The same; None where it is not there, or cannot be read."""
    try:
        return mark_of(directory)
    except ClusterError:
        return None


def member_id_of(folder: Path) -> int:
    """As the mark file says; without one by the folder's name, and -1 where that has none."""
    if (mark := mark_or_none(str(folder))) is not None:
        return mark.member_id
    name = folder.name
    return int(name[7:]) if name.startswith("member-") and name[7:].isdigit() else -1


def is_locked(directory: str) -> bool | None:
    """Whether a process holds the member's lock; None where no member of ours ever was."""
    files = OsFiles()
    try:
        return holds_lock(files, find_cluster_directory(files, directory))
    except NotAClusterDirectory:
        return None


def counters_files(directory: str, mark: ClusterMarkFileHeader) -> list[str]:
    """Those that may be the member's, the likeliest first."""
    files = OsFiles()
    cluster = find_cluster_directory(files, directory)
    driver = f"{cluster.rpartition('/')[0] or '.'}/driver"
    return counters_paths(files, MemberDirectory(cluster, cluster, driver), mark, None)


def live_counters(
    directory: str, mark: ClusterMarkFileHeader, *, kind: int | None = None, write: bool = False
) -> CountersReader:
    """Counters of what runs and has one of type ``kind``. Raises NotAClusterDirectory."""
    kind = CounterTypeId.NODE_ROLE if kind is None else kind
    for path in counters_files(directory, mark):
        try:
            counters = CountersReader(path, write=write)
        except ClusterError:
            continue
        if counters.is_live(epoch_ms()) and counters.find(kind, mark.cluster_id):
            return counters
        counters.close()
    if is_locked(directory):
        raise NotAClusterDirectory(f"{directory}: {why_delayed(mark.pid)}")
    raise NotAClusterDirectory(f"{directory}: the member does not run: no live counters file is here")


def why_delayed(pid: int) -> str:
    """Of a member whose process lives and takes no turns."""
    if was_stopped(pid):
        return f"process {pid} was stopped by a signal: kill -CONT {pid} has it go on"
    return (
        f"process {pid} lives and takes no turns, as while it starts, its disk is full or fails, or an "
        "inline service is in one callback"
    )


def was_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
    except OSError:
        return False


def leads(directory: str) -> bool:
    """Whether the running member is the leader of a closed election. Raises NotAClusterDirectory."""
    mark = mark_of(directory)
    with live_counters(directory, mark) as counters:
        role = counters.find(CounterTypeId.NODE_ROLE, mark.cluster_id)
        election = counters.find(CounterTypeId.ELECTION_STATE, mark.cluster_id)
        return (
            role is not None
            and role.get() == Role.LEADER
            and election is not None
            and election.get() == ElectionState.CLOSED
        )


def leader_directory(directory: Path) -> Path:
    """The leader's directory in a whole cluster's; a member's is taken as it is. Raises NotLeader."""
    files = OsFiles()
    members = members_in(files, str(directory))
    running = [member for member in members if is_running(files, member)]
    for member in running:
        if leads(member):
            return Path(member)
    if members:
        what = f"none of its {len(running)} running members leads" if running else "none of its members runs"
        raise NotLeader(f"{directory}: {what}")
    return directory


def status_over_ipc(
    directory: str, mark: ClusterMarkFileHeader, shown: Shown = FROM_ENVIRONMENT
) -> LogStatus | None:
    """What the running member says of itself; None when it has no socket on this host to be asked by."""
    from cluster.transport.member_status import member_status

    files = OsFiles()
    home = find_cluster_directory(files, directory).rpartition("/")[0] or "."
    for path in (f"{home}/driver/ingress.sock", f"{mark.aeron_directory}/ingress.sock"):
        if files.exists(path):
            endpoint = parse_endpoint(f"ipc:{path}")
            return member_status(endpoint, tls=shown.tls, credentials=shown.credentials)
    return None


def status_in(directory: str) -> LogStatus:
    """The same; NotAClusterDirectory when the member does not run, or has no such socket."""
    mark = mark_of(directory)
    live_counters(directory, mark).close()  # says so when the member does not run
    status = status_over_ipc(directory, mark)
    if status is None:
        raise NotAClusterDirectory(
            f"{directory}: the member has no ingress.sock to be asked by (Aeron's ClusterTool asks Aeron's)"
        )
    return status


def home_of(directory: str | Path) -> Path:
    """Of a member's directory, or its cluster directory: where its node.log and audit.log are."""
    return Path(find_cluster_directory(OsFiles(), str(directory))).absolute().parent


def lock_directory(directory: str) -> DirectoryLock:
    """Keep members away while a file of theirs is rewritten. Raises DirectoryInUse."""
    files = OsFiles()
    return DirectoryLock.take(
        files, find_cluster_directory(files, directory), CLUSTER_MARK_FILE_NAME, epoch_ms()
    )
