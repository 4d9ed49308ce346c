"""The end of the log in memory: what was appended a moment ago is read from there, not from the file.

BASE     READ_POSITIONs           FLUSHED       PUBLICATION_POSITION     end of the buffer
 |-- done with --|---- written ------|--- of this turn ---|------- free -------|
"""

from cluster.archive.recording_words import READ_POSITION, end_chunk
from cluster.log.follow import follow_run
from cluster.log.frames import DONE, OTHER_MESSAGE, next_message
from cluster.log.kernel import routine
from cluster.log.memory import copy_bytes
from cluster.member.busy import words as at
from cluster.member.log.log_words import BASE, PUBLICATION_POSITION

MOVED_FROM_BYTES = 1024 * 1024


@routine
def make_room(t):  # type: ignore[no-untyped-def]
    """Move what is still to be read to the beginning of the buffer, where that is worth it."""
    needed = t.cursor[READ_POSITION]
    if t.words[at.SERVICE] == at.COMPILED_SERVICE:
        needed = min(needed, t.service_cursor[READ_POSITION])
    done, length = needed - t.log_end[BASE], t.log_end[PUBLICATION_POSITION] - needed
    if done >= MOVED_FROM_BYTES and done >= length:
        copy_bytes(t.log, 0, t.log, done, length)
        t.log_end[BASE] = needed


@routine
def poll_log(t, limit, is_applied):  # type: ignore[no-untyped-def]
    """Count the messages up to ``limit`` in their sessions; False at an entry that is to apply, or damage.

    A leader's entries were applied when they were appended; what hangs on their commit is Python's.
    """
    cursor, base = t.cursor, t.log_end[BASE]
    taken = cursor[READ_POSITION]
    while True:
        status, offset, _ = follow_run(t.log, taken - base, limit - base, taken, t.sessions)
        if status != DONE:
            t.words[at.REASON] |= at.ENTRY
        if status == OTHER_MESSAGE and not is_applied:
            _, offset = next_message(t.log, offset, limit - base)
        taken = base + offset
        if status != OTHER_MESSAGE or is_applied:
            break
    end_chunk(cursor, taken, status == DONE, limit)
    return status == DONE
