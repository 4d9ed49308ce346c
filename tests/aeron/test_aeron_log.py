"""A running Aeron Cluster's log over its own medium: its entries, how far it goes, and members that fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cluster.aeron import aeron_log
from cluster.aeron.aeron_log import AeronLog
from cluster.aeron.aeron_member import answered_members
from cluster.aeron.consensus_endpoints import parse_consensus_endpoints
from cluster.aeron.lane_log import planned_index
from cluster.errors import ConfigurationError, LogPurged, RemoteProtocolError, TimedOut
from cluster.protocol.backup import BackupResponse
from cluster.protocol.frame import HEADER_LENGTH, TYPE_PAD, frame, frame_header
from cluster.reader import LogReader
from cluster.transport.committed_log import AS_COMMITTED, BlockOptions
from tests.aeron.scripted_aeron import Clock, Script, mark_replayed, open_scripted
from tests.reader import real


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return real.a_copy(tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def whole(directory):
    """Term length, entries and frames of a log that real members have written."""
    with LogReader.open(dir=str(directory)) as reader:
        blocks = [block for _, block in reader.blocks()]
        return reader.term_length, list(reader.entries()), np.concatenate(blocks)


@pytest.fixture
def scripts(whole):
    term_length, _, data = whole
    return [Script(member, data, term_length, is_leader=member == 0) for member in range(3)]


def test_the_log_is_that_of_a_member_s_directory(monkeypatch, directory, whole, scripts):
    term_length, entries, _ = whole
    with open_scripted(monkeypatch, scripts) as reader, LogReader.open(dir=str(directory)) as files:
        assert list(reader.entries()) == entries
        assert (reader.term_length, reader.time_unit, reader.is_live) == (term_length, files.time_unit, True)
        assert reader.identity._replace(cluster_id=0) == files.identity._replace(cluster_id=0)
        assert reader.commit_position() == reader.end_position() == entries[-1]["endPosition"]
    assert scripts[0].replays == [], "followers are asked before the leader"


@pytest.mark.parametrize("max_bytes", [1, 4096, 1 << 20])
def test_any_range_gives_the_entries_that_begin_in_it(monkeypatch, whole, scripts, max_bytes):
    _, entries, _ = whole
    with open_scripted(monkeypatch, scripts) as reader:
        for first, last in ((0, 0), (3, 9), (len(entries) // 2, len(entries) - 1)):
            begin, end = entries[first]["position"], entries[last]["position"] + 1
            blocks = list(reader.blocks(begin, end, is_committed=True, max_bytes=max_bytes))
            assert next(position for position, _ in blocks) == begin
            assert sum(len(block) for _, block in blocks) == entries[last]["endPosition"] - begin
            assert list(reader.entries(begin, end)) == entries[first : last + 1]
    assert not any(script.stops for script in scripts), "each replay ends by itself"


@pytest.mark.parametrize("rate", [pytest.param(300, marks=pytest.mark.slow), 40_000, 10_000_000])
def test_a_range_is_read_no_faster_than_said_and_its_member_is_not_taken_for_silent(
    monkeypatch, whole, scripts, rate
):
    data = whole[2]
    clock = Clock()
    timing = {"now_ns": lambda: clock.now_ns, "wait": clock.wait}
    with open_scripted(monkeypatch, scripts, rate_max=rate, **timing) as reader:
        end = reader.end_position()
        began_ns, read = clock.now_ns, 0
        for position, block in reader.blocks(0, end, is_committed=True, max_bytes=4096):
            read += len(block)
            seconds = (clock.now_ns - began_ns) / 1e9
            assert position + len(block) <= seconds * rate + max(rate / 20, 65_504)
    assert read == data.size
    assert (clock.now_ns - began_ns) / 1e9 == pytest.approx(data.size / rate, rel=0.5, abs=0.05)
    assert sum(script.stops for script in scripts) == 0


def padded(term_length: int, padding: int) -> np.ndarray:
    """Messages of 1,000 bytes, and padding at the end of a term that is about so long."""
    data = bytearray()
    while len(data) < term_length + 100_000:
        place = {"term_id": 9 + len(data) // term_length, "term_offset": len(data) % term_length}
        left = term_length - len(data)
        if 0 < left < padding:
            data += frame_header(left, session_id=-7, stream_id=100, frame_type=TYPE_PAD, **place)
            data += bytes(left - HEADER_LENGTH)
        else:
            data += frame(bytes(1000), session_id=-7, stream_id=100, **place)
    return np.frombuffer(bytes(data), np.uint8)


@pytest.mark.parametrize("options", [{}, {"rate_max": 1_000_000}])
@pytest.mark.parametrize("first", range(750, 759))
def test_padding_that_is_longer_than_a_block_or_a_pace_is_read_all_the_same(monkeypatch, first, options):
    """A message that does not fit the rest of its term leaves as much of it, whatever the MTU is."""
    data = padded(1 << 20, 120_000)
    begin = first * 1056
    with open_scripted(monkeypatch, [Script(1, data, 1 << 20)], give_up_s=1, **options) as reader:
        blocks = list(reader.log.blocks(begin, len(data), BlockOptions(150_000, is_committed=True)))
    assert sum(len(block) for _, block in blocks) == len(data) - begin


def test_padding_that_is_longer_than_a_block_is_followed_all_the_same(monkeypatch):
    data = padded(1 << 20, 120_000)
    monkeypatch.setattr(aeron_log, "BLOCK_LENGTH", 100_000)
    with open_scripted(monkeypatch, [Script(1, data, 1 << 20)]) as reader:
        assert reader.commit_position() == len(data)
        assert len(followed(reader, 0, len(data))) == len(data)


def test_a_replay_of_which_no_more_is_wanted_is_stopped(monkeypatch, whole, scripts):
    _, entries, _ = whole
    with open_scripted(monkeypatch, scripts) as reader:
        blocks = reader.blocks(0, entries[-1]["endPosition"], is_committed=True, max_bytes=1)
        next(blocks)
        blocks.close()
    assert sum(script.stops for script in scripts) == 1


def test_nothing_beyond_the_commit_position_is_read_or_named(monkeypatch, whole, scripts):
    _, entries, _ = whole
    committed = entries[len(entries) // 2]["endPosition"]
    for script in scripts:
        script.commit = committed
    with open_scripted(monkeypatch, scripts) as reader:
        assert reader.end_position() == reader.commit_position() == committed
        assert list(reader.entries())[-1]["endPosition"] == committed
        for script in scripts:
            script.commit = len(script.data)
        assert reader.commit_position() == entries[-1]["endPosition"]


def test_a_log_that_is_committed_into_a_message_ends_before_it(monkeypatch, whole, scripts):
    """A quorum's position is where followers have recorded: that may be in a message of several frames."""
    _, entries, _ = whole
    cut = next(i for i, each in enumerate(entries) if each["endPosition"] - each["position"] > 2 * 1408)
    for script in scripts:
        script.commit = entries[cut]["position"] + 1408
    with open_scripted(monkeypatch, scripts) as reader:
        assert reader.end_position() == reader.commit_position() == entries[cut]["position"]
        assert list(reader.entries()) == entries[:cut]
        for script in scripts:
            script.commit = len(script.data)
        assert list(reader.entries(entries[cut]["position"], reader.commit_position())) == entries[cut:]


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize("terms", [0, 1, 2])
def test_an_archive_that_waits_where_it_should_refuse_shows_nothing_uncommitted(
    monkeypatch, whole, scripts, refuses, terms
):
    """The last term of a recording may begin beyond the commit position, as of a member cut off."""
    term_length, entries, _ = whole
    committed = next(e["endPosition"] for e in entries if e["endPosition"] > terms * term_length)
    for script in scripts:
        script.commit, script.refuses = committed, refuses
    with open_scripted(monkeypatch, scripts) as reader:
        assert (reader.end_position(), reader.commit_position()) == (committed, committed)


@pytest.mark.parametrize(("commit", "asked"), [(0, 1), (-200, 2)], ids=["all", "refused first"])
def test_the_last_term_is_read_by_the_replay_that_says_how_far_the_log_goes(
    monkeypatch, whole, scripts, commit, asked
):
    term_length, entries, data = whole
    for script in scripts:
        script.commit = entries[commit - 1]["endPosition"]
    committed = scripts[0].commit
    with open_scripted(monkeypatch, scripts) as reader:
        index = planned_index(reader.log)
        assert len([replay for script in scripts for replay in script.replays]) == asked
        begin = (data.size - 1) // term_length * term_length
        assert (index.begin, index.end) == (min(begin, committed // term_length * term_length), committed)
        assert list(reader.log.blocks_to_end()) == [], "nothing is new"
    with open_scripted(monkeypatch, scripts) as reader:
        blocks = list(reader.log.blocks_to_end())
        expected = data[index.begin : committed].copy()
        mark_replayed(expected)
        assert np.array_equal(np.concatenate([block for _, block in blocks]), expected)


def test_who_takes_long_over_a_block_is_given_the_rest_of_the_last_term(monkeypatch, whole, scripts):
    """A cold process loads kernels meanwhile."""
    term_length, entries, data = whole
    for script in scripts:
        script.pauses_at = (data.size - 1) // term_length * term_length + 1
    with open_scripted(monkeypatch, scripts) as reader:
        ends = []
        for position, block in reader.log.blocks_to_end():
            ends.append(position + block.size)
            reader.log._wait(1.0)
    assert len(ends) > 1
    assert ends[-1] == entries[-1]["endPosition"]


@pytest.mark.parametrize("how", ["breaks_at", "stalls_at", "loses_driver_at"])
def test_what_breaks_off_at_one_member_goes_on_at_the_next(monkeypatch, whole, scripts, how):
    _, entries, _ = whole
    with open_scripted(monkeypatch, scripts) as reader:
        reader.end_position()
        for script in scripts[1:]:
            setattr(script, how, entries[len(entries) // 3 * script.member_id]["position"])
        assert list(reader.entries(0, entries[-1]["endPosition"])) == entries


def all_end_at(scripts: list[Script], entry: dict[str, Any]) -> int:
    """Nobody has more than this entry, all of it committed; returns its end."""
    for script in scripts:
        script.commit = script.recorded = entry["endPosition"]
    return int(entry["endPosition"])


def followed(reader, begin: int, end: int) -> bytes:
    """The frames that follow from ``begin`` until the log is at ``end``, in one piece."""
    frames = b""
    for found in reader.log.follow(begin):
        if found is None:
            reader.log._wait(0.5)
        else:
            position, block = found
            assert position == begin + len(frames)
            frames += block.tobytes()
            if begin + len(frames) == end:
                return frames
    raise AssertionError("it has no end")


@pytest.mark.parametrize("how", ["", "breaks_at", "stalls_at", "loses_driver_at"])
def test_what_is_committed_follows_whatever_member_fails(monkeypatch, whole, scripts, how):
    _, entries, data = whole
    begin, end = entries[3]["position"], entries[-1]["endPosition"]
    with open_scripted(monkeypatch, scripts) as reader:
        for script in scripts[1:]:
            if how:
                setattr(script, how, entries[len(entries) // 3 * script.member_id]["position"])
        expected = data[begin:end].copy()
        mark_replayed(expected)
        assert followed(reader, begin, end) == expected.tobytes()


def test_a_member_that_is_silent_is_followed_on_while_it_is_level_and_left_when_it_hears_no_leader(
    monkeypatch, whole, scripts
):
    _, entries, data = whole
    committed = all_end_at(scripts, entries[40])
    with open_scripted(monkeypatch, scripts) as reader:
        following = reader.log.follow(committed)
        for _ in range(60):
            assert next(following) is None
            reader.log._wait(1)
        assert len(scripts[1].replays) == 1
        scripts[1].answers = False
        for script in scripts[::2]:
            script.commit = script.recorded = len(data)
        for _ in range(30):
            if (found := next(following)) is not None:
                break
            reader.log._wait(1)
        assert found[0] == committed
        assert len(scripts[1].replays) == 1


@pytest.mark.parametrize("silent_s", [5, 9])
def test_an_election_is_sat_out_at_the_replay_that_is_there(monkeypatch, whole, scripts, silent_s):
    """Nobody answers a query meanwhile, and what is committed after it comes before an answer does."""
    _, entries, data = whole
    committed = all_end_at(scripts, entries[40])
    with open_scripted(monkeypatch, scripts) as reader:
        following = reader.log.follow(committed)
        assert next(following) is None
        for script in scripts:
            script.answers = False
        for _ in range(silent_s):
            reader.log._wait(1)
            assert next(following) is None
        for script in scripts:
            script.commit = script.recorded = len(data)
        assert next(following)[0] == committed
        assert len(scripts[1].replays) == 1


def test_the_commit_position_is_that_of_an_election_s_end_before_anybody_answers(monkeypatch, whole, scripts):
    _, entries, _ = whole
    for script in scripts:
        script.commit = entries[40]["endPosition"]
    with open_scripted(monkeypatch, scripts) as reader:
        assert reader.commit_position() == entries[40]["endPosition"]
        for script in scripts:
            script.answers = False
        for _ in range(14):
            reader.log._wait(1)
            assert reader.commit_position() == entries[40]["endPosition"]
        for script in scripts:
            script.commit = len(script.data)
        assert reader.commit_position() == entries[-1]["endPosition"]


def test_nothing_beyond_the_commit_position_follows_before_it_moves(monkeypatch, whole, scripts):
    _, entries, _ = whole
    committed = entries[40]["endPosition"]
    for script in scripts:
        script.commit = committed
    with open_scripted(monkeypatch, scripts) as reader:
        assert len(followed(reader, 0, committed)) == committed
        following = reader.log.follow(committed)
        assert next(following) is None
        for script in scripts:
            script.commit = len(script.data)
        position, _ = next(found for found in following if found is not None)
        assert position == committed


@pytest.mark.parametrize("how", ["breaks_at", "loses_driver_at"])
def test_the_commit_position_is_followed_at_another_member_when_one_fails(monkeypatch, whole, scripts, how):
    _, entries, _ = whole
    ends = [entries[i]["endPosition"] for i in (len(entries) // 3, len(entries) // 2, -1)]
    for script in scripts:
        script.commit = ends[0]
    with open_scripted(monkeypatch, scripts) as reader:
        seen = [reader.commit_position()]
        for end in ends[1:]:
            for script in scripts:
                script.commit = end
            setattr(scripts[1], how, 0)
            seen += [reader.commit_position() for _ in range(3)]
    assert seen == sorted(seen)
    assert {*ends} == {*seen}


def test_a_member_that_hears_no_more_of_its_leader_is_left(monkeypatch, whole, scripts):
    """Its replay goes on, and stands still; it answers no query while it is in an election."""
    _, entries, _ = whole
    for script in scripts:
        script.commit = entries[40]["endPosition"]
    with open_scripted(monkeypatch, scripts) as reader:
        assert reader.commit_position() == entries[40]["endPosition"]
        scripts[1].answers = False
        for script in scripts[::2]:
            script.commit = len(script.data)
        assert reader.commit_position() == entries[40]["endPosition"]
        for seconds in (11, 6):  # to ask it, and to wait for its answer
            reader.log._wait(seconds)
            reader.commit_position()
        assert reader.commit_position() == entries[-1]["endPosition"]


@pytest.mark.parametrize(
    ("preference", "expected"), [("follower", 1), ("leader", 0), ("any", 0), (2, 2), (7, 1)]
)
def test_members_are_asked_in_the_order_that_is_preferred(monkeypatch, scripts, preference, expected):
    with open_scripted(monkeypatch, scripts, read_preference=preference) as reader:
        list(reader.entries())
    assert [script.member_id for script in scripts if script.replays] == [expected]


def test_one_endpoint_is_enough_for_all_members_are_asked_that_it_names(monkeypatch, whole, scripts):
    scripts[0].members = "|".join(f"{m},in:1,host:{9000 + m},log:1,up:1,archive:1" for m in range(4))
    with open_scripted(monkeypatch, scripts):
        log = AeronLog("host:9000", spread=0)
        assert {member.member_id for member in log._members.values()} == {0, 1, 2}
        log.close()


def test_one_endpoint_is_enough_when_its_member_has_died_and_the_others_have_broken_off(
    monkeypatch, whole, scripts
):
    _, entries, _ = whole
    clock = Clock()
    scripts[0].members = "|".join(f"{m},in:1,host:{9000 + m},log:1,up:1,archive:1" for m in range(3))
    with open_scripted(monkeypatch, scripts):
        log = AeronLog("host:9000", spread=0, now_ns=lambda: clock.now_ns, wait=clock.wait)
        scripts[0].answers = False
        for script in scripts[1:]:
            script.breaks_at = entries[len(entries) // 3 * script.member_id]["position"]
        begin, end = 0, entries[-1]["endPosition"]
        for position, block in log.blocks(begin, end, AS_COMMITTED):
            assert position == begin
            begin += block.size
        assert begin == end
        log.close()


def test_equals_are_spread_over_readers(monkeypatch, scripts):
    asked = []
    for spread in range(4):
        with open_scripted(monkeypatch, scripts, spread=spread) as reader:
            asked.append(next(iter(reader.log._members.values())).member_id)
    assert set(asked) == {1, 2}


def test_a_member_whose_answer_does_not_decode_leaves_the_log_to_the_others(monkeypatch, whole, scripts):
    scripts[1].garbles = True
    with open_scripted(monkeypatch, scripts) as reader:
        assert list(reader.entries()) == whole[1]
    assert not scripts[1].replays


def test_what_one_member_has_purged_is_read_from_another(monkeypatch, whole, scripts):
    term_length, entries, _ = whole
    scripts[1].start = term_length
    with open_scripted(monkeypatch, scripts) as reader:
        assert list(reader.entries(0)) == entries
        assert reader.earliest_position() == 0


def test_what_all_members_have_purged_is_said_with_where_the_log_begins(monkeypatch, whole, scripts):
    term_length, _, _ = whole
    for script in scripts:
        script.start = term_length * (2 - script.member_id % 2)
    with open_scripted(monkeypatch, scripts) as reader:
        assert reader.identity[1:] == (None, None)
        assert reader.earliest_position() == term_length
        with pytest.raises(LogPurged, match="position 0 was purged") as purged:
            list(reader.entries(0))
        assert purged.value.start_position == term_length


def test_a_log_that_is_purged_while_it_is_read_begins_later_from_then_on(monkeypatch, whole, scripts):
    term_length, entries, _ = whole
    with open_scripted(monkeypatch, scripts) as reader:
        assert reader.earliest_position() == 0
        for script in scripts:
            script.start = term_length
        assert reader.start_position == 0, "nobody has been asked since"
        with pytest.raises(LogPurged):
            list(reader.entries(0, entries[-1]["endPosition"]))
        assert reader.start_position == reader.retained_from(0) == reader.earliest_position() == term_length


def test_members_that_do_not_answer_are_named_after_a_while(monkeypatch, scripts, caplog):
    for script in scripts:
        script.answers = False
    with pytest.raises(
        TimedOut, match="no member goes on: host:9000: it does not answer within 5 s; host:9001"
    ) as silent:
        open_scripted(monkeypatch, scripts)
    [said] = caplog.messages
    assert str(silent.value).endswith("; expected consensus endpoints, the second of each in clusterMembers")
    assert said.startswith("nothing can be read yet: host:9000: it does not answer within 5 s; host:9001")
    assert said.endswith("; trying for another 55 s")


@pytest.mark.parametrize("length", [1407, 2**31])
def test_how_many_bytes_an_archive_is_to_read_at_once_is_checked_before_it_refuses(
    monkeypatch, scripts, length
):
    with pytest.raises(ConfigurationError, match=r"aeronFileIoMax is \d+; expected from 1408, the MTU"):
        open_scripted(monkeypatch, scripts, file_io_max_length=length)
    open_scripted(monkeypatch, scripts, file_io_max_length=1408).close()


def test_a_range_that_no_member_has_committed_is_not_waited_for_without_end(monkeypatch, whole, scripts):
    _, entries, _ = whole
    for script in scripts:
        script.commit = entries[40]["endPosition"]
    with open_scripted(monkeypatch, scripts) as reader:
        end = entries[-1]["endPosition"]
        with pytest.raises(TimedOut, match=f"asked for up to {end}"):
            list(reader.blocks(0, end, is_committed=True))


@pytest.mark.parametrize("text", ["", " , ", "host", "host:", ":9", "host:0", "host:70000", "host:x"])
def test_consensus_endpoints_that_are_none_are_refused(text):
    with pytest.raises(ConfigurationError, match="consensus endpoint"):
        parse_consensus_endpoints(text)


def test_consensus_endpoints_are_taken_with_and_without_ids():
    assert parse_consensus_endpoints(" 0=a:1, b:2,a:1,[::1]:3") == ["a:1", "b:2", "[::1]:3"]


def answer(cluster_members):
    return BackupResponse(0, 0, 0, 0, 0, 0, 0, 0, 0, (), cluster_members)


def test_the_members_of_a_cluster_are_read_with_their_endpoints():
    text = "0,a:1,a:2,a:3,a:4,a:5|12,b:1,b:2,b:3,b:4,b:5,extra"
    members = answered_members(answer(text))
    assert [(id_, *member[1:7]) for id_, member in members.items()] == [
        (0, "a:1", "a:2", "a:3", "a:4", "a:5", ""),
        (12, "b:1", "b:2", "b:3", "b:4", "b:5", "extra"),
    ]
    for wrong in ("x,a,b,c,d,e", "1,a,b", "0"):
        with pytest.raises(RemoteProtocolError, match="backup response: cluster member"):
            answered_members(answer(wrong))
