"""``cluster bundle``: what somebody needs to look into a cluster from elsewhere, in one file without secrets.

What is taken is named here, file by file and command by command: no key, certificate, token or password file,
nothing of the log, and nothing that services print.
"""

import contextlib
import io
import json
import os
import platform
import shutil
import signal
import stat
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.cli.connecting import connects
from cluster.cli.events import log_ends
from cluster.cli.members import OptionalEndpoints, optional_directory, place
from cluster.cli.verbs import AsJson, print_result
from cluster.errors import ClusterError, ConfigurationError, StorageErrors, printable
from cluster.transport.event_logs import LOG_NAMES, STACKS_FILE_NAME, stacks_text

NOTES = ("data-loss-accepted",)  # within the cluster directory
LOG_BYTES_MAX = 8 << 20  # of each log its end
STACKS_TIMEOUT_S = 2.0
PACKAGES = ("pyspark-cluster", "numba", "numpy", "pyarrow", "grpcio", "cryptography", "pyspark")

app = typer.Typer(rich_markup_mode=None, add_completion=False)

README = """\
What `cluster bundle` collected of a cluster. Begin with status.txt. `cluster events --dir .` in this folder
prints the logs of all members in order of time.

status.txt              what `cluster status` says: the verdict, its reasons, and what to do
status.json             the same as a document; docs/status.md explains its keys
versions.json           Python, packages, kernel and processor of the host where the bundle was written
clocks.json             the time on that host
describe.json           what running members say of themselves; only of --endpoints

Of each member, in a folder of its own:

node.log                what happened, a JSON object a line, its last 8 MiB; NAME.log.1 is the file before
stacks.txt              what its threads did, the innermost call last; if stopped, the last in node.log
backup.log              as node.log, of a backup
audit.log               requests that were refused, and what administrators did
audit-metrics.log       the same of the process that serves metrics
configuration.json      each key with its value and where that is from
counters.json           the counters, as in `cluster top --counters`
describe.json           the mark files: which processes own the directory
recording-log.json      terms and snapshots
recovery-plan.json      what a start would load and replay
errors.json             the distinct errors, each with its count
archive.json            the recordings in the archive's catalog
disk.json               sizes of all files, and free space
data-loss-accepted      there if `cluster tool accept-data-loss` was run
"""

EPILOG = """\b
Examples:
  cluster bundle --dir cluster-data
  cluster bundle --dir cluster-data/member-0 --out member-0.tar.gz
  cluster bundle --dir /var/lib/cluster --config /etc/cluster/node.toml
  cluster bundle --endpoints 127.0.0.1:9000

The members may be running or stopped. A running member first writes the stacks of its threads into its
node.log. The file has versions, clocks and the verdict of `cluster status`. Of each member it has the
effective configuration, logs (the last 8 MiB of each), counters, recording log, mark files, recovery plan,
errors, file sizes and free disk space. It has no certificate, key, token or password, no message, and nothing
that services print. Unpack it and begin with README.txt, which says what each file is. With --endpoints the
file has what members report over the network: the verdict, `cluster tool describe`, their logs, the stacks
of their threads, and the versions on this host. A member that does not answer is named on standard error;
the exit status is 1 if none answers. Without --dir and --endpoints the command asks CLUSTER_ENDPOINTS, else
reads the directory in CLUSTER_DIR, else ./cluster-data.
"""


@app.command(epilog=EPILOG)
@connects
def bundle(
    directory: Annotated[
        Path | None, optional_directory("A whole cluster's directory, or a member's.")
    ] = None,
    endpoints: OptionalEndpoints = None,
    config: Annotated[
        Path | None,
        typer.Option(help="The member's configuration file, if it is not node.toml in its directory."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write (default: cluster-bundle-TIME.tar.gz).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Collect logs, configuration and state of a cluster in one file, without secrets."""
    directory, endpoints = place(directory, endpoints)
    members = [] if directory is None else _members(directory)
    if config is not None and len(members) != 1:
        raise typer.BadParameter("give --dir of the one member that it configures", param_hint="--config")
    afar = {} if endpoints is None else log_ends(endpoints, LOG_BYTES_MAX)
    for error in (each for each in afar.values() if isinstance(each, ClusterError)):
        print(f"{printable(str(error))}: nothing of this member is in the file", file=sys.stderr)
    where = ("--endpoints", str(endpoints)) if directory is None else ("--dir", str(directory))
    now = datetime.now(UTC)
    name = f"cluster-bundle-{now:%Y%m%dT%H%M%SZ}"
    file = out or Path(f"{name}.tar.gz")
    with (
        StorageErrors(file, "cannot be written"),
        _whole(file) as aside,
        tarfile.open(aside, "w:gz") as archive,
    ):
        os.chmod(aside, 0o600)
        count = 0
        for path, data in chain(_with_stacks(_contents(where, members, config)), _logs_of(afar)):
            info = tarfile.TarInfo(f"{name}/{path}")
            info.size, info.mtime, info.mode = len(data), int(now.timestamp()), 0o600
            archive.addfile(info, io.BytesIO(data))
            count += 1
    size = file.stat().st_size
    done = {"file": str(file), "files": count, "bytes": size}
    print_result(as_json, done, f"{file}: {count} files, {size:,} bytes")
    if afar and all(isinstance(each, ClusterError) for each in afar.values()):
        raise typer.Exit(1)


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[Path]:
    """Where to write it: it has its own name once it is whole, and is gone if that fails.

    Raises ConfigurationError for what is no file, such as /dev/null.
    """
    target = file.resolve()
    if target.exists() and not target.is_file():
        raise ConfigurationError(f"{file}: is no regular file, expected the name of one")
    aside = target.with_name(f"{target.name}.tmp")
    try:
        yield aside
        aside.replace(target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _members(directory: Path) -> list[Path]:
    from cluster.archive.files import OsFiles
    from cluster.reader.member_directory import find_cluster_directory, members_in

    members = [Path(member) for member in members_in(OsFiles(), str(directory))]
    if not members:
        find_cluster_directory(OsFiles(), str(directory))  # says what is missing
    return members or [directory]


def _contents(
    where: tuple[str, str], members: list[Path], config: Path | None
) -> Iterator[tuple[str, bytes]]:
    yield "README.txt", README.encode()
    yield "versions.json", _json(_versions())
    yield "clocks.json", _json(_clocks())
    yield "status.txt", _said("status", *where)
    yield "status.json", _said("status", *where, "--json")
    if not members:
        yield "describe.json", _said("tool", "describe", *where, "--json")
    logs = [f"{name}{end}" for name in LOG_NAMES for end in (".1", "")]
    for member in members:
        _ask_for_stacks(member)
    for member in members:
        folder = member.resolve().name
        yield f"{folder}/counters.json", _said("top", "--dir", str(member), "--once", "--counters", "--json")
        for verb in ("describe", "recording-log", "recovery-plan", "errors"):
            yield f"{folder}/{verb}.json", _said("tool", verb, "--dir", str(member), "--json")
        yield f"{folder}/archive.json", _said("archive", "describe", "--dir", str(member), "--json")
        yield f"{folder}/disk.json", _json(_disk(member))
        file = config or member / "node.toml"
        if os.path.exists(file):
            yield f"{folder}/configuration.json", _said("node", "--check", str(file), "--json")
        for path in (*(member / name for name in logs), *(member / "cluster" / name for name in NOTES)):
            if os.path.isfile(path):
                yield f"{folder}/{path.name}", _end_of(path)


def _logs_of(afar: dict[int, dict[str, bytes] | ClusterError]) -> Iterator[tuple[str, bytes]]:
    for member_id, logs in afar.items():
        if not isinstance(logs, ClusterError):
            yield from ((f"member-{member_id}/{name}", end) for name, end in logs.items())


def _with_stacks(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Beside each node.log the last stacks in it, as text."""
    for path, data in files:
        yield path, data
        folder, _, name = path.rpartition("/")
        if name == "node.log" and (found := _last_stacks(data)) is not None:
            yield f"{folder}/{STACKS_FILE_NAME}", stacks_text(found["timestamp"], found["stacks"])


def _last_stacks(log: bytes) -> dict[str, Any] | None:
    for line in reversed(log.splitlines()):
        if b'"stacks"' in line:
            with contextlib.suppress(ValueError):
                found: dict[str, Any] = json.loads(line)
                if "stacks" in found:
                    return found
    return None


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def _said(*arguments: str) -> bytes:
    """What a command prints, its errors included."""
    from cluster.cli.main import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(arguments)
    ended = f"exit status {status}\n" if status not in (0, 1) or not out.getvalue() else ""
    return (out.getvalue() + ended).encode()


def _versions() -> dict[str, Any]:
    packages = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    return {
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "packages": packages,
    }


def _clocks() -> dict[str, Any]:
    return {
        "utc": datetime.now(UTC).isoformat(),
        "zone": time.strftime("%Z %z"),
        "monotonicS": time.monotonic(),
        "sinceBootS": time.clock_gettime(time.CLOCK_BOOTTIME),
    }


def _disk(member: Path) -> dict[str, Any]:
    usage = shutil.disk_usage(member)
    return {"total": usage.total, "free": usage.free, "files": dict(_sizes(member))}


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """Of all files in it; what a running member removes meanwhile is left out."""
    for path in sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            if stat.S_ISREG(found.st_mode):
                yield str(path.relative_to(folder)), found.st_size


def _ask_for_stacks(member: Path) -> None:
    """Have a running member of ours write them into node.log, and wait until they are there."""
    from cluster.cli.running_member import is_locked, mark_of

    log = member / "node.log"
    with contextlib.suppress(ClusterError, OSError):  # it has ended meanwhile, or is another user's
        if not is_locked(str(member)) or not log.exists():
            return
        with log.open("rb") as lines:
            lines.seek(0, os.SEEK_END)
            os.kill(mark_of(str(member)).pid, signal.SIGUSR2)
            deadline = time.monotonic() + STACKS_TIMEOUT_S
            while time.monotonic() < deadline and b'"stacks"' not in lines.read():
                time.sleep(0.02)


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - LOG_BYTES_MAX, 0))
            return file.read()
    except OSError as error:
        return f"{path}: {error.strerror}\n".encode()
