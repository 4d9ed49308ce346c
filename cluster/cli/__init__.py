"""The ``cluster`` command: one module a command, each only loaded when it runs.

Does: read options, put the parts of the lower layers together, print. Never: decide anything itself.
Read first: ``main.py``. A module of a command has ``app``, a ``typer.Typer``: with one command it is that
command (``cluster send``), with several a group of them (``cluster log dump``). What goes wrong is a
ClusterError: one line on standard error and its exit status, never a traceback.
"""

from cluster.errors import need

need("node")
