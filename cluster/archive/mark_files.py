"""Mark files that we write: the sign of life that Aeron's tools look for, and a log of errors.

A mark file is replaced whole, so that a full disk never leaves half of one (which would keep the next start
from working). The errors of the run before are kept in a text file beside it. Its creation takes
the lock of what it marks. Sources: ClusterMarkFile, ArchiveMarkFile; layout in
cluster/protocol/mark_file.py.
"""

import struct
from contextlib import closing
from datetime import UTC, datetime

from cluster.archive.directory_lock import DirectoryLock, read_mark_header
from cluster.archive.files import File, Files, replace
from cluster.errors import ConfigurationError, LogDamaged, StorageErrors
from cluster.protocol.enums import ClusterComponentType
from cluster.protocol.error_log import ErrorLogEntry, decode_error_log, record_error
from cluster.protocol.mark_file import (
    ACTIVITY_TIMESTAMP_OFFSET,
    ARCHIVE_MARK_FILE_NAME,
    CLUSTER_MARK_FILE_NAME,
    ERROR_BUFFER_LENGTH,
    MARK_FILE_HEADER_LENGTH,
    TERMINATED,
    ArchiveMarkFileHeader,
    ClusterMarkFileHeader,
    MarkFileHeader,
    check_owner,
    mark_file_length,
    seal_mark_file_header,
    service_mark_file_name,
)
from cluster.protocol.recording_log import RECORDING_LOG_FILE_NAME
from cluster.protocol.versions import ARCHIVE_VERSION, MARK_FILE_VERSION

_I64 = struct.Struct("<q")


class MarkFile:
    """A mark file that this process owns, and with it the lock. Times are epoch ms."""

    def __init__(self, files: Files, path: str, header: MarkFileHeader, lock: DirectoryLock | None) -> None:
        self.path = path
        self.header = header
        self._lock = lock
        self._file: File = files.open(path, write=True)

    @classmethod
    def _write(
        cls, files: Files, directory: str, name: str, kind: str, header: MarkFileHeader, now_ms: int
    ) -> str:
        """Put the file in the place of the one of the run before, whose errors are kept; return its path."""
        path = f"{directory}/{name}"
        _keep_errors(files, directory, path, kind, now_ms)
        replace(files, path, seal_mark_file_header(header), length=mark_file_length())
        return path

    def update_activity(self, now_ms: int) -> None:
        """Say that the owner lives: every second, from its duty cycle alone. Raises StorageError."""
        with StorageErrors(self.path, "writing the mark file failed"):
            self._file.pwrite(_I64.pack(now_ms), ACTIVITY_TIMESTAMP_OFFSET)

    def record_error(self, text: str, now_ms: int) -> None:
        """Count an error in the file's log; one that finds no room is dropped."""
        before = self._file.pread(ERROR_BUFFER_LENGTH, MARK_FILE_HEADER_LENGTH)
        after = bytearray(before)
        if not record_error(after, text.encode("ascii", "replace").decode(), now_ms):
            return
        begin = next(i for i, (a, b) in enumerate(zip(before, after)) if a != b)
        end = max(len(before.rstrip(b"\0")), len(after.rstrip(b"\0")))
        # A new entry's length comes last, so that a tool beside us never reads half of it.
        self._file.pwrite(after[begin + 4 : max(end, begin + 4)], MARK_FILE_HEADER_LENGTH + begin + 4)
        self._file.pwrite(after[begin : begin + 4], MARK_FILE_HEADER_LENGTH + begin)

    def record_damage(self, damage: LogDamaged | None, now_ms: int) -> None:
        """Note as an error that the file which stood here could not be read."""
        if damage is not None:
            self.record_error(f"{damage}: rewritten", now_ms)

    def errors(self) -> list[ErrorLogEntry]:
        """The distinct errors of this run."""
        return list(decode_error_log(self._file.pread(ERROR_BUFFER_LENGTH, MARK_FILE_HEADER_LENGTH)))

    def close(self) -> None:
        """Orderly end: terminated, lock given back."""
        self.update_activity(TERMINATED)
        self.abandon()

    def abandon(self) -> None:
        """Let go without a word, as a process that dies does."""
        self._file.close()
        if self._lock is not None:
            self._lock.release()


class ClusterMarkFile(MarkFile):
    """Of a consensus module, a service container or a backup, in a cluster directory."""

    header: ClusterMarkFileHeader

    @classmethod
    def create(
        cls,
        directory: str,
        *,
        files: Files,
        component_type: ClusterComponentType,
        now_ms: int,
        cluster_id: int = 0,
        member_id: int = -1,
        service_id: int = -1,
        aeron_directory: str = "",
        ingress_channel: str = "",
        service_name: str = "",
        services_cluster_dir: str = "",
    ) -> "ClusterMarkFile":
        """Own the directory, or its part of ``service_id``; ``aeron_directory`` holds cnc.dat.

        Raises DirectoryInUse, LogDamaged, ConfigurationError (a log of another member), StorageError.
        """
        is_service = component_type is ClusterComponentType.CONTAINER
        name = service_mark_file_name(service_id) if is_service else CLUSTER_MARK_FILE_NAME
        header = ClusterMarkFileHeader(
            version=MARK_FILE_VERSION,
            component_type=component_type,
            activity_timestamp=now_ms,
            start_timestamp=now_ms,
            pid=files.process_id(),
            candidate_term_id=-1,
            archive_stream_id=10,
            service_stream_id=104,
            consensus_module_stream_id=105,
            ingress_stream_id=-1 if is_service else 101,
            member_id=member_id,
            service_id=service_id,
            header_length=MARK_FILE_HEADER_LENGTH,
            error_buffer_length=ERROR_BUFFER_LENGTH,
            cluster_id=cluster_id,
            aeron_directory=aeron_directory,
            control_channel="aeron:ipc?term-length=128k",
            ingress_channel=ingress_channel,
            service_name=service_name,
            authenticator="",
            services_cluster_dir=services_cluster_dir,
        )
        with StorageErrors(directory, f"writing {name} failed", within=True):
            files.make_directory(directory)
            lock = DirectoryLock.take(files, directory, name, now_ms)
            try:
                damage = _damage(files, f"{directory}/{name}")
                if damage is None and component_type is ClusterComponentType.CONSENSUS_MODULE:
                    _check_owner(files, directory, f"{directory}/{name}", header)
                path = cls._write(files, directory, name, component_type.name, header, now_ms)
                file = cls(files, path, header, lock)
                file.record_damage(damage, now_ms)
                return file
            except BaseException:
                lock.release()
                raise


class ArchiveMarkFile(MarkFile):
    """Of an archive directory, which ``Archive`` itself has locked."""

    header: ArchiveMarkFileHeader

    @classmethod
    def create(
        cls,
        directory: str,
        *,
        files: Files,
        pid: int,
        now_ms: int,
        archive_id: int = -1,
        aeron_directory: str = "",
        control_channel: str = "",
    ) -> "ArchiveMarkFile":
        """Write the file for an archive that is open. Raises StorageError."""
        header = ArchiveMarkFileHeader(
            version=ARCHIVE_VERSION,
            activity_timestamp=now_ms,
            start_timestamp=now_ms,
            pid=pid,
            control_stream_id=10,
            local_control_stream_id=10,
            events_stream_id=30,
            header_length=MARK_FILE_HEADER_LENGTH,
            error_buffer_length=ERROR_BUFFER_LENGTH,
            archive_id=archive_id,
            control_channel=control_channel,
            local_control_channel="aeron:ipc?term-length=64k",
            events_channel="",
            aeron_directory=aeron_directory,
        )
        with StorageErrors(directory, f"writing {ARCHIVE_MARK_FILE_NAME} failed", within=True):
            damage = _damage(files, f"{directory}/{ARCHIVE_MARK_FILE_NAME}")
            path = cls._write(files, directory, ARCHIVE_MARK_FILE_NAME, "archive", header, now_ms)
            file = cls(files, path, header, None)
            file.record_damage(damage, now_ms)
            return file


def error_log_text(entries: list[ErrorLogEntry]) -> str:
    """The errors as Aeron's tools print them: how often, from when to when, what."""
    blocks = []
    for entry in entries:
        times = [
            datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "+0000"
            for ms in (entry.first_observation_timestamp, entry.last_observation_timestamp)
        ]
        blocks.append(
            f"\n{entry.observation_count} observations from {times[0]} to {times[1]} for:\n{entry.text}\n"
        )
    return "".join(blocks)


def _check_owner(files: Files, directory: str, path: str, header: ClusterMarkFileHeader) -> None:
    """Raise ConfigurationError when the log and the votes here are another member's than ``header``'s."""
    log = f"{directory}/{RECORDING_LOG_FILE_NAME}"
    if not files.exists(path) or not files.exists(log):
        return
    with closing(files.open(log)) as file:
        has_log = file.size() > 0
    owner = read_mark_header(files, path)
    assert isinstance(owner, ClusterMarkFileHeader)
    if has_log and owner.component_type == ClusterComponentType.BACKUP:
        raise ConfigurationError(
            f"{directory}: holds a backup of cluster {owner.cluster_id}, expected the log of member "
            f"{header.member_id}: cluster tool restore makes members of a backup, cluster tool promote lets "
            "it be one"
        )
    if has_log and (owner.cluster_id, owner.member_id) != (header.cluster_id, header.member_id):
        raise ConfigurationError(
            f"{directory}: holds the log of member {owner.member_id} of cluster {owner.cluster_id}, expected "
            f"that of member {header.member_id} of cluster {header.cluster_id}, or an empty directory"
        )


def _damage(files: Files, path: str) -> LogDamaged | None:
    """Why the mark file that stands there cannot be read, or its owner not be believed, if so."""
    if not files.exists(path):
        return None
    try:
        header = read_mark_header(files, path)
        if isinstance(header, ClusterMarkFileHeader):
            with closing(files.open(path)) as file:
                check_owner(file.pread(MARK_FILE_HEADER_LENGTH, 0), header)
    except LogDamaged as damage:
        return damage.at(path)
    return None


def _keep_errors(files: Files, directory: str, path: str, kind: str, now_ms: int) -> None:
    """Write the errors of the run before to a dated text file, if there were any."""
    if not files.exists(path):
        return
    with closing(files.open(path)) as file:
        data = file.pread(ERROR_BUFFER_LENGTH, MARK_FILE_HEADER_LENGTH)
    try:
        entries = list(decode_error_log(data))
    except LogDamaged:
        return  # nothing in it can be kept
    if not entries:
        return
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    stamp = now.strftime("%Y-%m-%d-%H-%M-%S-") + f"{now_ms % 1000:03d}+0000"
    kept = f"{directory}/{kind}-{stamp}-error.log"
    if files.exists(kept):
        return
    with closing(files.open(kept, create=True)) as file:
        file.pwrite(error_log_text(entries).encode(), 0)
