"""``cluster status``: one verdict on a cluster and its reasons, running or stopped."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.cli.connecting import connects
from cluster.cli.durations import duration_option
from cluster.cli.members import (
    AeronPlace,
    ConsensusEndpoints,
    MediaDriverDirectory,
    OptionalEndpoints,
    check_is_alone,
    optional_directory,
    place,
    text_or_none,
)
from cluster.cli.status_document import status_document
from cluster.cli.top_screen import table_lines
from cluster.cli.verbs import json_option
from cluster.cli.verdict import HEALTHY, UNAVAILABLE
from cluster.errors import ClusterError, printable

app = typer.Typer(rich_markup_mode=None, add_completion=False)

POLL_S = 0.25

EPILOG = """\b
Examples:
  cluster status
  cluster status --dir cluster-data --json
  cluster status --endpoints 127.0.0.1:9000
  cluster status --wait healthy --timeout 30
  cluster status --dir backup
  cluster status --consensus-endpoints 10.0.0.5:9003 --aeron-dir /dev/shm/aeron

Without --dir and --endpoints the command asks CLUSTER_ENDPOINTS, else reads the directory in CLUSTER_DIR,
else ./cluster-data. The directory may be a whole cluster's, a member's, a backup's, or a copy of one, and its
members may be stopped. If one member runs, the others of its cluster are asked, too. Exit status: 0 if the
cluster is healthy, or in the state that --wait names; 1 if not; 2 for wrong usage. docs/status.md has every
key of --json and every message.
"""


class Awaited(StrEnum):
    """What ``--wait`` waits for."""

    LEADER = "leader"
    LEVEL = "level"
    HEALTHY = "healthy"


@app.command(epilog=EPILOG)
@connects
def status(
    directory: Annotated[
        Path | None,
        optional_directory("A whole cluster's directory, a member's, or a copy of one."),
    ] = None,
    endpoints: OptionalEndpoints = None,
    consensus_endpoints: ConsensusEndpoints = None,
    aeron_directory: MediaDriverDirectory = None,
    wait: Annotated[
        Awaited | None,
        typer.Option(
            help="Wait until a member leads, all members have what is committed, or the cluster is healthy."
        ),
    ] = None,
    timeout: Annotated[
        float | None, duration_option(help="How long to --wait at most.", default="60s")
    ] = None,
    as_json: Annotated[bool, json_option("Print one JSON object.")] = False,
) -> None:
    """Say whether the cluster is healthy, how many members it can lose, and what to do."""
    aeron = None
    if consensus_endpoints is not None:
        check_is_alone(consensus_endpoints, endpoints, directory)
        aeron = AeronPlace(consensus_endpoints, text_or_none(aeron_directory))
    if wait is None and timeout is not None:
        raise typer.BadParameter("it needs --wait", param_hint="--timeout")
    deadline = time.monotonic() + (60.0 if timeout is None else timeout)
    while True:
        is_last = wait is None or time.monotonic() >= deadline
        try:
            here = place(directory, endpoints) if aeron is None else (None, None)
            document = status_document(*here, aeron=aeron)
        except ClusterError:
            if is_last:
                raise
        else:
            if is_last or _is_there(wait, document):
                break
        time.sleep(POLL_S)
    print(json.dumps(document, indent=1) if as_json else _text(document))
    is_good = document["verdict"] == HEALTHY if wait is None else _is_there(wait, document)
    raise typer.Exit(0 if is_good else 1)


def _is_there(awaited: Awaited | None, document: dict[str, Any]) -> bool:
    if awaited is Awaited.HEALTHY:
        return bool(document["verdict"] == HEALTHY)
    if awaited is Awaited.LEADER or document["verdict"] == UNAVAILABLE:
        return bool(document["verdict"] != UNAVAILABLE)
    count = document["cluster"]["memberCount"]
    return bool(document["mayFail"]["withoutStopping"] == count - (count // 2 + 1))


# ---- for people


def _text(document: dict[str, Any]) -> str:
    cluster, may_fail = document["cluster"], document["mayFail"]
    leader, committed = cluster["leader"], f"{cluster['commitPosition'] or 0:,} bytes"
    leads = "nobody leads" if leader is None else f"member {leader} leads"
    count = cluster["memberCount"]
    members = f"{count} member{'s' * (count != 1)}"
    term = "" if cluster["leadershipTermId"] is None else f"term {cluster['leadershipTermId']}, "
    if not document["members"]:
        lines = [f"{document['verdict']}: a backup, {committed} of committed log"]
    elif may_fail["withoutLoss"] is None:
        lines = [f"{document['verdict']}: nothing is known of {members}"]
    else:
        may_stop = f"{may_fail['withoutStopping']} may stop without stopping the cluster, "
        disks = "its disk" if may_fail["withoutLoss"] == 1 else "their disks"
        lines = [
            f"{document['verdict']}: {members}, {leads}, {term}{committed} committed",
            f"  {may_stop * (document['verdict'] != UNAVAILABLE)}"
            f"{may_fail['withoutLoss']} may lose {disks} without losing what was acknowledged",
        ]
    lines += table_lines([*document["members"], *document["backups"]], indent="  ")
    for message in document["messages"]:
        lines += [f"{message['severity']}: {printable(message['text'])}", f"  {message['fix']}"]
    return "\n".join(lines)
