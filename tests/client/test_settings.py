"""Where a client's settings come from, and connecting a step at a time."""

import ast
import inspect
import re
import typing
from dataclasses import fields

import pytest

from cluster import AsyncConnect, ClusterClient, EgressListener
from cluster.client import ClientContext
from cluster.client.connecting import ConnectState
from cluster.client.context import ClientSettings
from cluster.client.egress_dispatch import as_dispatch
from cluster.client.environment import VARIABLES, settings_in
from cluster.errors import ConfigurationError, TimedOut
from cluster.node.config_keys import KEYS
from cluster.node.config_text import unknown_variables
from cluster.protocol.consumer import Consumer
from cluster.protocol.lane import Lane
from cluster.transport.tls import TlsFiles

EXAMPLES = {
    "CLUSTER_CLIENT_NAME": ("billing", "client_name", "billing"),
    "CLUSTER_CLIENT_MESSAGE_TIMEOUT_S": ("2.5", "message_timeout_s", 2.5),
    "CLUSTER_CLIENT_NEW_LEADER_TIMEOUT_S": ("30", "new_leader_timeout_s", 30.0),
    "CLUSTER_CLIENT_KEEP_ALIVE_INTERVAL_S": ("none", "keep_alive_interval_s", None),
    "CLUSTER_CLIENT_WINDOW_BYTES": ("8192", "window_bytes", 8192),
    "CLUSTER_CLIENT_AERON_DIR": ("/dev/shm/aeron-me", "aeron_dir", "/dev/shm/aeron-me"),
}


def test_connect_takes_the_settings_of_a_context():
    hints = typing.get_type_hints(ClientContext)
    settings = {
        field.name: hints[field.name]
        for field in fields(ClientContext)
        if field.init and field.name not in ("ingress_endpoints", "egress_listener")
    }
    assert typing.get_type_hints(ClientSettings) == settings


@pytest.mark.parametrize(("wrong", "meant"), [("endpoint", "endpoints"), ("window_byte", "window_bytes")])
def test_a_setting_that_is_none_is_answered_with_the_one_that_is_like_it(wrong, meant):
    with pytest.raises(TypeError, match=rf"connect\(\) has no setting '{wrong}'; did you mean {meant}\?"):
        ClusterClient.connect(**{wrong: "127.0.0.1:9000"})


def test_each_variable_is_read_and_belongs_to_no_member():
    assert EXAMPLES.keys() == VARIABLES.keys()
    environment = {name: text for name, (text, _, _) in EXAMPLES.items()}

    assert settings_in(environment) == {setting: value for _, setting, value in EXAMPLES.values()}
    assert unknown_variables(environment) == []
    assert not any(f"CLUSTER_{key.upper()}" in VARIABLES for key in KEYS)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("CLUSTER_CLIENT_WINDOW_BYTES", "64 MB", "WINDOW_BYTES is '64 MB', expected a number of bytes"),
        ("CLUSTER_CLIENT_MESSAGE_TIMEOUT_S", "none", "MESSAGE_TIMEOUT_S is 'none', expected seconds"),
        ("CLUSTER_CLIENT_MESSAGE_TIMEOUT_S", "-1", "message_timeout_s is -1.0, expected more than 0"),
        ("CLUSTER_CLIENT_TIMEOUT", "1", "CLUSTER_CLIENT_TIMEOUT: no such setting; there are CLUSTER_CLIENT_"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(monkeypatch, name, value, told):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=told):
        ClusterClient.connect("127.0.0.1:1")


def test_without_endpoints_the_environment_names_them_and_what_is_given_goes_before_it(leader, monkeypatch):
    monkeypatch.delenv("CLUSTER_ENDPOINTS", raising=False)
    with pytest.raises(ConfigurationError, match="none given, and CLUSTER_ENDPOINTS is not set"):
        ClusterClient.connect()

    monkeypatch.setenv("CLUSTER_ENDPOINTS", leader.endpoints["tcp"])
    monkeypatch.setenv("CLUSTER_CLIENT_WINDOW_BYTES", "1")
    with ClusterClient.connect(window_bytes=8192) as client:
        assert client.offer(b"x") > 0
        client.await_committed(20)


@pytest.mark.conformance("S-27")
@pytest.mark.parametrize("medium", ["ipc", "tcp", "grpc"])
def test_connecting_is_seen_step_by_step(leader, medium):
    states = [ConnectState.CREATE_INGRESS_PUBLICATIONS]
    with AsyncConnect(leader.endpoints[medium]) as attempt:
        assert (attempt.state, attempt.step) == (states[0], 0)
        while (client := attempt.poll()) is None:
            if attempt.state is not states[-1]:
                states.append(attempt.state)
            attempt.wait(0.01)
        assert attempt.poll() is client
    with client:
        assert attempt.state is ConnectState.DONE
        assert client.offer(b"x") > 0
        client.await_committed(20)

    assert states == list(ConnectState)[:-1]


def test_an_attempt_that_is_given_up_or_fails_leaves_nothing_open(leader):
    with AsyncConnect(leader.endpoints["ipc"]) as attempt:
        attempt.poll()
    attempt.wait(0)  # of what is closed ends at once

    with (
        pytest.raises(TimedOut, match="AWAIT_PUBLICATION_CONNECTED"),
        AsyncConnect("ipc:/nowhere.sock", message_timeout_s=0.05) as attempt,
    ):
        while attempt.poll() is None:
            attempt.wait(0.01)


def test_the_help_of_connect_names_every_setting_with_its_default():
    listed = dict(re.findall(r"^ {4}(\w+)=(\S+)", inspect.getdoc(ClusterClient.connect), re.MULTILINE))
    for field in fields(ClientContext):
        if field.init and field.name not in ("ingress_endpoints", "egress_listener"):
            default = listed.pop(field.name)
            assert ast.literal_eval(default) == field.default, field.name
    assert not listed


@pytest.mark.parametrize("name", ["on_mesage", "on_session_lostt", "on_new_leaders"])
def test_a_listener_with_a_method_that_is_never_called_is_refused(name):
    class Listener(EgressListener):
        def on_messages_of(self):
            """Of the user's own."""

    setattr(Listener, name, lambda self, *told: None)
    with pytest.raises(ConfigurationError, match=rf"egress_listener: Listener\.{name} is never called; did"):
        as_dispatch(Listener())
    Listener.on_fire = lambda self: None
    delattr(Listener, name)
    as_dispatch(Listener())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"supervised": True}, "supervised .* keep no answers"),
        ({"lane": Lane("a", 0, 1)}, "lane .* count no lanes"),
        ({"consumer": Consumer("g", 1)}, "consumer .* know no consumer groups"),
        ({"tls": TlsFiles(ca="ca.pem")}, "tls .* media driver speaks none"),
        ({"cluster_id": 7}, "cluster_id .* do not say theirs"),
    ],
)
def test_what_a_real_aeron_cluster_cannot_do_is_refused_with_the_reason(settings, why):
    with pytest.raises(ConfigurationError, match=why):
        ClusterClient.connect("aeron:host:9003", **settings)


@pytest.mark.parametrize("endpoints", ["aeron:", "aeron:host", "aeron:host:9003,host"])
def test_consensus_endpoints_of_a_real_cluster_are_checked_before_anything_is_sent(endpoints):
    with pytest.raises(ConfigurationError, match="consensus endpoint"):
        ClusterClient.connect(endpoints)


def test_a_real_cluster_without_a_media_driver_here_is_not_reached_and_that_is_said(tmp_path):
    with pytest.raises(TimedOut, match="no media driver runs with directory"):
        ClusterClient.connect("aeron:localhost:9003", aeron_dir=str(tmp_path), message_timeout_s=2)


def test_what_a_listener_inherits_takes_no_answers_from_those_who_wait_for_them():
    class Listener(EgressListener):
        def on_new_leader(self, *told):
            """Of no interest to answers."""

    assert not as_dispatch(EgressListener()).hears_messages
    assert not as_dispatch(Listener()).hears_messages
    Listener.on_message = lambda self, *told: None
    assert as_dispatch(Listener()).hears_messages
