"""Where a service is in the log, and what its member is."""

from dataclasses import dataclass, field

import numpy as np

from cluster.protocol.enums import ClusterTimeUnit, Role
from cluster.service.channel import NO_NUMBERS
from cluster.service.message_batch import SessionMessageBatch


@dataclass(slots=True)
class ServiceState:
    """What the log and the consensus module have said up to the event being delivered."""

    member_id: int = -1  # -1 before the first log is joined
    is_standby: bool = False
    role: Role = Role.FOLLOWER
    log_position: int = 0  # after the event
    leadership_term_id: int = -1  # -1 before the first
    cluster_time: int = 0
    time_unit: ClusterTimeUnit | None = None  # None before the first leadership term
    batch: SessionMessageBatch | None = None  # the one being delivered
    # int64, of its messages in their sessions
    batch_numbers: np.ndarray = field(default_factory=lambda: NO_NUMBERS)
    message_session_id: int = 0  # of the message being delivered by itself
    message_number: int = 0  # its number in that session; 0: none is delivered
