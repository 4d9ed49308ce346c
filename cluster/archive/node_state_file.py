"""node-state.dat as a file: the highest term that this member voted or stood for, durable before it is sent.

Source: NodeStateFile of Aeron Cluster; layout in cluster/protocol/node_state.py.
"""

from cluster.archive.files import File, Files, read_at_rest, replace
from cluster.errors import LogDamaged, NotAClusterDirectory, StorageErrors
from cluster.protocol.node_state import (
    CANDIDATE_TERM_OFFSET,
    NEW_CANDIDATE_TERM,
    NODE_STATE_FILE_LENGTH,
    NODE_STATE_FILE_NAME,
    CandidateTerm,
    decode_node_state,
    is_sealed,
    seal_node_state,
)


class NodeStateFile:
    """The candidate term of a cluster directory; ``candidate_term.candidate_term_id`` is -1 at first."""

    def __init__(self, file: File, candidate_term: CandidateTerm, file_sync_level: int) -> None:
        self._file = file
        self._sync_level = file_sync_level
        self.candidate_term = candidate_term

    @classmethod
    def open(
        cls, directory: str, *, files: Files, file_sync_level: int = 1, write: bool = True
    ) -> "NodeStateFile":
        """Made when missing; one without a checksum gets one.

        Raises NotAClusterDirectory (nothing there to read), LogDamaged, StorageError.
        """
        path = f"{directory}/{NODE_STATE_FILE_NAME}"
        with StorageErrors(path, "opening failed"):
            if not files.exists(path):
                if not write:
                    raise NotAClusterDirectory(f"{directory}: {NODE_STATE_FILE_NAME} is missing")
                cls._create(files, directory, path)
            file = files.open(path, write=write)
            try:
                data = read_at_rest(file, file.size())
                is_ours = is_sealed(data)
                candidate_term = decode_node_state(data).candidate_term
                if candidate_term.candidate_term_id < NEW_CANDIDATE_TERM.candidate_term_id:
                    what = f"candidate term {candidate_term.candidate_term_id} cannot be"
                    raise LogDamaged(None, CANDIDATE_TERM_OFFSET, what)
            except LogDamaged as damage:
                file.close()
                raise damage.at(path) from None
            if write and not is_ours:
                file.close()
                replace(files, path, seal_node_state(candidate_term), length=NODE_STATE_FILE_LENGTH)
                file = files.open(path, write=True)
            elif write and file_sync_level > 0:
                # What reads back well may never have reached the disk, if a sync failed in an earlier life.
                file.pwrite(seal_node_state(candidate_term), 0)
                file.datasync()
        return cls(file, candidate_term, file_sync_level)

    @staticmethod
    def _create(files: Files, directory: str, path: str) -> None:
        files.make_directory(directory)
        replace(files, path, seal_node_state(NEW_CANDIDATE_TERM), length=NODE_STATE_FILE_LENGTH)

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def candidate_term_id(self) -> int:
        return self.candidate_term.candidate_term_id

    def propose(self, candidate_term_id: int, log_position: int, now_ms: int) -> int:
        """Raise the candidate term if this one is higher; return the one that is stored then.

        When this returns the term is durable by the sync level (0: not), and may be reported. Source:
        NodeStateFile.proposeMaxCandidateTermId. Raises StorageError; the stored term is then the old one.
        """
        if candidate_term_id > self.candidate_term_id:
            candidate_term = CandidateTerm(candidate_term_id, now_ms, log_position)
            with StorageErrors(self._file.path, "writing the candidate term failed"):
                self._file.pwrite(seal_node_state(candidate_term), 0)  # in one sector: whole, or not at all
                if self._sync_level == 1:
                    self._file.datasync()
                elif self._sync_level == 2:
                    self._file.fullsync()
            self.candidate_term = candidate_term
        return self.candidate_term_id

    def close(self) -> None:
        self._file.close()
