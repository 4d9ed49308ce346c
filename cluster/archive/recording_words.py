"""Where the end of a recording is, and a reader, in words that Python and compiled turns share.

They are those of ``Recording.words`` and ``LogCursor.words``.
"""

(
    APPEND_POSITION,
    SYNCED_POSITION,
    SEGMENT_BASE,  # position of the segment that is written
    WRITTEN_BACK,  # position: up to here the device has been asked to write
    UNPROVEN_CRC,  # of [synced position, append position)
    IS_SINGLE_FRAME,  # with a checksum, and all that is not synced
) = range(6)
RECORDING_WORDS = 6

READ_POSITION, TAKEN_POSITION = range(2)
CURSOR_WORDS = 2

WRITE_BACK_BYTES = 1024 * 1024  # appended without a sync: let the device begin
