"""The demo's parts, each without a cluster: the flights, the service, the statistics, the counts."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from cluster import ClusterError, SessionMessageBatch
from jobs.demo import counts, plot, report, statistics
from jobs.demo.flights import HEADER, MAGIC, Compression, read_carriers
from jobs.demo.screen import Screen
from jobs.demo.service import FlightService
from jobs.demo.story import MARKER, prepare

SAMPLE = 6_000


@pytest.fixture(scope="module")
def carriers():
    return read_carriers(SAMPLE)


def payloads(carrier):
    for offset, length in zip(carrier.offsets.tolist(), carrier.lengths.tolist()):
        yield bytes(carrier.buffer[offset : offset + length])


@pytest.mark.slow
def test_the_year_is_whole():
    carriers = read_carriers()
    assert len(carriers) == 16
    assert sum(map(len, carriers)) == 336_776
    rows = np.concatenate([headers_of(carrier)["row"] for carrier in carriers])
    assert np.array_equal(np.sort(rows), np.arange(336_776))


def test_every_flight_is_due_to_arrive_within_half_a_day_of_leaving(carriers):
    for carrier in carriers:
        hours = (carrier.arrivals - carrier.departures) / 3600
        assert hours.min() > 0.5 and hours.max() < 12
        assert np.all(np.diff(carrier.departures) >= 0)


def test_scheduled_times_are_those_of_the_airports_zones(carriers):
    """The file's first flight: United 1545, Newark 05:15 EST to Houston 08:19 CST."""
    united = next(carrier for carrier in carriers if carrier.code == "UA")
    index = int(np.flatnonzero(headers_of(united)["row"] == 0)[0])
    assert united.departures[index] == dt.datetime(2013, 1, 1, 10, 15, tzinfo=dt.UTC).timestamp()
    assert united.arrivals[index] == dt.datetime(2013, 1, 1, 14, 19, tzinfo=dt.UTC).timestamp()


def headers_of(carrier):
    places = carrier.offsets[:, None] + np.arange(HEADER.itemsize)
    return carrier.buffer[places].view(HEADER)[:, 0]


def test_a_payload_is_a_header_and_the_line_of_the_file(carriers):
    for carrier in carriers:
        for payload, row in zip(payloads(carrier), headers_of(carrier)["row"].tolist()):
            assert payload[:4] == MAGIC and int.from_bytes(payload[4:8], "little") == row
            fields = payload[HEADER.itemsize :].decode().split(",")
            assert len(fields) == 19 and fields[9] == carrier.code


def test_deadlines_are_written_into_the_payloads_and_nothing_else(carriers):
    carrier = carriers[0]
    before = list(payloads(carrier))
    deadlines = carrier.arrivals * 1000
    carrier.set_deadlines(deadlines)
    after = list(payloads(carrier))
    assert [int.from_bytes(p[8:16], "little") for p in after] == deadlines.tolist()
    assert [p[:8] + p[16:] for p in after] == [p[:8] + p[16:] for p in before]


def test_the_year_fits_its_time_and_keeps_its_order(carriers):
    compression = Compression.of(carriers, start_ms=1_000_000, duration_ms=60_000)
    for carrier in carriers:
        departures = compression.cluster_ms(carrier.departures)
        arrivals = compression.cluster_ms(carrier.arrivals)
        assert departures.min() >= 1_000_000 and departures.max() <= 1_060_000
        assert np.all(np.diff(departures) >= 0) and np.all(arrivals >= departures)
    assert compression.flight_day(0) == dt.date(2013, 1, 1)


class RecordingCluster:
    """Stands in for the cluster that a service is given; refuses every third timer once."""

    def __init__(self):
        self.timers, self.answers, self.refusals = [], [], 0

    def schedule_timer(self, correlation_id, deadline):
        if correlation_id % 3 == 0 and self.refusals <= len(self.timers):
            self.refusals = len(self.timers) + 1
            return False
        self.timers.append((correlation_id, deadline))
        return True

    def idle_strategy(self):
        return self

    def idle(self):
        pass

    def offer_batch(self, session_ids, offsets, lengths, buffer, timestamps):
        rows = zip(session_ids.tolist(), offsets.tolist(), lengths.tolist(), timestamps.tolist())
        self.answers += [(s, t, bytes(buffer[o : o + n])) for s, o, n, t in rows]


def batch_of(messages):
    """``messages``: session id, timestamp, payload."""
    lengths = np.array([len(payload) for _, _, payload in messages], np.int64)
    return SessionMessageBatch(
        session_ids=np.array([session for session, _, _ in messages], np.int64),
        timestamps=np.array([timestamp for _, timestamp, _ in messages], np.int64),
        positions=np.arange(1, len(messages) + 1) * 256,
        offsets=np.cumsum(lengths) - lengths,
        lengths=lengths,
        buffer=np.frombuffer(b"".join(payload for _, _, payload in messages) + b"\0", np.uint8),
    )


def test_the_service_sets_a_timer_for_each_flight_and_confirms_it_to_its_airline():
    flights = [(MAGIC + row.to_bytes(4, "little") + (9_000 + row).to_bytes(8, "little")) for row in range(7)]
    messages = [(session % 3, 100 + session, flight + b"2013,1,1") for session, flight in enumerate(flights)]
    messages[2:2] = [(7, 1, b'{"carrier": "UA", "flights": 3}'), (8, 2, b"short"), (9, 3, b"")]
    service, cluster = FlightService(), RecordingCluster()
    service.on_start(cluster, None)
    service.on_session_messages(batch_of(messages))

    assert cluster.timers == [(row, 9_000 + row) for row in range(7)]
    assert cluster.answers == [(row % 3, 100 + row, flight) for row, flight in enumerate(flights)]
    assert service.in_the_air == 7
    service.on_timer_event(3, 9_003)
    assert service.in_the_air == 6


def test_a_batch_without_flights_is_answered_with_nothing():
    service, cluster = FlightService(), RecordingCluster()
    service.on_start(cluster, None)
    service.on_session_messages(batch_of([(1, 1, b"short"), (1, 1, b"x" * 40)]))
    assert (cluster.timers, cluster.answers) == ([], [])


def log_of(spark, carriers, others=()):
    """The flights of ``carriers`` as the Log would have them, then ``others``: entry type and payload."""
    rows = [("SESSION_MESSAGE", payload) for carrier in carriers for payload in payloads(carrier)]
    rows = [(64 * index, *row) for index, row in enumerate([*rows, *others])]
    return spark.createDataFrame(rows, "position BIGINT, entryType STRING, payload BINARY")


def expected_statistics(carriers):
    found = defaultdict(lambda: Counter())
    worst = {}
    for carrier in carriers:
        for payload in payloads(carrier):
            fields = payload[HEADER.itemsize :].decode().split(",")
            key = (fields[9], fields[12], fields[13])
            found[key]["flights"] += 1
            found[key]["cancelled"] += fields[3] == "NA"
            if fields[8] != "NA":
                delay = int(fields[8])
                found[key]["landed"] += 1
                found[key]["delaySum"] += delay
                found[key]["late"] += delay > 15
                worst[key] = max(delay, worst.get(key, delay))
    return found, worst


@pytest.mark.slow
def test_statistics_are_those_of_the_flights_and_survive_the_way_through_the_log(spark, carriers):
    log = log_of(spark, carriers, [("TIMER", None)])
    sent = statistics.as_messages(statistics.statistics(log)).collect()
    stale = json.dumps({"carrier": "UA", "origin": "EWR", "dest": "IAH", "flights": 1})
    messages = [("SESSION_MESSAGE", stale.encode())]
    messages += [("SESSION_MESSAGE", row.payload.encode()) for row in sent]
    found = statistics.newest(log_of(spark, carriers, messages)).collect()

    expected, worst = expected_statistics(carriers)
    assert {(r.carrier, r.origin, r.dest) for r in found} == set(expected)
    for row in found:
        key = (row.carrier, row.origin, row.dest)
        for column in ("flights", "cancelled", "landed", "delaySum", "late"):
            assert row[column] == expected[key][column], (key, column)
        assert row.worst == worst.get(key)


def test_the_routes_of_a_carrier_add_up(spark, carriers):
    rows = {
        r.carrier: r for r in statistics.per_carrier(statistics.statistics(log_of(spark, carriers))).collect()
    }
    assert {code: row.flights for code, row in rows.items()} == {c.code: len(c) for c in carriers}
    assert rows["UA"].worstRoute.startswith(("EWR-", "JFK-", "LGA-"))


ENTRIES = [
    ("NEW_LEADERSHIP_TERM", None),
    ("SESSION_OPEN", None),
    ("SESSION_MESSAGE", b'{"carrier": "UA"}'),
    ("SESSION_MESSAGE", b"hello"),
    ("SESSION_MESSAGE", b""),
    ("TIMER", None),
    ("TIMER", None),
    ("CLUSTER_ACTION", None),
    ("SESSION_CLOSE", None),
]
FOUND = {
    counts.ANSWERS: 1, counts.OTHER_MESSAGES: 2, counts.TIMERS: 2,
    counts.SESSIONS: 2, counts.TERMS: 1, counts.ACTIONS: 1,
}  # fmt: skip


def test_the_log_reader_and_delta_count_the_same_kinds(spark, carriers):
    flights = sum(map(len, carriers))
    log = log_of(spark, carriers, ENTRIES)
    batch = pa.RecordBatch.from_pydict(
        {
            "entryType": ["SESSION_MESSAGE"] * flights + [entry_type for entry_type, _ in ENTRIES],
            "payload": [p for c in carriers for p in payloads(c)] + [payload for _, payload in ENTRIES],
        }
    )
    assert counts.of_table(log) == counts.of_batch(batch) == FOUND | {counts.FLIGHTS: flights}


def test_what_was_sent_says_what_must_be_in_the_log():
    sent = counts.of_senders(flights=100, answers=7, sessions=18, leader_changes=1)
    assert sent.total() == 100 + 100 + 7 + 36 + 2


def test_what_is_not_in_delta_yet_is_as_old_as_the_first_of_it():
    samples = [(1.0, 10, 0), (2.0, 20, 10), (3.0, 30, 10), (4.0, 30, 30), (5.0, 30, 30)]
    assert plot.lags(samples) == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_latencies_are_shown_by_the_second_of_their_offer():
    latencies = [(0.1, 0.010), (0.9, 0.030), (2.5, 0.002)]
    assert [(second, round(p50)) for second, p50, _ in plot.percentiles(latencies)] == [(0, 20), (2, 2)]


def test_the_demo_clears_what_it_made_and_nothing_else(tmp_path):
    home = prepare(tmp_path / "demo")
    (home / "old").touch()
    assert [path.name for path in prepare(home).iterdir()] == [MARKER]
    (tmp_path / "mine").touch()
    with pytest.raises(ClusterError, match="not from an earlier demo"):
        prepare(tmp_path)


def test_the_table_of_delays_fits_a_terminal_of_80_columns():
    worst = {
        "name": "ExpressJet Airlines Inc.", "flights": 58_665, "cancelled": 2_817, "meanDelay": 15.8,
        "lateShare": 0.31, "worst": 1_007, "worstRoute": "EWR-BQN",
    }  # fmt: skip
    screen = Screen()
    screen.console = Console(width=80, file=io.StringIO())
    side = Counter({counts.FLIGHTS: 336_776})

    report.show(screen, report.Found([worst], side, Counter()), side, side)

    said = screen.console.file.getvalue()
    assert "ExpressJet Airlines" in said and "worst route" in said and "EWR-BQN" in said
    assert "…" not in said
