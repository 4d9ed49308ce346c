"""Which members a reader asks first. Any of them serves the same committed log."""

from collections.abc import Mapping

from cluster.errors import ConfigurationError

FOLLOWER, LEADER, ANY = "follower", "leader", "any"

# A kind of member, or the id of one.
ReadPreference = str | int


def parse_preference(text: str) -> ReadPreference:
    """Raises ConfigurationError with the text for what is none."""
    word = text.strip().lower()
    if word in (FOLLOWER, LEADER, ANY):
        return word
    if word.isascii() and word.isdigit() and len(word) < 10:
        return int(word)
    raise ConfigurationError(
        f"{text!r} is no read preference; expected follower, leader, any or a member's id"
    )


def in_order(leads: Mapping[int, bool], preference: ReadPreference, spread: int) -> list[int]:
    """The members, each with whether it leads, preferred first; ``spread`` chooses among equals."""
    members = sorted(leads)
    leaders = [m for m in members if leads[m]]
    followers = _turned([m for m in members if not leads[m]], spread)
    match preference:
        case "leader":
            return leaders + followers
        case "any":
            return _turned(members, spread)
    ordered = followers + leaders
    return sorted(ordered, key=lambda member_id: member_id != preference)  # stable


def _turned(members: list[int], spread: int) -> list[int]:
    turn = spread % len(members) if members else 0
    return members[turn:] + members[:turn]
