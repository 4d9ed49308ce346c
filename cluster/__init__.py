"""A replicated log that Spark can read and write, byte-compatible with Aeron Cluster.

What users import is named here and loaded when it is asked for, so that ``import cluster`` costs nothing;
``__init__.pyi`` names it for type checkers.
Read first: ``service/`` to write a state machine, ``client/`` to send to one, ``reader/`` to read the log,
``node/`` to embed a member; ``consensus/`` is how members agree, ``log/`` and ``protocol/`` the bytes.
"""

from importlib import import_module
from typing import Any

_MODULE_OF = {
    # a state machine
    "ClusteredService": "cluster.service.clustered_service",
    "SessionMessageBatch": "cluster.service.message_batch",
    "Cluster": "cluster.service.cluster",
    "ClientSession": "cluster.service.client_session",
    "BufferClaim": "cluster.service.buffer_claim",
    "ServiceContext": "cluster.service.service_context",
    "ExclusivePublication": "cluster.service.clustered_service",
    "NO_ANSWER": "cluster.log.message_calls",
    "NOT_TAKEN": "cluster.log.message_calls",
    # a client of it
    "ClusterClient": "cluster.client.cluster_client",
    "AsyncClusterClient": "cluster.client.async_client",
    "AsyncConnect": "cluster.client.cluster_client",
    "ClientContext": "cluster.client.context",
    "CredentialsSupplier": "cluster.transport.credentials",
    "EgressListener": "cluster.client.egress_listener",
    "Answer": "cluster.client.egress_dispatch",
    "EgressBatch": "cluster.client.egress_dispatch",
    "ControlledAction": "cluster.client.egress_dispatch",
    "Consumer": "cluster.protocol.consumer",
    "Lane": "cluster.protocol.lane",
    "LaneStanding": "cluster.protocol.lane",
    "ClientState": "cluster.client.session_conductor",
    "Offer": "cluster.protocol.enums",
    "TokenCredentials": "cluster.transport.credentials",
    "PasswordCredentials": "cluster.transport.credentials",
    # a reader of the log
    "LogReader": "cluster.reader.log_reader",
    "Entry": "cluster.reader.entry",
    "PositionToken": "cluster.protocol.token",
    "parse_token": "cluster.protocol.token",
    # a member
    "ClusterNode": "cluster.node.node",
    "NodeConfig": "cluster.node.config",
    "Authenticator": "cluster.consensus.authentication",
    "AuthorisationService": "cluster.consensus.authentication",
    "TlsFiles": "cluster.transport.tls",
    # what they speak of
    "Role": "cluster.protocol.enums",
    "CloseReason": "cluster.protocol.enums",
    "EventCode": "cluster.protocol.enums",
    "AdminRequestType": "cluster.protocol.enums",
    "AdminResponseCode": "cluster.protocol.enums",
    "ClusterTimeUnit": "cluster.protocol.enums",
    # what they raise
    "ClusterError": "cluster.errors",
    "ConfigurationError": "cluster.errors",
    "NotAClusterDirectory": "cluster.errors",
    "DirectoryInUse": "cluster.errors",
    "PortInUse": "cluster.errors",
    "LogDamaged": "cluster.errors",
    "DataLoss": "cluster.errors",
    "LogPurged": "cluster.errors",
    "StorageError": "cluster.errors",
    "NotLeader": "cluster.errors",
    "ClientClosed": "cluster.errors",
    "AuthenticationRejected": "cluster.errors",
    "BatchRegistered": "cluster.errors",
    "ApplicationUnknown": "cluster.errors",
    "TimedOut": "cluster.errors",
    "MembersApart": "cluster.errors",
    "ServiceError": "cluster.errors",
    "AgentTermination": "cluster.errors",
    "ProtocolError": "cluster.errors",
    "LocalProtocolError": "cluster.errors",
    "RemoteProtocolError": "cluster.errors",
    "TlsFailed": "cluster.errors",
}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'cluster' has no attribute {name!r}")
    try:
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:
        from cluster.errors import ExtraNeeded, need

        if not isinstance(error, ExtraNeeded):
            need("node")
        raise
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_MODULE_OF])
