"""A real archive with an authenticator is read by who shows it credentials, and by nobody else."""

from __future__ import annotations

import pytest

from cluster.errors import AuthenticationRejected, ConfigurationError
from cluster.reader import LogReader
from cluster.transport.credentials import FixedCredentials
from tests.interop.aeron import media_driver

pytestmark = pytest.mark.interop
ARCHIVE = "localhost:25301"


@pytest.fixture(scope="module")
def aeron_dir(tmp_path_factory):
    settings = {
        "aeron_archive_dir": tmp_path_factory.mktemp("archive"),
        "aeron_archive_authenticator_supplier": "Password",
        "aeron_archive_control_channel": f"aeron:udp?endpoint={ARCHIVE}",
        "aeron_archive_replication_channel": "aeron:udp?endpoint=localhost:0",
    }
    with media_driver("io.aeron.archive.ArchivingMediaDriver", **settings) as aeron_dir:
        yield str(aeron_dir)


class Challenged(FixedCredentials):
    """Shows nothing before it is asked."""

    def encoded_credentials(self) -> bytes:
        return b""

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        return self.credentials


@pytest.mark.conformance("M-43")
@pytest.mark.parametrize("credentials", [b"user:secret", Challenged(b"user:secret")])
def test_who_shows_credentials_is_let_in_at_once_or_after_a_challenge(aeron_dir, credentials):
    with pytest.raises(ConfigurationError, match=f"archive {ARCHIVE} has no recordings"):
        LogReader.open(aeron_archive=ARCHIVE, aeron_dir=aeron_dir, credentials=credentials, timeout_s=20)


@pytest.mark.parametrize("credentials", [b"user:other", b"x"])
def test_who_shows_others_is_rejected(aeron_dir, credentials):
    with pytest.raises(AuthenticationRejected, match=f"archive {ARCHIVE} refuses: authentication rejected"):
        LogReader.open(aeron_archive=ARCHIVE, aeron_dir=aeron_dir, credentials=credentials, timeout_s=20)


def test_who_shows_nothing_is_rejected(aeron_dir, monkeypatch, tmp_path):
    with pytest.raises(AuthenticationRejected):
        LogReader.open(aeron_archive=ARCHIVE, aeron_dir=aeron_dir, credentials=b"", timeout_s=20)
    password = tmp_path / "password"
    password.write_text("secret")
    monkeypatch.setenv("CLUSTER_USER", "user")
    monkeypatch.setenv("CLUSTER_PASSWORD_FILE", str(password))
    with pytest.raises(ConfigurationError, match="has no recordings"):
        LogReader.open(aeron_archive=ARCHIVE, aeron_dir=aeron_dir, timeout_s=20)
