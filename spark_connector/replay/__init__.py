"""The Log given to a service once more: the format ``cluster-replay``, and streams of what a service does."""
