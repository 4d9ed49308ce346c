"""The disk does to programs what real ones do."""

import errno

import pytest

from cluster.testing.disk import PAGE, SECTOR, SimulatedFiles
from cluster.testing.world import ProcessDied
from tests.simulation.disk import FaultyDisk
from tests.simulation.world import Mortal, World


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def disk(world):
    disk = FaultyDisk(world, world.random("disk"))
    disk.folders.add("/d")
    return disk


@pytest.fixture
def process(world):
    return Mortal(world, "host", "process")


@pytest.fixture
def files(disk, process):
    return SimulatedFiles(disk, process, 1)


def a_durable_file(files, content: bytes):
    file = files.open("/d/f", create=True)
    file.pwrite(content, 0)
    file.datasync()
    files.sync_directory("/d")
    return file


def test_what_is_synced_survives_a_power_cut_and_a_kill_keeps_the_rest_too(files, disk, process):
    file = a_durable_file(files, b"a" * PAGE)
    file.pwrite(b"b" * PAGE, PAGE)

    process.kill()
    assert bytes(disk.inode("/d/f").cache) == b"a" * PAGE + b"b" * PAGE
    disk.power_cut()
    assert bytes(disk.inode("/d/f").cache[:PAGE]) == b"a" * PAGE


def test_an_unsynced_page_is_whole_gone_or_torn_at_a_sector_after_a_power_cut():
    fates = set()
    for seed in range(40):
        world = World(seed)
        disk = FaultyDisk(world, world.random("disk"))
        disk.folders.add("/d")
        file = a_durable_file(SimulatedFiles(disk, Mortal(world, "host", "p"), 1), b"a" * PAGE)
        file.pwrite(b"b" * PAGE, 0)
        disk.power_cut()
        page = bytes(disk.inode("/d/f").cache)
        sectors = {page[i : i + SECTOR] for i in range(0, PAGE, SECTOR)}
        assert sectors <= {b"a" * SECTOR, b"b" * SECTOR}
        fates.add("torn" if len(sectors) == 2 else page[:1])

    assert fates == {b"a", b"b", "torn"}


def test_after_a_failed_sync_the_next_one_succeeds_and_the_pages_are_not_on_the_disk(files, disk):
    file = a_durable_file(files, b"a" * PAGE)
    file.pwrite(b"b" * PAGE, 0)
    disk.faults.sync_failures = 1
    with pytest.raises(OSError) as raised:
        file.datasync()
    assert raised.value.errno == errno.EIO

    file.datasync()
    assert file.pread(1, 0) == b"b"
    assert not disk.inode("/d/f").is_durable(0, PAGE)
    disk.power_cut()
    assert file.pread(1, 0) == b"a"


def test_pushed_pages_become_durable_with_the_next_sync_of_any_file(files, disk):
    file = a_durable_file(files, b"a" * PAGE)
    other = files.open("/d/other", create=True)
    file.pwrite(b"b" * PAGE, 0)
    file.push(0, PAGE)
    assert not disk.inode("/d/f").is_durable(0, PAGE)

    other.datasync()
    assert disk.inode("/d/f").is_durable(0, PAGE)


def test_a_full_disk_overwrites_what_is_allocated_and_refuses_more(files, disk):
    file = files.open("/d/f", create=True)
    file.allocate(PAGE)
    disk.faults.is_full = True

    file.pwrite(b"a" * PAGE, 0)
    with pytest.raises(OSError) as raised:
        file.pwrite(b"b", PAGE)
    assert raised.value.errno == errno.ENOSPC


def test_a_process_can_die_between_any_two_effects_and_has_none_afterwards(files, disk, process):
    file = a_durable_file(files, b"a")
    process.die_soon(2)
    file.pwrite(b"b", 0)
    with pytest.raises(ProcessDied):
        file.pwrite(b"c", 0)
    with pytest.raises(ProcessDied):
        file.datasync()

    assert bytes(disk.inode("/d/f").cache) == b"b"
