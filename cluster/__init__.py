"""A replicated log that Spark can read and write, byte-compatible with Aeron Cluster."""
