"""The audit log: a line a refusal, and never more than the disk can take."""

import json

import pytest

from cluster.security import audit
from cluster.security.audit import LINES_AT_ONCE, AuditLog


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.log"


@pytest.fixture
def log(path):
    log = AuditLog(str(path))
    yield log
    log.close()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_who_was_refused_what_and_why(log, path):
    log.refused("10.0.0.7", b"alice", "to open a session", "no right to write")
    (line,) = lines(path)
    assert line.pop("time").endswith("Z")
    assert line == {
        "peer": "10.0.0.7",
        "principal": "alice",
        "what": "to open a session",
        "why": "no right to write",
    }


def test_what_strangers_put_into_it_stays_one_line_of_bounded_length(log, path):
    log.refused("h", b"a\n\xff" * 1000, "w", 'x"\n' * 1000)
    (line,) = lines(path)
    assert len(line["principal"]) == len(line["why"]) == 256


def test_a_flood_is_counted_and_not_written(log, path, monkeypatch):
    now_ns = [audit.monotonic_ns()]
    monkeypatch.setattr(audit, "monotonic_ns", lambda: now_ns[0])
    for _ in range(1000):
        log.refused("h", b"", "to read", "no token")
    assert len(lines(path)) == LINES_AT_ONCE

    now_ns[0] += 2_000_000_000
    log.refused("h", b"", "to read", "no token")
    assert lines(path)[-1]["left_out"] == str(1000 - LINES_AT_ONCE)
    log.refused("h", b"", "to read", "no token")
    assert "left_out" not in lines(path)[-1]


def test_it_is_bounded_by_two_files(path, monkeypatch):
    monkeypatch.setattr(audit, "LINE_INTERVAL_NS", 1)
    log = AuditLog(str(path), bytes_max=1000)
    for number in range(100):
        log.refused("h", b"%d" % number, "to read", "no token")
    log.close()
    assert path.stat().st_size <= 1000
    assert path.with_name("audit.log.1").stat().st_size <= 1000
    assert lines(path)[-1]["principal"] == "99"
