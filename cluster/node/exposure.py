"""Whether strangers can reach a member that lets everybody in: then it does not start."""

import ipaddress
import socket

from cluster.errors import ConfigurationError
from cluster.node.config import NodeConfig
from cluster.protocol.response_channel import parameter

INGRESS_CHANNEL, CONSENSUS_CHANNEL = "ingress_channel", "consensus_channel"
ARCHIVE_CHANNEL = "archive_control_channel"


def check_exposure(config: NodeConfig) -> None:
    """Raise ConfigurationError for a member that would listen beyond loopback, unless it may.

    Whose list of members is the default, and not written, may not: a list that was lost looks the same. A
    name counts as what it resolves to; one that does not resolve cannot be listened at.
    """
    is_written = "members" in config.model_fields_set
    if is_written and config.insecure_network:
        return
    is_secure = config.tls_files is not None and config.authenticator != "none"
    for key, endpoint in listening(config).items():
        if is_loopback(host_within(endpoint)):
            continue
        if not is_written:
            raise ConfigurationError(
                f"{key} {endpoint} is not on loopback, but members is not configured: write the list of "
                "all members, also of one alone"
            )
        if key in (INGRESS_CHANNEL, ARCHIVE_CHANNEL, CONSENSUS_CHANNEL):
            raise ConfigurationError(
                f"{key} {endpoint} is not on loopback, and Aeron's medium knows no TLS: set "
                "insecure_network = true, and let trusted hosts alone reach that port"
            )
        if not is_secure:
            raise ConfigurationError(
                f"{key} {endpoint} is not on loopback, where strangers could reach this member: set TLS "
                "(tls_certificate, tls_key, tls_ca) and an authenticator, or insecure_network = true"
            )


def listening(config: NodeConfig) -> dict[str, str]:
    """What a member listens at, by what that is for."""
    consensus = CONSENSUS_CHANNEL if config.consensus_channel != "none" else "the consensus endpoint"
    found = {consensus: config.listens_at(config.member.consensus_endpoint)}
    if config.grpc_gateway != "none":
        found["the ingress endpoint"] = config.listens_at(config.member.ingress_endpoint)
    if config.aeron_ingress:
        found[INGRESS_CHANNEL] = parameter(config.aeron_ingress, "endpoint")
    if config.aeron_archive:
        found[ARCHIVE_CHANNEL] = parameter(config.aeron_archive, "endpoint")
    if config.tcp_listen:
        found["tcp_ingress"] = config.tcp_listen
    if metrics := config.metrics_address:
        found["metrics_endpoint"] = metrics
    return found


def host_within(endpoint: str) -> str:
    """The host of ``HOST:PORT``, an address of IPv6 without its brackets."""
    return endpoint.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Whether all that the host's name stands for is this host alone."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)
