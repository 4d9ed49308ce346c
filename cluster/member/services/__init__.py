"""A member and its services: what they are told and what they send, snapshots, the end."""
