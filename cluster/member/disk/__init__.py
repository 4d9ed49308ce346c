"""A member's disk: files, damage and its repair, promises, snapshots that are loaded, fetched and served."""
