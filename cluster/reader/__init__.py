"""Readers of the committed log: ``LogReader.open(dir=…)`` or ``LogReader.open(endpoints=…)``.

Read ``log_reader.py`` first (what every reader can do), then ``committed_log.py`` (what it needs of a medium)
and ``directory.py`` (a member's files; ``extent.py``: how far they may be read; ``directories.py``: those of
several), ``remote.py`` (over the network) or ``aeron_log.py`` (a real Aeron Cluster over its own medium, one
``aeron_member.py`` at a time). ``aeron_recording.py`` is any recording of an archive.
``member_directory.py`` finds a member's folders. ``supplier.py`` is what a backup asks of one member,
``member_supplier.py`` and ``aeron_supplier.py`` (a real one) the same over the network, and
``member_snapshots.py`` fetches single snapshots. ``exported_log.py`` has what is exported,
``joined_reader.py`` reads it before a log whose head is purged.
Nothing here writes to a member, takes part in consensus, or shows what is not committed without saying so.
"""

from cluster.errors import need

need("reader")

from cluster.protocol.token import LogIdentity  # noqa: E402
from cluster.reader.log_reader import LogReader  # noqa: E402

__all__ = ["LogIdentity", "LogReader"]
