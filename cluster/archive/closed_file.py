"""closed.dat in a cluster directory: an operator has closed its member, which never starts again.

A LastWords in a file of ``message_file.py``, so that a copy of it is all that another host needs. A directory
that has the file is closed, whatever is in it.
"""

from cluster.archive.files import Files
from cluster.archive.message_file import read_stored_message, store_message
from cluster.errors import LogDamaged, NotAClusterDirectory, OtherMembers
from cluster.protocol.last_words import LastWords

CLOSED_FILE_NAME = "closed.dat"


def check_is_not_closed(files: Files, cluster_directory: str) -> None:
    """Raise OtherMembers for a directory that was closed."""
    path = f"{cluster_directory}/{CLOSED_FILE_NAME}"
    if files.exists(path):
        raise OtherMembers(
            f"{path}: this member was closed (cluster tool close-member), and starts no more: expected a "
            "directory that cluster tool make-members has made"
        )


def read_last_words(files: Files, path: str) -> LastWords:
    """The words in a file. Raises NotAClusterDirectory without it, LogDamaged, StorageError."""
    words = read_stored_message(files, path, LastWords)
    if words is None:
        raise NotAClusterDirectory(f"{path}: is missing, expected the last words of a closed member")
    if len(words.cluster) != 1:
        raise LogDamaged(path, 0, f"it is of {len(words.cluster)} clusters, expected one")
    return words


def write_last_words(files: Files, cluster_directory: str, words: LastWords) -> str:
    """Close the directory, in one step; returns the file's path. Raises StorageError."""
    path = f"{cluster_directory}/{CLOSED_FILE_NAME}"
    store_message(files, path, words)
    return path
