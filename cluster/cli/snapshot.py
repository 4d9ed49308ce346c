"""``cluster snapshot``: as ``cluster tool snapshot``, among the verbs of every day."""

import typer

from cluster.cli import control

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster snapshot --dir cluster-data
  cluster snapshot --endpoints db0:9000,db1:9000 --token-file operator.token

A restart replays the log after the newest snapshot. With --endpoints it needs the right admin.
"""

app.command(epilog=EPILOG)(control.snapshot)
