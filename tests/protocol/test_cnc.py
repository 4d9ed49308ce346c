"""The counters file: regions, counters, labels and keys."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import LocalProtocolError, LogDamaged
from cluster.protocol import counter_types
from cluster.protocol.cnc import (
    COUNTER_METADATA,
    COUNTER_VALUE,
    RING_BUFFER_TRAILER,
    CncHeader,
    Region,
    consumer_heartbeat_offset,
    decode_cnc_header,
    decode_counters,
    encode_counter_metadata,
    encode_counter_value,
    file_length,
    new_cnc_header,
    regions,
    ring_trailer_offset,
)
from cluster.protocol.counter_types import CounterTypeId, counter_key, counter_label, threshold_text
from cluster.protocol.enums import CounterState

SMALL = new_cnc_header(
    start_timestamp=5,
    pid=42,
    to_driver_length=1024 + 768,
    to_clients_length=1024 + 128,
    counters_values_length=1024,
    error_log_length=4096,
)


def offsets(dtype):
    return {name: dtype.fields[name][1] for name in dtype.names}


def test_the_default_file_is_as_long_as_the_java_drivers():
    header = new_cnc_header(start_timestamp=1, pid=2)

    assert header == CncHeader(
        512, 1_049_344, 1_048_704, 33_554_432, 8_388_608, 4_194_304, 10_000_000_000, 1, 2, 4096
    )
    assert file_length(header) == 48_238_592
    assert len(header.encode_body()) == 128


def test_regions_follow_each_other_from_128():
    assert regions(SMALL) == (
        Region(128, 1792),
        Region(1920, 1152),
        Region(3072, 4096),
        Region(7168, 1024),
        Region(8192, 4096),
    )
    assert file_length(SMALL) == 12_288
    assert ring_trailer_offset(SMALL) == 128 + 1024
    assert consumer_heartbeat_offset(SMALL) == 128 + 1024 + 640
    assert regions(SMALL).error_log.of(bytes(range(256)) * 48) == (bytes(range(256)) * 48)[8192:]


def test_records_lie_as_readers_of_shared_memory_expect():
    assert offsets(COUNTER_METADATA) == {
        "state": 0,
        "type_id": 4,
        "free_for_reuse_deadline": 8,
        "key": 16,
        "label_length": 128,
        "label": 132,
    }
    assert offsets(COUNTER_VALUE) == {
        "value": 0,
        "registration_id": 8,
        "owner_id": 16,
        "reference_id": 24,
        "padding": 32,
    }
    assert offsets(RING_BUFFER_TRAILER) == {
        "tail_position": 128,
        "head_cache_position": 256,
        "head_position": 384,
        "correlation_id": 512,
        "consumer_heartbeat": 640,
    }


def a_file(*counters):
    file = np.zeros(file_length(SMALL), np.uint8)
    file[:128] = np.frombuffer(SMALL.encode_body(), np.uint8)
    found = regions(SMALL)
    for counter_id, (metadata, value) in enumerate(counters):
        begin = found.counters_metadata.offset + 512 * counter_id
        file[begin : begin + 512] = np.frombuffer(metadata, np.uint8)
        begin = found.counters_values.offset + 128 * counter_id
        file[begin : begin + 128] = np.frombuffer(value, np.uint8)
    return file


def counters_of(file):
    found = regions(decode_cnc_header(file))
    return list(decode_counters(found.counters_metadata.of(file), found.counters_values.of(file)))


def test_counters_read_back_up_to_the_first_never_used():
    allocated = encode_counter_metadata(CounterTypeId.COMMIT_POSITION, counter_key(3), "Cluster commit-pos:")
    reclaimed = encode_counter_metadata(
        7, b"", "gone", state=CounterState.RECLAIMED, free_for_reuse_deadline=9
    )
    value = encode_counter_value(480, registration_id=1, owner_id=2, reference_id=3)
    unseen = (allocated, value)
    file = a_file((allocated, value), (reclaimed, bytes(128)), (bytes(512), bytes(128)), unseen)

    first, second = counters_of(file)
    assert first.is_allocated and not second.is_allocated
    assert (first.counter_id, first.type_id, first.label) == (0, 203, "Cluster commit-pos:")
    assert first.key == b"\3\0\0\0".ljust(112, b"\0")
    assert (first.value, first.registration_id, first.owner_id, first.reference_id) == (480, 1, 2, 3)
    assert (second.label, second.free_for_reuse_deadline, second.key) == ("gone", 9, bytes(112))


@settings(max_examples=50)
@given(st.binary(max_size=112), st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=400))
def test_any_key_and_label_that_fit_read_back(key, label):
    (counter,) = counters_of(a_file((encode_counter_metadata(5, key, label), bytes(128))))

    assert counter.key == key.ljust(112, b"\0")
    assert counter.label == label[:380]


def test_a_key_too_long_is_refused():
    with pytest.raises(LocalProtocolError, match="counter key of 113 bytes, at most 112"):
        encode_counter_metadata(5, bytes(113), "")


def test_a_file_that_is_not_ready_has_version_0():
    file = a_file()
    file[0:4] = 0
    assert decode_cnc_header(file).version == 0


@pytest.mark.parametrize(
    ("offset", "value", "said"),
    [
        (0, 1 << 16, r"offset 0: cnc.dat version 1.0.0 \(65536\), expected 0.x"),
        (8, 1_000_000, "region to_clients ends at 1001920, the file has 12288 bytes"),
        (20, -1, "region error_log"),
        (12, 4095, "counters metadata of 4095 bytes for values of 1024"),
        (16, 1023, "offset 16: counters_values_length 1023, expected a multiple of 128"),
    ],
)
def test_regions_outside_the_file_are_damage(offset, value, said):
    file = a_file()
    file[offset : offset + 4] = np.frombuffer(value.to_bytes(4, "little", signed=True), np.uint8)

    with pytest.raises(LogDamaged, match=said):
        decode_cnc_header(file)
    with pytest.raises(LogDamaged):
        decode_cnc_header(bytes(100))


# -- labels and keys ------------------------------------------------------------------------------


def test_labels():
    t = CounterTypeId
    build = {"version": "1.2", "commit": "abc"}

    assert counter_label(t.CONSENSUS_MODULE_STATE, 0) == "Consensus Module state - clusterId=0"
    assert counter_label(t.COMMIT_POSITION, 7) == "Cluster commit-pos: - clusterId=7"
    assert counter_label(t.CONSENSUS_MODULE_ERRORS, 0, **build) == (
        "Cluster Errors - clusterId=0 version=1.2 commit=abc"
    )
    assert counter_label(t.CONTAINER_ERRORS, 0, service_id=1, **build) == (
        "Cluster Container Errors - clusterId=0 serviceId=1 version=1.2 commit=abc"
    )
    assert counter_label(t.CYCLE_TIME_EXCEEDED, 0, threshold_ns=100_000_000) == (
        "Cluster work cycle time exceeded count: threshold=100ms - clusterId=0"
    )
    assert counter_label(t.SERVICE_SNAPSHOT_DURATION_EXCEEDED, 0, service_id=0, threshold_ns=10**9) == (
        "Clustered service max snapshot duration exceeded count: threshold=1s - clusterId=0 serviceId=0"
    )
    assert counter_label(t.ARCHIVE_RECORDING_SESSIONS, 5) == "Archive Recording Sessions - archiveId=5"
    assert counter_types.client_session_label("name=c1", "127.0.0.1:5", 9) == (
        "cluster-session: name=c1 sourceIdentity=127.0.0.1:5 sessionId=9"
    )
    assert counter_types.recording_position_label(0, 9, 100, "aeron:ipc", 1) == (
        "rec-pos: 0 9 100 aeron:ipc - archiveId=1"
    )
    long = counter_types.recording_position_label(0, 9, 100, "aeron:ipc?" + "x" * 400, 1)
    assert len(long) == 380 and long.endswith("x - archiveId=1")


def test_durations_are_told_in_their_largest_exact_unit():
    told = {
        0: "0ns",
        1: "1ns",
        1_500: "1500ns",
        2_000: "2us",
        100_000_000: "100ms",
        10**9: "1s",
        60 * 10**9: "60s",
    }

    assert {duration: threshold_text(duration) for duration in told} == told


def test_keys():
    assert counter_key(1) == b"\1\0\0\0"
    assert counter_key(1, 2) == b"\1\0\0\0\2\0\0\0"
    assert len(counter_types.ClientSessionKey(1, 5).encode_body()) == 12


@settings(max_examples=50)
@given(st.text("abc:.0123456789", max_size=100), st.integers(-(2**63), 2**63 - 1))
def test_a_recording_position_key_reads_back(source_identity, archive_id):
    key = counter_types.recording_position_key(7, -9, source_identity, archive_id)

    assert len(key) <= 112
    assert counter_types.decode_recording_position_key(key.ljust(112, b"\0")) == (
        7,
        -9,
        source_identity[:88],
        archive_id,
    )


def test_damaged_keys_are_told():
    with pytest.raises(LogDamaged, match="source identity of 89 bytes, at most 88"):
        counter_types.decode_recording_position_key(bytes(12) + b"\x59" + bytes(99))
