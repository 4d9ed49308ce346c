"""Addresses as people write them."""

import socket

import pytest

from cluster.errors import ConfigurationError
from cluster.transport.endpoint import (
    Endpoint,
    Medium,
    adopt_endpoints,
    format_endpoints,
    parse_endpoint,
    parse_endpoints,
)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:9000", Endpoint(Medium.GRPC, "127.0.0.1", 9000)),
        ("tcp:host.example:9001", Endpoint(Medium.TCP, "host.example", 9001)),
        ("tcp:[::1]:9001", Endpoint(Medium.TCP, "::1", 9001)),
        ("ipc:/tmp/a=b/ingress.sock", Endpoint(Medium.IPC, path="/tmp/a=b/ingress.sock")),
    ],
)
def test_an_endpoint_reads_as_it_is_written(text, endpoint):
    assert parse_endpoint(text) == endpoint
    assert str(endpoint) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *((text, "expected host:port") for text in ("", "host", "host:", ":9000", "host:port", "host:-1")),
        *((text, "expected host:port") for text in ("tcp:", "udp:host:9000")),
        ("ipc:", "expected ipc:/path"),
        ("host:70000", "port 70000 is above 65535"),
        ("::1:9000", "goes in brackets"),
        ("a..b:9000", "'a..b' is no host name"),
        (f"tcp:{'ü' * 70}:9000", "is no host name"),
    ],
)
def test_what_is_no_endpoint_is_named_in_the_error(text, told):
    with pytest.raises(ConfigurationError, match=f"endpoint '.*{told}"):
        parse_endpoint(text)


@pytest.mark.conformance("S-6")
def test_a_list_keeps_its_order_and_its_ids():
    text = "2=127.0.0.1:9020,0=tcp:h:1,1=ipc:/x.sock"

    endpoints = parse_endpoints(text)

    assert list(endpoints) == [2, 0, 1]
    assert format_endpoints(endpoints) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("0=h:1,h:2", "'h:2' is not memberId=endpoint"),
        ("h:1,1=h:2", "'h:1' is not memberId=endpoint"),
        ("0=h:1,0=h:2", "is given twice"),
        ("a=h:1", "'a=h:1'"),
        ("-1=h:1", "'-1=h:1'"),
        ("h", "expected host:port"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(text, told):
    with pytest.raises(ConfigurationError, match=told):
        parse_endpoints(text)


def test_a_list_without_ids_keeps_its_order_until_members_tell_who_they_are():
    text = "tcp:b:1,ipc:/tmp/a=b.sock,[::1]:9000"

    endpoints = parse_endpoints(text)

    assert list(endpoints) == [-1, -2, -3]
    assert format_endpoints(endpoints) == text


def test_what_a_member_tells_names_the_endpoints_that_were_given_and_adds_the_others():
    known = parse_endpoints("a:1,b:1")

    assert adopt_endpoints(known, "0=a:1,1=b:1,2=c:1") == [0, 1, 2]

    assert format_endpoints(known) == "0=a:1,1=b:1,2=c:1"


@pytest.mark.parametrize("told", ["0=a:1,1=b:1", "", "not a list", "a:1"])
def test_of_what_a_member_tells_only_our_medium_and_what_can_be_read_counts(told):
    known = parse_endpoints("0=tcp:a:2")

    assert adopt_endpoints(known, told) == []

    assert format_endpoints(known) == "0=tcp:a:2"


def test_a_path_too_long_for_a_socket_is_reached_where_it_is(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    long = Endpoint(Medium.IPC, path=str(folder / "ingress.sock"))

    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as dialling:
        with long.address() as address:
            listening.bind(address)
        listening.listen()
        with long.address() as address:
            dialling.connect(address)

    assert (folder / "ingress.sock").is_socket()


def test_a_path_that_a_socket_can_hold_is_taken_as_it_is():
    with Endpoint(Medium.IPC, path="/tmp/short.sock").address() as address:
        assert address == "/tmp/short.sock"


def test_a_long_path_without_its_folder_is_told(tmp_path):
    missing = Endpoint(Medium.IPC, path=str(tmp_path / ("x" * 120) / "ingress.sock"))
    with pytest.raises(FileNotFoundError), missing.address():
        pass
