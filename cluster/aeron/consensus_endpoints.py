"""The consensus endpoints of an Aeron Cluster, as people write them."""

from __future__ import annotations

from cluster.errors import ConfigurationError


def parse_consensus_endpoints(text: str) -> list[str]:
    """``host:port,…``, each once. Raises ConfigurationError."""
    found: list[str] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        _, _, endpoint = word.rpartition("=")  # a member's id may stand in front
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigurationError(f"consensus endpoint {word!r}: expected host:port")
        if endpoint not in found:
            found.append(endpoint)
    if not found:
        raise ConfigurationError("no consensus endpoint is given, expected host:port,…")
    return found
