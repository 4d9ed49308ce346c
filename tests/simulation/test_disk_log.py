"""Logs of members that keep their frames in different ways are compared by what they say."""

import numpy as np
import pytest

from cluster.archive.catalog_checksum import checksum_named
from cluster.log.checksum import store_checksums
from cluster.protocol.frame import frame
from tests.simulation.disk_log import HeldFrames

KINDS = (None, "crc32", "crc32c")


def held(kind: str | None, *payloads: bytes, session_id: int = 7) -> bytes:
    """What a member with this kind of checksum has on its disk."""
    data = b"".join(frame(payload, session_id=session_id, stream_id=100) for payload in payloads)
    frames = np.frombuffer(data, np.uint8).copy()
    if kind is not None:
        store_checksums(checksum_named(kind), frames, 0, len(frames))
    return frames.tobytes()


def test_the_same_frames_are_equal_however_each_member_keeps_them():
    frames = HeldFrames(KINDS)
    seen = {frames.comparable(i, held(kind, b"one", b"two")) for i, kind in enumerate(KINDS)}
    assert len(seen) == 1


@pytest.mark.parametrize("member_id", range(3))
def test_another_payload_is_another_log(member_id):
    frames, kind = HeldFrames(KINDS), KINDS[member_id]
    assert frames.comparable(member_id, held(kind, b"one")) != frames.comparable(0, held(None, b"two"))


@pytest.mark.parametrize("member_id", [1, 2])
def test_a_checksum_of_another_kind_is_no_log_of_that_member(member_id):
    frames = HeldFrames(KINDS)
    wrong = held(KINDS[3 - member_id], b"one")
    assert frames.comparable(member_id, wrong) != frames.comparable(0, held(None, b"one"))


def test_where_all_keep_them_alike_each_byte_counts():
    frames = HeldFrames((None, None, None))
    assert frames.comparable(0, held(None, b"one")) != frames.comparable(1, held(None, b"one", session_id=8))
