"""What stands where a member keeps a file, and is none, is refused at once and by name."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from cluster.archive.archive import Archive
from cluster.archive.export_watermark import FILE_NAME, read_export_watermark
from cluster.archive.files import OsFiles, replace
from cluster.archive.mark_files import ClusterMarkFile
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording_log import RecordingLog
from cluster.counters import CountersFile, CountersReader
from cluster.errors import StorageError
from cluster.protocol.enums import ClusterComponentType
from tests.archive.logs import T0, Clock, a_log
from tests.archive.members import write_member


def fifo(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def link_to_a_file(path: Path) -> None:
    path.with_name("elsewhere").write_bytes(b"")
    path.symlink_to(path.with_name("elsewhere"))


def dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD = {
    fifo: "a fifo",
    a_socket: "a socket",
    Path.mkdir: "a directory",
    link_to_a_file: "a symbolic link",
    dangling_link: "a symbolic link",
    link_to_a_device: "a symbolic link",
}
odd = pytest.mark.parametrize(("make", "kind"), ODD.items(), ids=[make.__name__ for make in ODD])


def open_mark_file(directory: str) -> None:
    ClusterMarkFile.create(
        directory, files=OsFiles(), component_type=ClusterComponentType.CONSENSUS_MODULE, now_ms=T0
    )


def open_archive(directory: str) -> None:
    Archive.open(directory, segment_length=65536, epoch_ms=Clock())


OPENERS = {
    "archive.catalog": open_archive,
    "archive-mark.lock": open_archive,
    "recording.log": lambda directory: RecordingLog.open(directory, files=OsFiles()),
    "node-state.dat": lambda directory: NodeStateFile.open(directory, files=OsFiles()),
    "cluster-mark.dat": open_mark_file,
    FILE_NAME: lambda directory: read_export_watermark(OsFiles(), directory),
    "cnc.dat": lambda directory: CountersReader(f"{directory}/cnc.dat"),
}


@odd
@pytest.mark.parametrize("name", OPENERS)
def test_it_is_refused_in_the_place_of_a_file_of_a_member(tmp_path, monkeypatch, name, make, kind):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / name)
    with pytest.raises(StorageError, match=rf"{name}: is {kind}, expected a file"):
        OPENERS[name](str(tmp_path))


def test_a_device_is_refused():
    with pytest.raises(StorageError, match="/dev/zero: is a device, expected a file"):
        OsFiles().open("/dev/zero", write=True)


@odd
def test_it_is_refused_in_the_place_of_a_segment(tmp_path, monkeypatch, make, kind):
    monkeypatch.chdir(tmp_path)
    write_member(tmp_path, a_log(50))
    segment = next(iter(sorted((tmp_path / "archive").glob("0-*.rec"))))
    segment.unlink()
    make(segment)
    archive = Archive.open(str(tmp_path / "archive"), segment_length=65536, epoch_ms=Clock())
    with pytest.raises(StorageError, match=rf"{segment.name}: is {kind}, expected a file"):
        archive.find_damage(0)
    archive.abandon()


@odd
def test_it_is_refused_beside_a_file_that_is_replaced(tmp_path, monkeypatch, make, kind):
    """But for a link, fifo or socket: those are taken away, as what a process left that died."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "note.tmp")
    if kind == "a directory":
        with pytest.raises(StorageError, match="note: writing failed: Is a directory"):
            replace(OsFiles(), str(tmp_path / "note"), b"text")
    else:
        replace(OsFiles(), str(tmp_path / "note"), b"text")
        assert (tmp_path / "note").read_bytes() == b"text"


@odd
def test_a_counters_file_is_not_made_through_it(tmp_path, monkeypatch, make, kind):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "cnc.dat.tmp")
    with pytest.raises(StorageError, match=rf"cnc\.dat\.tmp: is {kind}, expected a file"):
        CountersFile.create(str(tmp_path / "cnc.dat"), pid=1, now_ms=T0)
