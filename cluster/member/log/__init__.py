"""A member's log: recorded, sent to others and taken from them, processed, purged."""
