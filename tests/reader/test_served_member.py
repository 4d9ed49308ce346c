"""A member's log as it is served: what is said where there is none yet."""

import pytest

from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.counters import CountersFile
from cluster.errors import NotAClusterDirectory
from cluster.protocol.counter_types import CounterTypeId, bits_of, counter_key, part_label
from cluster.reader.served_member import ServedMember
from cluster.reader.standing import LINK_COUNTERS, said_of_itself
from cluster.transport.clock import epoch_ms
from tests.archive.logs import a_log
from tests.archive.members import live_counters, write_member


@pytest.mark.parametrize(
    ("awaited", "said"),
    [([0, 1], "is in it; waits for members 0, 1"), ([], "is in it")],
    ids=["waits", "not"],
)
def test_a_member_without_a_log_says_whom_it_waits_for(tmp_path, awaited, said):
    for folder in ("cluster", "archive", "driver"):
        (tmp_path / folder).mkdir()
    Archive.open(str(tmp_path / "archive"), epoch_ms=epoch_ms).close()
    RecordingLog.open(str(tmp_path / "cluster"), files=OsFiles(), file_sync_level=0).close()
    counters = CountersFile.create(str(tmp_path / "driver" / "cnc.dat"), pid=1, now_ms=epoch_ms())
    counters.allocate_cluster_counter(CounterTypeId.AWAITED_MEMBERS, 0, bits_of(awaited))
    try:
        with pytest.raises(NotAClusterDirectory, match=f"{said}(?m:$)"):
            ServedMember(
                cluster_dir=str(tmp_path / "cluster"),
                archive_dir=str(tmp_path / "archive"),
                aeron_dir=str(tmp_path / "driver"),
                cluster_id=0,
                member_id=2,
            )
    finally:
        counters.close()


def test_a_member_says_of_itself_what_its_files_its_counters_and_its_disk_have(tmp_path):
    write_member(tmp_path, a_log(50), is_clean=False)
    with live_counters(tmp_path) as counters:
        counters.allocate_cluster_counter(CounterTypeId.CLOCK_OFFSET, 0, -7_000_000)
        for type_id, value in zip(LINK_COUNTERS, (1, 300, 2), strict=True):
            counters.allocate(type_id, counter_key(0), part_label(type_id, 0, "peer=2"), value)
        served = ServedMember(
            cluster_dir=str(tmp_path / "cluster"),
            archive_dir=str(tmp_path / "archive"),
            aeron_dir=str(tmp_path / "driver"),
            cluster_id=0,
            member_id=0,
        )
        said = said_of_itself(served.status(0).standing)
        served.close()
    assert (said["clockOffsetMs"], said["errors"]) == (-7, 0)
    [link] = said["links"]
    assert link == {
        "peer": 2, "isUp": True, "isConnecting": False, "queuedBytes": 300, "refusedCertificate": "ours"
    }  # fmt: skip
    assert said["diskTotal"] > said["diskFree"] > 0
    assert said["logBytes"] == said["replayBytes"] <= a_log(50).position
