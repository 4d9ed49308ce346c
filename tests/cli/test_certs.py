"""``cluster certs``: an authority in a folder, and what it issues."""

import json
import ssl
import stat

import pytest

from cluster.cli.main import main
from cluster.transport.certificates import read_certificate


@pytest.fixture
def certs(tmp_path, capsys):
    """Run the command with arguments; returns (status, standard output, standard error)."""

    def run(*arguments):
        status = main(["certs", "--dir", str(tmp_path), *arguments])
        return status, *capsys.readouterr()

    return run


def test_a_member_has_its_name_and_hosts_and_a_client_its_principal(certs, tmp_path):
    arguments = ["--member", "1=db1.example.com,10.0.0.1", "--member", "2", "--client", "alice"]
    status, out, _ = certs(*arguments, "--cluster-id", "7", "--days", "30", "--json")
    assert status == 0
    made = json.loads(out)["made"]
    assert [one["name"] for one in made] == ["member-1.cluster-7", "member-2.cluster-7", "alice"]
    member = read_certificate(tmp_path / "member-1.pem")
    assert member.common_name == "member-1.cluster-7"
    assert member.names == ("member-1.cluster-7", "db1.example.com", "10.0.0.1")
    assert 29 < (member.not_after - member.not_before).total_seconds() / 86_400 < 31
    assert "127.0.0.1" in read_certificate(tmp_path / "member-2.pem").names
    assert read_certificate(tmp_path / "client-alice.pem").common_name == "alice"


def test_a_backup_has_its_principal_and_its_hosts_and_may_listen(certs, tmp_path):
    status, out, _ = certs("--backup", "east=backup.example.com,10.0.0.9", "--backup", "west")
    assert status == 0 and "east: " in out
    east, west = (read_certificate(tmp_path / f"backup-{name}.pem") for name in ("east", "west"))
    assert (east.common_name, east.names, east.is_servers) == (
        "east",
        ("backup.example.com", "10.0.0.9"),
        True,
    )
    assert west.names == ("localhost", "127.0.0.1", "::1")
    certs("--client", "alice")
    assert not read_certificate(tmp_path / "client-alice.pem").is_servers


def test_keys_are_their_owners_alone_and_fit_their_certificates(certs, tmp_path):
    certs("--member", "0", "--client", "alice")
    keys = list(tmp_path.glob("*.key"))
    assert len(keys) == 3
    for key in keys:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(key.with_suffix(".pem"), key)


def test_later_calls_add_to_the_same_authority(certs, tmp_path):
    certs("--member", "0")
    authority = (tmp_path / "ca.pem").read_bytes()
    status, out, _ = certs("--client", "bob")
    assert status == 0
    assert f"bob: {tmp_path / 'client-bob.pem'}, valid to " in out
    assert (tmp_path / "ca.pem").read_bytes() == authority


def test_nothing_is_overwritten_and_nothing_made_beside_what_is_in_the_way(certs, tmp_path):
    certs("--member", "0")
    before = (tmp_path / "member-0.pem").read_bytes()
    status, _, err = certs("--client", "bob", "--member", "0")
    assert status == 1
    assert err == f"{tmp_path / 'member-0.pem'}: exists already, and is not overwritten; nothing was made\n"
    assert (tmp_path / "member-0.pem").read_bytes() == before
    assert not (tmp_path / "client-bob.pem").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--member", "x"], "--member 'x': expected ID or ID=HOST,..., as in 0=db0.example.com"),
        (
            ["--client", "../eve"],
            "client '../eve': expected 1 to 64 letters, digits and . _ @ -, not . @ - at first",
        ),
        (["--client=member-0.cluster-1"], "client 'member-0.cluster-1': a member's name; expected another"),
        (["--member", f"0={'a' * 64}.com"], f"host '{'a' * 64}.com': expected a host name or an address"),
    ],
)  # fmt: skip
def test_what_cannot_be_named_is_refused_in_one_line(certs, tmp_path, arguments, line):
    status, _, err = certs(*arguments)
    assert (status, err) == (2, line + "\n")
    assert list(tmp_path.iterdir()) == []


def test_an_authority_whose_key_is_missing_or_anothers_issues_nothing(certs, tmp_path):
    certs("--client", "alice")
    (tmp_path / "client-alice.key").rename(tmp_path / "ca.key")
    status, _, err = certs("--client", "bob")
    assert status == 2
    assert f"{tmp_path / 'ca.key'}: expected the key of {tmp_path / 'ca.pem'}" in err
    (tmp_path / "ca.key").unlink()
    assert certs("--client", "bob")[::2] == (1, f"{tmp_path / 'ca.key'}: No such file or directory\n")


def test_renewal_keeps_names_hosts_and_uses_and_gives_new_keys_and_days(certs, tmp_path):
    certs("--member", "1=db1.example.com,10.0.0.1", "--client", "alice", "--backup", "east", "--days", "5")
    paths = {name: tmp_path / f"{name}.pem" for name in ("member-1", "client-alice", "backup-east")}
    before = {name: (read_certificate(path), path.read_bytes()) for name, path in paths.items()}
    authority = (tmp_path / "ca.pem").read_bytes()
    status, out, _ = certs("renew", "--days", "30")
    assert (status, out.count(", valid to ")) == (0, 3)
    for name, path in paths.items():
        old, new = before[name][0], read_certificate(path)
        assert (new.common_name, new.names, new.is_servers) == (old.common_name, old.names, old.is_servers)
        assert (new.not_after - old.not_after).days >= 24 and path.read_bytes() != before[name][1]
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, path.with_suffix(".key"))
        assert stat.S_IMODE(path.with_suffix(".key").stat().st_mode) == 0o600
    assert (tmp_path / "ca.pem").read_bytes() == authority
    assert not list(tmp_path.glob("*.new"))


def test_nothing_is_renewed_without_an_authority_that_lasts_as_long(certs):
    assert certs("renew")[2].endswith(": no authority is here, expected ca.pem and ca.key\n")
    certs("--client", "alice")
    status, _, err = certs("renew", "--member", "1")
    assert status == 2 and "it renews all that DIR has" in err
    status, _, err = certs("renew", "--days", "36500")
    assert status == 2 and "the authority itself ends on" in err
