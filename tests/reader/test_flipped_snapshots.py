"""One bit of a snapshot that changed: it is never read as if it were what was taken."""

import shutil
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import OsFiles
from cluster.errors import ClusterError, LogDamaged
from cluster.reader.directory import DirectoryLog
from cluster.reader.snapshots import _check_frames, stored_snapshots
from cluster.testing import SimulatedCluster
from examples.order_book import OrderBook
from tests.spark.simulated import write_out

FILES = OsFiles()


@pytest.fixture(scope="module")
def member(tmp_path_factory):
    """A member's directories; its archive has no checksums."""
    cluster = SimulatedCluster(OrderBook)
    alice = cluster.connect("alice")
    alice.offer(b"buy 1 1 3 7")
    cluster.run(1)
    cluster.take_snapshot()
    return f"{write_out(cluster, tmp_path_factory.mktemp('whole'))}/member-0"


@pytest.mark.parametrize("service_id", [-1, 0])
def test_no_flipped_bit_goes_unnoticed(member, tmp_path, service_id):
    copy = shutil.copytree(member, tmp_path / "member-0")
    (snapshot,) = (one for one in stored_snapshots(FILES, str(copy)) if one.service_id == service_id)
    records = list(snapshot.open())
    length = snapshot.open().length
    segment = Path(snapshot.archive) / f"{snapshot.recording_id}-0.rec"
    good = segment.read_bytes()
    said = len(records) - (service_id == -1)  # the module's last record is the checksum of those before
    refused = unchanged = 0

    for place in range(length):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        segment.write_bytes(bad)
        try:
            found = list(snapshot.open())
        except ClusterError:
            refused += 1
        else:
            unchanged += 1
            assert found[:said] == records[:said], f"byte {place} of {segment.name}"

    assert refused > 0.9 * length and refused + unchanged == length


def test_a_service_s_snapshot_that_is_shorter_than_what_was_taken_is_refused(member, tmp_path):
    copy = shutil.copytree(member, tmp_path / "member-0")
    module, service = stored_snapshots(FILES, str(copy))
    recording = Path(module.archive) / f"{service.recording_id}-0.rec"
    recording.write_bytes(recording.read_bytes()[:32])

    with pytest.raises(LogDamaged):
        service.open()
    assert list(module.open())


@pytest.mark.parametrize("records", [0, 1, 3])
def test_a_module_s_snapshot_that_is_shorter_than_what_was_taken_is_passed_over_for_the_one_before(
    tmp_path, records
):
    """As a power cut at level 0 leaves it: cut between two records, or empty."""
    cluster = SimulatedCluster(OrderBook)
    cluster.connect("alice").offer(b"buy 1 1 3 7")
    cluster.run(1)
    cluster.take_snapshot()
    cluster.take_snapshot()
    copy = f"{write_out(cluster, tmp_path)}/member-0"
    first, last = (one for one in stored_snapshots(FILES, copy) if one.service_id == -1)
    image = last.open()
    for _ in range(records):
        image.next_message()
    catalog = CatalogFile.open(FILES, last.archive, write=True)
    catalog.stop(last.recording_id, image.position)
    catalog.close()

    with pytest.raises(LogDamaged, match="its end is missing"):
        last.open()
    with closing(DirectoryLog(copy)) as log:
        position, found = log.module_snapshot()
    assert (position, list(found)) == (first.log_position, list(first.open()))

    if records == 0:  # and its file was never written
        (Path(last.archive) / f"{last.recording_id}-0.rec").unlink()
        with pytest.raises(LogDamaged, match="its end is missing"):
            last.open()


def test_a_recording_that_is_shorter_than_its_snapshot_was_is_damaged_before_it_is_read():
    recording = SimpleNamespace(recording_id=3, append_position=960, checksum_of_frames=lambda length: 5)
    _check_frames(recording, 960, 5, "archive")
    for length, checksum in ((992, 5), (960, 6)):
        with pytest.raises(LogDamaged, match="recording 3 of archive is not the snapshot that was taken"):
            _check_frames(recording, length, checksum, "archive")
