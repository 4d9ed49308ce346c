"""What members keep beside the Log, as rows: the format ``cluster-snapshot``."""
