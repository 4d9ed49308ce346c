"""Who opens a session of real members, over real ports: tokens, passwords, challenges, rights."""

from __future__ import annotations

import pytest

from cluster import (
    AuthenticationRejected,
    ClusterClient,
    ClusteredService,
    ClusterNode,
    ConfigurationError,
    LogReader,
    PasswordCredentials,
    TokenCredentials,
)
from tests.node.processes import await_that, endpoints_of, free_base_port, keys_of, run
from tests.security.real_members import audited

MEDIA = ["grpc", "tcp", "ipc"]
SECRETS = (b"a-token-of-feed", b"password of alice", b"sesame")


class Principals(ClusteredService):
    """Keeps the principal of every session that it sees opened."""

    made: list[Principals] = []

    def __init__(self):
        self.seen = []
        Principals.made.append(self)

    def on_session_open(self, session, timestamp):
        self.seen.append(bytes(session.encoded_principal))


class Word:
    """An authenticator as Aeron has them: everyone is asked for the word, and fails where it is told to."""

    words: dict[int, bytes] = {}

    def on_connect_request(self, session_id, encoded_credentials, now_ms):
        if encoded_credentials == b"fail at connect":
            raise ValueError(encoded_credentials)

    def on_challenge_response(self, session_id, encoded_credentials, now_ms):
        self.words[session_id] = encoded_credentials

    def on_connected_session(self, session, now_ms):
        if session.encoded_credentials == b"fail at decision":
            raise ValueError(session.encoded_credentials)
        session.challenge(b"the word?")

    def on_challenged_session(self, session, now_ms):
        word = self.words.get(session.session_id)
        if word == b"sesame":
            session.authenticate(b"who knows the word")
        elif word is not None:
            session.reject()


class Answer:
    """A client's answers to a challenge."""

    def __init__(self, word, first=b""):
        self.word = word
        self.first = first
        self.asked = []

    def encoded_credentials(self):
        return self.first

    def on_challenge(self, encoded_challenge):
        self.asked.append(bytes(encoded_challenge))
        return self.word


@pytest.fixture
def secrets(tmp_path):
    """Files as an operator makes them with ``cluster principal``."""
    (tmp_path / "feed.token").write_bytes(SECRETS[0] + b"\n")
    (tmp_path / "alice.password").write_bytes(SECRETS[1] + b"\n")
    (tmp_path / "wrong").write_text("something else\n")
    add = ("principal", "add", "--file")
    made = run(*add, str(tmp_path / "tokens"), "feed", "--secret-file", str(tmp_path / "feed.token"))
    assert (made.returncode, made.stdout) == (0, f"feed: added in {tmp_path}/tokens\n"), made.stderr
    made = run(
        *add, str(tmp_path / "passwords"), "--kind", "password", "alice", text=SECRETS[1].decode() + "\n"
    )
    assert made.returncode == 0, made.stderr
    (tmp_path / "rights").write_text("feed: write\nalice: write\n")
    return tmp_path


def a_member(tmp_path, **keys):
    services = [f"{__name__}:Principals"]
    keys = {"service_mode": "inline", "session_timeout": "3s", **keys}  # its objects are looked into
    return ClusterNode.launch(**keys_of(tmp_path, services=services, **keys))


def open_and_close(node, medium, credentials):
    with ClusterClient.connect(
        endpoints_of(node, medium), credentials=credentials, message_timeout_s=20
    ) as client:
        assert client.offer(b"hello") > 0
        client.await_committed()


def seen_by_the_service():
    return Principals.made[-1].seen


def assert_no_secret_in(directory):
    for path in directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(secret in data for secret in SECRETS), path


@pytest.mark.parametrize("medium", MEDIA)
def test_whom_a_token_names_comes_in_and_others_do_not(secrets, medium):
    keys = {"authenticator_file": f"{secrets}/tokens", "authorisation": f"{secrets}/rights"}
    with a_member(secrets, authenticator="token", **keys) as node:
        open_and_close(node, medium, TokenCredentials(secrets / "feed.token"))
        for wrong in (b"", b"another", TokenCredentials(secrets / "wrong")):
            with pytest.raises(AuthenticationRejected):
                open_and_close(node, medium, wrong)
        assert seen_by_the_service() == [b"feed"]
        assert [line["why"] for line in audited(node)] == ["no token", "an unknown token", "an unknown token"]
        peer = "this host" if medium == "ipc" else "127.0.0.1"
        assert {line["peer"] for line in audited(node)} == {peer}
        with LogReader.open(dir=str(node.config.path)) as reader:
            opened = [entry for entry in reader.entries() if entry["entryType"] == "SESSION_OPEN"]
        assert [entry["encodedPrincipal"] for entry in opened] == [b"feed"]
    assert_no_secret_in(secrets / "member-0")


def test_whose_password_fits_comes_in_and_others_do_not(secrets):
    keys = {"authenticator_file": f"{secrets}/passwords", "authorisation": f"{secrets}/rights"}
    with a_member(secrets, authenticator="password", **keys) as node:
        open_and_close(node, "tcp", PasswordCredentials("alice", secrets / "alice.password"))
        for user, file in (("alice", "wrong"), ("bob", "alice.password")):
            with pytest.raises(AuthenticationRejected):
                open_and_close(node, "tcp", PasswordCredentials(user, secrets / file))
        assert seen_by_the_service() == [b"alice"]
        assert [line["why"] for line in audited(node)] == [
            "user 'alice': wrong user or password",
            "user 'bob': wrong user or password",
        ]
    assert_no_secret_in(secrets / "member-0")


@pytest.mark.parametrize(
    ("rights", "may"), [("", False), ("feed: read, admin", False), ("*: write", True), ("feed: write", True)]
)
def test_who_is_known_opens_a_session_by_the_right_to_write_alone(secrets, rights, may):
    (secrets / "rights").write_text(rights)
    keys = {"authenticator_file": f"{secrets}/tokens", "authorisation": f"{secrets}/rights"}
    with a_member(secrets, authenticator="token", **keys) as node:
        credentials = TokenCredentials(secrets / "feed.token")
        if may:
            open_and_close(node, "tcp", credentials)
        else:
            with pytest.raises(AuthenticationRejected, match="no right to write"):
                open_and_close(node, "tcp", credentials)
            assert audited(node)[0]["principal"] == "feed"


def test_without_a_file_of_rights_nobody_who_is_known_may_do_anything(secrets):
    token = TokenCredentials(secrets / "feed.token")
    with (
        a_member(secrets, authenticator="token", authenticator_file=f"{secrets}/tokens") as node,
        pytest.raises(AuthenticationRejected, match="no right to write"),
    ):
        open_and_close(node, "tcp", token)


@pytest.mark.parametrize("medium", MEDIA)
def test_an_authenticator_of_the_users_own_challenges_each_client(secrets, medium):
    (secrets / "rights").write_text("*: write")
    keys = {"authenticator": f"{__name__}:Word", "authorisation": f"{secrets}/rights"}
    with a_member(secrets, **keys) as node:
        answer = Answer(b"sesame")
        open_and_close(node, medium, answer)
        assert answer.asked == [b"the word?"]
        with pytest.raises(AuthenticationRejected):
            open_and_close(node, medium, Answer(b"open"))
        assert seen_by_the_service() == [b"who knows the word"]
    assert_no_secret_in(secrets / "member-0")


@pytest.mark.parametrize("first", [b"fail at connect", b"fail at decision"])
def test_an_authenticator_that_raises_rejects_the_session_and_the_member_lives(secrets, first):
    (secrets / "rights").write_text("*: write")
    keys = {"authenticator": f"{__name__}:Word", "authorisation": f"{secrets}/rights"}
    with a_member(secrets, **keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        with pytest.raises(AuthenticationRejected):
            open_and_close(node, "tcp", Answer(b"sesame", first))
        open_and_close(node, "tcp", Answer(b"sesame"))
        assert node.is_running
        told = (node.config.path / "node.log").read_text()
        assert "raised ValueError at" in told and first.decode() not in told


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"authenticator": "tokens"}, 'authenticator = "tokens": expected none, token'),
        ({"authenticator": "token"}, "set authenticator_file"),
        ({"authenticator": "no_such_module:Name"}, "No module named 'no_such_module'"),
        ({"authenticator": f"{__name__}:Answer"}, "missing 1 required positional argument: 'word'"),
        ({"authenticator": f"{__name__}:Principals"}, "Principals has no on_connect_request"),
        ({"authorisation": "/nowhere/rights"}, "/nowhere/rights: cannot be read"),
        ({"authenticator": "token", "authenticator_file": "/nowhere"}, "/nowhere: cannot be read"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_line(tmp_path, keys, complaint):
    with pytest.raises(ConfigurationError) as refused:
        a_member(tmp_path, **keys)
    assert complaint in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.conformance("S-22")
def test_every_service_of_every_member_sees_the_principal(secrets):
    base = free_base_port()
    members = [f"{n},127.0.0.1:{base + 10 * n}" + f",127.0.0.1:{base + 10 * n + 2}" * 4 for n in range(3)]
    Principals.made.clear()
    keys = {
        "members": members,
        "dir": str(secrets / "member-{member_id}"),
        "services": [f"{__name__}:Principals"] * 2,
        "service_mode": "inline",
        "authenticator": "token",
        "authenticator_file": f"{secrets}/tokens",
        "authorisation": f"{secrets}/rights",
    }
    nodes = [ClusterNode.launch(member_id=n, **keys) for n in range(3)]
    try:
        listed = ",".join(f"{n}=tcp:127.0.0.1:{base + 10 * n + 1}" for n in range(3))
        await_that(lambda: any(node.is_leader for node in nodes), "a leader")
        with ClusterClient.connect(
            listed, credentials=TokenCredentials(secrets / "feed.token"), message_timeout_s=20
        ) as client:
            assert client.offer(b"x") > 0
            client.await_committed()
            services = Principals.made
            assert len(services) == 6
            await_that(lambda: all(service.seen == [b"feed"] for service in services), "all six")
    finally:
        for node in nodes:
            node.close()


def test_a_session_goes_on_with_another_leader_that_has_to_check_the_password_first(secrets):
    """The new leader knows nothing of it: the resume waits until scrypt has decided."""
    base = free_base_port()
    keys = {
        "members": [
            f"{n},127.0.0.1:{base + 10 * n}" + f",127.0.0.1:{base + 10 * n + 2}" * 4 for n in range(3)
        ],
        "dir": str(secrets / "member-{member_id}"),
        "authenticator": "password",
        "authenticator_file": f"{secrets}/passwords",
        "authorisation": f"{secrets}/rights",
    }
    nodes = [ClusterNode.launch(member_id=n, **keys) for n in range(3)]
    try:
        listed = ",".join(f"{n}=tcp:127.0.0.1:{base + 10 * n + 1}" for n in range(3))
        shown = PasswordCredentials("alice", secrets / "alice.password")
        with ClusterClient.connect(listed, credentials=shown, message_timeout_s=20) as client:
            assert client.offer(b"one") > 0
            client.await_committed()
            session_id, before = client.cluster_session_id, client.leader_member_id
            nodes[before].close()

            def has_gone_over():
                client.poll_egress()
                return client.leader_member_id != before and client.offer(b"two") > 0

            await_that(has_gone_over, "another leader has the session")
            client.await_committed()
            assert client.cluster_session_id == session_id
    finally:
        for node in nodes:
            node.close()
