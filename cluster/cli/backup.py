"""``cluster backup``: a copy of a running cluster's log and snapshots."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.members import ConsensusEndpoints, MediaDriverDirectory, own_directory, text_or_none
from cluster.cli.verbs import OneObject, print_result

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster backup --config conf/backup.toml
  CLUSTER_ENDPOINTS=10.0.0.1:9000,10.0.0.2:9000 cluster backup --config conf/backup.toml --dir /data/backup
  cluster backup --consensus-endpoints 10.0.0.5:9003,10.0.0.6:9003 --aeron-dir /dev/shm/aeron --dir backup

conf/backup.toml explains every key and its default; the environment variable CLUSTER_BACKUP_KEY overrides the
key in the file. The backup needs the right read. It writes events to DIR/backup.log; `cluster tool
backup-query --dir DIR` shows its position. SIGTERM or Ctrl-C stops it, and the next start continues where it
was. `cluster tool restore` makes a new cluster from it.
"""


@app.command(epilog=EPILOG)
def backup(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The backup's TOML file.", show_default=False)
    ] = None,
    directory: Annotated[
        str | None, own_directory("The backup's directory, instead of the file's dir.")
    ] = None,
    consensus_endpoints: ConsensusEndpoints = None,
    aeron_directory: MediaDriverDirectory = None,
    as_json: OneObject = False,
) -> None:
    """Copy the snapshots and the committed log of a running cluster, and keep copying until Ctrl-C."""
    from cluster.node.backup_config import load_backup_config

    if config is None and consensus_endpoints is None:
        raise typer.BadParameter("give either --config or --consensus-endpoints", param_hint="--config")
    given = {
        "dir": directory,
        "consensus_endpoints": consensus_endpoints,
        "aeron_dir": text_or_none(aeron_directory),
    }
    read_config = partial(load_backup_config, config, given)
    loaded = read_config()

    from cluster.node.backup_process import BackupProcess, run_backup

    def on_started(process: BackupProcess) -> None:
        endpoints = process.copied_from
        described = {
            "pid": os.getpid(),
            "dir": str(loaded.path),
            "endpoints": endpoints,
            "position": process.agent.position,
        }
        line = f"backup {loaded.path}: from {', '.join(endpoints)}, at position {process.agent.position}"
        print_result(as_json, described, line)

    run_backup(loaded, on_started, read_config)
