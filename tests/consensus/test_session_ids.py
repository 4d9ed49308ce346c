"""The next session id in a snapshot is a function of the log's position, on every member alike.

Members whose snapshots of one position differ cannot be compared (aeron-io/aeron issue 1739, PR 1918).
"""

from cluster.consensus.cluster_session import ClusterSession
from cluster.consensus.session_events import KnownLeader
from cluster.consensus.sessions import SessionManager
from cluster.protocol.log import SessionOpenEvent
from cluster.protocol.session import SessionConnectRequest
from tests.consensus.language import CLUSTER_TIME, START_NS, TERM, a_context

ENTRY = 96


class Log:
    """A leader's log of session opens; every connection is there and takes everything."""

    def __init__(self) -> None:
        self.opened: list[SessionOpenEvent] = []

    def append_session_open(self, session: ClusterSession) -> int:
        self.opened.append(SessionOpenEvent(TERM, session.correlation_id, session.id, CLUSTER_TIME, 102))
        return ENTRY * len(self.opened)

    def append_session_close(self, session: ClusterSession, reason: object) -> int:
        raise AssertionError("nothing closes here")

    def ingress_endpoints(self, connection_id: int) -> str:
        return ""

    def is_connected(self, connection_id: int) -> bool:
        return True

    def certificate_name(self, connection_id: int) -> None:
        return None

    def address(self, connection_id: int) -> str:
        return ""

    def on_refused(self, connection_id: int, encoded_principal: bytes, what: str, why: str) -> None:
        raise AssertionError(why)

    def send_egress(self, connection_id: int, message: object) -> bool:
        return True

    def close_egress(self, connection_id: int) -> None:
        pass

    def dial(self, session: ClusterSession) -> None:
        raise AssertionError("nobody leads again here")


class Sessions:
    """A member's sessions and its log."""

    def __init__(self) -> None:
        self.log = Log()
        self.manager = SessionManager(a_context(), self.log)

    def opens(self, count: int) -> None:
        request = SessionConnectRequest(7, 102, 3 << 8, "aeron:ipc")
        for connection_id in range(count):
            self.manager.on_connect_request(connection_id, request, is_leader=True, now_ns=START_NS, now_ms=0)
            self.manager.process_pending(KnownLeader(TERM, 0), CLUSTER_TIME, START_NS, 0)

    def reads(self, log: Log, count: int) -> None:
        for number, event in enumerate(log.opened[:count], 1):
            self.manager.on_replay_session_open(event, ENTRY * number)


def test_a_1739_leader_and_followers_agree_on_the_next_session_id_at_every_position():
    leader = Sessions()
    leader.opens(5)  # appended, and committed one by one
    told = []
    for count in range(6):
        leader.manager.sweep(ENTRY * count)
        follower = Sessions()
        follower.reads(leader.log, count)
        told.append((leader.manager.next_committed_session_id, follower.manager.next_committed_session_id))

    assert [one for one, _ in told] == [other for _, other in told]
    assert len(set(told)) == 6, "each open moves it"


def test_a_1918_opens_that_were_never_committed_leave_no_trace_in_it():
    leader = Sessions()
    leader.opens(3)
    leader.manager.sweep(ENTRY)
    before = leader.manager.next_committed_session_id

    leader.manager.prepare_for_new_election(ENTRY, KnownLeader(TERM, 0), 0)
    leader.manager.sweep(ENTRY * 10)

    assert leader.manager.next_committed_session_id == before
    assert leader.manager.next_session_id > max(event.cluster_session_id for event in leader.log.opened)
