"""node.log stays short, whatever strangers do."""

import json

from cluster.node.node_log import REPEATED_INTERVAL_NS, REPEATED_KINDS_MAX, NodeLog


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_repeats_is_written_once_and_then_counted_by_the_interval(tmp_path):
    path = tmp_path / "node.log"
    log = NodeLog(path, "info")
    for number in range(30_000):
        log.often("a peer was cut off", f"client {number} was cut off: not a frame: {number:032x}", number)
        log.tell_repeated(number)
    log.tell_repeated(REPEATED_INTERVAL_NS)

    first, rest = lines(path)
    assert first["why"] == f"client 0 was cut off: not a frame: {0:032x}"
    assert (rest["more"], rest["kind"]) == (29_999, "client # was cut off: not a frame: #")
    assert rest["why"].startswith("client 29999 was cut off")


def test_a_kind_that_came_no_more_is_new_when_it_comes_again(tmp_path):
    path = tmp_path / "node.log"
    log = NodeLog(path, "info")
    for now_ns in (0, 1, 10 * REPEATED_INTERVAL_NS):
        log.tell_repeated(now_ns)
        log.often("cut off", "one reason", now_ns)
    for beat in range(3):
        log.tell_repeated((20 + beat) * REPEATED_INTERVAL_NS)
    log.often("cut off", "one reason", 30 * REPEATED_INTERVAL_NS)

    assert [line.get("more") for line in lines(path)] == [None, 1, 1, None]


def test_kinds_without_end_take_a_bounded_number_of_lines(tmp_path):
    path = tmp_path / "node.log"
    log = NodeLog(path, "info")
    for number in range(5_000):
        log.often("cut off", "z" * number, 0)
    log.tell_repeated(REPEATED_INTERVAL_NS)

    assert len(lines(path)) == REPEATED_KINDS_MAX + 1
    assert lines(path)[-1]["more"] == 5_000 - REPEATED_KINDS_MAX
