"""What a client shows: read from files when it is sent, and never shown by accident."""

import pytest

from cluster import ConfigurationError, PasswordCredentials, TokenCredentials
from cluster.client.context import ClientContext
from cluster.client.environment import settings_in
from cluster.transport.credentials import FixedCredentials, credentials_of


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("hunter2\nand a second line\n")
    return path


def test_a_secret_is_the_first_line_of_its_file_whenever_it_is_sent(file):
    token, password = TokenCredentials(file), PasswordCredentials("alice", file)
    assert token.encoded_credentials() == token.on_challenge(b"?") == b"hunter2"
    assert password.encoded_credentials() == password.on_challenge(b"?") == b"alice:hunter2"
    file.write_text("another")
    assert token.encoded_credentials() == b"another"


def test_no_secret_is_in_a_repr(file):
    context = ClientContext("127.0.0.1:9000", credentials=b"hunter2")
    for shown in (
        context,
        FixedCredentials(b"hunter2"),
        TokenCredentials(file),
        PasswordCredentials("a", file),
    ):
        assert "hunter2" not in repr(shown)


def test_a_text_for_bytes_is_refused_without_being_shown():
    with pytest.raises(ConfigurationError) as refused:
        ClientContext("127.0.0.1:9000", credentials="hunter2")
    assert str(refused.value) == "credentials: expected bytes or a CredentialsSupplier, got a str"


@pytest.mark.parametrize(("content", "complaint"), [("", "empty"), ("x" * 5000, "at most 4096 bytes")])
def test_a_file_without_a_secret_is_named(file, content, complaint):
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        TokenCredentials(file).encoded_credentials()
    assert str(file) in str(refused.value)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere: cannot be read: No such file"):
        TokenCredentials(tmp_path / "nowhere").encoded_credentials()


@pytest.mark.parametrize("user", ["", "a:b"])
def test_a_user_that_cannot_be_sent_is_refused(user):
    with pytest.raises(ConfigurationError, match="without a colon"):
        PasswordCredentials(user, "file")


@pytest.mark.parametrize("given", [("t", "u", None), ("t", None, "p"), (None, "u", None), (None, None, "p")])
def test_files_that_do_not_fit_together_are_refused(given):
    with pytest.raises(ConfigurationError):
        credentials_of(*given)


def test_files_that_fit_together_are_taken():
    assert credentials_of("t", None, None) == TokenCredentials("t")
    assert credentials_of(None, "u", "p") == PasswordCredentials("u", "p")
    assert credentials_of(None, None, None) == b""


def test_the_environment_can_name_the_file_of_a_token():
    assert settings_in({"CLUSTER_TOKEN_FILE": "t"}) == {"credentials": TokenCredentials("t")}
