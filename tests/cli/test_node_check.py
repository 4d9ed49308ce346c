"""``cluster node --check``: effective values, their places, and three exit statuses."""

from __future__ import annotations

import json

import pytest

GROUP = "node"


def write(tmp_path, text: str):
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_each_key_is_shown_with_its_value_and_the_place_that_it_is_from(run, tmp_path, monkeypatch):
    tokens = tmp_path / "tokens"
    tokens.touch()
    path = write(tmp_path, f'session_timeout = "7s"\nauthenticator_file = "{tokens}"\n')
    monkeypatch.setenv("CLUSTER_MAX_SESSIONS", "64")
    status, out, err = run("--check", path, "--dir", tmp_path / "m", "--json")
    assert (status, err) == (0, "")
    keys = {key["key"]: key for key in json.loads(out)["keys"]}
    assert keys["session_timeout"] == {
        "key": "session_timeout", "value": 7_000_000_000, "text": "7s", "source": str(path),
        "takes": "SIGHUP",
    }  # fmt: skip
    assert keys["max_sessions"]["takes"] == "a restart"
    assert keys["max_sessions"]["source"] == "environment variable CLUSTER_MAX_SESSIONS"
    assert keys["dir"]["source"] == "option" and keys["log_mtu"]["source"] == "default"
    assert keys["authenticator_file"]["takes"] == "a restart; the file's content none"
    _, out, _ = run("--check", path)
    shown = {line.split()[0] for line in out.splitlines()[1:-1]}
    assert shown == {"session_timeout", "max_sessions", "authenticator_file"}
    assert f"{len(keys) - 3} other keys have their defaults" in out
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("max_sessions = 9\n", 0, ""),
        ('services = ["no_such_module:S"]\n', 1, "problem: "),
        (
            'authenticator = "token"\nauthenticator_file = "/nowhere/tokens"\n',
            1,
            "problem: /nowhere/tokens: cannot be read",
        ),
        (
            'members = ["0,192.0.2.7:1,192.0.2.7:2,a:3,a:4,a:5"]\n',
            1,
            "problem: the consensus endpoint 192.0.2.7:2",
        ),
        ('authenticator = "tokens"\n', 1, "problem: authenticator = "),
        ('authorisation = "/nowhere/rights"\n', 1, "problem: /nowhere/rights: cannot be read"),
        ('tls_ca = "c"\ntls_certificate = "c"\ntls_key = "k"\n', 1, "problem: c: cannot be read"),
        (
            'standby_token_file = "/nowhere/t"\n',
            1,
            "problem: standby_token_file = /nowhere/t: cannot be read",
        ),
        ('dir = "/etc/passwd"\n', 1, "problem: dir = /etc/passwd: /etc/passwd is no directory"),
        ('archive_dir = "/etc/passwd/a"\n', 1, "problem: archive_dir = /etc/passwd/a: "),
        ("max_sesions = 9\n", 2, "did you mean max_sessions?"),
        ("log_mtu = 1000\n", 2, "log_mtu: expected a multiple of 32"),
    ],
)
def test_the_exit_status_says_whether_a_member_would_start(run, tmp_path, text, status, said):
    found, out, err = run("--check", write(tmp_path, text))
    assert found == status
    assert said in out + err


def test_a_variable_that_is_no_key_is_a_problem(run, tmp_path, monkeypatch):
    monkeypatch.setenv("CLUSTER_MAX_SESIONS", "9")
    status, out, _ = run("--check", write(tmp_path, ""))
    assert status == 1 and "problem: unknown environment variable CLUSTER_MAX_SESIONS" in out


def test_one_of_config_and_check_is_given(run, tmp_path):
    path = write(tmp_path, "")
    for options in ((), ("--config", path, "--check", path)):
        status, _, err = run(*options)
        assert (status, "give either --config or --check" in err) == (2, True)
