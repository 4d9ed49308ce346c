"""A filter of entries in a reader's request, between ends of this release and of the one before."""

import struct

import pytest

from cluster.errors import RemoteProtocolError
from cluster.log.entry_filter import EntryFilter
from cluster.protocol import decode, link
from cluster.transport.wanted import WANTED_MAX, wanted_entries, wanted_of

FILTER = EntryFilter(("TIMER", "SESSION_OPEN"), sessions=(-5, 7), template_ids=())


def request(wanted):
    return link.LogRequest(9, 96, 4096, 1024, wanted)


def test_a_filter_goes_through_a_request():
    sent = decode(request(wanted_of(FILTER)).encode(), 0, None)

    got = wanted_entries(sent)
    assert (set(got.rows), got.sessions, got.template_ids) == (set(FILTER.rows), (-5, 7), ())
    assert wanted_entries(request(wanted_of(EntryFilter(template_ids=(600,))))).template_ids == (600,)


def test_what_wants_all_asks_for_nothing_in_particular():
    assert wanted_of(None) == wanted_of(EntryFilter()) == ()
    assert wanted_entries(request(())).is_open


def test_more_than_a_request_takes_is_left_to_the_reader():
    fits = EntryFilter(("SESSION_MESSAGE",), sessions=tuple(range(WANTED_MAX - 1)))

    assert len(request(wanted_of(fits)).encode()) < 4096 - 32
    assert wanted_of(EntryFilter(("SESSION_MESSAGE",), sessions=tuple(range(WANTED_MAX)))) == ()


def test_a_request_of_release_0_1_ends_with_its_block_and_wants_all():
    of_0_1 = struct.pack("<4H4q", 32, 10, 1111, 1, 9, 96, 4096, 1024)

    assert decode(of_0_1, 0, len(of_0_1)) == request(())
    assert decode(bytes(32) + of_0_1, 32, len(of_0_1)) == request(())


def test_to_a_member_of_release_0_1_a_request_begins_as_it_did():
    """It reads the block and passes over what follows."""
    assert (
        request(wanted_of(FILTER))
        .encode()
        .startswith(struct.pack("<4H4q", 32, 10, 1111, 1, 9, 96, 4096, 1024))
    )


@pytest.mark.parametrize("cut", [1, 3, 5, 11])
def test_a_request_that_is_cut_off_is_refused(cut):
    whole = request(wanted_of(FILTER)).encode()

    with pytest.raises(RemoteProtocolError):
        decode(whole[:-cut], 0, len(whole) - cut)
