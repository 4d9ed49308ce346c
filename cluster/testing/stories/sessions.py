"""Clients and their sessions."""

from cluster.consensus.authentication import AllowAllButAdmin, DefaultAuthenticator, Security, SessionProxy
from cluster.protocol.backup import BackupQuery
from cluster.protocol.session import SessionConnectRequest, SessionMessageHeader
from cluster.protocol.streams import CONSENSUS, EGRESS
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from cluster.testing.stories.stage import Stage, service_of, story

PAGE = "Clients"


@story("client-connect", "A client connects to the leader", page=PAGE)
def client_connect(stage: Stage) -> None:
    cluster, leader, follower = stage.idle_cluster()
    alice = cluster.connect("alice", member=leader)
    cluster.settle()
    stage.step("The client asks for a session on the ingress.", alice, "SessionConnectRequest", to=leader)
    stage.step(
        "The leader appends a SessionOpenEvent to the Log, which goes to all followers.",
        leader,
        "Log: SessionOpenEvent",
        to=follower,
    )
    stage.step("A follower has recorded it.", follower, "AppendPosition", to=leader)
    stage.step(
        "Once it is committed, the leader's service learns of the session from the Log.",
        service_of(leader),
        "onSessionOpen",
    )
    stage.step(
        "The client gets OK, with the ids that it names from now on.",
        leader,
        "SessionEvent .*code=OK",
        to=alice,
    )
    stage.step("So do the followers' services, at the same position.", service_of(follower), "onSessionOpen")


@story("client-redirect", "A client connects to a follower", page=PAGE)
def client_redirect(stage: Stage) -> None:
    cluster, leader, follower = stage.idle_cluster()
    alice = cluster.connect("alice", member=follower)
    cluster.settle()
    stage.step(
        "The client knows one member, which is a follower, and asks it for a session.",
        alice,
        "SessionConnectRequest",
        to=follower,
    )
    stage.step(
        "A follower creates no session. It answers with the ingress endpoints, and closes the egress.",
        follower,
        "SessionEvent .*code=REDIRECT",
        to=alice,
    )
    stage.never("Nothing of it is in the Log.", leader, "Log: SessionOpenEvent")
    stage.step("The client asks the leader.", alice, "SessionConnectRequest", to=leader)
    stage.step("There the session is opened in the Log.", leader, "Log: SessionOpenEvent")
    stage.step("The client has its session.", leader, "SessionEvent .*code=OK", to=alice)


@story("client-close", "A client closes its session", page=PAGE)
def client_close(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster()
    alice.close()
    cluster.run(0.5)
    stage.step("The client asks for the end of its session.", alice, "SessionCloseRequest", to=leader)
    stage.step(
        "The leader appends the close, with its reason.", leader, "Log: SessionCloseEvent .*CLIENT_ACTION"
    )
    stage.step("A follower's service learns of it from the Log.", service_of(follower), "onSessionClose")


@story("service-close", "A service closes a session", page=PAGE)
def service_close(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster()
    alice.offer(b"close")
    cluster.run(0.5)
    stage.step(
        "A client sends a message that the service closes sessions for.", alice, "SessionMessageHeader"
    )
    stage.step(
        "The service asks its consensus module to close the session.", service_of(leader), "CloseSession"
    )
    stage.step("The client hears that its session is closed.", leader, "SessionEvent .*CLOSED", to=alice)
    stage.step("The leader appends the close.", leader, "Log: SessionCloseEvent .*SERVICE_ACTION")
    stage.step("A follower's service reads the close.", service_of(follower), "onSessionClose")


@story("session-timeout", "A session times out", page=PAGE)
def session_timeout(stage: Stage) -> None:
    cluster, alice, leader, _ = stage.led_cluster()
    cluster.run(3)
    stage.step(
        "A client that has nothing to send keeps its session open by keep-alives.", alice, "SessionKeepAlive"
    )
    alice.pause()
    cluster.run(11)
    alice.resume()
    cluster.run(1)
    stage.step(
        "The client stands still. After 10 s the leader closes its session, and says so on the egress.",
        leader,
        "SessionEvent .*CLOSED",
        to=alice,
    )
    stage.step("Followers get the close as an entry of the Log.", leader, "Log: SessionCloseEvent .*TIMEOUT")
    stage.step("A service reads it.", service_of(leader), "onSessionClose")
    stage.step("The client finds it out when it runs again.", alice, "session 1 ended: TIMEOUT")


@story("leader-dies", "A leader dies, and its client goes to the next one", page=PAGE)
def leader_dies(stage: Stage) -> None:
    cluster, alice, old, _ = stage.led_cluster(b"one")
    cluster.kill(old)
    alice.offer(b"two")
    cluster.settle()
    new = cluster.await_leader()
    stage.step("The leader's process is killed.", old, "is killed")
    stage.step("A follower notices, and enters an election.", new, "enters an election")
    stage.step("It asks for votes.", new, "RequestVote")
    stage.step("It has a majority.", new, "election CANDIDATE_BALLOT -> LEADER_LOG_REPLICATION")
    stage.step("The Log goes on with the new term's event.", new, "Log: NewLeadershipTermEvent")
    stage.step(
        "The client's session goes on there: followers knew it from the Log.", new, "SessionResumed", to=alice
    )
    stage.step("What it sends is taken as before.", alice, "SessionMessageHeader .*'two'", to=new)
    stage.step("It is answered by the new leader's service.", new, "SessionMessageHeader .*'2'", to=alice)
    stage.step("It hears who leads, as from Aeron's new leaders.", new, "NewLeaderEvent", to=alice)


@story("old-leader-lives", "A leader that is replaced while it lives lets go of its clients", page=PAGE)
def old_leader_lives(stage: Stage) -> None:
    cluster, alice, old, _ = stage.led_cluster()
    cluster.isolate(old)
    cluster.run(13)
    new = cluster.await_leader()
    stage.step(
        "The leader is cut off. For 10 s it hears no majority.",
        old,
        "enters an election: inactive follower quorum",
    )
    stage.step("Nor do the followers hear their leader.", new, "enters an election: leader heartbeat timeout")
    stage.step(
        "The old leader hears of no new one, and lets go of its clients.", old, "lets go of the clients"
    )
    stage.step("One of the others leads the next term.", new, "Log: NewLeadershipTermEvent")
    stage.step("The client finds it.", alice, "SessionResume", to=new)
    stage.step("It hears who leads now.", new, "NewLeaderEvent", to=alice)


@story("one-egress", "Module and service answer over one egress", page=PAGE)
def one_egress(stage: Stage) -> None:
    cluster, leader, _ = stage.idle_cluster()
    alice = cluster.connect("alice")
    alice.offer(b"hello")
    cluster.settle()
    stage.step("The consensus module answers what is about the session.", leader, "SessionEvent", to=alice)
    stage.step("The client sends a message.", alice, "SessionMessageHeader .*'hello'", to=leader)
    stage.step("The service gets it.", service_of(leader), "onSessionMessage 'hello'")
    stage.step(
        "The service's answer comes over the same connection.", leader, "SessionMessageHeader .*'1'", to=alice
    )
    stage.never("A follower sends the client nothing.", (leader + 1) % 3, "SessionMessageHeader")
    stage.step(
        "Yet its service has the message, too.", service_of((leader + 1) % 3), "onSessionMessage 'hello'"
    )


@story("session-limit", "A client finds that there is no room for its session", page=PAGE)
def session_limit(stage: Stage) -> None:
    cluster = stage.cluster(max_sessions=1)
    cluster.connect("alice")
    leader = cluster.await_leader()
    cluster.run(1)
    stage.begin()
    bob = cluster.connect("bob", member=leader)
    cluster.run(1)
    stage.step("A second client asks where one may be.", bob, "SessionConnectRequest", to=leader)
    stage.step("The leader rejects it.", leader, "SessionEvent .*code=ERROR", to=bob)
    stage.never("Nothing of it is in the Log.", leader, "Log: SessionOpenEvent")
    stage.step("The client says why it has no session.", bob, "session -1 ended")


@story("module-shuts-down", "A leader ends in order, and its clients go to the next one", page=PAGE)
def module_shuts_down(stage: Stage) -> None:
    cluster, alice, leader, _ = stage.led_cluster()
    cluster.stop(leader)
    alice.offer(b"hello")
    cluster.settle()
    new = cluster.await_leader()
    stage.step("The leader's process ends in order.", leader, "ends in order")
    stage.step("Followers hear that its log is complete.", leader, "EndOfStream", to=new)
    stage.step("So they do not wait for a time-out.", new, "enters an election")
    stage.step("One of them leads.", new, "Log: NewLeadershipTermEvent")
    stage.step("The client's session goes on there.", new, "SessionResumed", to=alice)


class _AsksForAWord(DefaultAuthenticator):
    """Challenges everyone."""

    def __init__(self) -> None:
        self._words: dict[int, bytes] = {}

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        session.challenge(b"the word?")

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self._words[session_id] = encoded_credentials

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        word = self._words.get(session.session_id)
        if word == b"sesame":
            session.authenticate(b"alice")
        elif word is not None:
            session.reject()


class _Word:
    """Credentials of a client that says this when it is challenged."""

    def __init__(self, word: bytes) -> None:
        self._word = word

    def encoded_credentials(self) -> bytes:
        return b""

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        return self._word


@story("challenge", "A client is challenged, and answers", page=PAGE)
def challenge(stage: Stage) -> None:
    cluster, leader, _ = stage.idle_cluster(security=Security(_AsksForAWord(), AllowAllButAdmin()))
    alice = cluster.connect("alice", _Word(b"sesame"), member=leader)
    stage.step("The client asks for a session.", alice, "SessionConnectRequest", to=leader)
    stage.step("The authenticator wants to know more.", leader, "Challenge", to=alice)
    stage.never("Until then there is no session.", leader, "Log: SessionOpenEvent")
    stage.step("The client answers.", alice, "ChallengeResponse", to=leader)
    stage.step("The authenticator accepts it.", leader, "Log: SessionOpenEvent")
    stage.step("The client has its session.", leader, "SessionEvent .*code=OK", to=alice)


@story("rejected", "A client's answer to the challenge is wrong", page=PAGE)
def rejected(stage: Stage) -> None:
    cluster, leader, _ = stage.idle_cluster(security=Security(_AsksForAWord(), AllowAllButAdmin()))
    mallory = cluster.connect("mallory", _Word(b"barley"), member=leader)
    cluster.run(0.5)
    stage.step("The client asks for a session.", mallory, "SessionConnectRequest", to=leader)
    stage.step("It is challenged.", leader, "Challenge", to=mallory)
    stage.step("It answers.", mallory, "ChallengeResponse", to=leader)
    stage.never("Nothing of it is in the Log.", leader, "Log: SessionOpenEvent")
    stage.step(
        "The authenticator rejects it.", leader, "SessionEvent .*code=AUTHENTICATION_REJECTED", to=mallory
    )


class _AllowAll:
    """Everybody may administer."""

    def is_authorised(
        self, schema_id: int, action_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        return True


@story("admin-request", "A client asks for a snapshot", page=PAGE)
def admin_request(stage: Stage) -> None:
    cluster, alice, leader, follower = stage.led_cluster(
        security=Security(DefaultAuthenticator(), _AllowAll())
    )
    alice.ask_for_snapshot()
    cluster.run(1)
    stage.step("The client sends an AdminRequest.", alice, "AdminRequest", to=leader)
    stage.step(
        "The leader answers over the session's egress.", leader, "AdminResponse .*responseCode=OK", to=alice
    )
    stage.step(
        "It sets the control toggle, as ClusterTool does, and appends the action.",
        leader,
        "Log: ClusterActionRequest .*action=SNAPSHOT",
    )
    stage.step("All services take the snapshot.", service_of(follower), "onTakeSnapshot")


@story("wrong-version", "A client of another version", page=PAGE)
def wrong_version(stage: Stage) -> None:
    cluster, leader, _ = stage.idle_cluster()
    bob = cluster.call("bob", leader)
    bob.send(SessionConnectRequest(1, EGRESS, 9 << 16, "aeron:udp?endpoint=10.0.1.201:1"))
    cluster.run(1)
    stage.step("A client asks for a session, in a version that is too new.", bob, "SessionConnectRequest")
    stage.step("The leader rejects it, and closes the egress.", leader, "SessionEvent .*code=ERROR", to=bob)


@story("unknown-session", "A message of a session that there is not", page=PAGE)
def unknown_session(stage: Stage) -> None:
    cluster, alice, leader, _ = stage.led_cluster()
    bob = cluster.call("bob", leader)
    bob.send(SessionMessageHeader(0, 77, 0))
    cluster.run(0.5)
    alice.offer(b"hello")
    cluster.settle()
    stage.step("Somebody sends a message of no session.", bob, "SessionMessageHeader .*=77", to=leader)
    stage.never("It is ignored.", leader, "Log: SessionMessageHeader")
    stage.step("Others are not harmed.", alice, "SessionMessageHeader", to=leader)
    stage.step("Theirs are appended.", leader, "Log: SessionMessageHeader .*'hello'")


@story("backup-query", "A backup asks, in a session of its own that is no client's", page=PAGE)
def backup_query(stage: Stage) -> None:
    cluster, alice, leader, _ = stage.led_cluster()
    backup = cluster.call("backup", leader)
    backup.send(BackupQuery(5, CONSENSUS, CLIENT_PROTOCOL_VERSION, response_channel="backup"))
    cluster.run(0.5)
    alice.offer(b"hello")
    cluster.settle()
    stage.step("A backup asks for snapshots and log.", backup, "BackupQuery", to=leader)
    stage.step("It is answered, and its connection is closed.", leader, "BackupResponse", to=backup)
    stage.never("Nothing of it is in the Log.", leader, "Log: SessionOpenEvent")
    stage.step("The next entry is a client's.", leader, "Log: SessionMessageHeader .*'hello'")
