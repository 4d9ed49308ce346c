"""The committed Log as rows: planned on the driver, read by tasks. Read ``readers.py`` first."""
