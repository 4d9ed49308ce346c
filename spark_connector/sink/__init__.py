"""Rows as ingress, each once in the Log. Read ``writers.py`` first."""
