"""A session with the cluster: AeronCluster's client, and what it needs to follow a leader by itself.

Read first ``cluster_client.py`` and ``client_calls.py`` (what a caller may do, and in which thread it
happens), then ``session_conductor.py`` (the states, and how the leader is followed), ``connecting.py`` (how a
session is opened) and ``window.py`` (how a message is in the log once, through leader changes).
``requests.py`` finds the answer to one message.

The package never reads a clock, waits, opens a socket or starts a thread itself: all that comes from a
``World`` (``ingress_publication.py``): ``cluster.transport.dialler`` in earnest, a script in tests.
"""

from cluster.client.cluster_client import ClusterClient
from cluster.client.context import ClientContext
from cluster.client.egress_dispatch import ControlledAction, EgressBatch
from cluster.client.session_conductor import ClientState
from cluster.protocol.enums import Offer
from cluster.transport.credentials import CredentialsSupplier

PublicationResult = Offer  # the name that some know it by

__all__ = [
    "ClientContext",
    "ClusterClient",
    "ControlledAction",
    "CredentialsSupplier",
    "EgressBatch",
    "Offer",
    "PublicationResult",
    "ClientState",
]
