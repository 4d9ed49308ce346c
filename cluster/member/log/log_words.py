"""Where the end of the log lies that is in memory, in words that Python and compiled turns share."""

BASE, PUBLICATION_POSITION, FLUSHED = range(3)  # its first byte, what is appended to it, and of that written
LOG_WORDS = 3
