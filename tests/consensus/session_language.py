"""Sessions of a leader, and what their port is asked to do."""

from cluster.consensus.authentication import AllowAllButAdmin, DefaultAuthenticator, Security
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.session_events import KnownLeader
from cluster.consensus.sessions import SessionManager
from cluster.protocol.link import SessionResume
from cluster.protocol.log import SessionOpenEvent
from cluster.protocol.resume import with_resume_hash
from cluster.protocol.session import SessionConnectRequest, SessionEvent

TERM, LEADER = 5, 0
LEADING = KnownLeader(TERM, LEADER)
ENDPOINTS = "0=a:1,1=b:1,2=c:1"
VERSION = 3 << 8
TOKEN = b"0123456789abcdef"


class Outside:
    """Log and connections: what was appended and sent; both can be told to refuse."""

    def __init__(self):
        self.log = []
        self.egress = []
        self.closed = []
        self.dialled = []
        self.names = {}
        self.addresses = {}
        self.refused = []
        self.takes_log = True
        self.connected = {1, 2, 3, 4, 5, 6}
        self.takes_egress = True
        self.position = 1000

    def append_session_open(self, session):
        return self._append(("open", session.id))

    def append_session_close(self, session, reason):
        return self._append(("close", session.id, reason))

    def _append(self, entry):
        if not self.takes_log:
            return -2
        self.log.append(entry)
        self.position += 96
        return self.position

    def ingress_endpoints(self, connection_id):
        return ENDPOINTS

    def is_connected(self, connection_id):
        return connection_id in self.connected

    def certificate_name(self, connection_id):
        return self.names.get(connection_id)

    def address(self, connection_id):
        return self.addresses.get(connection_id, "")

    def on_refused(self, connection_id, encoded_principal, what, why):
        self.refused.append((connection_id, encoded_principal, what, why))

    def send_egress(self, connection_id, message):
        if not self.takes_egress or connection_id not in self.connected:
            return False
        self.egress.append((connection_id, message))
        return True

    def close_egress(self, connection_id):
        self.connected.discard(connection_id)
        self.closed.append(connection_id)

    def dial(self, session):
        self.dialled.append((session.id, session.response_channel, session.response_stream_id))

    def events(self, connection_id=None):
        return [
            (message.code, message.detail)
            for to, message in self.egress
            if isinstance(message, SessionEvent) and connection_id in (None, to)
        ]


class Sessions:
    """A member's sessions and the time; a leader unless told otherwise."""

    def __init__(self, authenticator=None, authorisation=None, **settings):
        self.outside = Outside()
        settings.setdefault("max_sessions", 10)
        self.context = ConsensusModuleContext(**settings)
        security = Security(authenticator or DefaultAuthenticator(), authorisation or AllowAllButAdmin())
        self.manager = SessionManager(self.context, self.outside, security)
        self.now_ns = 0
        self.is_committing = True  # all that is appended, at once

    @property
    def cluster_time(self):
        return self.now_ns // 1_000_000

    def connects(
        self,
        connection_id,
        *,
        version=VERSION,
        is_leader=True,
        correlation_id=77,
        credentials=b"secret",
        channel=None,
    ):
        channel = channel or with_resume_hash(f"channel-{connection_id}", TOKEN)
        request = SessionConnectRequest(correlation_id, 102, version, channel, credentials)
        self.manager.on_connect_request(
            connection_id, request, is_leader=is_leader, now_ns=self.now_ns, now_ms=self.cluster_time
        )

    def tick(self, at=None):
        if at is not None:
            self.now_ns = at
        manager = self.manager
        manager.send_redirects(LEADING, self.now_ns)
        manager.send_rejections(LEADING, self.now_ns)
        manager.process_pending(LEADING, self.cluster_time, self.now_ns, self.cluster_time)
        if self.is_committing:
            manager.sweep(self.outside.position)
        manager.check_sessions(LEADING, self.now_ns)

    def opens(self, connection_id=1):
        self.connects(connection_id)
        self.tick()
        return max(self.manager.sessions)

    def closes_uncommitted(self, session_id, reason):
        """A close that is appended and stays uncommitted; returns the commit position."""
        commit_position = self.outside.position
        self.is_committing = False
        self.manager.close(session_id, reason, LEADING)
        return commit_position

    def finds(self, session_id, token=TOKEN, credentials=b""):
        request = SessionResume(1, session_id, TERM, credentials, token)
        session = self.manager.find_resumed(request)
        if session is None:
            return None
        may = self.manager.admission.may_resume(session, 1, credentials, self.cluster_time)
        return session if may else None

    def replays_open(self, session_id, position=2000, channel="channel"):
        event = SessionOpenEvent(TERM - 1, 9, session_id, 0, 102, channel, b"who")
        self.manager.on_replay_session_open(event, position)


class Watching:
    """An authenticator that notes what it is asked, and decides as it is told."""

    def __init__(self, decide):
        self.decide = decide
        self.asked = []

    def on_connect_request(self, session_id, encoded_credentials, now_ms):
        self.asked.append(("connect", session_id, encoded_credentials))

    def on_challenge_response(self, session_id, encoded_credentials, now_ms):
        self.asked.append(("response", session_id, encoded_credentials))

    def on_connected_session(self, session, now_ms):
        self.asked.append(("connected", session.session_id))
        self.decide(session)

    def on_challenged_session(self, session, now_ms):
        self.asked.append(("challenged", session.session_id))

    def may_resume(self, encoded_principal, encoded_credentials, now_ms, certificate_name):
        return encoded_credentials == b"secret"
