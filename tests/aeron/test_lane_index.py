"""Lanes by the aliases of response channels: what an alias says, and where a search for a batch begins."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from cluster.aeron import lane_log
from cluster.aeron.lane_index import LaneAlias, LaneIndex, search_begin
from cluster.aeron.session_entries import EntryKind, SessionEntries
from cluster.errors import ApplicationUnknown, BatchRegistered
from cluster.protocol.lane import REGISTRATION, Lane
from cluster.reader import LogReader
from tests.reader import real

TERM = 1000


def channel(alias):
    return f"aeron:udp?endpoint=10.0.0.1:40123|alias={alias.text}|mtu=1408"


@pytest.mark.parametrize("application", ["orders", "a:b|c=d?e%20 /é", "%", "ü" * 128])
@pytest.mark.parametrize("partition", [0, 2**31 - 1, REGISTRATION])
def test_an_alias_in_a_channel_names_lane_attempt_and_position(application, partition):
    alias = LaneAlias(Lane(application, partition, 2**63 - 1), "9f3c", 64)
    assert LaneAlias.of(channel(alias)) == alias
    assert channel(alias).isascii()


@pytest.mark.parametrize(
    "text",
    ["", "lane", "lane:1:2:3:a", "lane:x:2:3:a:b", "lane:1:2:y:a:b", "lane:-7:2:3:a:b", "lane:1:2:3:a:", "x"],
)
def test_an_alias_of_somebody_else_is_none(text):
    assert LaneAlias.of(f"aeron:udp?endpoint=a:1|alias={text}") is None
    assert LaneAlias.of("aeron:udp?endpoint=a:1") is None


def opened(partition, batch, position=0, application="q"):
    return channel(LaneAlias(Lane(application, partition, batch), "a", position))


def index_of(opens, begin, end):
    index = LaneIndex(begin, end)
    for position, response_channel in opens:
        if begin <= position < end:
            index.on_open(position, response_channel)
    index.forget_registered()
    return index


def search(lane, opens, begin, end, start=0):
    """Where the search begins, and what was read for that."""
    ranges = []

    def read(*reach):
        ranges.append(reach)
        return index_of(opens, *reach)

    return search_begin(lane, index_of(opens, begin, end), read, start, TERM), ranges


def test_a_batch_that_nobody_has_begun_is_looked_for_from_the_end_on():
    opens = [(5000, opened(0, 6)), (5200, opened(REGISTRATION, 6, 5000))]
    assert search(Lane("q", 0, 7), opens, 5000, 5600) == (5600, [])


def test_a_batch_is_looked_for_from_its_first_session_on_of_whichever_partition():
    opens = [(5200, opened(REGISTRATION, 6, 5000)), (5300, opened(1, 7)), (5400, opened(0, 7))]
    assert search(Lane("q", 0, 7), opens, 5000, 5600) == (5300, [])


@pytest.mark.parametrize("again", [5350, 5100])
def test_a_registration_that_comes_late_or_again_hides_no_session(again):
    opens = sorted(
        [(5200, opened(REGISTRATION, 6, 5000)), (5300, opened(0, 7)), (again, opened(REGISTRATION, 6, 4900))]
    )
    assert search(Lane("q", 0, 7), opens, 5000, 5600)[0] <= 5300
    late = [(5300, opened(0, 7)), (6100, opened(REGISTRATION, 6, 4900))]
    assert search(Lane("q", 0, 7), late, 6000, 6200) == (4900, [])


def test_a_batch_that_is_registered_is_not_looked_for():
    opens = [(5200, opened(REGISTRATION, 7, 5000))]
    for batch in (6, 7):
        with pytest.raises(BatchRegistered):
            search(Lane("q", 0, batch), opens, 5000, 5600)


def test_the_log_is_read_backwards_until_the_application_is_found():
    opens = [(2500, opened(REGISTRATION, 6, 2400)), (9100, opened(0, 9, application="other"))]
    assert search(Lane("q", 0, 7), opens, 9000, 9500) == (
        9500,
        [(8000, 9000), (6000, 8000), (2000, 6000)],
    )
    opens.append((7000, opened(1, 7)))
    assert search(Lane("q", 0, 7), sorted(opens), 9000, 9500)[0] == 7000


def test_a_first_batch_is_looked_for_in_the_whole_log():
    assert search(Lane("q", 0, 0), [(3300, opened(0, 0))], 5000, 5600, start=2100) == (
        3300,
        [(4000, 5000), (2100, 4000)],
    )
    assert search(Lane("q", 0, 0), [], 5000, 5600, start=2100)[0] == 5600


def test_a_query_that_is_to_be_known_and_is_not_is_refused():
    lane = Lane("q", 0, 5, is_known=True)
    with pytest.raises(ApplicationUnknown, match=r"batch 5 of q is not its first, .* from position 2000 on"):
        search(lane, [], 5000, 5600, start=2000)
    assert search(lane, [(2100, opened(REGISTRATION, 4, 2050))], 5000, 5600, start=2000)[0] == 5600


def test_a_first_batch_is_looked_for_no_further_back_than_asked(monkeypatch):
    ranges = []
    monkeypatch.setattr(lane_log, "indexed", lambda log, *reach: ranges.append(reach) or LaneIndex(*reach))
    log = SimpleNamespace(await_start=lambda: 2100, term_length=TERM)
    for lane, begin in (
        (Lane("q", 0, 0), 4000),
        (Lane("q", 0, 5), 4000),
        (Lane("q", 0, 5, is_known=True), 2100),
    ):
        ranges.clear()
        with contextlib.suppress(ApplicationUnknown):
            assert lane_log.begin_of(log, lane, LaneIndex(9000, 9500), search_max=4800) == 9500
        assert min(ranges)[0] == begin
        assert lane_log.begin_of(log, Lane("q", 0, 0), LaneIndex(9000, 9500)) == 9500
        assert min(ranges)[0] == 2100


@pytest.mark.parametrize("max_bytes", [4096, 1 << 20])
def test_entries_of_sessions_are_those_of_the_log_without_the_messages_of_others(tmp_path, max_bytes):
    with LogReader.open(dir=str(real.a_copy(tmp_path))) as reader:
        whole = [entry for entry in reader.entries() if entry["entryType"] in list(EntryKind)]
        opens = [entry for entry in whole if entry["entryType"] == EntryKind.OPEN]
        channels = {entry["responseChannel"] for entry in opens[::2]}
        wanted = {entry["clusterSessionId"] for entry in opens if entry["responseChannel"] in channels}
        sessions = SessionEntries(channels.__contains__)
        found = [
            entry
            for position, block in reader.blocks(max_bytes=max_bytes)
            for entry in sessions.of_block(position, np.asarray(block))
        ]
    expected = [e for e in whole if e["entryType"] != EntryKind.MESSAGE or e["clusterSessionId"] in wanted]
    assert [(e.position, e.end_position, e.entry_type, e.session_id, e.payload) for e in found] == [
        (e["position"], e["endPosition"], e["entryType"], e.get("clusterSessionId"), e.get("payload"))
        for e in expected
    ]
    assert any(entry.payload is not None for entry in found)
