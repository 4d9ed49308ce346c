"""Stream ids: which conversation a frame belongs to. Aeron Cluster's defaults, and one of our own."""

from typing import Final

LOG: Final = 100  # leader to followers, and into the recording
INGRESS: Final = 101  # client to leader
EGRESS: Final = 102  # leader to client; by default, the client chooses
REPLAY: Final = 103  # archive to whoever replays a snapshot or the local log
SERVICE: Final = 104  # consensus module to services and tools
CONSENSUS_MODULE: Final = 105  # services and tools to consensus module
SERVICE_SNAPSHOT: Final = 106  # of services only: the consensus module's snapshot has its own
CONSENSUS_MODULE_SNAPSHOT: Final = 107
CONSENSUS: Final = 108  # member to member

ENVELOPE: Final = 1001  # around all that members send each other: cluster/transport/envelopes.py
LINK: Final = 1000  # what Aeron's protocol lacks or its media driver does: see link.py
