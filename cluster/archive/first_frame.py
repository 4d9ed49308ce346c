"""The very first frame of a recording, kept beside it when its head is purged.

For a cluster's log that is the first NewLeadershipTermEvent, which identifies a log. A real archive
does not keep it.
"""

from contextlib import closing

from cluster.archive.files import Files, replace
from cluster.protocol.frame import HEADER_LENGTH, header_at


def _path(directory: str, recording_id: int) -> str:
    return f"{directory}/recording-{recording_id}.first"


def keep_first_frame(files: Files, directory: str, recording_id: int, frame: bytes) -> None:
    """Write the frame down, unless it is there already. Raises StorageError."""
    path = _path(directory, recording_id)
    if not files.exists(path):
        replace(files, path, frame)


def read_first_frame(files: Files, directory: str, recording_id: int) -> bytes | None:
    """The frame that was kept; None when none was, or not a whole one."""
    path = _path(directory, recording_id)
    if not files.exists(path):
        return None
    with closing(files.open(path)) as file:
        frame = file.pread(file.size(), 0)
    return frame if len(frame) >= HEADER_LENGTH and len(frame) == header_at(frame).aligned_length else None
