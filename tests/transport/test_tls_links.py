"""Links between members over TLS: only who shows the certificate of the member that it is."""

import contextlib
import shutil
import socket
from pathlib import Path

import pytest

from cluster.protocol import link
from cluster.protocol.enums import RefusedCertificate
from cluster.protocol.frame import frame
from cluster.transport.bounds import DEFAULT_BOUNDS
from cluster.transport.certificates import member_name
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.link_greetings import GREETINGS_PER_POLL_MAX
from cluster.transport.member_tls import MemberTls
from cluster.transport.message_frames import link_frame
from cluster.transport.tls import TlsFiles, TlsSession, client_context
from tests.transport.authorities import Certificates
from tests.transport.linked_members import LinkedMember, free_port, linked, sealed, turn_until
from tests.transport.tls_peer import TlsPeer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Another authority, which nobody here believes."""
    return Certificates(tmp_path_factory.mktemp("others"))


@pytest.fixture
def endpoints():
    return {n: Endpoint(Medium.TCP, "127.0.0.1", free_port()) for n in range(3)}


@pytest.fixture
def members(endpoints):
    """A function: a member among the first so many, with the TLS that it is given."""
    made = []

    def make(member_id, tls, count=2, **options):
        among = {n: endpoints[n] for n in range(count)}
        made.append(LinkedMember(member_id, among, tls=tls, **options))
        return made[-1]

    yield make
    for member in made:
        with contextlib.suppress(ValueError):
            member.stop()


def test_three_members_find_each_other_and_long_frames_pass_both_ways_in_order(certificates, members):
    three = [members(n, certificates.tls_of(n), count=3) for n in range(3)]
    turn_until(lambda: linked(*three), *three)
    sent = [frame(bytes([n]) * n * 1000, session_id=0, stream_id=108) for n in range(1, 200)]
    for sender, receiver in ((0, 1), (1, 0), (2, 0)):
        for piece in sent:
            assert three[sender].links.send(receiver, piece) > 0
    expected = b"".join(sent)
    turn_until(lambda: three[1].frames[0] == expected == three[0].frames[1], *three)
    turn_until(lambda: three[0].frames[2] == expected, *three)
    assert [member.errors for member in three] == [[], [], []]


def test_a_process_that_ends_is_gone_and_its_successor_comes_back(certificates, members):
    a, b = (members(n, certificates.tls_of(n)) for n in range(2))
    turn_until(lambda: linked(a, b), a, b)
    b.stop()
    turn_until(lambda: ("gone", 1) in a.told, a)
    again = members(1, certificates.tls_of(1), incarnation=2)
    turn_until(lambda: linked(a, again), a, again)
    assert a.told == [("up", 1, 1), ("down", 1), ("gone", 1), ("up", 1, 2)]


def hello(member_id, kind=link.ConnectionKind.MEMBER):
    return sealed(link_frame(link.Hello(0, member_id, 7, link.LINK_PROTOCOL_VERSION, kind)))


@pytest.mark.parametrize("kind", [link.ConnectionKind.MEMBER, link.ConnectionKind.TOOL])
@pytest.mark.parametrize("shown", ["eve", "member-2.cluster-0", "member-1.cluster-9"])
def test_who_shows_another_certificate_is_no_member_whatever_it_says(
    certificates, members, endpoints, tmp_path, shown, kind
):
    files = {
        "eve": certificates.client("eve"),
        "member-2.cluster-0": certificates.member(2),
        "member-1.cluster-9": certificates.member(19, cluster_id=9),
    }[shown]
    a = members(0, certificates.tls_of(0))
    sock = socket.create_connection(("127.0.0.1", endpoints[0].port))
    with TlsPeer(sock, files, a.turn, member_name(0, 0)) as intruder:
        intruder.sendall(hello(1, kind))
        turn_until(lambda: a.errors, a)
        while intruder.recv(4096):
            pass
    shown = "member-19.cluster-9" if shown.endswith("9") else shown
    assert a.errors == [
        f"a peer that calls itself member 1: its certificate is of {shown!r}, expected member-1.cluster-0"
    ]
    assert a.told == [] and a.of_tls == a.errors


def test_who_shows_no_certificate_or_one_of_another_authority_gets_nowhere(
    certificates, others, members, endpoints
):
    a = members(0, certificates.tls_of(0))
    stranger = others.member(1)
    for files, told in (
        (certificates.trust, "the peer at 127.0.0.1 showed no certificate"),
        (TlsFiles(certificates.trust.ca, stranger.certificate, stranger.key), "was issued by"),
    ):
        a.errors.clear()
        sock = socket.create_connection(("127.0.0.1", endpoints[0].port))
        with TlsPeer(sock, files, a.turn, member_name(0, 0)) as intruder:
            with contextlib.suppress(OSError):
                intruder.sendall(hello(1))
            turn_until(lambda: a.errors, a)
        assert len(a.errors) == 1
        assert told in a.errors[0]
    assert a.told == []


def test_both_sides_say_whose_certificate_keeps_them_apart_until_they_have_a_link(
    certificates, others, members
):
    theirs, ours, none = RefusedCertificate.THEIRS, RefusedCertificate.OURS, RefusedCertificate.NONE
    a = members(0, certificates.tls_of(0))
    assert a.links.refused_certificate(1) is none
    trusting = MemberTls(both_authorities(certificates, others.member(1)), 1, 0, asks_clients=False)
    b = members(1, trusting)
    turn_until(lambda: a.links.refused_certificate(1) is theirs, a, b)
    turn_until(lambda: b.links.refused_certificate(0) is ours, a, b)
    assert a.of_tls[0].startswith(f"member 1 at {a.links._peers[1].endpoint}: the certificate of member 1 at")
    assert "was issued by 'cluster certificate" in a.of_tls[0]
    assert a.of_tls[0].endswith("; it is of 'member-1.cluster-0'")
    who = "an unknown peer: the certificate of the peer at 127.0.0.1 was issued by none of the authorities"
    turn_until(lambda: any(text.startswith(who) for text in a.of_tls), a, b)
    b.stop()
    turn_until(lambda: a.links.refused_certificate(1) is none, a)
    again = members(1, certificates.tls_of(1), incarnation=2)
    turn_until(lambda: linked(a, again), a, again)
    assert again.links.refused_certificate(0) is none


def both_authorities(certificates, files):
    """The same certificate, of somebody who believes the authority of the others as well."""
    trusted = certificates.folder / "both.pem"
    trusted.write_text(Path(certificates.trust.ca).read_text() + Path(files.ca).read_text())
    return TlsFiles(str(trusted), files.certificate, files.key)


def test_a_hello_in_the_clear_is_answered_that_tls_is_spoken(certificates, members):
    a, plain = members(0, certificates.tls_of(0)), members(1, None)
    turn_until(lambda: "an unknown peer: the peer at 127.0.0.1 does not speak TLS" in a.errors, a, plain)
    turn_until(lambda: any("this port speaks TLS" in error for error in plain.errors), a, plain)
    turn_until(lambda: any("expected a port that speaks TLS" in error for error in a.errors), a, plain)
    assert not a.links.is_up(1)


def test_who_answers_at_a_members_address_with_another_name_is_not_told_anything(
    certificates, members, endpoints
):
    """As when an address is given to another host, or a name is resolved by an enemy."""
    a = members(0, certificates.tls_of(0))
    impostor = LinkedMember(1, {1: endpoints[1]}, tls=certificates.tls_of(2))
    try:
        turn_until(lambda: a.errors, a, impostor)
        assert a.errors[0] == (
            f"member 1 at {endpoints[1]}: the certificate of member 1 at {endpoints[1]} is for "
            "member-2.cluster-0, localhost, 127.0.0.1, 0:0:0:0:0:0:0:1, not for member-1.cluster-0"
        )
        assert any("does not accept our certificate" in error for error in impostor.errors)
    finally:
        impostor.stop()


def test_links_made_after_a_renewal_show_the_new_certificate(tmp_path, members):
    folders = [Certificates(tmp_path / name) for name in ("first", "second")]
    tls = []
    for n in range(2):
        folder = tmp_path / f"member-{n}"
        folder.mkdir()
        install(folders[0].member(n), folder)
        paths = TlsFiles(*(str(folder / name) for name in ("ca", "certificate", "key")))
        tls.append(MemberTls(paths, n, 0, asks_clients=False))
    a, b = (members(n, tls[n]) for n in range(2))
    turn_until(lambda: linked(a, b), a, b)
    for n in range(2):
        install(folders[1].member(n), tmp_path / f"member-{n}")
        assert tls[n].refresh()
    assert linked(a, b)
    b.stop()
    again = members(1, tls[1], incarnation=2)
    turn_until(lambda: linked(a, again), a, again)


def test_half_a_handshake_is_cut_off_in_time_and_holds_up_nobody(certificates, members, endpoints):
    now_ns = 1
    a = members(0, certificates.tls_of(0), clock_ns=lambda: now_ns)
    with socket.create_connection(("127.0.0.1", endpoints[0].port)) as half:
        half.sendall(bytes.fromhex("16030102000100"))
        for _ in range(20):
            a.turn()
        assert a.errors == []
        now_ns += DEFAULT_BOUNDS.greeting_timeout_ns + 1
        turn_until(lambda: a.errors, a)
        assert half.recv(1) == b""
    assert a.errors == ["an unknown peer: no Hello within 10 s (greeting_timeout)"]


@pytest.mark.parametrize(
    "said", [bytes.fromhex("16030100050100000100"), b"\x16" + bytes(300), b"\x16\xff" * 300]
)
def test_what_begins_like_tls_and_is_none_is_cut_off_and_reported(certificates, members, endpoints, said):
    a = members(0, certificates.tls_of(0))
    with socket.create_connection(("127.0.0.1", endpoints[0].port)) as stranger:
        stranger.sendall(said)
        turn_until(lambda: a.errors, a)
    assert len(a.errors) == 1
    assert "ssl.c" not in a.errors[0]


def test_a_flood_of_handshakes_does_not_keep_a_member_out_and_each_turn_takes_a_few(
    certificates, members, endpoints, monkeypatch
):
    taken = []
    shake_hands = TlsSession.shake_hands

    def counted(session):
        taken[-1].add(session)
        return shake_hands(session)

    a, b = (members(n, certificates.tls_of(n)) for n in range(2))
    with contextlib.ExitStack() as strangers:
        socks = []
        for _ in range(60):
            socks.append(socket.create_connection(("127.0.0.1", endpoints[0].port)))
            strangers.callback(socks[-1].close)
            a.turn()  # all are accepted before any of them says something
        for sock in socks:
            session = TlsSession(client_context(certificates.trust), "a", server_name=member_name(0, 0))
            session.shake_hands()
            sock.sendall(session.take())
        monkeypatch.setattr(TlsSession, "shake_hands", counted)

        def is_linked():
            taken.append(set())
            a.turn()
            is_up = a.links.is_up(1)
            taken.append(set())
            b.turn()
            return is_up and b.links.is_up(0)

        turn_until(is_linked)
    assert max(map(len, taken)) <= GREETINGS_PER_POLL_MAX + 1  # and the one that was dialled


def install(files, folder):
    for name in ("ca", "certificate", "key"):
        shutil.copy(getattr(files, name), folder / name)
