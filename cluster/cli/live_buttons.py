"""What the buttons of ``cluster live`` do to members of ``cluster up``: kill, stop, start, show messages."""

import os
import secrets
import signal
import subprocess
import sys
from functools import partial
from http import HTTPStatus
from pathlib import Path

from cluster.archive.files import OsFiles
from cluster.cli.http_port import Response
from cluster.cli.running_member import mark_of
from cluster.errors import ClusterError, ConfigurationError
from cluster.node.supervisor import die_with
from cluster.reader.member_directory import is_running

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM, "messages": signal.SIGUSR1}


class MemberButtons:
    """Of the members in one directory, for whoever has the ``key`` of the page's address."""

    def __init__(self, directory: Path) -> None:
        """Raises ConfigurationError where ``cluster up`` has written no members."""
        self.key = secrets.token_urlsafe(16)
        self._folders = {path.parent.name: path.parent for path in directory.glob("member-*/node.toml")}
        if not self._folders:
            raise ConfigurationError(
                f"{directory}: no member-0/node.toml, which `cluster up` writes and --buttons needs"
            )

    def press(self, member: str, verb: str) -> Response:
        """What ``POST /MEMBER/VERB`` does."""
        folder = self._folders.get(member)
        if folder is None or verb not in (*SIGNALS, "start"):
            return Response(HTTPStatus.NOT_FOUND, b"there is no such button\n")
        pid = _pid_of(folder)
        if (pid is None) != (verb == "start"):
            return Response(HTTPStatus.CONFLICT, b"it runs\n" if pid else b"it does not run\n")
        if pid is None:
            _start(folder)
        else:
            os.kill(pid, SIGNALS[verb])
        return Response(HTTPStatus.OK, f"{member}: {verb}\n".encode())


def _pid_of(folder: Path) -> int | None:
    """Of the member that runs there."""
    try:
        return mark_of(str(folder)).pid if is_running(OsFiles(), str(folder)) else None
    except ClusterError:
        return None


def _start(folder: Path) -> None:
    """As a child of ours, which ends with us."""
    with (folder / "output.log").open("ab") as output:
        subprocess.Popen(
            [sys.executable, "-m", "cluster", "node", "--config", str(folder / "node.toml")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
        )
