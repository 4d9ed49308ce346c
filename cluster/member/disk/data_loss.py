"""An operator decides that a stopped member's directory is all there is of what it had: it gets its say back.

What it had voted for and acknowledged is forgotten for good, and what of that no other member holds is lost.
``data-loss-accepted`` in the cluster directory keeps who decided so when, a line each.
"""

import os
from contextlib import closing

from cluster.archive.files import Files, replace
from cluster.archive.identity_file import recall_identity, write_identity
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.promises_file import read_promises, write_promises
from cluster.errors import ClusterError
from cluster.member.disk.member_files import RepairNote
from cluster.protocol.identity import ANY_MEMBER_ID, ClusterIdentity, IdOfMember, generation_of
from cluster.protocol.link import PromiseState

DATA_LOSS_FILE_NAME = "data-loss-accepted"
OTHERS_FORGOTTEN = "the other members, and what of the log they alone hold"


def what_is_forgotten(files: Files, cluster_directory: str) -> str:
    """What the member does not know of its promises, "" when all. Raises LogDamaged, StorageError."""
    kept = read_promises(files, cluster_directory)
    forgotten = []
    if kept is not None and kept.state is PromiseState.LOST:
        forgotten.append("its votes and what it had acknowledged")
    note = RepairNote(files, cluster_directory)
    if note.is_there:
        forgotten.append(note.read()[0])
    return "; ".join(forgotten)


def accept_data_loss(files: Files, cluster_directory: str, epoch_ms: int) -> str:
    """Let a stopped member vote with what it has; what it forgot. Raises ClusterError when nothing."""
    forgotten = what_is_forgotten(files, cluster_directory)
    kept = read_promises(files, cluster_directory)
    if not forgotten or kept is None:
        raise ClusterError(
            f"{cluster_directory}: this member has forgotten nothing: there is nothing to accept"
        )
    _note(files, cluster_directory, epoch_ms, forgotten)
    with closing(NodeStateFile.open(cluster_directory, files=files)) as node_state:
        candidate_term_id = node_state.candidate_term_id
    note = RepairNote(files, cluster_directory)
    if note.is_there:
        note.remove()
    if kept.cluster:
        recall_identity(files, cluster_directory, kept.cluster[0])
    write_promises(
        files,
        cluster_directory,
        kept.replace(state=PromiseState.KEPT, candidate_term_id=candidate_term_id),
    )
    return forgotten


def accept_being_alone(
    files: Files, cluster_directory: str, archive_directory: str, member_id: int, epoch_ms: int
) -> None:
    """Let a member be the only one of a new cluster, and of a new generation. Raises StorageError."""
    _note(files, cluster_directory, epoch_ms, OTHERS_FORGOTTEN)
    generation = generation_of("alone", member_id, epoch_ms)
    identity = ClusterIdentity(generation, members=(IdOfMember(ANY_MEMBER_ID),))
    write_identity(files, cluster_directory, archive_directory, identity)


def _note(files: Files, cluster_directory: str, epoch_ms: int, forgotten: str) -> None:
    path = f"{cluster_directory}/{DATA_LOSS_FILE_NAME}"
    before = b""
    if files.exists(path):
        with closing(files.open(path)) as file:
            before = file.pread(file.size(), 0)
    replace(files, path, before + f"{epoch_ms} ms, uid {os.getuid()}: {forgotten}\n".encode())
