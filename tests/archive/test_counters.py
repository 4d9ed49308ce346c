"""The counters file: what this member shows, and what others on the host see of it."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

import pytest

from cluster.archive.files import OsFiles
from cluster.counters import COUNTERS_MAX, CountersFile, CountersReader
from cluster.errors import LogDamaged, NotAClusterDirectory, StorageError
from cluster.protocol.cnc import LABEL_LENGTH_MAX, consumer_heartbeat_offset, regions
from cluster.protocol.counter_types import CounterTypeId
from tests.archive.logs import T0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "driver" / "cnc.dat")


def create(path: str, now_ms: int = T0) -> CountersFile:
    return CountersFile.create(path, pid=4242, now_ms=now_ms)


@pytest.mark.parametrize("type_id", [CounterTypeId.COMMIT_POSITION, CounterTypeId.NODE_ROLE])
def test_a_counter_is_found_by_its_type_and_cluster_id(path, type_id):
    counters = create(path)
    ours = counters.allocate_cluster_counter(type_id, 7, 96)
    counters.allocate_cluster_counter(type_id, 8, 5)
    with CountersReader(path) as reader:
        found = reader.find(type_id, 7)
        assert found is not None and found.get() == 96
        ours.set(1920)
        assert found.get() == 1920
        assert reader.find(type_id, 9) is None
        assert reader.find(CounterTypeId.ELECTION_STATE, 7) is None
    counters.close()


def test_a_value_is_one_aligned_store_and_adds_up(path):
    counters = create(path)
    counter = counters.allocate_cluster_counter(CounterTypeId.ELECTION_COUNT, 0)
    assert counter.get_and_add(2) == 0
    assert counter.get_and_add(-5) == 2
    offset = regions(counters.header).counters_values.offset + counter.counter_id * 128
    assert offset % 8 == 0
    assert struct.unpack_from("<q", Path(path).read_bytes(), offset) == (-3,)
    counters.close()


def test_the_heartbeat_says_whether_the_owner_lives(path):
    counters = create(path)
    with CountersReader(path) as reader:
        assert reader.is_live(T0 + 10_000)
        assert not reader.is_live(T0 + 10_001)
        counters.update_heartbeat(T0 + 60_000)
        assert reader.is_live(T0 + 61_000)
        counters.close()
        assert not reader.is_live(T0 + 61_000)


def test_values_stay_after_the_end_and_after_a_crash(path):
    counters = create(path)
    counters.allocate_cluster_counter(CounterTypeId.COMMIT_POSITION, 0, 640)
    counters.close(orderly=False)
    with CountersReader(path) as reader:
        assert reader.heartbeat_ms == T0
        assert reader.find(CounterTypeId.COMMIT_POSITION).get() == 640


def test_a_new_file_replaces_the_old_whole_and_readers_see_that(path):
    old = create(path)
    with CountersReader(path) as reader:
        assert not reader.is_replaced()
        new = create(path, T0 + 1)
        assert reader.is_replaced()
        assert reader.heartbeat_ms == T0, "the old pages are still there for who has them mapped"
    old.close()
    new.close()
    assert [entry.name for entry in Path(path).parent.iterdir()] == ["cnc.dat"]


def test_the_file_has_all_its_blocks(path):
    counters = create(path)
    status = Path(path).stat()
    assert status.st_blocks * 512 >= status.st_size, "a store into a hole of a full disk kills the process"
    counters.close()


def test_a_freed_counter_is_gone_and_its_id_comes_back_a_second_later(path):
    counters = create(path)
    first = counters.allocate(CounterTypeId.CLIENT_SESSION, b"key", "session", 5)
    counters.free(first)
    with CountersReader(path) as reader:
        assert reader.find(CounterTypeId.CLIENT_SESSION) is None
        assert reader.counters()[0].key == bytes(112)
        assert counters.allocate(CounterTypeId.CLIENT_SESSION, b"b", "second").counter_id == 1
        counters.update_heartbeat(T0 + 1_000)
        again = counters.allocate(CounterTypeId.CLIENT_SESSION, b"c", "third")
        assert again.counter_id == first.counter_id
        assert again.get() == 0, "the value of the old counter shows through"
        assert [record.label for record in reader.counters()] == ["third", "second"]
    counters.close()


def test_counters_run_out_with_an_error(path):
    counters = CountersFile.in_memory()
    for _ in range(COUNTERS_MAX - 1):
        counters.allocate(0, b"", "")
    with pytest.raises(StorageError, match="all 4095 counters are in use"):
        counters.allocate(0, b"", "")


def test_a_label_too_long_is_cut(path):
    counters = create(path)
    counters.allocate(0, b"", "x" * 1000)
    assert counters.counters()[0].label == "x" * LABEL_LENGTH_MAX
    counters.close()


def test_an_active_recording_is_found_by_its_session(path):
    counters = create(path)
    counters.allocate_recording_position(3, -77, 100, position=960, archive_id=5)
    found = counters.find_recording_position(3, -77)
    assert found is not None and found.get() == 960
    assert counters.find_recording_position(3, 77) is None
    assert counters.counters()[0].label == "rec-pos: 3 -77 100 aeron:ipc?alias=log - archiveId=5"
    counters.close()


def test_errors_are_counted_in_the_file_s_log(path):
    counters = create(path)
    for at in (T0, T0 + 4):
        assert counters.record_error("no space", at)
    with CountersReader(path) as reader:
        assert [(e.text, e.observation_count) for e in reader.errors()] == [("no space", 2)]
    counters.close()


def test_what_is_no_counters_file_is_named(tmp_path):
    path = tmp_path / "cnc.dat"
    with pytest.raises(NotAClusterDirectory, match="no counters file is here"):
        CountersReader(str(path))
    path.write_bytes(b"")
    with pytest.raises(LogDamaged, match=r"cnc\.dat at offset 0: a counters file of 0 bytes"):
        CountersReader(str(path))
    path.write_bytes(bytes(4096))
    with pytest.raises(NotAClusterDirectory, match="not ready"):
        CountersReader(str(path))
    path.write_bytes(b"\x00\x02\x00\x00" + b"\x7f" * 4092)
    with pytest.raises(LogDamaged, match=r"cnc\.dat at offset 4: region"):
        CountersReader(str(path))


# ---- the ring of commands


class AeronClient:
    """Writes commands and reads answers as a client of a media driver does (agrona's ring and broadcast)."""

    def __init__(self, path: str) -> None:
        with CountersReader(path) as reader:
            found = regions(reader.header)
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._ring = found.to_driver
        self._broadcast = found.to_clients
        self._tail = self._ring.end - 768 + 128
        self._read_to = 0

    def _i64(self, offset: int) -> int:
        return struct.unpack_from("<q", self._map, offset)[0]

    def send(self, command: int, correlation_id: int, body: bytes = b"") -> None:
        capacity = self._ring.length - 768
        tail = self._i64(self._tail)
        data = struct.pack("<qq", 1, correlation_id) + body
        length = 8 + len(data)
        aligned = length + 7 & ~7
        at = tail & capacity - 1
        if capacity - at < aligned:
            struct.pack_into("<ii", self._map, self._ring.offset + at, capacity - at, -1)
            tail += capacity - at
            at = 0
        begin = self._ring.offset + at
        self._map[begin + 8 : begin + length] = data
        struct.pack_into("<ii", self._map, begin, length, command)
        struct.pack_into("<q", self._map, self._tail, tail + aligned)

    def answers(self) -> list[tuple[int, int, int, str]]:
        """Type, correlation id, error code and text of all that came since the last call."""
        capacity = self._broadcast.length - 128
        tail = self._i64(self._broadcast.end - 128 + 8)
        found = []
        while self._read_to < tail:
            begin = self._broadcast.offset + (self._read_to & capacity - 1)
            length, kind = struct.unpack_from("<ii", self._map, begin)
            if kind != -1:
                correlation_id, code, size = struct.unpack_from("<qii", self._map, begin + 8)
                text = self._map[begin + 24 : begin + 24 + size].decode()
                found.append((kind, correlation_id, code, text))
            self._read_to += length + 7 & ~7
        return found


def test_what_clients_ask_the_driver_for_is_refused_at_once(path):
    counters = create(path)
    client = AeronClient(path)
    client.send(0x01, 11, b"a publication")
    client.send(0x06, 0)  # a keep-alive wants no answer
    client.send(0x04, 12, b"a subscription")
    assert counters.drain_commands() == 3
    answers = client.answers()
    assert [(kind, correlation) for kind, correlation, _, _ in answers] == [(0x0F01, 11), (0x0F01, 12)]
    assert "no media driver" in answers[0][3]
    assert counters.drain_commands() == 0
    counters.close()


def test_ring_and_answers_go_round_many_times(path):
    counters = create(path)
    client = AeronClient(path)
    for correlation_id in range(3000):
        client.send(0x03, correlation_id, b"x" * (correlation_id * 7 % 400))
        assert counters.drain_commands() == 1
        assert [answer[1] for answer in client.answers()] == [correlation_id]
    counters.close()


def test_a_command_that_is_still_written_waits(path):
    counters = create(path)
    client = AeronClient(path)
    begin = client._ring.offset
    struct.pack_into("<i", client._map, begin, -40)
    assert counters.drain_commands() == 0
    assert counters.counters() == []
    client._map[begin : begin + 8] = bytes(8)
    client.send(0x01, 5)
    assert counters.drain_commands() == 1
    counters.close()


def test_garbage_in_the_ring_does_not_hurt(path):
    counters = create(path)
    client = AeronClient(path)
    struct.pack_into("<ii", client._map, client._ring.offset, 2**31 - 1, 1)
    for _ in range(3):
        counters.drain_commands()
    counters.update_heartbeat(T0 + 1)
    assert consumer_heartbeat_offset(counters.header) > 0
    counters.close()
    assert OsFiles().exists(path)


def test_types_and_values_of_all_that_are_allocated_are_told_by_id(path):
    """Freed ones are not, and those beyond the first look are."""
    counters = create(path)
    made = [
        counters.allocate(CounterTypeId.CLIENT_SESSION, b"", f"session {number}", number)
        for number in range(600)
    ]
    for counter in made[::2]:
        counters.free(counter)
    with CountersReader(path) as reader:
        types, values = reader.types_and_values()

    assert types == [CounterTypeId.CLIENT_SESSION] * 300
    assert values == list(range(1, 600, 2))
    counters.close()


def test_a_counters_file_lies_on_the_disk_before_it_takes_its_name_and_the_name_after(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut takes it, and a reader believes the end of a log that stopped without a majority."""
    done: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def synced(fd: int) -> None:
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{fd}")).name))
        sync(fd)

    def replaced(old: str, new: str) -> None:
        done.append(("name", Path(new).name))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    create(path).close()

    assert done == [("sync", "cnc.dat.tmp"), ("name", "cnc.dat"), ("sync", "driver")]
