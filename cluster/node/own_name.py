"""The names that a member listens at: known soon after a host has started, and what others reach it by."""

import ipaddress
import threading
import time
from collections.abc import Callable

from cluster.errors import TimedOut
from cluster.node.config import NodeConfig
from cluster.node.exposure import host_within, is_loopback, listening
from cluster.transport.endpoint import LOOPBACK_HOSTS
from cluster.transport.names import is_numeric, look_up

OWN_NAME_TIMEOUT_S = 30.0
POLL_S = 0.5


def await_own_names(
    config: NodeConfig, sleep: Callable[[float], None] = time.sleep, timeout_s: float = OWN_NAME_TIMEOUT_S
) -> list[str]:
    """Wait until the own names resolve; what was waited for, in lines. Raises TimedOut."""
    lines = []
    deadline = time.monotonic() + timeout_s
    for key, endpoint in listening(config).items():
        host, why = host_within(endpoint), ""
        while True:
            addresses, reason = look_up(host)
            if addresses:
                break
            why = reason
            if time.monotonic() >= deadline:
                raise TimedOut(f"{key} {endpoint}: {host} does not resolve, for {timeout_s:g} s now: {why}")
            sleep(POLL_S)
        if why:
            lines.append(f"{key} {endpoint} did not resolve at first: {why}")
    return lines


def warn_of_loopback(config: NodeConfig, warn: Callable[[str], None]) -> None:
    """Warn where the own name is loopback, as Debian's 127.0.1.1, and another member's is not."""
    own = host_within(config.member.consensus_endpoint)
    if config.listen or is_numeric(own) or own in LOOPBACK_HOSTS or not is_loopback(own):
        return
    threading.Thread(target=_warn, args=(config, own, warn), name="own name", daemon=True).start()


def _warn(config: NodeConfig, own: str, warn: Callable[[str], None]) -> None:
    for member in config.cluster_members:
        host = host_within(member.consensus_endpoint)
        reached = [] if host == own else look_up(host)[0]
        if any(not ipaddress.ip_address(address).is_loopback for address in reached):
            warn(
                f"warning: {own} is {', '.join(look_up(own)[0])} on this host, where member "
                f"{member.member_id} at {host} cannot reach it: give it the host's address, in /etc/hosts or "
                "in members"
            )
            return
