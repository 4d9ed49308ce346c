"""node-state.dat as a file: the highest term that this member voted or stood for, durable before it is told.

Source: NodeStateFile of Aeron Cluster; layout in cluster/protocol/node_state.py.
"""

import struct

from cluster.archive.files import File, Files, read_at_rest, replace
from cluster.errors import LogDamaged, NotAClusterDirectory, StorageError
from cluster.protocol.node_state import (
    NEW_CANDIDATE_TERM,
    NODE_STATE_FILE_LENGTH,
    NODE_STATE_FILE_NAME,
    CandidateTerm,
    decode_node_state,
    encode_node_state,
)

_REST = struct.Struct("<qq")
_TERM = struct.Struct("<q")
_CANDIDATE_LENGTH = _TERM.size + _REST.size


class NodeStateFile:
    """The candidate term of a cluster directory; ``candidate_term.candidate_term_id`` is -1 at first."""

    def __init__(self, file: File, candidate_term: CandidateTerm, offset: int, file_sync_level: int) -> None:
        self._file = file
        self._offset = offset
        self._sync_level = file_sync_level
        self.candidate_term = candidate_term

    @classmethod
    def open(
        cls, directory: str, *, files: Files, file_sync_level: int = 1, write: bool = True
    ) -> "NodeStateFile":
        """The file of a cluster directory; made when missing and to be written.

        Raises NotAClusterDirectory (nothing there to read), LogDamaged, StorageError.
        """
        path = f"{directory}/{NODE_STATE_FILE_NAME}"
        try:
            if not files.exists(path):
                if not write:
                    raise NotAClusterDirectory(f"{directory}: {NODE_STATE_FILE_NAME} is missing")
                cls._create(files, directory, path)
            file = files.open(path, write=write)
            try:
                data = read_at_rest(file, file.size())
                state = decode_node_state(data)
            except LogDamaged as damage:
                file.close()
                raise damage.at(path) from None
            if write and file_sync_level > 0:
                # What reads back well may never have reached the disk, if a sync failed in an earlier life.
                file.pwrite(data[state.offset : state.offset + _CANDIDATE_LENGTH], state.offset)
                file.datasync()
        except OSError as error:
            raise StorageError(path, error.errno, "opening failed") from error
        return cls(file, state.candidate_term, state.offset, file_sync_level)

    @staticmethod
    def _create(files: Files, directory: str, path: str) -> None:
        files.make_directory(directory)
        replace(files, path, encode_node_state(NEW_CANDIDATE_TERM), length=NODE_STATE_FILE_LENGTH)

    @property
    def candidate_term_id(self) -> int:
        return self.candidate_term.candidate_term_id

    def propose(self, candidate_term_id: int, log_position: int, now_ms: int) -> int:
        """Raise the candidate term if it is higher than the one held; return the one held then.

        When this returns the term is durable by the sync level (0: not), and may be spoken of. Source:
        NodeStateFile.proposeMaxCandidateTermId. Raises StorageError; the term held is then the old one.
        """
        if candidate_term_id > self.candidate_term_id:
            candidate_term = CandidateTerm(candidate_term_id, now_ms, log_position)
            try:
                # The term last: it says that the rest is of it. All 24 bytes lie in one sector.
                self._file.pwrite(_REST.pack(now_ms, log_position), self._offset + _TERM.size)
                self._file.pwrite(_TERM.pack(candidate_term_id), self._offset)
                if self._sync_level == 1:
                    self._file.datasync()
                elif self._sync_level == 2:
                    self._file.fullsync()
            except OSError as error:
                raise StorageError(
                    self._file.path, error.errno, "writing the candidate term failed"
                ) from error
            self.candidate_term = candidate_term
        return self.candidate_term_id

    def close(self) -> None:
        self._file.close()
