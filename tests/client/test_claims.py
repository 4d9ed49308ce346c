"""Messages of parts, messages written in place, and what is no message."""

import random

import numpy as np
import pytest

from cluster import BufferClaim
from cluster.client import ClientState, Offer
from cluster.client.window import UnacknowledgedWindow
from cluster.errors import LocalProtocolError
from cluster.protocol.session import SessionMessageHeader
from tests.client.scripted import connect, poll_until


@pytest.mark.parametrize(
    "parts",
    [
        (b"head|body|tail",),
        (b"head|", b"body|", b"tail"),
        (bytearray(b"head|"), memoryview(b"body|tail"), b""),
        (np.frombuffer(b"head|body|tail", np.uint8),),
        (np.frombuffer(b"head|bod", np.int64), b"y|tail"),
    ],
)
def test_a_message_is_gathered_from_its_parts(cluster, parts):
    client = connect(cluster)

    assert client.offer(*parts) > 0
    assert cluster.log == [b"head|body|tail"]
    assert client.offered == 1


@pytest.mark.parametrize(
    ("offer", "told"),
    [
        (lambda client: client.offer("text"), "payload 0: expected bytes, got the text 'text': encode it"),
        (lambda client: client.offer(b"1", "two"), "payload 1: expected bytes, got the text 'two': encode"),
        (lambda client: client.offer(17), "payload 0: expected bytes, got 17"),
        (lambda client: client.offer_batch([b"1", "two"]), "payload 1: expected bytes, got the text 'two'"),
        (lambda client: client.offer_batch([b"1", None]), "payload 1: expected bytes, got None"),
        (lambda client: client.offer_batch(b"one"), "payloads: expected a sequence of bytes, got b'one'"),
        (lambda client: client.offer_batch(None), "payloads: expected a sequence of bytes, got None"),
    ],
)
def test_what_is_no_bytes_is_named_and_nothing_of_it_sent(cluster, offer, told):
    client = connect(cluster)
    with pytest.raises(TypeError, match=told):
        offer(client)

    assert client.offered == 0
    assert client.offer(b"goes on") > 0


@pytest.mark.conformance("S-32")
def test_a_claim_is_filled_in_place_and_sent_by_its_commit_behind_the_header(cluster):
    client = connect(cluster)
    claim = BufferClaim()

    assert client.try_claim(5, claim) > 0
    claim.buffer[:] = b"hello"
    assert cluster.log == []
    client.offer(b"between")
    position = claim.commit()

    assert cluster.log == [b"between", b"hello"]
    assert cluster.leader.of_type(SessionMessageHeader)[-1] == SessionMessageHeader(1, 7, 0)
    assert position > 0
    assert (client.offered, client.try_claim(0, claim)) == (2, position)
    claim.abort()
    assert client.offered == 2


def test_a_claim_is_used_once_and_bounded(cluster):
    client = connect(cluster)
    claim = BufferClaim()
    client.try_claim(1, claim)
    with pytest.raises(LocalProtocolError, match="the claim is open"):
        client.try_claim(1, claim)
    claim.commit()
    with pytest.raises(LocalProtocolError, match="nothing is claimed"):
        claim.commit()
    for length in (client.max_payload_length + 1, -1):
        with pytest.raises(LocalProtocolError, match=f"a message of {length} bytes"):
            client.try_claim(length, claim)


def test_the_commit_of_a_claim_is_taken_however_full_the_window_is(cluster):
    client = connect(cluster, window_bytes=8192)
    claims = []
    while client.try_claim(100, claim := BufferClaim()) > 0:
        claims.append(claim)
    while client.offer(bytes(100)) > 0:
        pass
    before = len(cluster.log)

    assert len(claims) >= 2
    assert client.try_claim(100, BufferClaim()) == Offer.BACK_PRESSURED
    assert all(claim.commit() > 0 for claim in claims)
    assert len(cluster.log) == before + len(claims) == client.offered


def test_what_is_claimed_is_room_that_others_do_not_get():
    def taken_by(window):
        return sum(iter(lambda: window.offer(bytes(100)), False))

    claiming, free = (UnacknowledgedWindow(7, 0, 16 * 1024) for _ in range(2))
    assert claiming.claim(100)
    assert taken_by(claiming) == taken_by(free) * 3 // 4 > 0, "one segment of four"


def test_an_aborted_claim_gives_its_room_back(cluster):
    client = connect(cluster, window_bytes=4096)
    client.offer(b"x")
    for _ in range(100):
        claim = BufferClaim()
        assert client.try_claim(100, claim) > 0
        claim.abort()
    assert cluster.log == [b"x"]


def test_a_claim_goes_to_the_next_leader_and_not_into_a_session_that_ended(cluster):
    client = connect(cluster)
    claim, late = BufferClaim(), BufferClaim()
    client.try_claim(4, claim)
    client.try_claim(4, late)
    cluster.leader.stop()
    cluster.elect(None)
    client.poll_egress()
    claim.buffer[:] = b"kept"

    assert client.state is ClientState.AWAIT_NEW_LEADER
    assert client.try_claim(4, BufferClaim()) == Offer.NOT_CONNECTED
    assert claim.commit() > 0
    cluster.elect(1)
    poll_until(client, lambda: cluster.log == [b"kept"])
    client.close()
    assert late.commit() == Offer.CLOSED


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_claimed_and_offered_each_message_is_sent_once(cluster, seed):
    chance = random.Random(seed)
    client = connect(cluster, window_bytes=chance.choice([4096, 16_384]))
    sent: list[bytes] = []
    claims: list[BufferClaim] = []
    for number in range(2_000):
        payload = b"%d" % number
        match chance.randrange(5):
            case 0 if client.try_claim(len(payload), claim := BufferClaim()) > 0:
                claim.buffer[:] = payload
                claims.append(claim)
            case 1 if claims:
                claim = claims.pop(chance.randrange(len(claims)))
                assert claim.commit() > 0
                sent.append(bytes(claim.buffer))
            case 2 if claims:
                claims.pop().abort()
            case 3 if client.offer(payload) > 0:
                sent.append(payload)
            case 4:
                cluster.acknowledge(len(cluster.log))
                client.poll_egress()

    assert cluster.log == sent
    assert len(sent) > 300


class Socket:
    """Takes all that comes."""

    def write(self, buffer):
        return len(buffer)


def test_a_batch_longer_than_the_window_is_taken_once_all_before_it_is_acknowledged():
    window = UnacknowledgedWindow(1, 0, 64 * 1024)
    batch = np.array([0]), np.array([100_000]), np.zeros(100_000, np.uint8)
    assert window.offer(b"x")
    assert not window.offer_batch(*batch)
    window.flush(Socket())
    assert window.acknowledge(1)

    assert window.offer_batch(*batch)
