"""Phases of a member: what it does while it repairs, elects, fetches, leads or follows."""
