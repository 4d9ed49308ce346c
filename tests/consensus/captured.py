"""What a consensus module's snapshot says, as it is written when there is time for all of it at once."""

from __future__ import annotations

from cluster.consensus.module_snapshot import CapturedModule


def records_of_capture(captured: CapturedModule) -> list[bytes]:
    """Every record but those that come when the services' recordings are known."""
    for _ in captured.sort():
        pass
    return [captured.begin, *captured.state(), *captured.end()]
