"""A member that lets everybody in stays on loopback, unless it is told otherwise."""

import socket

import pytest

from cluster.errors import ConfigurationError
from cluster.node import exposure
from cluster.node.config import NodeConfig
from cluster.node.exposure import check_exposure
from tests.node.processes import run


def config(ingress="127.0.0.1", consensus="127.0.0.1", **keys):
    member = f"0,{ingress}:9000" + f",{consensus}:9002" * 4
    return NodeConfig.model_validate({"members": [member, "1" + ",elsewhere.example:9000" * 5], **keys})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost"])
def test_loopback_is_listened_at(host):
    check_exposure(config(host, host))


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.1.7", "8.8.8.8", "0", "no-such-host.invalid"])
@pytest.mark.parametrize("which", ["ingress", "consensus"])
def test_any_other_address_is_refused_with_what_to_set(host, which):
    with pytest.raises(ConfigurationError) as refused:
        check_exposure(config(**{which: host}))
    said = str(refused.value)
    assert f"{host}:" in said and "insecure_network = true" in said and "\n" not in said


@pytest.mark.parametrize("key", ["tcp_ingress", "metrics_endpoint"])
def test_a_port_beside_those_of_members_counts_by_itself(key):
    with pytest.raises(ConfigurationError, match=rf"{key} 0\.0\.0\.0:9001 is not on loopback"):
        check_exposure(config(**{key: "0.0.0.0:9001"}))


def test_where_it_listens_counts_and_not_what_it_tells_others():
    with pytest.raises(ConfigurationError, match=r"the consensus endpoint \[::\]:9002 is not on loopback"):
        check_exposure(config(listen="::"))
    check_exposure(config("192.168.1.7", "192.168.1.7", listen="127.0.0.1"))


@pytest.mark.parametrize(
    ("key", "port"),
    [("ingress_channel", 9000), ("archive_control_channel", 9002), ("consensus_channel", 9002)],
)
def test_a_channel_of_aeron_s_is_refused_where_all_else_has_tls(key, port):
    tls = {"tls_ca": "ca.pem", "tls_certificate": "m.pem", "tls_key": "m.key"}
    keys = {**tls, "authenticator": "token", "authenticator_file": "tokens", key: "aeron:udp"}
    with pytest.raises(ConfigurationError, match=rf"{key} 0\.0\.0\.0:{port} is not on loopback"):
        check_exposure(config("0.0.0.0", "0.0.0.0", **keys))
    check_exposure(config(**keys))
    check_exposure(config("0.0.0.0", "0.0.0.0", insecure_network=True, **keys))


def test_a_name_counts_as_what_it_resolves_to(monkeypatch):
    answers = [(socket.AF_INET, 0, 0, "", (address, 0)) for address in ("127.0.0.1", "10.0.0.1")]
    monkeypatch.setattr(exposure.socket, "getaddrinfo", lambda *_, **__: answers)
    with pytest.raises(ConfigurationError, match=r"both\.example:9002"):
        check_exposure(config("both.example", "both.example"))


def test_a_network_that_is_trusted_may_be_listened_at():
    check_exposure(config("0.0.0.0", "0.0.0.0", insecure_network=True))


def test_a_list_of_members_that_nobody_has_written_forms_no_cluster_beyond_loopback():
    check_exposure(NodeConfig())
    open_to_all = {"tcp_ingress": "0.0.0.0:9001", "insecure_network": True}
    with pytest.raises(ConfigurationError, match=r"0\.0\.0\.0:9001 is not on loopback, but members is not"):
        check_exposure(NodeConfig(**open_to_all))
    check_exposure(config(**open_to_all))


def test_nothing_is_made_of_a_member_that_would_be_exposed(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text(
        f'members = ["0,0.0.0.0:9000{",0.0.0.0:9002" * 4}"]\ndir = "{tmp_path}/member-{{member_id}}"\n'
    )
    result = run("node", "--config", str(file))
    assert result.returncode != 0
    assert result.stderr.count("\n") == 1 and "insecure_network" in result.stderr
    assert not (tmp_path / "member-0").exists()


def test_tls_with_an_authenticator_may_be_listened_at_and_either_alone_may_not():
    tls = {"tls_ca": "ca.pem", "tls_certificate": "m.pem", "tls_key": "m.key"}
    known = {"authenticator": "token", "authenticator_file": "tokens"}
    check_exposure(config("0.0.0.0", "0.0.0.0", **tls, **known))
    for one in (tls, known):
        with pytest.raises(ConfigurationError, match="set TLS"):
            check_exposure(config("0.0.0.0", "0.0.0.0", **one))
