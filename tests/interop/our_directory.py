"""The directory that real Aeron judges: thousands of entries, two terms, several segments."""

from __future__ import annotations

from pathlib import Path

from cluster.transport.clock import epoch_ms
from tests.archive.logs import LogWriter
from tests.archive.members import MEMBER_ID, Member

SEGMENT_LENGTH = 256 * 1024


def write_log() -> LogWriter:
    """Two leadership terms of eight sessions, with fragmented messages, padding and timers."""
    log = LogWriter()
    log.term(0, MEMBER_ID)
    for seed in range(5):
        log.walk(seed, 300)
    log.term(1, MEMBER_ID)
    for seed in range(5, 8):
        log.walk(seed, 300)
    return log


def write_our_member(directory: Path, *, checksum: str | None = None, is_clean: bool = True) -> LogWriter:
    """Write cluster/ and archive/ as a member does; not ``is_clean`` ends as SIGKILL would."""
    log = write_log()
    member = Member(directory, checksum=checksum, segment_length=SEGMENT_LENGTH)
    member.write(log)
    if is_clean:
        member.marks[1].record_error("a test's error: nothing is wrong", epoch_ms())
        member.stop()
    else:
        member.kill()
    return log
