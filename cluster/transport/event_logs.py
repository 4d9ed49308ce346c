"""The logs for people in a member's directory, from the place on that a reader has come to; and stacks."""

import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import BinaryIO

from cluster.protocol.link import EventLines, EventsRequest

LOG_NAMES = ("node.log", "backup.log", "audit.log", "audit-metrics.log")  # EventsRequest has their number
STACKS_FILE_NAME = "stacks.txt"  # where they are put
STACKS = len(LOG_NAMES)  # in place of a log: what all threads do now, as text
STACKS_INTERVAL_S = (
    1.0  # who asks sooner gets the last ones: they take the interpreter from the member's thread
)
BLOCK_BYTES = 256 * 1024
_TIME = re.compile(rb'"(?:timestamp|time)": "([^"]+)"')


class EventLogs:
    """Those of one member, each with the file before it (node.log.1)."""

    def __init__(self, folder: str, member_id: int) -> None:
        self._folder = folder
        self._member_id = member_id
        self._stacks = b""
        self._next_stacks_s = 0.0

    def lines(self, request: EventsRequest) -> Iterator[EventLines]:
        """What has come since the request's place. Raises OSError at its end, of what cannot be read."""
        if request.log == STACKS:
            yield EventLines(request.correlation_id, 0, 0, self._member_id, self._stacks_now())
        if not 0 <= request.log < len(LOG_NAMES):
            return
        path = os.path.join(self._folder, LOG_NAMES[request.log])
        with ExitStack() as opened:
            files: list[BinaryIO] = []
            failures: list[OSError] = []
            for name in (path, f"{path}.1"):  # in this order none is missed that is renamed meanwhile
                try:
                    files.insert(0, opened.enter_context(open(name, "rb")))
                except FileNotFoundError:
                    pass
                except OSError as error:
                    failures.append(error)
            for inode, file in _since(request, {os.fstat(file.fileno()).st_ino: file for file in files}):
                while data := file.read(BLOCK_BYTES):
                    yield EventLines(request.correlation_id, inode, file.tell(), self._member_id, data)
        for failure in failures:
            raise failure

    def _stacks_now(self) -> bytes:
        if time.monotonic() >= self._next_stacks_s:
            self._next_stacks_s = time.monotonic() + STACKS_INTERVAL_S
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._stacks = stacks_text(at, stacks_of_threads())
        return self._stacks


def stacks_of_threads() -> dict[str, list[str]]:
    """The calls of each thread of this process by its number, the innermost last."""
    return {str(thread): traceback.format_stack(frame) for thread, frame in sys._current_frames().items()}


def stacks_text(at: str, stacks: Mapping[str, Sequence[str]]) -> bytes:
    """As people read what ``stacks_of_threads`` returned."""
    threads = (f"thread {thread}\n{''.join(calls)}" for thread, calls in stacks.items())
    return "\n".join([f"at {at}\n", *threads]).encode()


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
        elif request.offset < 0:
            if file.seek(max(0, file.seek(0, os.SEEK_END) + request.offset)):
                file.readline()  # the rest of one
        elif request.since_ms > 0:
            file.seek(_begin_of(file, request.since_ms))
        yield inode, file


def _begin_of(file: BinaryIO, since_ms: int) -> int:
    """Where a line begins, less than two blocks before the first one of that time.

    One line a block is looked at from the beginning on, because a clock may have been set back.
    """
    begin = 0
    for place in range(BLOCK_BYTES, file.seek(0, os.SEEK_END), BLOCK_BYTES):
        file.seek(place)
        file.readline()  # the rest of one
        at = file.tell()
        if _time_ms(file.readline()) >= since_ms:
            break
        begin = at
    return begin


def _time_ms(line: bytes) -> float:
    """Since the epoch; -1 of a line without a time."""
    match = _TIME.search(line)
    try:
        return datetime.fromisoformat(match[1].decode()).timestamp() * 1000 if match else -1
    except ValueError:
        return -1
