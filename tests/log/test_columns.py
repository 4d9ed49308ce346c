"""The log as rows (``cluster/log/columns.py``): every column, every null, every range."""

import gzip
import json
import random
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.errors import ConfigurationError, LogDamaged
from cluster.log.columns import ENTRY_TYPES, ROW_SCHEMA, log_to_record_batch
from cluster.log.frames import LogParams
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.log import (
    ClusterActionRequest,
    MembershipChangeEvent,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.session import SessionMessageHeader
from tests.log import logs, naive
from tests.log.logs import PARAMS, array, seeds
from tests.log.naive import N32, N64, session_message

DATA = Path(__file__).resolve().parent.parent / "data"
T0 = 1_700_000_000_000


def decode(log: bytes, *, position: int = 0, **options):
    decoded = log_to_record_batch(array(log), 0, len(log), position, **options)
    decoded.record_batch.validate(full=True)
    return decoded


def rows_of(batch: pa.RecordBatch) -> list[dict]:
    """Rows with timestamps as integers, for what Python's datetime cannot hold."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()


def only(message: bytes, **options) -> dict:
    (row,) = rows_of(decode(naive.log_of([message], PARAMS), **options).record_batch)
    return {name: value for name, value in row.items() if value is not None}


def test_the_schema_is_the_public_contract():
    assert ", ".join(f"{field.name} {field.type}" for field in ROW_SCHEMA) == (
        "position int64, endPosition int64, leadershipTermId int64, entryType string, "
        "timestamp timestamp[us, tz=UTC], clusterTime int64, clusterSessionId int64, correlationId int64, "
        "payload binary, responseStreamId int32, responseChannel string, encodedPrincipal binary, "
        "closeReason string, action string, actionFlags int32, termBaseLogPosition int64, "
        "leaderMemberId int32, logSessionId int32, timeUnit string, appVersion int32"
    )
    assert all(field.nullable for field in ROW_SCHEMA)


def test_each_kind_of_entry_has_its_own_columns_and_null_elsewhere():
    common = {"position": 0, "leadershipTermId": 3, "clusterTime": T0, "timestamp": T0 * 1000}
    assert only(session_message(b"hello", session=7, timestamp=T0)) == common | {
        "endPosition": 96,
        "entryType": "SESSION_MESSAGE",
        "clusterSessionId": 7,
        "payload": b"hello",
    }
    assert only(TimerEvent(3, 42, T0).encode()) == common | {
        "endPosition": 64,
        "entryType": "TIMER",
        "correlationId": 42,
    }
    assert only(SessionOpenEvent(3, 42, 1, T0, 102, "aeron:udp", b"alice").encode()) == common | {
        "endPosition": 128,
        "entryType": "SESSION_OPEN",
        "clusterSessionId": 1,
        "correlationId": 42,
        "responseStreamId": 102,
        "responseChannel": "aeron:udp",
        "encodedPrincipal": b"alice",
    }
    assert only(SessionCloseEvent(3, 1, T0, 2).encode()) == common | {
        "endPosition": 96,
        "entryType": "SESSION_CLOSE",
        "clusterSessionId": 1,
        "closeReason": "TIMEOUT",
    }
    assert only(ClusterActionRequest(3, 96, T0, 2, 0).encode()) == common | {
        "endPosition": 96,
        "entryType": "CLUSTER_ACTION",
        "action": "SNAPSHOT",
        "actionFlags": 0,
    }
    assert only(NewLeadershipTermEvent(3, 96, T0, 0, 1, -7, 0, 1).encode()) == common | {
        "endPosition": 96,
        "entryType": "NEW_LEADERSHIP_TERM",
        "termBaseLogPosition": 0,
        "leaderMemberId": 1,
        "logSessionId": -7,
        "timeUnit": "MILLIS",
        "appVersion": 1,
    }


def test_sbe_nulls_are_null_and_aerons_own_minus_one_is_a_value():
    message = session_message(b"", term=N64, session=-1, timestamp=N64)
    assert only(message) == {
        "position": 0,
        "endPosition": 64,
        "entryType": "SESSION_MESSAGE",
        "clusterSessionId": -1,
        "payload": b"",
    }
    term = NewLeadershipTermEvent(3, 96, T0, N64, N32, N32, None, 0).encode()
    assert (
        only(term)
        .keys()
        .isdisjoint({"termBaseLogPosition", "leaderMemberId", "logSessionId", "timeUnit", "appVersion"})
    )
    unknown_reason = SessionCloseEvent(3, 1, T0, 0).encode()[:-4] + struct.pack("<i", 77)
    assert "closeReason" not in only(unknown_reason)


def test_no_byte_of_a_batch_is_left_to_chance():
    """The same log gives the same bytes, under nulls too."""
    log = naive.log_of(
        [session_message(b"x", term=N64, timestamp=N64), TimerEvent(3, N64, T0).encode()], PARAMS
    )
    batch = decode(log).record_batch

    for name in ("leadershipTermId", "clusterTime", "timestamp", "clusterSessionId", "correlationId"):
        column = batch.column(name)
        values = column.buffers()[1].to_pybytes()
        for row in range(2):
            assert column[row].is_valid or values[8 * row : 8 * row + 8] == bytes(8), name


def test_fields_that_an_older_version_lacks_are_null():
    def as_version(message: bytes, version: int, block_length: int) -> bytes:
        header = struct.pack("<H4xH", block_length, version)
        return header[:2] + message[2:6] + header[6:] + message[8 : 8 + block_length]

    term = NewLeadershipTermEvent(3, 96, T0, 0, 1, -7, ClusterTimeUnit.NANOS, 1).encode()
    row = only(as_version(term, 3, 40))
    assert "timeUnit" not in row
    assert row["timestamp"] == T0 * 1000, "milliseconds, as logs were before they said so"
    assert "timeUnit" not in only(as_version(term, 3, 48)), "the version decides, not the bytes"
    assert "actionFlags" not in only(as_version(ClusterActionRequest(3, 96, T0, 2, 1).encode(), 10, 28))


@pytest.mark.parametrize(
    ("unit", "time", "micros"), [(0, T0, T0 * 1000), (1, T0 * 1000, T0 * 1000), (2, -1, -1)]
)
def test_a_timestamp_is_the_cluster_time_in_microseconds_whatever_its_unit(unit, time, micros):
    row = only(session_message(b"", timestamp=time), time_unit=unit)
    assert (row["clusterTime"], row["timestamp"]) == (time, micros)


def test_a_time_that_no_timestamp_holds_is_null_there_and_raw_beside():
    row = only(session_message(b"", timestamp=2**62))
    assert "timestamp" not in row
    assert row["clusterTime"] == 2**62


def test_a_new_leadership_term_says_the_unit_from_there_on_even_when_filtered_out():
    term = NewLeadershipTermEvent(3, 96, 5_000_000, 0, 1, -7, ClusterTimeUnit.NANOS, 1).encode()
    log = naive.log_of(
        [session_message(b"", timestamp=5), term, session_message(b"", timestamp=7_000)], PARAMS
    )

    decoded = decode(log, entry_types=["SESSION_MESSAGE"])
    assert [row["timestamp"] for row in rows_of(decoded.record_batch)] == [5_000, 7]
    assert decoded.time_unit == ClusterTimeUnit.NANOS
    assert decode(log[:64], time_unit=2).time_unit == 2


def test_columns_and_entry_types_can_be_pruned():
    log = naive.log_of([session_message(b"a"), TimerEvent(3, 42, T0).encode(), session_message(b"b")], PARAMS)

    batch = decode(log, columns=["payload", "position"], entry_types=["SESSION_MESSAGE"]).record_batch

    assert batch.to_pylist() == [{"payload": b"a", "position": 0}, {"payload": b"b", "position": 160}]
    assert decode(log, columns=[], entry_types=["TIMER"]).record_batch.schema == pa.schema([])
    assert decode(log, columns=["appVersion"]).record_batch.column(0).to_pylist() == [None] * 3
    assert decode(log, entry_types=[]).record_batch.num_rows == 0
    with pytest.raises(ConfigurationError, match="columns: 'nope' is unknown; expected some of position"):
        decode(log, columns=["nope"])


def test_messages_of_other_schemas_and_templates_are_skipped_and_counted():
    strange = struct.pack("<HHHH", 8, 1, 112, 0) + bytes(40)
    retired = MembershipChangeEvent(3, 96, T0, 0, 3, 0, 0, "").encode()
    log = naive.log_of([strange, session_message(b"a"), retired], PARAMS)

    decoded = decode(log)

    assert (decoded.record_batch.num_rows, decoded.skipped) == (1, 2)
    assert decoded.next_position == len(log)


def test_an_entry_belongs_to_the_range_of_its_first_frame():
    log = naive.log_of(
        [session_message(b"a"), session_message(b"L" * 5000), session_message(b"c")], PARAMS, 4096
    )
    second, third = 4096 + 96, 4096 + 96 + 5184

    first = decode(log, position=4096, to_position=second + 32)
    assert rows_of(first.record_batch)[1]["payload"] == b"L" * 5000, "finished from the bytes beyond"
    assert first.next_position == third
    inside = log_to_record_batch(array(log), 96 + 1408, len(log), second + 1408)
    assert inside.record_batch.column("payload").to_pylist() == [b"c"], "its first frame lies before"
    empty = decode(log, position=4096, to_position=4096)
    assert (empty.record_batch.num_rows, empty.next_position) == (0, 4096)


def test_an_entry_that_the_bytes_do_not_hold_whole_is_where_to_go_on():
    log = naive.log_of([session_message(b"a"), session_message(b"L" * 5000)], PARAMS)
    decoded = log_to_record_batch(array(log), 0, 3000, 0, len(log))
    assert (decoded.record_batch.num_rows, decoded.next_position) == (1, 96)


def test_enough_rows_end_a_batch():
    log = naive.log_of([session_message(b"a")] * 5, PARAMS)
    decoded = decode(log, rows_max=2)
    assert (decoded.record_batch.num_rows, decoded.next_position) == (2, 192)


def test_a_channel_that_is_not_ascii_does_not_break_the_column():
    message = SessionOpenEvent(3, 42, 1, T0, 102, "aeron:udp", b"").encode().replace(b"udp", b"\xffd\xc3")
    assert only(message)["responseChannel"] == "aeron:?d?"


def test_damage_behind_entries_ends_the_batch_and_raises_when_it_comes_first():
    log = bytearray(naive.log_of([session_message(b"a")] * 3, PARAMS))
    log[192:196] = bytes(4)
    decoded = decode(bytes(log))
    assert (decoded.record_batch.num_rows, decoded.next_position) == (2, 192)

    with pytest.raises(LogDamaged, match="position 1216") as error:
        log_to_record_batch(array(bytes(log)), 192, len(log), 1024 + 192)
    assert error.value.offset == 192


def test_var_data_that_leads_out_of_its_message_is_damage():
    good = SessionOpenEvent(3, 42, 1, T0, 102, "aeron:udp", b"alice").encode()
    for at, length in ((44, 2**32 - 1), (44, 15), (57, 6)):
        bad = good[:at] + struct.pack("<I", length) + good[at + 4 :]
        log = naive.log_of([session_message(b"a"), bad], PARAMS)
        decoded = decode(log)
        assert (decoded.record_batch.num_rows, decoded.next_position) == (1, 96)
        with pytest.raises(LogDamaged):
            log_to_record_batch(array(log), 96, len(log), 96)


def check_against_twin(log: bytes, params: LogParams, position: int, **options) -> None:
    unit, expected = 0, []
    for begin, end, message in naive.walk(log, 0, len(log)).messages:
        _, template, schema, _ = naive.SBE_HEADER.unpack_from(message)
        if schema == 111 and template in naive.TEMPLATES:
            row = naive.row(position + begin, position + end, message, unit)
            unit = row.pop("unit")
            expected.append(row)
    wanted = options.get("entry_types", ENTRY_TYPES)
    names = options.get("columns", ROW_SCHEMA.names)
    expected = [{name: row[name] for name in names} for row in expected if row["entryType"] in wanted]
    got, at, unit = [], position, 0
    while at < position + len(log):
        decoded = log_to_record_batch(array(log), at - position, len(log), at, time_unit=unit, **options)
        decoded.record_batch.validate(full=True)
        assert decoded.next_position > at
        got += rows_of(decoded.record_batch)
        at, unit = decoded.next_position, decoded.time_unit
    assert got == expected


@pytest.mark.parametrize("seed", seeds(60))
def test_rows_are_those_of_the_slow_twin(seed):
    rng = random.Random(seed)
    params = logs.params(rng)
    position = rng.randrange(4096) * 32
    log = naive.log_of([logs.entry(rng) for _ in range(rng.randrange(1, 100))], params, position)
    options = {}
    if rng.random() < 0.5:
        options["columns"] = rng.sample(ROW_SCHEMA.names, rng.randrange(1, 21))
    if rng.random() < 0.5:
        options["entry_types"] = rng.sample(ENTRY_TYPES, rng.randrange(1, 7))
    if rng.random() < 0.5:
        options["rows_max"] = rng.randrange(1, 20)
    check_against_twin(log, params, position, **options)


def test_an_empty_payload_and_an_empty_batch_have_valid_buffers():
    assert decode(b"").record_batch.num_rows == 0
    assert decode(b"").record_batch.schema == ROW_SCHEMA
    assert only(session_message(b""))["payload"] == b""


def test_the_log_of_a_real_aeron_cluster_comes_out_as_its_own_codecs_read_it():
    """Entries as Aeron 1.53 decoded them, re-encoded here; its payloads are known by length and hash only."""
    with gzip.open(DATA / "aeron-cluster-1.53" / "log.jsonl.gz", "rt") as lines:
        entries = [json.loads(line) for line in lines]
    params = LogParams(64 * 1024, 1408, 0, 1)
    log = b""
    for entry in entries:
        log += naive.append(len(log), encoded(entry), params)

    rows = decode(log).record_batch.to_pylist()

    assert [(row["position"], row["endPosition"]) for row in rows] == [
        (entry["position"], entry["endPosition"]) for entry in entries
    ]
    for row, entry in zip(rows, entries):
        assert row["clusterTime"] == entry["timestamp"]
        for name in row.keys() & entry.keys() - {"timestamp", "encodedPrincipal"}:
            assert row[name] == entry[name], name
        if "payloadLength" in entry:
            assert len(row["payload"]) == entry["payloadLength"]


def encoded(entry: dict) -> bytes:
    term, time = entry["leadershipTermId"], entry["timestamp"]
    match entry["templateId"]:
        case 1:
            header = SessionMessageHeader(term, entry["clusterSessionId"], time).encode()
            return header + bytes(entry["payloadLength"])
        case 20:
            return TimerEvent(term, entry["correlationId"], time).encode()
        case 21:
            return SessionOpenEvent(
                term,
                entry["correlationId"],
                entry["clusterSessionId"],
                time,
                entry["responseStreamId"],
                entry["responseChannel"],
                entry["encodedPrincipal"].encode(),
            ).encode()
        case 22:
            reason = {name: value for value, name in naive.REASONS.items()}[entry["closeReason"]]
            return SessionCloseEvent(term, entry["clusterSessionId"], time, reason).encode()
        case 23:
            action = {name: value for value, name in naive.ACTIONS.items()}[entry["action"]]
            return ClusterActionRequest(term, entry["logPosition"], time, action, entry["flags"]).encode()
        case 24:
            unit = {name: value for value, name in naive.UNITS.items()}[entry["timeUnit"]]
            return NewLeadershipTermEvent(
                term,
                entry["logPosition"],
                time,
                entry["termBaseLogPosition"],
                entry["leaderMemberId"],
                entry["logSessionId"],
                unit,
                entry["appVersion"],
            ).encode()
    raise AssertionError(entry)
