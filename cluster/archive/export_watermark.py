"""How far a log has been exported, as whoever exports it says: a number in a file of the cluster directory.

export-watermark    the position, decimal: everything before it is safe elsewhere
"""

from collections.abc import Callable
from contextlib import closing

from cluster.archive.files import Files, replace
from cluster.errors import ClusterError, LogDamaged, StorageErrors

FILE_NAME = "export-watermark"


def read_export_watermark(files: Files, directory: str) -> int | None:
    """The position, None when nobody has said one. Raises LogDamaged for a file that holds no number."""
    path = f"{directory}/{FILE_NAME}"
    with StorageErrors(path, "reading failed"):
        if not files.exists(path):
            return None
        with closing(files.open(path)) as file:
            text = file.pread(32, 0).decode("ascii", "replace").strip()
    if not text.isdecimal():
        raise LogDamaged(path, 0, f"{text!r} is no log position")
    return int(text)


def write_export_watermark(files: Files, directory: str, position: int) -> None:
    """Say that everything before ``position`` is safe elsewhere; in one step. Raises StorageError."""
    assert position >= 0
    replace(files, f"{directory}/{FILE_NAME}", b"%d\n" % position)


class ExportWatermark:
    """The position for a member that heeds it; what cannot be read is reported once, and keeps everything."""

    def __init__(self, files: Files, directory: str, on_error: Callable[[ClusterError], None]) -> None:
        self._files = files
        self._directory = directory
        self._on_error = on_error
        self._reported = ""

    def position(self) -> int:
        """0 when nobody has exported anything."""
        try:
            return read_export_watermark(self._files, self._directory) or 0
        except ClusterError as error:
            if str(error) != self._reported:
                self._reported = str(error)
                self._on_error(error)
            return 0
