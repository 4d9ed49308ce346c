"""Files that an operator names: what they may be, and that certificates follow their links."""

import os
import shutil

import pytest

from cluster.errors import ConfigurationError
from cluster.transport.credentials import TokenCredentials
from cluster.transport.member_tls import MemberTls
from cluster.transport.tls import TlsFiles, client_context
from tests.transport.authorities import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def test_certificates_are_read_again_when_their_link_moves_as_kubernetes_moves_it(certificates, tmp_path):
    issued = certificates.member(0)
    for version in ("1", "2"):
        shutil.copytree(certificates.folder, tmp_path / version, copy_function=shutil.copy2)
    for name in ("ca.pem", "member-0.pem", "member-0.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    (tmp_path / "..data").symlink_to("1")
    names = (tmp_path / os.path.basename(path) for path in (issued.ca, issued.certificate, issued.key))
    tls = MemberTls(TlsFiles(*map(str, names)), 0, 0, asks_clients=False)
    assert not tls.refresh()

    (tmp_path / "..data_tmp").symlink_to("2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert tls.refresh() and not tls.refresh()


@pytest.mark.parametrize("what", ["a fifo", "a folder", "written by all", "another user's"])
@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
def test_what_no_operator_would_name_is_refused_at_once_and_leaves_the_last_in_use(
    certificates, tmp_path, monkeypatch, name, what
):
    issued = certificates.member(0)
    paths = {each: tmp_path / each for each in ("ca", "certificate", "key")}
    for each, path in paths.items():
        path.symlink_to(shutil.copy(getattr(issued, each), tmp_path / f"{each}.pem"))
    files = TlsFiles(*map(str, paths.values()))
    tls = MemberTls(files, 0, 0, asks_clients=False)
    shown = tls.pem
    spoil(tmp_path / f"{name}.pem", what, monkeypatch)

    with pytest.raises(ConfigurationError, match=str(paths[name])):
        tls.refresh()
    assert tls.pem is shown
    with pytest.raises(ConfigurationError, match=str(paths[name])):
        client_context(files)


def test_a_secret_is_in_a_regular_file(tmp_path, monkeypatch):
    for what in ("a fifo", "written by all", "another user's"):
        path = tmp_path / what
        path.write_text("secret")
        spoil(path, what, monkeypatch)
        with pytest.raises(ConfigurationError, match=f"{what}: "):
            TokenCredentials(path).encoded_credentials()


def spoil(path, what, monkeypatch):
    match what:
        case "a fifo":
            path.unlink()
            os.mkfifo(path)
        case "a folder":
            path.unlink()
            path.mkdir()
        case "written by all":
            path.chmod(0o666)
        case "another user's":
            if os.geteuid() == 0:
                os.chown(path, 4711, -1)
            monkeypatch.setattr(os, "geteuid", lambda: 4712)
