"""A backup: copies the snapshots and the committed log of a running cluster into a directory of its own.

Read ``agent.py`` first: the states of Aeron's ClusterBackupAgent. ``directory.py`` is
what it keeps, ``copied_log.py`` the log in there and how it is checked. ``restore.py`` makes members'
directories of that, ``promote.py`` lets it be a member's itself. What the agent asks of one member is a
``Supplier`` of ``cluster/reader/``. ``close.py`` and ``make.py`` need no backup: they give a stopped cluster
other members.

The agent reads no clock and opens no socket: it is handed the time, its suppliers and the files.
"""
