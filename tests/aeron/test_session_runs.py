"""Runs of one session's messages, beside the same one by one."""

from __future__ import annotations

import random
from zlib import crc32

import numpy as np
import pytest

from cluster.aeron.session_runs import checksums_of_frames, ingress_end, take_egress
from cluster.protocol.frame import frame, header_at
from cluster.protocol.session import SessionKeepAlive, SessionMessageHeader

SESSION, TERM = 7, 3


def message(payload: bytes, session_id: int = SESSION, term_id: int = TERM) -> bytes:
    return SessionMessageHeader(term_id, session_id, 11).encode() + payload


def run_of(*messages: bytes, stream_id: int = 101, **fields: int) -> np.ndarray:
    frames = (frame(each, session_id=5, stream_id=stream_id, **fields) for each in messages)
    return np.frombuffer(b"".join(frames), np.uint8).copy()


OTHERS = {
    "another session's": message(b"x", session_id=8),
    "no message": SessionKeepAlive(TERM, SESSION).encode(),
    "half a header": message(b"")[:31],
    "of another schema": message(b"").replace(b"\x6f\x00", b"\x6e\x00", 1),
    "with a longer block": b"\x20" + message(bytes(8))[1:],
}


@pytest.mark.parametrize("other", [*OTHERS.values(), message(b"x", term_id=TERM + 1)])
def test_messages_are_taken_up_to_the_first_frame_that_is_something_else(other):
    chance = random.Random(len(other))
    payloads = [chance.randbytes(chance.randrange(200)) for _ in range(40)]
    ours = run_of(*map(message, payloads))
    run = np.concatenate([ours, run_of(other), ours])
    assert ingress_end(run, 0, run.size, SESSION, TERM) == ours.size
    assert ingress_end(run, ours.size, run.size, SESSION, TERM) == ours.size
    assert checksums_of_frames(run, 0, ours.size) == [crc32(payload) for payload in payloads]


@pytest.mark.parametrize("fields", [{"stream_id": 1000}, {"flags": 0x80}])
def test_frames_of_another_stream_and_parts_of_messages_are_not_taken(fields):
    run = run_of(message(b"x"), **fields)
    assert ingress_end(run, 0, run.size, SESSION, TERM) == 0


def test_no_frame_is_taken_that_ends_beyond_the_run():
    run = run_of(message(b"one"), message(b"two"))
    for end in range(96, run.size):
        assert ingress_end(run, 0, end, SESSION, TERM) == 96


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_answers_get_the_header_of_a_client_s_connection_and_others_keep_theirs(other):
    answers = [message(b"one", term_id=2), message(b"two")]
    older = answers[1].replace(b"\x6f\x00\x11", b"\x6f\x00\x0b")  # of a release with an earlier schema
    run = run_of(*answers, older, other, stream_id=9, term_id=4, term_offset=96)
    end = take_egress(run, 0, SESSION)
    assert run[:end].tobytes() == run_of(*answers, older, stream_id=102).tobytes().replace(
        header_at(run, end).session_id.to_bytes(4, "little"), bytes(4)
    )
    assert take_egress(run, end, SESSION) == end
    assert (header_at(run, end).stream_id, header_at(run, end).term_offset) == (9, 96)
