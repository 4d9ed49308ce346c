"""The end of the log in memory: what was appended a moment ago is read from there, not from the file.

BASE     READ_POSITIONs           FLUSHED       PUBLICATION_POSITION     end of the buffer
 |-- done with --|---- written ------|--- of this turn ---|------- free -------|
"""

from cluster.archive.recording_words import READ_POSITION
from cluster.log.kernel import routine
from cluster.log.memory import copy_bytes
from cluster.member.busy.words import COMPILED_SERVICE, SERVICE
from cluster.member.log.log_words import BASE, PUBLICATION_POSITION

MOVED_FROM_BYTES = 1024 * 1024


@routine
def make_room(t):  # type: ignore[no-untyped-def]
    """Move what is still to be read to the begin of the buffer, where that is worth it."""
    needed = t.cursor[READ_POSITION]
    if t.words[SERVICE] == COMPILED_SERVICE:
        needed = min(needed, t.service_cursor[READ_POSITION])
    done, length = needed - t.log_end[BASE], t.log_end[PUBLICATION_POSITION] - needed
    if done >= MOVED_FROM_BYTES and done >= length:
        copy_bytes(t.log, 0, t.log, done, length)
        t.log_end[BASE] = needed
