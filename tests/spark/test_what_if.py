"""The example of a what-if: an order book with another rule over the log of a year."""

from __future__ import annotations

import sys

import pytest

from benchmarks.synthetic_log import LogWriter
from examples import what_if

DAY_MS = 24 * 3600 * 1000
NEW_YEAR_MS = 1_767_225_600_000  # 2026
JULY = 181  # its first day


@pytest.fixture
def year(tmp_path):
    """A log of a year: each day somebody asks 103 for two, and somebody bids 104 or, from July on, 106."""
    log = LogWriter(tmp_path, time=NEW_YEAR_MS, term_length=1 << 20, segment_length=1 << 20)
    log.term()
    seller, buyer = log.open_session(), log.open_session()
    for day in range(365):
        log.time = NEW_YEAR_MS + day * DAY_MS
        log.messages(seller, [b"sell 2 103"])
        log.messages(buyer, [b"buy 2 %d ioc" % (104 if day < JULY else 106)])
    log.stop()
    return str(tmp_path)


@pytest.mark.slow
def test_the_year_with_another_rule_stands_beside_the_year_as_it_was(spark, year, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["what_if", year])
    what_if.main()

    head, *months = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    ]
    assert head == [
        "month", "trades", "tradesWhatIf", "quantity", "quantityWhatIf", "turnover", "turnoverWhatIf"
    ]  # fmt: skip
    days = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    for number, (n, month) in enumerate(zip(days, months, strict=True), 1):
        would_be = n if number > 6 else 0  # an ask of 105 meets a bid of 105, and not one of 100
        expected = (n, would_be, 2 * n, 2 * would_be, 103 * 2 * n, 105 * 2 * would_be)
        assert month == [f"2026-{number:02}", *map(str, expected)]
