"""Who reads the log and the status of a real member, over real ports; and what Spark hands on."""

from __future__ import annotations

import json
import pickle
import time

import grpc
import pytest

from cluster import (
    AuthenticationRejected,
    ClusterClient,
    ClusterNode,
    ConfigurationError,
    LogReader,
    PasswordCredentials,
    TlsFailed,
    TokenCredentials,
)
from cluster.consensus.authentication import DefaultAuthenticator
from cluster.protocol import link
from cluster.security.principals import password_digest, put, token_digest
from cluster.transport.grpc_gateway import STATUS_OF_REFUSAL
from cluster.transport.grpc_service import CREDENTIALS_KEY
from cluster.transport.member_status import member_status
from spark_connector.log import forget_reader, open_reader
from spark_connector.options.cluster_options import SinkOptions, SourceOptions
from spark_connector.sink.sending import open_session
from tests.node.processes import await_that, endpoints_of, keys_of, run
from tests.security.real_members import NETWORK, audited, keys_by_certificate
from tests.transport.authorities import Certificates

TOKENS = {"writer": b"token-of-the-writer", "reader": b"token-of-the-reader"}


class Word(DefaultAuthenticator):
    """Asks everyone for a word."""

    def on_connected_session(self, session, now_ms):
        session.challenge(b"the word?")


@pytest.fixture
def files(tmp_path):
    for name, token in TOKENS.items():
        put(str(tmp_path / "tokens"), name, token_digest(token))
        (tmp_path / f"{name}.token").write_bytes(token)
    put(str(tmp_path / "passwords"), "reader", password_digest(b"the password"))
    put(str(tmp_path / "passwords"), "writer", password_digest(b"the password"))
    (tmp_path / "password").write_text("the password")
    (tmp_path / "rights").write_text("writer: write\nreader: read\n")
    return tmp_path


@pytest.fixture
def node(files):
    keys = {"authenticator_file": f"{files}/tokens", "authorisation": f"{files}/rights"}
    with ClusterNode.launch(**keys_of(files, authenticator="token", **keys)) as node:
        with ClusterClient.connect(
            endpoints_of(node, "tcp"), credentials=TOKENS["writer"], message_timeout_s=20
        ) as c:
            assert c.offer(b"hello") > 0
            c.await_committed()
        yield node


def payloads(node, medium, credentials):
    with LogReader.open(endpoints=endpoints_of(node, medium), credentials=credentials) as reader:
        entries = reader.entries(to_position=reader.end_position())
        return [entry["payload"] for entry in entries if entry["entryType"] == "SESSION_MESSAGE"]


@pytest.mark.parametrize("medium", NETWORK)
def test_who_has_the_right_to_read_reads_and_nobody_else(node, files, medium):
    assert payloads(node, medium, TokenCredentials(files / "reader.token")) == [b"hello"]
    for credentials in (b"", b"another", TOKENS["writer"]):
        begun = time.monotonic()
        with pytest.raises(AuthenticationRejected):
            payloads(node, medium, credentials)
        assert time.monotonic() - begun < 10, "it is no time-out"
    refused = [(line["peer"], line["principal"], line["what"], line["why"]) for line in audited(node)]
    assert refused == [
        ("127.0.0.1", "", "to read", "no token"),
        ("127.0.0.1", "", "to read", "an unknown token"),
        ("127.0.0.1", "writer", "to read", "no right to read"),
    ]


@pytest.mark.parametrize("medium", NETWORK)
def test_a_certificate_names_the_reader(tmp_path, medium):
    certificates = Certificates(tmp_path)
    keys = keys_by_certificate(tmp_path, certificates, "alice: read\nbob: write\n")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
        endpoints = endpoints_of(node, medium)
        with LogReader.open(endpoints=endpoints, tls=certificates.client("alice")) as reader:
            assert [entry["entryType"] for entry in reader] == ["NEW_LEADERSHIP_TERM"]
        with pytest.raises(AuthenticationRejected, match="no right to read"):
            LogReader.open(endpoints=endpoints, tls=certificates.client("bob")).end_position()
        with pytest.raises(TlsFailed):
            LogReader.open(endpoints=endpoints, tls=certificates.trust).end_position()
        assert [line["principal"] for line in audited(node)] == ["bob"]


@pytest.mark.parametrize("medium", NETWORK)
def test_a_members_status_is_the_readers_too(node, medium):
    endpoint = endpoints_of(node, medium).removeprefix("0=")
    assert member_status(endpoint, credentials=TOKENS["reader"]).commit_position > 0
    with pytest.raises(AuthenticationRejected, match="reader failed authentication"):
        member_status(endpoint)
    with pytest.raises(AuthenticationRejected, match="no right to read"):
        member_status(endpoint, credentials=TOKENS["writer"])


def test_the_own_user_reads_over_the_socket_in_the_directory_as_it_reads_the_files(node):
    assert payloads(node, "ipc", b"") == [b"hello"]


def test_a_token_that_is_taken_away_reads_no_more(node, files):
    endpoint = endpoints_of(node, "tcp").removeprefix("0=")
    assert member_status(endpoint, credentials=TOKENS["reader"])
    put(str(files / "tokens"), "reader", token_digest(b"a new one"))

    def is_refused():
        try:
            member_status(endpoint, credentials=TOKENS["reader"])
        except AuthenticationRejected:
            return True
        return False

    await_that(is_refused, "the old token is refused")
    assert member_status(endpoint, credentials=b"a new one")


@pytest.mark.parametrize("medium", NETWORK)
def test_readers_show_passwords_like_clients(files, medium):
    keys = {"authenticator_file": f"{files}/passwords", "authorisation": f"{files}/rights"}
    with ClusterNode.launch(**keys_of(files, authenticator="password", **keys)) as node:
        endpoint = endpoints_of(node, medium).removeprefix("0=")
        shown = PasswordCredentials("reader", files / "password")
        status = await_that(lambda: member_status(endpoint, credentials=shown), "a status")
        assert status.member_id == 0
        for wrong in (b"reader:wrong", PasswordCredentials("writer", files / "password")):
            with pytest.raises(AuthenticationRejected):
                member_status(endpoint, credentials=wrong)


def test_a_reader_is_refused_by_an_authenticator_that_challenges(files):
    keys = {"authenticator": f"{__name__}:Word", "authorisation": f"{files}/rights"}
    with ClusterNode.launch(**keys_of(files, **keys)) as node:
        with pytest.raises(AuthenticationRejected):
            member_status(endpoints_of(node, "tcp").removeprefix("0="), credentials=b"sesame")
        assert [line["why"] for line in audited(node)] == ["readers are not challenged"]


def test_commands_show_the_files_that_options_or_variables_name(node, files):
    endpoints = endpoints_of(node, "tcp")
    dump = ("log", "dump", "--endpoints", endpoints, "--json", "--payload", "utf8")
    shown = run(*dump, "--token-file", str(files / "reader.token"))
    assert shown.returncode == 0 and '"payload": "hello"' in shown.stdout, shown.stderr
    shown = run(*dump, CLUSTER_TOKEN_FILE=str(files / "reader.token"))
    assert shown.returncode == 0 and '"payload": "hello"' in shown.stdout, shown.stderr
    sent = run(
        "send", "--endpoints", endpoints, "--no-wait", "--token-file", str(files / "writer.token"), text="x"
    )
    assert sent.returncode == 0, sent.stderr

    for arguments in (dump, ("send", "--endpoints", endpoints)):
        refused = run(*arguments, text="x")
        assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused.stderr
    missing = run(*dump, "--token-file", "nowhere")
    assert missing.returncode != 0 and missing.stderr.startswith("nowhere: cannot be read")
    odd = run(*dump, "--user", "alice")
    assert odd.returncode != 0 and "user and password file are given together" in odd.stderr


def test_top_shows_what_it_may_read(node, files):
    top = ("top", "--once", "--json", "--endpoints", endpoints_of(node, "tcp"))
    shown = run(*top, "--token-file", str(files / "reader.token"))
    assert json.loads(shown.stdout)["members"][0]["memberId"] == 0, shown.stderr


def test_spark_shows_what_its_options_name_and_hands_on_no_secret(node, files):
    given = {"endpoints": endpoints_of(node, "tcp"), "authTokenFile": str(files / "reader.token")}
    source = SourceOptions.parse(given)
    reader = open_reader(source)
    try:
        assert reader.commit_position() > 0
    finally:
        forget_reader(source)
    handed_on = pickle.dumps(source) + repr(source).encode() + pickle.dumps(SinkOptions.parse(given))
    assert str(files / "reader.token").encode() in handed_on
    assert TOKENS["reader"] not in handed_on
    with pytest.raises(AuthenticationRejected):
        open_reader(SourceOptions.parse({"endpoints": endpoints_of(node, "tcp")}))


def test_a_task_of_the_sink_writes_as_whom_its_options_name(node, files):
    given = {"endpoints": endpoints_of(node, "tcp"), "commitTimeoutMs": "20000"}
    client = open_session(SinkOptions.parse({**given, "authTokenFile": str(files / "writer.token")}), None)
    assert client.cluster_session_id > 0
    client.close()
    with pytest.raises(AuthenticationRejected):
        open_session(SinkOptions.parse(given), None)


@pytest.mark.parametrize(
    "given", [{"user": "a"}, {"passwordFile": "p"}, {"user": "a", "passwordFile": "p", "authTokenFile": "t"}]
)
@pytest.mark.parametrize("options", [SourceOptions, SinkOptions])
def test_options_of_spark_that_do_not_fit_together_are_refused(options, given):
    with pytest.raises(ConfigurationError):
        options.parse({"endpoints": "a:9000", **given})


@pytest.mark.parametrize("method", ["Status", "ReadLog"])
def test_the_service_for_strangers_languages_asks_as_well(node, method):
    """An empty message is a valid request of both."""
    with grpc.insecure_channel(endpoints_of(node, "grpc").removeprefix("0=")) as channel:
        path = f"/cluster.Frames/{method}"
        call = channel.unary_unary(path) if method == "Status" else channel.unary_stream(path)
        with pytest.raises(grpc.RpcError) as refused:
            list(call(b"", timeout=20))
        shown = [(CREDENTIALS_KEY, TOKENS["reader"])]
        assert list(call(b"", timeout=20, metadata=shown))

    assert refused.value.code() is STATUS_OF_REFUSAL[link.LinkErrorCode.UNAUTHORISED]


@pytest.mark.parametrize("medium", NETWORK)
def test_a_position_token_is_for_who_may_read(node, medium):
    with (
        ClusterClient.connect(endpoints_of(node, medium), credentials=TOKENS["writer"]) as client,
        pytest.raises(AuthenticationRejected, match="no right to read"),
    ):
        client.token()
