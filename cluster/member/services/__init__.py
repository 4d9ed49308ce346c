"""A member and its services: messages to and from them, snapshots, the end."""
