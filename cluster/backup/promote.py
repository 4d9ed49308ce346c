"""The directory of a backup becomes that of a member, where it is: nothing is copied, so it takes seconds.

    cluster/cluster-mark.dat    of type BACKUP: goes, last of all and in one step; the member writes its own
    cluster/node-state.dat      of the only member of a new cluster: its votes begin after the last term
    identity.dat                the same: of a new generation, which no member of the old cluster counts
                                of a member that joins the old cluster there are none of both

A member that has a log and no votes has no say in the old cluster, and does not count for a commit, before
it has followed a leader to the end (cluster/consensus/promises.py). So it is safe beside the old members.
"""

from collections.abc import Callable

from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.identity_file import IDENTITY_FILE_NAME
from cluster.backup.directory import find_owner
from cluster.backup.restore import Founding, Place, Restored, prepare
from cluster.errors import NotAClusterDirectory
from cluster.protocol.identity import ANY_MEMBER_ID, ClusterIdentity
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.protocol.node_state import NODE_STATE_FILE_NAME


def promote_backup(backup: Place, *, joins: bool, epoch_ms: Callable[[], int]) -> Restored:
    """Let a backup be the only member of a new cluster or, if it ``joins``, a member of the old one.

    An attempt that failed can be made again, also the other way. Raises NotAClusterDirectory, DirectoryInUse
    (the backup runs), ConfigurationError (a member's directory), LogDamaged, StorageError.
    """
    files, cluster = backup.files, f"{backup.path}/cluster"
    if find_owner(files, cluster) is None:
        raise NotAClusterDirectory(f"{backup.path}: holds no backup: no cluster/{CLUSTER_MARK_FILE_NAME}")
    with DirectoryLock.take(files, cluster, CLUSTER_MARK_FILE_NAME, epoch_ms()):
        _forget_votes(backup)
        restored = prepare(
            backup,
            cluster,
            to_position=None,
            founding=None
            if joins
            else Founding("promote", ClusterIdentity(0).with_members(None, (ANY_MEMBER_ID,))),
            epoch_ms=epoch_ms,
        )
        files.unlink(f"{cluster}/{CLUSTER_MARK_FILE_NAME}")
        files.sync_directory(cluster)
    return restored


def _forget_votes(backup: Place) -> None:
    """Of an attempt that failed: the log may have grown since."""
    for name in (
        f"cluster/{NODE_STATE_FILE_NAME}",
        f"cluster/{IDENTITY_FILE_NAME}",
        f"archive/{IDENTITY_FILE_NAME}",
    ):
        if backup.files.exists(f"{backup.path}/{name}"):
            backup.files.unlink(f"{backup.path}/{name}")
