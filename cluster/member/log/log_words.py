"""Where the end of the log lies that is in memory, and how far followers are sent it: words for all turns."""

BASE, PUBLICATION_POSITION, FLUSHED = range(3)  # its first byte, what is appended to it, and of that written
LOG_WORDS = 3

# A row of followers: the descriptor that sends to it, -1: none; how far it was sent the log; whether that
# goes on with whatever is appended.
OUT, STREAM_POSITION, IS_LIVE = range(3)
FOLLOWER_WORDS = 3
