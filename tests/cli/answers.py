"""What a member answers that is asked how it stands."""

from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.link import LogStatus

ANSWER = LogStatus(
    correlation_id=0, start_position=0, commit_position=96, append_position=96, leadership_term_id=0,
    first_term_timestamp=None, first_log_session_id=None, cluster_id=0, member_id=0, leader_member_id=0,
    role=2, election_state=17, module_state=1, session_count=0, term_length=65536, mtu=1408,
    initial_term_id=0, time_unit=ClusterTimeUnit.MILLIS,
)  # fmt: skip
