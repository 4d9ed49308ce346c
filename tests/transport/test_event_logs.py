"""The logs for people as they are served: on from a place, over rotations, and no more than is asked for."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from cluster.protocol.link import EventsRequest
from cluster.transport import event_logs
from cluster.transport.event_logs import STACKS, EventLogs


@pytest.fixture
def log(tmp_path):
    return tmp_path / "node.log"


def read(log, inode=0, offset=0, since_ms=0):
    blocks = list(EventLogs(str(log.parent), 2).lines(EventsRequest(5, inode, offset, since_ms, 0)))
    assert {(block.correlation_id, block.member_id) for block in blocks} <= {(5, 2)}
    return blocks


def text(blocks):
    return b"".join(block.lines for block in blocks).decode()


def test_a_log_is_read_with_the_file_before_it_and_on_from_where_it_was_left(log, monkeypatch):
    monkeypatch.setattr(event_logs, "BLOCK_BYTES", 4)
    log.with_name("node.log.1").write_text("one\ntwo\n")
    log.write_text("three\n")
    blocks = read(log)
    assert [block.lines for block in blocks] == [b"one\n", b"two\n", b"thre", b"e\n"]
    assert text(read(log, blocks[0].inode, blocks[0].offset)) == "two\nthree\n"

    with log.open("a") as file:
        file.write("four\n")
    os.replace(log, log.with_name("node.log.1"))
    log.write_text("five\n")

    assert text(read(log, blocks[3].inode, blocks[3].offset)) == "four\nfive\n"


def test_of_a_long_log_the_end_alone_may_be_asked_for_from_a_line_on(log):
    log.with_name("node.log.1").write_text("before\n")
    log.write_text("one\ntwo\nthree\n")
    assert text(read(log, offset=-8)) == "three\n"
    assert text(read(log, offset=-99)) == "one\ntwo\nthree\n"


def test_a_file_that_was_last_written_before_the_time_is_left_out_and_a_place_in_it_is_not(log):
    before = log.with_name("node.log.1")
    before.write_text("old\n")
    os.utime(before, (1000, 1000))
    log.write_text("new\n")
    assert text(read(log, since_ms=1_000_001)) == "new\n"
    assert text(read(log, before.stat().st_ino, 1, since_ms=1_000_001)) == "ld\nnew\n"


def line(second, text="", key="timestamp"):
    return json.dumps({"event": text, key: f"2026-01-31T12:00:{second:02}.500000Z"}) + "\n"


def test_lines_of_before_the_time_are_not_sent_but_for_two_blocks_and_none_after_it_is_missed(
    log, monkeypatch
):
    monkeypatch.setattr(event_logs, "BLOCK_BYTES", 256)
    lines = [line(second, f"{'x' * (7 * second % 50)} {second}") for second in range(60)]
    lines[20] = "no JSON, and no time\n"
    lines[30] = line(30, "of an audit.log", key="time")
    lines[40] = line(3, "of a clock that was set back")
    log.write_text("".join(lines))
    begin = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for second in range(61):
        since_ms = int((begin + timedelta(seconds=second)).timestamp() * 1000)
        wanted, sent = "".join(lines[second:]), text(read(log, since_ms=since_ms))
        assert sent.endswith(wanted) and len(sent) < len(wanted) + 2 * 256 + 130, second
        assert sent == "" or sent.splitlines(keepends=True)[0] in lines
    assert text(read(log, log.stat().st_ino, 10, since_ms)) == "".join(lines)[10:]


def test_there_is_no_log_of_another_number_and_no_lines_of_one_that_is_not_there(tmp_path):
    logs = EventLogs(str(tmp_path), 0)
    assert [list(logs.lines(EventsRequest(0, 0, 0, 0, log))) for log in (-1, 0, 99)] == [[], [], []]


def test_in_place_of_a_log_the_stacks_of_all_threads_are_had_and_once_a_second_new_ones(
    tmp_path, monkeypatch
):
    logs = EventLogs(str(tmp_path), 2)

    def asked():
        (block,) = logs.lines(EventsRequest(5, 0, 0, 0, STACKS))
        assert (block.correlation_id, block.member_id) == (5, 2)
        return block.lines

    first = asked()
    assert b"thread " in first and b"in asked" in first
    assert asked() is first
    monkeypatch.setattr(event_logs, "STACKS_INTERVAL_S", 0)
    logs = EventLogs(str(tmp_path), 2)
    assert asked() is not asked()
