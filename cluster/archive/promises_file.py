"""promises.dat: whether a member knows what it has promised, and whom it knows to have forgotten.

A PromiseStatement, as it is sent to others, in a file of ``message_file.py``. A directory without it is new,
or older than it.
"""

from cluster.archive.files import Files
from cluster.archive.message_file import read_stored_message, store_message
from cluster.protocol.link import PromiseStatement

PROMISES_FILE_NAME = "promises.dat"


def read_promises(files: Files, directory: str) -> PromiseStatement | None:
    """The statement in a cluster directory, None without one. Raises LogDamaged, StorageError."""
    return read_stored_message(files, f"{directory}/{PROMISES_FILE_NAME}", PromiseStatement)


def write_promises(files: Files, directory: str, statement: PromiseStatement) -> None:
    """Replace it, in one step. Raises StorageError."""
    store_message(files, f"{directory}/{PROMISES_FILE_NAME}", statement)
