"""What members send each other arrives as it was sent, or not at all."""

import zlib

import numpy as np
import pytest

from cluster.errors import RemoteProtocolError
from cluster.protocol import streams
from cluster.protocol.frame import frame, frame_header
from cluster.transport.envelopes import ENVELOPE_BYTES, check_header, open_envelope, seal, unseal


def a_frame(length: int) -> bytes:
    return frame(bytes(n % 251 for n in range(length)), session_id=7, stream_id=100)


def opened(data: bytes, crc: int = 0) -> bytes:
    """What a receiver is handed of the envelopes in ``data``."""
    buffer = np.frombuffer(data, np.uint8).copy()
    start, inside = 0, b""
    while start < len(buffer):
        envelope = unseal(buffer, start, crc)
        inside += buffer[envelope.start : envelope.end].tobytes()
        start, crc = envelope.end, envelope.crc
    return inside


def sent(*batches: bytes) -> list[bytes]:
    """The bytes on the connection, for one batch after the other."""
    crc, pieces = 0, []
    for batch in batches:
        parts, crc = seal((batch,), crc)
        pieces.append(b"".join(bytes(part) for part in parts))
    return pieces


@pytest.mark.parametrize(
    "lengths", [[0], [1], [100] * 3, [5_000] * 100, [3 * ENVELOPE_BYTES], [40_000, 1] * 20]
)
def test_what_goes_in_comes_out(lengths):
    batch = b"".join(map(a_frame, lengths))

    assert opened(sent(batch)[0]) == batch
    parts, _ = seal((batch, batch), 0)
    assert opened(b"".join(bytes(part) for part in parts)) == batch + batch


def test_a_long_batch_goes_in_envelopes_that_end_where_frames_end():
    parts, _ = seal((np.frombuffer(a_frame(5_000) * 100, np.uint8),), 0)

    assert len(parts) > 4
    assert all(len(part) <= ENVELOPE_BYTES for part in parts)
    assert all(len(part) % len(a_frame(5_000)) == 0 for part in parts[1::2])


def test_an_envelopes_header_has_the_checksums_of_content_and_header_at_its_end():
    content = a_frame(60)
    (data,) = sent(content)

    assert data[:24] == frame_header(len(data), session_id=0, stream_id=streams.ENVELOPE)[:24]
    assert data[24:28] == zlib.crc32(content).to_bytes(4, "little")
    assert data[28:32] == zlib.crc32(data[:28]).to_bytes(4, "little")


def test_no_changed_bit_gets_through():
    (data,) = sent(a_frame(60))
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError, match=r"checksum|outside of an envelope"):
            opened(bytes(changed))


def test_a_changed_header_is_told_before_what_it_names_has_come():
    (data,) = sent(a_frame(60))
    check_header(np.frombuffer(data[:32], np.uint8), 0)
    for bit in range(32 * 8):
        changed = bytearray(data[:32])
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError, match=r"checksum|outside of an envelope"):
            check_header(np.frombuffer(changed, np.uint8), 0)


def test_an_envelope_is_not_opened_before_its_end_whatever_lies_behind_what_came():
    (data,) = sent(a_frame(60))
    buffer = np.frombuffer(data, np.uint8)

    assert open_envelope(buffer, 0, len(data) - 32, 0) == (-1, 0)
    assert open_envelope(buffer, 0, len(data), 0)[0] == len(data)


def test_no_batch_gets_through_that_is_out_of_its_place():
    one, two, three = sent(a_frame(10), a_frame(20), a_frame(30))
    assert opened(one + two + three) == a_frame(10) + a_frame(20) + a_frame(30)

    for stream in (two, one + three, one + one, one + two + two, one + three + two):
        with pytest.raises(RemoteProtocolError, match="checksum"):
            opened(stream)


def test_frames_without_an_envelope_and_envelopes_without_frames_are_told():
    with pytest.raises(RemoteProtocolError, match="stream 100 outside of an envelope"):
        opened(a_frame(10))
    with pytest.raises(RemoteProtocolError, match="not whole frames"):
        opened(sent(bytes(64))[0])
    with pytest.raises(RemoteProtocolError, match="not whole frames"):
        opened(sent(a_frame(10) + b"rest")[0] + bytes(28))
