"""How far the log is committed, where its end is in memory, how far followers are sent it: for all turns."""

COMMIT_POSITION = 0  # of a MemberLog

BASE, PUBLICATION_POSITION, FLUSHED = range(3)  # its first byte, what is appended to it, and of that written
LOG_WORDS = 3

# A row of followers: the descriptor that sends to it, -1: none; how far it was sent the log; whether that
# goes on with whatever is appended.
OUT, STREAM_POSITION, IS_LIVE = range(3)
FOLLOWER_WORDS = 3
