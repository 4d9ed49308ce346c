"""node.log stays short, whatever strangers do, and consists of whole lines, whatever the disk does."""

import errno
import json
import os

import pytest

from cluster.errors import StorageError
from cluster.node.node_log import DISTINCT_ERRORS_MAX, REPEATED_INTERVAL_NS, REPEATED_KINDS_MAX, NodeLog


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_repeats_is_written_once_and_then_counted_by_the_interval(tmp_path):
    path = tmp_path / "node.log"
    log = NodeLog(path, "info")
    for number in range(30_000):
        log.often("a peer was cut off", f"client {number} was cut off: not a frame: {number:032x}", number)
        log.report_repeated(number)
    log.report_repeated(REPEATED_INTERVAL_NS)

    first, rest = lines(path)
    assert first["why"] == f"client 0 was cut off: not a frame: {0:032x}"
    assert (rest["more"], rest["kind"]) == (29_999, "client # was cut off: not a frame: #")
    assert rest["why"].startswith("client 29999 was cut off")


def test_what_keeps_out_who_may_be_wanted_is_a_warning_each_time(tmp_path):
    log = NodeLog(tmp_path / "node.log", "warning")
    for number in range(3):
        log.often("a peer was cut off", f"member {number}: its certificate has expired", 0, is_warning=True)
    log.often("a peer was cut off", "no frame", 0)
    for beat in range(2):
        log.report_repeated((1 + beat) * REPEATED_INTERVAL_NS)
    assert [(line["level"], line.get("more")) for line in lines(tmp_path / "node.log")] == [
        ("warning", None), ("warning", 2)
    ]  # fmt: skip


def test_a_kind_that_came_no_more_is_new_when_it_comes_again(tmp_path):
    path = tmp_path / "node.log"
    log = NodeLog(path, "info")
    for now_ns in (0, 1, 10 * REPEATED_INTERVAL_NS):
        log.report_repeated(now_ns)
        log.often("cut off", "one reason", now_ns)
    for beat in range(3):
        log.report_repeated((20 + beat) * REPEATED_INTERVAL_NS)
    log.often("cut off", "one reason", 30 * REPEATED_INTERVAL_NS)

    assert [line.get("more") for line in lines(path)] == [None, 1, 1, None]


def test_kinds_without_end_take_a_bounded_number_of_lines(tmp_path):
    path = tmp_path / "node.log"
    log = NodeLog(path, "info")
    for number in range(5_000):
        log.often("cut off", "z" * number, 0)
    log.report_repeated(REPEATED_INTERVAL_NS)

    assert len(lines(path)) == REPEATED_KINDS_MAX + 1
    assert lines(path)[-1]["more"] == 5_000 - REPEATED_KINDS_MAX


def test_it_is_bounded_by_two_files_and_no_line_is_lost_between_them(tmp_path):
    path = tmp_path / "node.log"
    log = NodeLog(path, "info", 1_000)
    for number in range(12):
        log.info("event", number=number)
    log.close()

    before = path.with_name("node.log.1")
    assert max(path.stat().st_size, before.stat().st_size) <= 1_000
    assert [line["number"] for line in lines(before) + lines(path)] == list(range(12))


@pytest.fixture
def room(monkeypatch):
    """The bytes that the disk still takes, in a list of one number; None: all that comes."""
    room = [None]
    write = os.write

    def limited(fd, data):
        if room[0] is None:
            return write(fd, data)
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = bytes(data)[: room[0]]
        room[0] -= len(data)
        return write(fd, data)

    monkeypatch.setattr(os, "write", limited)
    return room


@pytest.mark.parametrize("bytes_left", [0, 1, 20])
def test_after_a_full_disk_every_line_is_whole_and_one_says_how_many_are_missing_and_why(
    tmp_path, room, bytes_left
):
    path = tmp_path / "node.log"
    log = NodeLog(path, "info")
    log.info("zero")
    room[0] = bytes_left
    log.info("one")
    assert len(lines(path)) == 1, "no half line while the disk is full"
    log.error("somewhere", ValueError("two"))
    room[0] = None
    log.info("three")
    log.info("four")
    log.close()

    zero, note, three, four = lines(path)
    assert [line["event"] for line in (zero, three, four)] == ["zero", "three", "four"]
    assert note["event"] == f"2 lines were lost: {path}: No space left on device"
    assert note["level"] == "error"
    assert note["timestamp"].endswith("Z")


def test_a_half_line_that_cannot_be_cut_off_is_joined_by_no_other(tmp_path, room, monkeypatch):
    path = tmp_path / "node.log"
    log = NodeLog(path, "info")
    room[0] = 20
    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", _refused)
        log.info("one")
    room[0] = None
    log.info("two")
    log.close()

    half, *whole = path.read_text().splitlines()
    assert len(half) == 20
    assert [json.loads(line)["event"][:16] for line in whole] == ["1 lines were los", "two"]


def test_a_half_line_of_a_process_that_was_killed_is_joined_by_no_other(tmp_path):
    path = tmp_path / "node.log"
    path.write_text('{"event": "sta')
    log = NodeLog(path, "info")
    log.info("starts")
    log.close()

    half, whole = path.read_text().splitlines()
    assert (half, json.loads(whole)["event"]) == ('{"event": "sta', "starts")


def _refused(*_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_fifo_in_its_place_is_refused_and_holds_up_nobody_and_a_link_leads_to_another_disk(tmp_path):
    path, elsewhere = tmp_path / "node.log", tmp_path / "elsewhere"
    path.symlink_to(elsewhere)
    log = NodeLog(path, "info")
    log.info("one")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StorageError, match="is a fifo"):
        NodeLog(path, "info")
    log.reopen_with()
    log.info("two")
    assert [line["event"] for line in lines(elsewhere)] == [
        "one",
        f"[Errno 22] {path}: is a fifo, expected a file",
        "logs were opened again",
        "two",
    ]


def test_errors_without_end_take_a_bounded_amount_of_memory(tmp_path):
    log = NodeLog(tmp_path / "node.log", "error")
    for number in range(DISTINCT_ERRORS_MAX + 5):
        log.error("somewhere", ValueError(number))

    assert len(log._counts) == 5


def test_answers_to_signals_are_written_at_every_level_and_are_no_faults(tmp_path):
    log = NodeLog(tmp_path / "node.log", "error", member=1)
    log.info("is not written")
    log.reopen_with()
    log.close()
    [said] = map(json.loads, (tmp_path / "node.log").read_text().splitlines())
    assert (said["event"], said["level"], said["member"]) == ("logs were opened again", "info", 1)
