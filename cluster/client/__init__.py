"""A session with the cluster: AeronCluster's client, and what it needs to follow a leader by itself.

Read first ``cluster_client.py`` (the states, and what a caller may do in each), then ``connecting.py`` (how a
session is opened) and ``window.py`` (how a message is in the log once, through leader changes).

The package never reads a clock, waits or opens a socket itself: all that comes from a ``World``
(``ingress_publication.py``), which is ``cluster.transport.dialler`` in earnest and a script in tests.
"""

from cluster.client.cluster_client import ClusterClient, State
from cluster.client.context import ClientContext, CredentialsSupplier
from cluster.client.egress_dispatch import ControlledAction, EgressBatch
from cluster.protocol.enums import Offer

PublicationResult = Offer  # the name that some know it by

__all__ = [
    "ClientContext",
    "ClusterClient",
    "ControlledAction",
    "CredentialsSupplier",
    "EgressBatch",
    "Offer",
    "PublicationResult",
    "State",
]
