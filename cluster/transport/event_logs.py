"""The logs for people in a member's directory, from the place on that a reader has come to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import BinaryIO

from cluster.protocol.link import EventLines, EventsRequest

LOG_NAMES = ("node.log", "backup.log", "audit.log", "audit-metrics.log")  # EventsRequest has their number
BLOCK_BYTES = 256 * 1024


class EventLogs:
    """Those of one member, each with the file before it (node.log.1)."""

    def __init__(self, folder: str, member_id: int) -> None:
        self._folder = folder
        self._member_id = member_id

    def lines(self, request: EventsRequest) -> Iterator[EventLines]:
        """What has come since the request's place. Raises OSError."""
        if not 0 <= request.log < len(LOG_NAMES):
            return
        path = os.path.join(self._folder, LOG_NAMES[request.log])
        with ExitStack() as opened:
            files: list[BinaryIO] = []
            for name in (path, f"{path}.1"):  # in this order none is missed that is renamed meanwhile
                with suppress(FileNotFoundError):
                    files.insert(0, opened.enter_context(open(name, "rb")))
            for inode, file in _since(request, {os.fstat(file.fileno()).st_ino: file for file in files}):
                while data := file.read(BLOCK_BYTES):
                    yield EventLines(request.correlation_id, inode, file.tell(), self._member_id, data)


def _since(request: EventsRequest, files: dict[int, BinaryIO]) -> Iterator[tuple[int, BinaryIO]]:
    """Which of the files have more, each where that begins; ``files`` by inode, the older one first."""
    inodes = list(files)
    if request.inode in files:
        inodes = inodes[inodes.index(request.inode) :]
    elif request.offset < 0:
        inodes = inodes[-1:]
    for inode in inodes:
        file = files[inode]
        if inode == request.inode:
            file.seek(request.offset)
        elif os.fstat(file.fileno()).st_mtime_ns < request.since_ms * 1_000_000:
            continue
        elif request.offset < 0 and file.seek(max(0, file.seek(0, os.SEEK_END) + request.offset)):
            file.readline()  # the rest of one
        yield inode, file
