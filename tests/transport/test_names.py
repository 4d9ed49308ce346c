"""Host names: asked beside the turns, and dialled at every address that they stand for."""

import queue
import socket
import time

import pytest

from cluster.errors import ConfigurationError
from cluster.protocol.frame import frame
from cluster.transport import names as names_module
from cluster.transport.dial import dial
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.listener import Listener
from cluster.transport.names import REST_MAX_NS, SECOND_NS, SLOW_NS, connect_within
from cluster.transport.poller import Poller
from cluster.transport.sockets import ReceiveBuffer
from tests.transport.linked_members import DEADLINE_S, LinkedMember, free_port, linked, turn_until
from tests.transport.name_server import NameServer, hosts, of

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def test_the_last_good_answer_is_dialled_until_there_is_another():
    server = NameServer()
    assert hosts(server, of("db0")) == []
    server.answer("10.0.0.1")
    assert hosts(server, of("db0")) == ["10.0.0.1"]
    server.now_ns += REST_MAX_NS
    assert hosts(server, of("db0")) == ["10.0.0.1"]
    server.answer(why="no such name")
    assert hosts(server, of("db0")) == ["10.0.0.1"]
    server.now_ns += REST_MAX_NS
    hosts(server, of("db0"))
    server.answer("10.0.0.2")
    assert hosts(server, of("db0")) == ["10.0.0.2"]
    assert server.told == [
        "db0 does not resolve: no such name, 10.0.0.1 is dialled meanwhile",
        "db0 resolves again: 10.0.0.2",
    ]

    server.now_ns += REST_MAX_NS
    hosts(server, of("db0"))
    server.answer(why="refused")
    assert server.told[2:] == ["db0 does not resolve: refused, 10.0.0.2 is dialled meanwhile"]
    assert server.names.why(of("db0")) == "db0 does not resolve: refused"


def test_a_name_is_asked_for_again_soon_after_an_answer_that_is_another_one():
    server = NameServer()
    hosts(server, of("db0"))
    first, both, turned = ("10.0.0.1",), ("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")
    for answer, rest_s in (((), 2), ((), 4), (first, 1), (first, 2), (both, 1), (turned, 2)):
        server.answer(*answer, why="" if answer else "no such name")
        due_ns = server.names._names["db0"].due_ns
        assert due_ns - server.now_ns == rest_s * SECOND_NS
        server.now_ns = due_ns
        hosts(server, of("db0"))


def test_a_name_is_asked_for_once_at_a_time_and_ever_more_rarely():
    server = NameServer()
    for _ in range(100):
        hosts(server, of("db0"))
        server.now_ns += SECOND_NS // 10
    assert len(server.questions) == 1
    assert server.told == [f"db0 does not resolve: no answer for {SLOW_NS // SECOND_NS} s"]
    for _ in range(1200):
        if len(server.questions) and server.names._names["db0"].is_asked:
            server.answer(why="no such name")
        hosts(server, of("db0"))
        server.now_ns += SECOND_NS // 10
    assert 12 <= len(server.questions) <= 18  # 2, 4, 8, 10, 10 … seconds apart, in two minutes
    assert len(server.told) == 1


def test_an_address_is_never_asked_for():
    server = NameServer()
    for host in ("10.0.0.1", "::1", "fe80::1%1"):
        assert hosts(server, of(host)) == [host]
    assert server.questions == []


def test_a_dial_that_does_not_connect_leaves_the_next_address_to_the_dial_after_it():
    server = NameServer()
    hosts(server, of("db0"))
    with socket.create_server(("127.0.0.2", 0)) as listening:
        endpoint = of("db0", listening.getsockname()[1])
        server.answer("127.0.0.1", "127.0.0.2")
        poller = Poller(server.names)
        deadline = time.monotonic() + DEADLINE_S
        refused = 0
        for _ in range(2):
            connection = dial(endpoint, poller, ReceiveBuffer())
            while not (connection.is_connected or connection.is_closed):
                assert time.monotonic() < deadline
                poller.wait(0.01)
            refused += connection.is_closed
        assert connection.is_connected and refused == 1
        assert hosts(server, endpoint) == ["127.0.0.2", "127.0.0.1"]
        connection.close()
        poller.close()


def test_the_second_address_is_next_also_after_an_answer_without_the_one_that_was_preferred():
    server = NameServer()
    hosts(server, of("db0"))
    server.answer("10.0.0.1", "10.0.0.2")
    server.names.on_failed(of("db0"), of("10.0.0.1"))
    assert hosts(server, of("db0")) == ["10.0.0.2", "10.0.0.1"]
    server.now_ns += REST_MAX_NS
    hosts(server, of("db0"))
    server.answer("10.0.0.3", "10.0.0.4")
    assert hosts(server, of("db0")) == ["10.0.0.3", "10.0.0.4"]

    server.names.on_failed(of("db0"), of("10.0.0.3"))
    assert hosts(server, of("db0")) == ["10.0.0.4", "10.0.0.3"]


def test_turns_go_on_while_the_name_of_another_member_is_never_answered(monkeypatch):
    monkeypatch.setattr(names_module, "look_up", lambda host: time.sleep(3600))
    endpoints = {n: Endpoint(Medium.TCP, "127.0.0.1", free_port()) for n in range(2)}
    endpoints[2] = of("silent.invalid", free_port())
    a, b = (LinkedMember(n, endpoints) for n in range(2))
    turn_until(lambda: a.links.is_up(1) and b.links.is_up(0), a, b)
    sent = frame(b"x" * 32, session_id=0, stream_id=108)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:  # six dials of the silent name, each of which would take an hour
        assert a.links.send(1, sent) > 0
        a.turn()
        b.turn()
    assert b.frames[0] and not a.links.is_up(2)
    a.stop()
    b.stop()


def test_members_whose_names_have_an_address_of_ipv6_alone_find_each_other(monkeypatch):
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))]
    real = socket.getaddrinfo

    def getaddrinfo(host, *arguments, flags=0, **options):
        if host == "six.invalid" and not flags:
            return found
        return real(host, *arguments, flags=flags, **options)

    monkeypatch.setattr(names_module.socket, "getaddrinfo", getaddrinfo)
    two = [LinkedMember(n, {m: of("six.invalid", port) for m, port in ports.items()}) for n, ports in pairs()]
    turn_until(lambda: linked(*two), *two)
    with connect_within(two[0].links.endpoint, DEADLINE_S) as sock:
        assert sock.getpeername()[0] == "::1"
    for member in two:
        member.stop()


def pairs():
    ports = {0: free_port(), 1: free_port()}
    return [(0, ports), (1, ports)]


def test_a_listener_takes_the_first_address_that_its_host_has(monkeypatch):
    monkeypatch.setattr(names_module, "look_up", lambda host: (("192.0.2.1", "127.0.0.3"), ""))
    poller = Poller()
    listener = Listener(of("own.invalid", 0), poller, lambda _: None)
    connect_within(of("127.0.0.3", listener.endpoint.port), DEADLINE_S).close()
    listener.close()
    monkeypatch.setattr(names_module, "look_up", lambda host: (("192.0.2.1",), ""))
    with pytest.raises(ConfigurationError, match=r"own2.invalid:9: cannot listen there: Cannot assign"):
        Listener(of("own2.invalid"), poller, lambda _: None)
    poller.close()


def test_addresses_of_ipv4_come_first_and_each_once(monkeypatch):
    four, six = socket.AF_INET, socket.AF_INET6
    addresses = [(six, ("fe80::1", 0, 0, 3)), (four, ("10.0.0.2", 0)), (four, ("10.0.0.1", 0))]
    found = [(family, socket.SOCK_STREAM, 6, "", address) for family, address in addresses * 2]
    monkeypatch.setattr(names_module.socket, "getaddrinfo", lambda *_, **__: found)
    assert names_module.look_up("db0") == (("10.0.0.2", "10.0.0.1", "fe80::1%3"), "")


def test_a_question_that_fails_in_whatever_way_is_answered(monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    answers = queue.Queue()
    names_module.ask_in_thread("db0", lambda *answer: answers.put(answer))
    assert answers.get(timeout=DEADLINE_S) == ((), "MemoryError: ")


def test_a_dial_that_fails_late_does_not_pass_over_the_address_that_is_next():
    server = NameServer()
    hosts(server, of("db0"))
    server.answer(*HOSTS)
    for late in ("10.0.0.2", "10.0.0.3", "10.0.0.9"):
        server.names.on_failed(of("db0"), of(late))
        assert hosts(server, of("db0"))[0] == "10.0.0.1"


def test_each_address_has_its_share_of_the_time_that_is_left_and_a_connection_all_of_it(monkeypatch):
    timeouts, now_s = [], [0.0]

    class Silent:
        def __init__(self, *_):
            timeouts.append([])

        def settimeout(self, timeout_s):
            timeouts[-1].append(timeout_s)

        def connect(self, address):
            if address[0] != "10.0.0.3":
                now_s[0] += timeouts[-1][-1]
                raise TimeoutError

        def close(self):
            pass

    monkeypatch.setattr(names_module, "ask_in_thread", lambda host, answer: answer(HOSTS, ""))
    monkeypatch.setattr(names_module.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(names_module.socket, "socket", Silent)
    connect_within(of("db0"), 12.0)

    assert timeouts == [[4.0], [4.0], [4.0, 12.0]]
