"""Links between members over real sockets."""

import contextlib
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster import ClusterClient
from cluster.errors import PortInUse, RemoteProtocolError
from cluster.protocol import decode, link
from cluster.protocol.enums import Offer
from cluster.protocol.frame import frame
from cluster.transport.bounds import SECOND_NS, Bounds
from cluster.transport.clock import NEVER_NS
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.envelopes import seal
from cluster.transport.links import DIAL_INTERVAL_NS, DIAL_TIMEOUT_NS, MS
from cluster.transport.message_frames import link_frame
from tests.transport.linked_members import DEADLINE_S, LinkedMember, free_port, linked, sealed, turn_until


def garbled(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture
def members():
    """A function that makes members; all are stopped at the end."""
    made = []

    def make(*arguments, **options):
        member = LinkedMember(*arguments, **options)
        made.append(member)
        return member

    yield make
    for member in made:
        with contextlib.suppress(ValueError):
            member.stop()


@pytest.fixture(params=["unix beside tcp", "tcp alone"])
def endpoints(request, monkeypatch, tmp_path):
    if request.param == "unix beside tcp":
        local = {n: Endpoint(Medium.IPC, path=str(tmp_path / f"link-{n}.sock")) for n in range(3)}
        monkeypatch.setattr(LinkedMember, "local", local)
    return {n: Endpoint(Medium.TCP, "127.0.0.1", free_port()) for n in range(3)}


def test_three_members_find_each_other_and_frames_pass_both_ways_in_order(members, endpoints):
    three = [members(n, endpoints, incarnation=10 + n) for n in range(3)]
    turn_until(lambda: linked(*three), *three)
    assert sorted(three[0].told) == [("up", 1, 11), ("up", 2, 12)]

    sent = [frame(bytes([n]) * n, session_id=0, stream_id=108) for n in range(50)]
    for piece in sent:
        assert three[0].links.send(1, piece) > 0
        assert three[0].links.send(2, piece, piece) > 0
        assert three[1].links.send(0, piece) > 0
    turn_until(lambda: len(three[2].frames[0]) == 2 * len(b"".join(sent)), *three)
    turn_until(lambda: three[1].frames[0] == b"".join(sent) == three[0].frames[1], *three)


def test_a_process_that_ends_is_gone_after_three_refusals(members, endpoints):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    b.stop()
    lost = time.monotonic()
    turn_until(lambda: ("gone", 1) in a.told, a)

    assert a.told == [("up", 1, 1), ("down", 1), ("gone", 1)]
    assert a.links.is_gone(1)
    assert time.monotonic() - lost < 2
    assert a.links.send(1, frame(b"x", session_id=0, stream_id=108)) == Offer.NOT_CONNECTED


def test_who_is_lost_is_dialled_every_2_ms_at_first_so_that_a_death_is_known_after_4(members, endpoints):
    now_ns = 1
    two = {n: endpoints[n] for n in (0, 1)}
    a = members(0, two, clock_ns=lambda: now_ns)
    while a.links._peers[1].refusals < 2:  # of before it came
        a.turn()
        now_ns += DIAL_INTERVAL_NS
    b = members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    b.stop()
    turn_until(lambda: ("down", 1) in a.told, a)

    for _ in range(2):
        for _ in range(20):
            a.turn()
        assert not a.links.is_gone(1), "three refusals, and no two of them at once"
        assert a.links.next_dial_ns == now_ns + 2 * MS, "its owner can rest until then"
        now_ns += 2 * MS
    turn_until(lambda: a.links.is_gone(1), a)


def test_nobody_is_to_be_dialled_while_all_links_are_up(members, endpoints):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two)
    assert a.links.next_dial_ns < NEVER_NS
    turn_until(lambda: linked(a, b), a, b)
    assert a.links.next_dial_ns == NEVER_NS


def test_a_killed_process_is_gone_and_its_successor_is_told_apart(members, endpoints):
    """A real process, killed by the kernel."""
    two = {n: endpoints[n] for n in (0, 1)}
    a = members(0, two)
    child = os.fork()
    if child == 0:
        b = LinkedMember(1, two, incarnation=5)
        end = time.monotonic() + 2 * DEADLINE_S
        while time.monotonic() < end:
            b.turn()
        os._exit(1)
    turn_until(lambda: a.links.is_up(1), a)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    turn_until(lambda: a.links.is_gone(1), a)
    again = members(1, two, incarnation=6)
    turn_until(lambda: linked(a, again), a, again)

    assert a.told == [("up", 1, 5), ("down", 1), ("gone", 1), ("up", 1, 6)]
    assert not a.links.is_gone(1)


def test_a_successor_that_is_there_before_anyone_noticed_means_its_predecessor_is_gone(members, endpoints):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two, incarnation=5)
    turn_until(lambda: linked(a, b), a, b)
    b.stop()
    again = members(1, two, incarnation=6)
    turn_until(lambda: linked(a, again), a, again)

    assert a.told == [("up", 1, 5), ("down", 1), ("gone", 1), ("up", 1, 6)]


def test_a_successor_of_a_process_that_went_silent_is_believed_when_its_address_names_it(members, endpoints):
    """A power cut: no end of file, no reset; the old connections look as they did."""
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two, incarnation=5)
    turn_until(lambda: linked(a, b), a, b)
    for listener in b.links._listeners:
        listener.close()
    a.links._peers[1].is_kept_alive = False  # as of an earlier release
    again = members(1, two, incarnation=6)
    turn_until(lambda: linked(a, again) and a.told[-1] == ("up", 1, 6), a, again)

    assert a.told == [("up", 1, 5), ("down", 1), ("gone", 1), ("up", 1, 6)]
    assert a.errors == []
    assert a.links._peers[1].is_kept_alive, "the successor keeps it alive"


def hello_of(member_id, secret):
    kind = link.ConnectionKind.MEMBER
    return link_frame(link.Hello(0, member_id, secret, link.LINK_PROTOCOL_VERSION, kind))


class Stranger:
    """Says that it is a member, with frames right behind; knows all that the members tell strangers."""

    def __init__(self, endpoint, member_id, secret):
        self.socket = socket.create_connection((endpoint.host, endpoint.port))
        hello, crc = seal((hello_of(member_id, secret),), 0)
        behind, _ = seal((frame(b"forged", session_id=0, stream_id=108),), crc)
        self.socket.sendall(b"".join(bytes(part) for part in (*hello, *behind)))
        self.socket.setblocking(False)
        self.received = b""

    def is_answered(self):
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            self.received += self.socket.recv(4096)
        return len(self.received) > 0

    def is_cut_off(self):
        try:
            return self.socket.recv(4096) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True


@pytest.mark.parametrize("secret", [0, 99, -(2**63), "the incarnation"])
def test_who_says_that_it_is_a_member_is_not_heard_and_moves_no_link(members, endpoints, secret):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    if secret == "the incarnation":
        secret = b.links.incarnation  # what b tells everybody
    for _ in range(20):
        with contextlib.closing(Stranger(endpoints[0], 1, secret).socket):
            a.turn()
    stranger = Stranger(endpoints[0], 1, secret)
    turn_until(stranger.is_cut_off, a, b)
    stranger.socket.close()
    b.links.send(0, frame(b"true", session_id=0, stream_id=108))
    turn_until(lambda: a.frames[1], a, b)

    assert a.frames[1] == frame(b"true", session_id=0, stream_id=108)
    assert (a.told, b.told) == ([("up", 1, 1)], [("up", 0, 1)])
    assert any("a stranger said that it was member 1" in error for error in a.errors)


def test_a_stranger_in_the_place_of_a_member_that_is_away_is_not_heard_and_does_not_keep_it_out(
    members, endpoints
):
    two = {n: endpoints[n] for n in (0, 1)}
    a = members(0, two)
    stranger = Stranger(endpoints[0], 1, secret=7)
    turn_until(stranger.is_answered, a)
    stranger.socket.sendall(bytes(64))
    ready = []
    for _ in range(50):
        ready.append(a.poller.wait(0.002))
        a.links.poll(a)
    assert a.told == []
    assert 0 in ready, "what it says then wakes nobody"
    b = members(1, two, incarnation=5)
    turn_until(lambda: linked(a, b), a, b)
    turn_until(stranger.is_cut_off, a, b)
    stranger.socket.close()

    assert a.told == [("up", 1, 5)]
    assert a.frames[1] == b""


def test_while_a_member_does_not_answer_who_says_that_it_is_it_waits_a_second_or_for_the_next(
    members, endpoints
):
    now_ns = 1
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two, clock_ns=lambda: now_ns), members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    first = Stranger(endpoints[0], 1, secret=98)
    turn_until(first.is_answered, a)
    last = Stranger(endpoints[0], 1, secret=99)
    turn_until(first.is_cut_off, a)
    now_ns += DIAL_INTERVAL_NS - 1
    a.turn()
    assert a.links._peers[1].claim.question is None, "its address is asked every 50 ms"
    now_ns += DIAL_TIMEOUT_NS
    turn_until(last.is_cut_off, a)
    first.socket.close()
    last.socket.close()

    assert a.told == [("up", 1, 1)]


def test_a_client_that_dials_the_members_own_port_hears_so_at_once(members, endpoints):
    a = members(0, endpoints)
    where = endpoints[0]
    with ThreadPoolExecutor() as pool:
        for endpoint in (str(where), f"{where.host}:{where.port}"):
            connect = pool.submit(ClusterClient.connect, endpoint, message_timeout_s=10 * DEADLINE_S)
            turn_until(connect.done, a)
            with pytest.raises(RemoteProtocolError, match="speaks as members do to each other"):
                connect.result()


def test_a_flood_of_strangers_does_not_keep_a_member_out(members, endpoints):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two)
    with contextlib.ExitStack() as strangers:

        def is_linked_in_spite_of_them():
            strangers.callback(Stranger(endpoints[0], 1, secret=7).socket.close)
            return linked(a, b)

        turn_until(is_linked_in_spite_of_them, a, b)

    assert a.told == [("up", 1, 1)]


def test_a_secret_is_told_to_configured_addresses_only(members, endpoints):
    a = members(0, {n: endpoints[n] for n in (0, 1)}, incarnation=77)
    stranger = Stranger(endpoints[0], 1, secret=7)
    turn_until(stranger.is_answered, a)
    stranger.socket.close()
    reply = decode(stranger.received, 32 + 32, len(stranger.received) - 64)

    assert isinstance(reply, link.HelloReply)
    assert reply.incarnation == link.incarnation_of(77)
    assert (77).to_bytes(8, "little") not in stranger.received


def test_a_broken_connection_to_a_process_that_lives_comes_back_without_a_gone(members, endpoints):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    for _ in range(5):
        a.links._peers[1].outgoing.close("pulled")
        ups = len(b.told)
        turn_until(lambda ups=ups: linked(a, b) and len(b.told) == ups + 2, a, b)

    assert a.told == [("up", 1, 1)] + [("down", 1), ("up", 1, 1)] * 5
    assert b.told == [("up", 0, 1)] + [("down", 0), ("up", 0, 1)] * 5


def test_who_dials_anew_has_lost_the_link_though_its_old_connections_look_as_they_did(members, endpoints):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two, clock_ns=lambda: 1), members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    theirs = b.links._peers[0]
    old, theirs.incoming, theirs.outgoing = (theirs.incoming, theirs.outgoing), None, None
    theirs.on_lost(time.monotonic_ns())
    turn_until(lambda: linked(a, b), a, b)
    for connection in old:
        connection.close()

    assert a.told == [("up", 1, 1), ("down", 1), ("up", 1, 1)]


def test_frames_that_a_link_does_not_take_leave_no_trace_in_what_comes_after_them(members, endpoints):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    a.links._peers[1].outgoing._queue_bytes_max = 1
    sent, last = (frame(what * 60_000, session_id=0, stream_id=108) for what in (b"a", b"z"))
    count = 0
    while (result := a.links.send(1, sent)) > 0:
        count += 1
    assert result == Offer.BACK_PRESSURED
    turn_until(lambda: len(b.frames[0]) == count * len(sent), a, b)
    a.links.send(1, last)
    turn_until(lambda: b.frames[0].endswith(last), a, b)

    assert b.told == [("up", 0, 1)]


@pytest.mark.parametrize("is_noticed", ["by its end", "by a send that fails"])
def test_what_a_process_said_before_it_ended_is_heard_before_the_link_is_down(members, endpoints, is_noticed):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    last = frame(b"last", session_id=0, stream_id=108)
    assert b.links.send(0, last) > 0
    b.stop()
    a.poller.wait(1)
    if is_noticed == "by a send that fails":
        while a.links.send(1, last) > 0:
            pass
    a.links.poll(a)

    assert (a.frames[1], a.told) == (last, [("up", 1, 1), ("down", 1)])


def test_nothing_of_an_old_connection_is_heard_after_the_link_broke(members, endpoints):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    a.links._peers[1].outgoing.close("pulled")
    a.turn()
    assert a.told[-1] == ("down", 1)
    b.links.send(0, frame(b"old", session_id=0, stream_id=108))  # over TCP it has not noticed yet
    turn_until(lambda: linked(a, b) and ("down", 0) in b.told, a, b)
    b.links.send(0, frame(b"new", session_id=0, stream_id=108))
    turn_until(lambda: a.frames[1], a, b)

    assert b"old" not in a.frames[1]
    assert b"new" in a.frames[1]


def test_a_member_that_never_came_is_not_gone_until_long_refused(members):
    now_ns = 1_000_000_000
    endpoints = {n: Endpoint(Medium.TCP, "127.0.0.1", free_port()) for n in range(2)}
    a = members(0, endpoints, clock_ns=lambda: now_ns)
    for _ in range(80):
        now_ns += 50 * MS
        for _ in range(5):
            a.turn()
    assert a.told == []
    while now_ns < 8_000 * MS:
        now_ns += 50 * MS
        for _ in range(5):
            a.turn()
    assert a.told == [("gone", 1)]


def test_a_link_counts_as_stable_after_a_second(members, endpoints):
    now_ns = 1
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two, clock_ns=lambda: now_ns), members(1, two)
    turn_until(lambda: linked(a, b), a, b)

    assert not a.links.is_stable(1)
    now_ns += 999 * MS
    assert not a.links.is_stable(1)
    now_ns += 1 * MS
    assert a.links.is_stable(1)


def test_members_of_another_cluster_and_unknown_ones_are_turned_away(members, endpoints):
    a = members(0, endpoints)
    stranger = members(1, {**endpoints, 3: endpoints[1]}, cluster_id=9)
    turn_until(
        lambda: (
            any("cluster 9, but member 0 is of cluster 0" in error for error in a.errors)
            and any("refused our Hello: cluster 9" in error for error in stranger.errors)
        ),
        a,
        stranger,
    )

    assert not a.links.is_up(1)


def test_a_member_at_the_address_of_another_one_is_named_and_not_taken_for_it(members, endpoints):
    a = members(0, {n: endpoints[n] for n in (0, 1)})
    other = members(2, {0: endpoints[0], 2: endpoints[1]})
    turn_until(lambda: any("is member 2 of cluster 0" in error for error in a.errors), a, other)

    assert a.links._peers[1].incarnation is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 3,
        bytes(1000),
        b"\xff" * 1000,
        frame(b"no envelope", session_id=0, stream_id=1000),
        frame(b"no checksum", session_id=0, stream_id=1001),
        garbled(sealed(link_frame(link.StatusRequest(1))), bit=22),  # a length of 4 MiB more
        sealed(bytes(64)),
        sealed(frame(bytes(8 << 20), session_id=0, stream_id=1000))[:64],  # the rest never comes
        sealed(frame(b"no message", session_id=0, stream_id=1000)),
        sealed(frame(b"wrong stream", session_id=0, stream_id=101)),
        sealed(link_frame(link.StatusRequest(1))),
        link_frame(link.Hello(0, 1, 1, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.MEMBER)),
        sealed(link_frame(link.Hello(0, 77, 1, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.MEMBER))),
        sealed(link_frame(link.Hello(0, 1, 1, 5 << 16, link.ConnectionKind.MEMBER))),
        sealed(link_frame(link.Hello(0, 1, 1, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT))),
    ],
)
def test_garbage_on_the_link_port_disturbs_nobody(members, endpoints, garbage):
    two = {n: endpoints[n] for n in (0, 1)}
    a, b = members(0, two), members(1, two)
    turn_until(lambda: linked(a, b), a, b)
    with socket.create_connection(("127.0.0.1", endpoints[0].port)) as intruder:
        intruder.sendall(garbage)
        intruder.setblocking(False)

        def is_cut_off():
            try:
                while intruder.recv(4096):
                    pass
                return True
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True

        turn_until(is_cut_off, a, b)

    assert a.errors
    assert a.told == [("up", 1, 1)]
    a.links.send(1, frame(b"still here", session_id=0, stream_id=108))
    turn_until(lambda: b.frames[0], a, b)


def strangers(count, endpoint):
    return [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(count)]


def test_of_those_who_say_no_hello_the_oldest_make_room_and_that_is_told(members, endpoints):
    a = members(0, endpoints, bounds=Bounds(greetings_max=3))
    first, *others = strangers(5, endpoints[0])
    turn_until(lambda: len(a.errors) == 2, a)

    assert a.errors == ["an unknown peer: more than 3 have not said who they are (greetings_max)"] * 2
    assert first.recv(1) == b""
    for stranger in (first, *others):
        stranger.close()


def test_who_says_no_hello_in_time_is_cut_off_and_that_is_told(members, endpoints):
    now_ns = 1
    a = members(0, endpoints, clock_ns=lambda: now_ns, bounds=Bounds(greeting_timeout_ns=2 * SECOND_NS))
    (stranger,) = strangers(1, endpoints[0])
    a.turn()
    now_ns += 2 * SECOND_NS
    a.turn()
    assert a.errors == []
    now_ns += 1
    turn_until(lambda: a.errors, a)

    assert a.errors == ["an unknown peer: no Hello within 2 s (greeting_timeout)"]
    assert stranger.recv(1) == b""
    stranger.close()


def test_a_long_frame_before_the_hello_is_refused_at_its_header_with_the_bound(members, endpoints):
    a = members(0, endpoints, bounds=Bounds(greeting_length_max=1024))
    (stranger,) = strangers(1, endpoints[0])
    stranger.sendall(sealed(frame(bytes(1024), session_id=0, stream_id=1000))[:64])
    turn_until(lambda: a.errors, a)

    assert "not a frame of at most 1024 bytes" in a.errors[0]
    assert a.errors[0].endswith("(greeting_length_max)")
    assert stranger.recv(1) == b""
    stranger.close()


def test_a_taken_port_is_named(members, endpoints):
    members(0, endpoints)
    with pytest.raises(PortInUse, match=f"127.0.0.1:{endpoints[0].port}"):
        LinkedMember(0, endpoints)
