"""The files of a real three-member Aeron Cluster 1.53 decode, and encode to the same bytes."""

import gzip
import json
import tarfile
from functools import cache

import numpy as np
import pytest

from cluster.protocol import catalog, cnc, counter_types, decode, node_state, recording_log
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ElectionState, Role
from cluster.protocol.error_log import decode_error_log
from cluster.protocol.frame import DATA_FRAME_HEADER, FLAGS_UNFRAGMENTED, TYPE_DATA, align
from cluster.protocol.mark_file import (
    TERMINATED,
    decode_archive_mark_file,
    decode_cluster_mark_file,
    encode_mark_file_header,
    mark_file_length,
)
from tests.protocol.examples import DATA
from tests.protocol.format_tables import camel

REAL = DATA / "aeron-cluster-1.53"
members = pytest.mark.parametrize("member", [0, 1, 2])
WANTED = (
    "cluster-mark.dat",
    "cluster-mark-service-0.dat",
    "recording.log",
    "node-state.dat",
    "archive-mark.dat",
    "archive.catalog",
    "0-0.rec",
    "0-131072.rec",
    "cnc-0.dat",
)


@cache
def real_files() -> dict[str, bytes]:
    with tarfile.open(REAL / "members.tar.xz") as archive:
        return {
            entry.name: archive.extractfile(entry).read()
            for entry in archive
            if entry.name.rpartition("/")[2] in WANTED
        }


@members
@pytest.mark.parametrize("name", ["cluster-mark.dat", "cluster-mark-service-0.dat"])
def test_cluster_mark_files(member, name):
    file = real_files()[f"member-{member}/cluster/{name}"]
    mark = decode_cluster_mark_file(file)

    assert len(file) == mark_file_length(mark.error_buffer_length)
    assert encode_mark_file_header(mark) == file[:8192]
    assert (mark.version, mark.member_id, mark.activity_timestamp) == (768, member, TERMINATED)
    assert mark.services_cluster_dir.endswith(f"member-{member}/cluster") == (name == "cluster-mark.dat")


@members
def test_archive_mark_files(member):
    file = real_files()[f"member-{member}/archive/archive-mark.dat"]
    mark = decode_archive_mark_file(file)

    assert encode_mark_file_header(mark) == file[:8192]
    assert (mark.control_stream_id, mark.events_stream_id, mark.archive_id) == (10, 30, 1)


@members
def test_catalogs(member):
    file = real_files()[f"member-{member}/archive/archive.catalog"]
    header = catalog.decode_catalog_header(file)
    entries = list(catalog.decode_entries(file, header))

    assert header == catalog.new_catalog_header(3)
    assert [entry.descriptor.recording_id for entry in entries] == [0, 1, 2]
    assert [entry.descriptor.stream_id for entry in entries] == [100, 106, 107]
    assert entries[0].descriptor.stop_position == 250_144
    for entry in entries:
        assert catalog.encode_catalog_entry(entry.descriptor) == file[entry.offset : entry.end]


@members
def test_recording_logs(member):
    file = real_files()[f"member-{member}/cluster/recording.log"]
    entries = list(recording_log.decode_recording_log(file))

    assert [(e.entry_type.name, e.service_id, e.log_position) for e in entries] == [
        ("TERM", -1, 179_616),
        ("SNAPSHOT", 0, 139_424),
        ("SNAPSHOT", -1, 139_424),
        ("TERM", -1, -1),
    ]
    assert b"".join(map(recording_log.encode_recording_log_entry, entries)) == file


@members
def test_node_states(member):
    file = real_files()[f"member-{member}/cluster/node-state.dat"]
    state = node_state.decode_node_state(file)

    assert state.offset == node_state.CANDIDATE_TERM_OFFSET
    assert node_state.encode_node_state(state.candidate_term) == file[:64]
    assert len(file) == node_state.NODE_STATE_FILE_LENGTH


def test_error_logs_of_mark_files():
    (error,) = decode_error_log(real_files()["member-1/cluster/cluster-mark.dat"], 8192)

    assert error.text == "io.aeron.cluster.client.ClusterEvent: WARN - leader heartbeat timeout\n"
    assert error.observation_count == 1
    assert not list(decode_error_log(real_files()["member-0/cluster/cluster-mark.dat"], 8192))


def live_counters():
    file = real_files()["live/cnc-0.dat"]
    found = cnc.regions(cnc.decode_cnc_header(file))
    return (
        file,
        found,
        list(cnc.decode_counters(found.counters_metadata.of(file), found.counters_values.of(file))),
    )


def test_the_counters_file_of_a_live_member():
    file, found, counters = live_counters()
    header = cnc.decode_cnc_header(file)
    value = {counter.type_id: counter.value for counter in counters if counter.is_allocated}

    assert header == cnc.new_cnc_header(header.start_timestamp, header.pid)
    assert cnc.file_length(header) == len(file)
    assert value[CounterTypeId.COMMIT_POSITION] == value[CounterTypeId.RECORDING_POSITION] == 250_144
    assert value[CounterTypeId.NODE_ROLE] == Role.FOLLOWER
    assert value[CounterTypeId.ELECTION_STATE] == ElectionState.CLOSED
    trailer = np.frombuffer(file, cnc.RING_BUFFER_TRAILER, 1, cnc.ring_trailer_offset(header))[0]
    assert trailer["tail_position"] == trailer["head_position"] > 0
    assert trailer["consumer_heartbeat"] > header.start_timestamp
    assert not list(decode_error_log(found.error_log.of(file)))


def test_real_counters_are_encoded_to_the_same_bytes():
    """Of those whose record was used once; a second label may be shorter and leaves the first's end."""
    file, found, counters = live_counters()
    metadata, values = found.counters_metadata.of(file), found.counters_values.of(file)
    equal = 0
    for counter in counters:
        begin = counter.counter_id * cnc.VALUE_LENGTH
        record = cnc.encode_counter_value(
            counter.value, counter.registration_id, counter.owner_id, counter.reference_id
        )
        assert record == values[begin : begin + cnc.VALUE_LENGTH]
        begin = counter.counter_id * cnc.METADATA_LENGTH
        record = cnc.encode_counter_metadata(counter.type_id, counter.key, counter.label)
        equal += record == metadata[begin : begin + cnc.METADATA_LENGTH]
    assert equal > 100


def test_labels_and_keys_of_real_cluster_counters():
    seen = set()
    for counter in live_counters()[2]:
        if not counter.is_allocated or counter.type_id not in counter_types.TEXTS:
            continue
        known = counter_types.TEXTS[counter.type_id]
        key = counter.key
        service = known.scope is counter_types.Scope.SERVICE
        told = dict(word.split("=") for word in counter.label.split() if "=" in word)
        build = {name: told[name] for name in ("version", "commit") if name in told}
        threshold_ns = {None: None, "100ms": 10**8, "1s": 10**9}[told.get("threshold")]
        scope_id = int.from_bytes(key[:8], "little") if known.scope is counter_types.Scope.ARCHIVE else 0
        assert counter.label == counter_types.counter_label(
            CounterTypeId(counter.type_id),
            scope_id,
            service_id=0 if service else None,
            threshold_ns=threshold_ns,
            **build,
        )
        if known.scope is not counter_types.Scope.ARCHIVE:
            assert key == counter_types.counter_key(0, 0 if service else None).ljust(112, b"\0")
        seen.add(counter.type_id)
    assert {200, 201, 202, 203, 205, 207, 212, 213, 215, 216, 217, 218, 219, 233, 234, 235, 238, 239} <= seen


def test_the_key_of_a_real_recording_position():
    (counter,) = (
        c for c in live_counters()[2] if c.type_id == CounterTypeId.RECORDING_POSITION and c.is_allocated
    )
    key = counter_types.decode_recording_position_key(counter.key)

    assert (key.recording_id, key.archive_id) == (0, 1)
    assert counter_types.recording_position_key(*key).ljust(112, b"\0") == counter.key
    channel = counter.label.split()[4]
    assert counter.label == counter_types.recording_position_label(0, key.session_id, 100, channel, 1)


def real_log():
    """(position, message as the Java codecs read it) of every entry."""
    with gzip.open(REAL / "log.jsonl.gz", "rt") as lines:
        return {entry["position"]: entry for entry in map(json.loads, lines)}


@members
def test_every_message_of_the_real_log_is_read_as_java_reads_it(member):
    segments = [real_files()[f"member-{member}/archive/0-{base}.rec"] for base in (0, 131_072)]
    log, expected = b"".join(segments), real_log()
    position = read = 0
    while (header := np.frombuffer(log, DATA_FRAME_HEADER, 1, position)[0])["frame_length"] > 0:
        length = int(header["frame_length"])
        if header["type"] == TYPE_DATA and header["flags"] == FLAGS_UNFRAGMENTED:
            message = decode(log, position + 32, length - 32)
            java = expected[position]
            assert java["templateId"] == message.TEMPLATE_ID
            for name, value in message.as_dict().items():
                told = java.get(camel(name))
                if told is not None:
                    assert told in (value, getattr(value, "name", None)) or isinstance(value, bytes), name
            if message.TEMPLATE_ID != 1:
                assert message.encode() == log[position + 32 : position + length]
            read += 1
        position += align(length)
        if position + 32 > len(log):
            break
    assert position == 250_144
    assert read > 100
