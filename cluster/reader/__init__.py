"""Readers of the committed log: ``LogReader.open(dir=…)`` or ``LogReader.open(endpoints=…)``.

Read ``log_reader.py`` first (what every reader can do), then ``directory.py`` (a member's files, and how
far they may be read) or ``remote.py`` (over the network). ``member_directory.py`` finds a member's folders.
Nothing here writes, takes part in consensus, or shows what is not committed without saying so.
"""

from cluster.reader.log_reader import LogIdentity, LogReader

__all__ = ["LogIdentity", "LogReader"]
