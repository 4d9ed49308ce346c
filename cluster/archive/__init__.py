"""A member's files: the archive with its recordings, and what the cluster directory holds.

Read ``recording.py`` first (the log as a file: append, sync, cut), then ``archive.py`` (which recordings
there are) and ``recovery.py`` (where one ends after a crash). ``recording_log.py``, ``node_state.py`` and
``mark_files.py`` are the files of the cluster directory. ``files.py`` is the only door to the disk.

The bytes are Aeron's, laid out in ``cluster/protocol``; what is ours beside them is the lock (``*.lock``),
the proof of what is synced (``recording-*.proof``) and the segment prepared ahead (``recording-*.next``),
which Aeron's tools ignore. The folder decides nothing about consensus and never imports it; it reads no
clock: whoever calls hands in the time.
"""

from cluster.archive.archive import Archive
from cluster.archive.files import Files, OsFiles
from cluster.archive.mark_files import ArchiveMarkFile, ClusterMarkFile
from cluster.archive.node_state import NodeStateFile
from cluster.archive.recording import Recording
from cluster.archive.recording_log import RecordingLog, RecoveryPlan
from cluster.archive.recovery import Recovered

__all__ = [
    "Archive",
    "ArchiveMarkFile",
    "ClusterMarkFile",
    "Files",
    "NodeStateFile",
    "OsFiles",
    "Recording",
    "RecordingLog",
    "Recovered",
    "RecoveryPlan",
]
