"""Blocks without the entries that are not wanted: what stays, where it is, and what it costs to send."""

import random
import struct

import numpy as np
import pytest

from cluster.errors import RemoteProtocolError
from cluster.log.columns import log_to_record_batch
from cluster.log.entry_filter import TEMPLATE_IDS, EntryFilter, restored
from cluster.protocol.enums import CloseReason, ClusterTimeUnit
from cluster.protocol.log import NewLeadershipTermEvent, SessionCloseEvent, SessionOpenEvent, TimerEvent
from tests.log import naive
from tests.log.logs import PARAMS, array, seeds
from tests.log.naive import session_message

TERM = NewLeadershipTermEvent(3, 0, 99, 0, 1, 5, ClusterTimeUnit.MICROS, 1).encode()


def sbe(template_id, length):
    return struct.pack("<4H", 8, template_id, 7, 0) + bytes(length)


def a_message(random_):
    """An entry of any kind, of one of four sessions, with one of three templates or none."""
    session = random_.choice([1, 2, 3, -(2**63) + 5])
    return random_.choice(
        [
            lambda: session_message(
                sbe(random_.choice([1, 2, 600]), random_.randrange(3000)), session=session
            ),
            lambda: session_message(random_.randbytes(random_.randrange(8)), session=session),
            lambda: SessionOpenEvent(3, 7, session, 99, 102, "aeron:udp", b"somebody").encode(),
            lambda: SessionCloseEvent(3, session, 99, CloseReason.TIMEOUT).encode(),
            lambda: TimerEvent(3, 42, 99).encode(),
            lambda: TERM,
        ]
    )()


def rows_of(block, entry_types):
    batch = log_to_record_batch(block, 0, len(block), 0, entry_types=entry_types).record_batch
    return batch.to_pylist()


def is_wanted(row, wanted):
    """The plain statement of what an EntryFilter wants."""
    payload = row["payload"] or b""
    template_id = struct.unpack_from("<H", payload, 2)[0] if len(payload) >= 4 else None
    return (
        row["entryType"] in wanted.entry_types
        and (not wanted.sessions or row["clusterSessionId"] in wanted.sessions)
        and (not wanted.template_ids or template_id in wanted.template_ids)
    )


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize(
    "wanted",
    [
        EntryFilter(),
        EntryFilter(("SESSION_OPEN", "TIMER")),
        EntryFilter(sessions=(2,)),
        EntryFilter(sessions=(3, -(2**63) + 5), entry_types=("SESSION_CLOSE", "SESSION_MESSAGE")),
        EntryFilter(template_ids=(600, 2)),
        EntryFilter(sessions=(1, 9), template_ids=(1,)),
        EntryFilter(("TIMER",), sessions=(1,)),
    ],
)
def test_the_rows_are_those_of_a_filter_over_all_rows_with_every_position_as_it_was(seed, wanted):
    random_ = random.Random(seed)
    log = array(naive.log_of([a_message(random_) for _ in range(60)], PARAMS))
    every = [row for row in rows_of(log, None) if is_wanted(row, wanted)]

    thinned = wanted.thinned(log)
    assert rows_of(restored(thinned, len(log)), wanted.rows) == every
    assert rows_of(wanted.applied(log), wanted.rows) == every
    again = wanted.thinned(wanted.applied(log))
    assert again.tobytes() == thinned.tobytes(), "what was filtered before stays as it is"


def test_what_is_not_wanted_costs_a_header_however_much_it_is():
    log = array(
        naive.log_of([session_message(bytes(900), session=1)] * 50 + [TimerEvent(3, 1, 2).encode()], PARAMS)
    )

    assert len(EntryFilter(("TIMER",)).thinned(log)) == 32 + 64
    assert len(EntryFilter(sessions=(2,)).thinned(log)) == 32
    everything = EntryFilter()
    assert everything.is_open and everything.thinned(log).tobytes() == log.tobytes()


def test_entries_that_cannot_be_stay_for_who_decodes_them():
    short = naive.log_of([struct.pack("<4H", 24, 1, 111, 17)], PARAMS)

    assert EntryFilter(sessions=(1,)).thinned(array(short)).tobytes() == short


def test_a_filter_without_a_type_that_can_be_wants_nothing():
    assert EntryFilter(("TIMER",), sessions=(1,)).rows == ()
    assert EntryFilter(template_ids=(1,)).rows == ("SESSION_MESSAGE",)
    assert set(EntryFilter().rows) == set(TEMPLATE_IDS)


@pytest.mark.parametrize("seed", seeds(50))
def test_bytes_that_are_no_thinned_block_are_refused_or_restored_within_their_length(seed):
    random_ = random.Random(seed)
    log = array(naive.log_of([a_message(random_) for _ in range(20)], PARAMS))
    thinned = EntryFilter(sessions=(1,)).thinned(log).copy()
    for _ in range(random_.randrange(1, 4)):
        thinned[random_.randrange(len(thinned))] = random_.randrange(256)
    for block, length in (
        (thinned, len(log)),
        (thinned[: random_.randrange(len(thinned))], len(log)),
        (log, 64),
    ):
        try:
            assert len(restored(block, length)) == length
        except RemoteProtocolError as refused:
            assert str(refused) == f"{len(block)} bytes are no thinned block of {length}"


def test_a_length_that_is_not_that_of_the_block_is_refused():
    log = array(naive.log_of([session_message(b"x" * 100, session=1)] * 3, PARAMS))
    thinned = EntryFilter(sessions=(2,)).thinned(log)
    for length in (len(log) - 32, len(log) + 32, 0):
        with pytest.raises(RemoteProtocolError, match="no thinned block"):
            restored(thinned, length)
    assert len(restored(np.zeros(0, np.uint8), 0)) == 0
