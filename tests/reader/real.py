"""The directories of a real Aeron Cluster 1.53, unpacked once, and what the Java codecs read in its log."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.tree import SAFELY

DATA = Path(__file__).resolve().parent.parent / "data" / "aeron-cluster-1.53"
ENTRY_TYPES = {
    1: "SESSION_MESSAGE",
    20: "TIMER",
    21: "SESSION_OPEN",
    22: "SESSION_CLOSE",
    23: "CLUSTER_ACTION",
    24: "NEW_LEADERSHIP_TERM",
}


@cache
def members() -> Path:
    """The folder with member-0, member-1, member-2 and live/; not to be changed."""
    folder = Path(tempfile.mkdtemp(prefix="aeron-cluster-1.53-"))
    _folders.append(folder)
    with tarfile.open(DATA / "members.tar.xz") as archive:
        archive.extractall(folder, **SAFELY)
    return folder


_folders: list[Path] = []


def remove_unpacked() -> None:
    """Give the disk back."""
    while _folders:
        shutil.rmtree(_folders.pop(), ignore_errors=True)
    members.cache_clear()


def a_copy(tmp_path: Path, member: int = 0) -> Path:
    """A member's directory to break."""
    copy = tmp_path / f"member-{member}"
    for path in sorted((members() / f"member-{member}").rglob("*")):
        target = copy / path.relative_to(members() / f"member-{member}")
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_sparse(path, target)
    return copy


def _copy_sparse(source: Path, target: Path) -> None:
    """A recording of 64 MiB holds a few hundred bytes: the holes stay holes."""
    size = source.stat().st_size
    with source.open("rb") as read, target.open("wb") as write:
        while chunk := read.read(1 << 20):
            if chunk.count(0) != len(chunk):
                write.seek(read.tell() - len(chunk))
                write.write(chunk)
        write.truncate(size)


@cache
def expected() -> tuple[dict[str, Any], ...]:
    """The entries of the log, the same on all members, in the columns of our rows."""
    with gzip.open(DATA / "log.jsonl.gz", "rt") as lines:
        return tuple(_as_row(json.loads(line)) for line in lines)


def _as_row(entry: dict[str, Any]) -> dict[str, Any]:
    row = dict(entry)
    row["entryType"] = ENTRY_TYPES[row.pop("templateId")]
    row["clusterTime"] = row.pop("timestamp")
    if row["entryType"] in ("CLUSTER_ACTION", "NEW_LEADERSHIP_TERM"):
        row.pop("logPosition")  # the end of the entry itself
    if "flags" in row:
        row["actionFlags"] = row.pop("flags")
    return row


def as_read(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of a reader in the same form: payloads as length and hash, no derived timestamp."""
    row = {name: value for name, value in entry.items() if name != "timestamp"}
    if "payload" in row:
        payload = row.pop("payload")
        row["payloadLength"] = len(payload)
        row["payloadSha256"] = hashlib.sha256(payload).hexdigest()
    if "encodedPrincipal" in row:
        row["encodedPrincipal"] = row["encodedPrincipal"].decode()
    return row


def said(member: int, tool: str) -> str:
    """What the real tool printed about a member of the set."""
    text = (DATA / "tools.txt").read_text()
    return text.partition(f"== member-{member}: {tool}\n")[2].partition("\n== ")[0]
