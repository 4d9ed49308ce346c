"""The endpoints of Aeron that are asked for a log, as people write them."""

from __future__ import annotations

from cluster.errors import ConfigurationError


def parse_archive_endpoint(text: str) -> str:
    """``host:port`` of an archive's control channel. Raises ConfigurationError."""
    found = parse_consensus_endpoints(text, "archive")
    if len(found) > 1:
        raise ConfigurationError(f"archive {text!r}: expected one, by its control endpoint host:port")
    return found[0]


def parse_consensus_endpoints(text: str, what: str = "consensus endpoint") -> list[str]:
    """``host:port,…``, each once. Raises ConfigurationError."""
    found: list[str] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        _, _, endpoint = word.rpartition("=")  # a member's id may stand in front
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigurationError(f"{what} {word!r}: expected host:port")
        if endpoint not in found:
            found.append(endpoint)
    if not found:
        raise ConfigurationError(f"no {what} is given, expected host:port,…")
    return found
