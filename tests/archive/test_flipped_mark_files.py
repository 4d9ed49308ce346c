"""A bit of a mark file, or of its lock, has flipped since its member ended: the next start owns it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.archive.archive import Archive
from cluster.archive.directory_lock import read_mark_header
from cluster.archive.files import OsFiles
from cluster.archive.mark_files import ClusterMarkFile
from cluster.archive.recording_log import RecordingLog
from cluster.errors import ConfigurationError
from cluster.protocol.enums import ClusterComponentType
from cluster.protocol.mark_file import OWNER_SEAL_OFFSET, ClusterMarkFileHeader, field_offset
from tests.archive.logs import T0, Clock, append_term

OWNER = 3, 2  # cluster, member
MODULE, SERVICE = ClusterComponentType.CONSENSUS_MODULE, ClusterComponentType.CONTAINER


def a_mark_file(
    directory: Path, kind: ClusterComponentType, owner: tuple[int, int] = OWNER
) -> ClusterMarkFile:
    cluster_id, member_id = owner
    return ClusterMarkFile.create(
        str(directory), files=OsFiles(), component_type=kind, now_ms=T0, cluster_id=cluster_id,
        member_id=member_id, service_id=0 if kind is SERVICE else -1, aeron_directory="a folder",
    )  # fmt: skip


def a_directory(directory: Path, *, is_killed: bool) -> None:
    """Of a member that has had a term, so that its log must not become another's."""
    marks = [a_mark_file(directory, kind) for kind in (MODULE, SERVICE)]
    recording_log = RecordingLog.open(str(directory), files=OsFiles())
    append_term(recording_log, 0, 0, 0, T0)
    recording_log.close()
    for mark in marks:
        mark.abandon() if is_killed else mark.close()


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        [byte] = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


FIELDS = {name: field_offset(ClusterMarkFileHeader, name) for name in ("member_id", "cluster_id")}


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("name", FIELDS)
def test_whose_a_log_is_cannot_flip(tmp_path, name, is_killed):
    a_directory(tmp_path, is_killed=is_killed)
    path = tmp_path / "cluster-mark.dat"
    for bit in (0, 9, 31):
        flip(path, 8 * FIELDS[name] + bit)
        mark = a_mark_file(tmp_path, MODULE)
        header = read_mark_header(OsFiles(), str(path))
        assert (header.cluster_id, header.member_id) == OWNER
        [error] = mark.errors()
        assert error.text.startswith(f"{path} at offset 64: member ")
        assert error.text.endswith("rewritten")
        mark.abandon() if is_killed else mark.close()


def test_no_other_bit_keeps_the_owner_away(tmp_path):
    """After an orderly end: of a process that was killed, another pid is believed for ten seconds."""
    a_directory(tmp_path, is_killed=False)
    for bit in range(0, 8 * 176, 61):
        flip(tmp_path / "cluster-mark.dat", bit)
        a_mark_file(tmp_path, MODULE).close()


def test_a_log_of_another_member_is_still_refused_and_free_for_its_owner_afterwards(tmp_path):
    a_directory(tmp_path, is_killed=False)
    for owner in [(3, 1), (4, 2)]:
        with pytest.raises(ConfigurationError, match="holds the log of member 2 of cluster 3") as refused:
            a_mark_file(tmp_path, MODULE, owner)
        a_mark_file(tmp_path, MODULE).close()
        del refused  # which had the frames that held the lock


def test_a_mark_file_of_aeron_has_no_checksum_of_its_owner_and_is_believed(tmp_path):
    a_directory(tmp_path, is_killed=False)
    path = tmp_path / "cluster-mark.dat"
    data = bytearray(path.read_bytes())
    data[OWNER_SEAL_OFFSET : OWNER_SEAL_OFFSET + 8] = bytes(8)
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match="holds the log of member 2 of cluster 3"):
        a_mark_file(tmp_path, MODULE, (3, 1))
    mark = a_mark_file(tmp_path, MODULE)
    assert mark.errors() == []
    mark.close()


@pytest.mark.parametrize("name", ["cluster-mark-service-0.dat", "cluster-mark-service-0.lock"])
def test_a_service_finds_its_part_of_the_directory_free(tmp_path, name):
    a_directory(tmp_path, is_killed=False)
    for bit in range(0, 8 * 30, 41):
        flip(tmp_path / name, bit)
        a_mark_file(tmp_path, SERVICE).close()


@pytest.mark.parametrize("name", ["archive-mark.dat", "archive-mark.lock"])
def test_an_archive_finds_its_directory_free(tmp_path, name):
    def life() -> None:
        archive = Archive.open(str(tmp_path), epoch_ms=Clock())
        archive.create_mark_file(aeron_directory="a folder").close()
        archive.close()

    life()
    for bit in range(0, 8 * 30, 41):
        flip(tmp_path / name, bit)
        life()
