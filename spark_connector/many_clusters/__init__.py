"""Several clusters in one read or write: sources and sinks over those of single clusters."""
