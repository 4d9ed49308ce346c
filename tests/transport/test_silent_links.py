"""Links on which nothing comes: TCP waits for long, members do not."""

import socket

import pytest

from cluster.protocol import link
from cluster.transport import link_hellos
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.links import DIAL_TIMEOUT_NS, FIRST_CONTACT_TIMEOUT_NS, MS, REFUSALS_OF_GONE
from tests.transport.linked_members import LinkedMember, free_port, linked, turn_until

TIMEOUT_MS = 10_000  # the default


class Clock:
    ns = 0

    def __call__(self):
        return self.ns


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def two(clock):
    endpoints = {n: Endpoint(Medium.TCP, "127.0.0.1", free_port()) for n in range(2)}
    members = [LinkedMember(n, endpoints, clock_ns=clock) for n in range(2)]
    turn_until(lambda: linked(*members), *members)
    yield members
    for member in members:
        member.stop()


def pass_time(clock, duration_ms, *members, step_ms=100):
    for _ in range(duration_ms // step_ms):
        clock.ns += step_ms * MS
        for member in members:
            member.turn()


def test_members_that_have_nothing_to_say_keep_their_link(two, clock):
    pass_time(clock, 3 * TIMEOUT_MS, *two)
    assert [event[0] for member in two for event in member.told] == ["up", "up"]
    assert not any(any(member.frames.values()) for member in two)


def test_a_link_on_which_nothing_came_for_the_time_out_is_closed_and_dialled_again(two, clock):
    a, b = two
    pass_time(clock, TIMEOUT_MS - 500, a)
    assert linked(a, b)
    pass_time(clock, 1_000, a)
    assert a.told == [("up", 1, 1), ("down", 1)]  # a hint: nobody is gone
    assert a.errors == ["member 1: nothing came for 10 s"]
    turn_until(lambda: a.told[-1][0] == "up" and linked(a, b), a, b)
    assert ("gone", 1) not in a.told


def test_who_was_stopped_for_long_itself_does_not_close_its_links(two, clock):
    pass_time(clock, 5 * TIMEOUT_MS, *two, step_ms=TIMEOUT_MS)
    assert all(member.told[-1][0] == "up" and len(member.told) == 1 for member in two)


def test_a_turn_that_takes_long_here_is_no_silence_of_others(two, clock):
    a, b = two
    pass_time(clock, 2_000, a, b)
    clock.ns += TIMEOUT_MS // 2 * MS  # as while the disk hangs
    assert a.links.silence_ns(1) < 200 * MS
    pass_time(clock, TIMEOUT_MS // 2, a)
    assert a.links.silence_ns(1) >= TIMEOUT_MS // 2 * MS


def test_a_member_of_an_earlier_release_may_be_silent(clock, monkeypatch):
    monkeypatch.setattr(link_hellos.link, "LINK_PROTOCOL_VERSION", 1 << 16)
    endpoints = {n: Endpoint(Medium.TCP, "127.0.0.1", free_port()) for n in range(2)}
    a, b = (LinkedMember(n, endpoints, clock_ns=clock) for n in range(2))
    turn_until(lambda: linked(a, b), a, b)
    pass_time(clock, 2 * TIMEOUT_MS, a)
    assert a.told == [("up", 1, 1)]
    assert link.KEEPS_ALIVE_VERSION > 1 << 16
    a.stop()
    b.stop()


@pytest.mark.parametrize("answer", ["silence", "hanging up"])
def test_a_dial_without_a_good_answer_is_no_refusal_and_ends_a_row_of_them(clock, monkeypatch, answer):
    """A member is gone after three in a row: its process is known to be dead."""
    endpoints = {n: Endpoint(Medium.TCP, "127.0.0.1", free_port()) for n in range(2)}
    a = LinkedMember(0, endpoints, clock_ns=clock)
    peer, ended = a.links._peers[1], []
    on_dial_failed = a.links._on_dial_failed
    monkeypatch.setattr(
        a.links, "_on_dial_failed", lambda *failed: (ended.append(peer), on_dial_failed(*failed))
    )

    def refused(times):
        for count in range(len(ended) + 1, len(ended) + times + 1):
            clock.ns = max(clock.ns, peer.next_dial_ns)
            turn_until(lambda count=count: len(ended) == count, a)

    clock.ns += FIRST_CONTACT_TIMEOUT_NS
    refused(REFUSALS_OF_GONE - 1)
    with socket.create_server(("127.0.0.1", endpoints[1].port)) as server:
        clock.ns = max(clock.ns, peer.next_dial_ns)
        turn_until(lambda: peer.outgoing is not None and peer.outgoing.is_connected, a)
        if answer == "hanging up":
            server.accept()[0].close()
            turn_until(lambda: peer.outgoing is None, a)
        else:
            clock.ns += DIAL_TIMEOUT_NS + 1
            a.turn()
    refused(REFUSALS_OF_GONE - 1)
    assert a.told == []
    monkeypatch.setattr(a.poller.names, "count", lambda endpoint: 2)  # each address is refused so often
    refused(1 + REFUSALS_OF_GONE - 1)
    assert a.told == []
    refused(1)
    assert a.told == [("gone", 1)]
    a.stop()


def test_a_link_that_has_ended_is_lent_to_no_kernel_before_that_is_seen(two):
    a, _ = two
    assert a.links.serve(1) is not None
    a.links._peers[1].incoming.close()
    assert a.links.serve(1) is None
