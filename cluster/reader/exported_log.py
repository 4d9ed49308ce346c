"""A part of a log as Parquet files in one folder, on this host or elsewhere, which outlive what members keep.

    00000000000000000000-00000000000000139424.parquet    named by its range of positions, the end excluded
    00000000000000139424-00000000000001048576.parquet    begins where the one before it ends

A file has the entries of its range as rows of ``ROW_SCHEMA``, all of them committed. Key ``cluster.log`` of
its metadata is a JSON object: ``cluster`` is the identity of the log, ``begin`` and ``end`` are the range
again, ``term`` is the leadership term of its last entry, and ``termLength`` and ``timeUnit`` are those of the
log. A file appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.errors import ConfigurationError, DataLoss, LogDamaged, LogPurged, StorageError
from cluster.protocol.token import identity_text, is_one_log, other_history
from cluster.reader.arguments import Selection
from cluster.reader.file_systems import file_system_of, masked, written_aside
from cluster.reader.log_reader import LogReader

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import dataset
    from pyarrow.fs import FileSystem

    from cluster.log.entry_filter import EntryFilter

METADATA_KEY = b"cluster.log"
FILE_BYTES = 1 << 30  # of log in one file, at most: object stores copy no more than 5 GiB at once
ROW_GROUP_BYTES = 16 << 20  # of Arrow; who reads a range reads row groups
ROWS_PER_BATCH = 32768
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")


class ExportedFile(NamedTuple):
    """One file: entries whose first frame lies in ``[begin, end)``."""

    begin: int
    end: int
    path: str


class ExportedLog:
    """The files in ``where``: a folder here, or a URI that pyarrow knows (file, s3, gs, abfs, hdfs)."""

    def __init__(self, where: str) -> None:
        """Raises ConfigurationError for what is no folder, and as ``look``."""
        self.where = masked(where)  # for people
        self._file_system, self._folder = _folder_of(where)
        self.files: Sequence[ExportedFile] = ()
        self.look()

    @property
    def start_position(self) -> int:
        return self.files[0].begin if self.files else 0

    @property
    def end_position(self) -> int:
        """Where the last file ends; where there is none, where it would begin."""
        return self.files[-1].end if self.files else 0

    @property
    def extent(self) -> str:
        """For people."""
        return f"from {self.start_position} to {self.end_position}"

    def look(self) -> None:
        """See which files there are now. Raises DataLoss where they do not join on, StorageError."""
        from pyarrow import fs

        try:
            found = self._file_system.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        except OSError as error:
            raise StorageError(self.where, error.errno, f"listing failed: {error}") from error
        named = ((_NAME.fullmatch(info.base_name), info.path) for info in found if info.is_file)
        files = sorted(ExportedFile(int(name[1]), int(name[2]), path) for name, path in named if name)
        for one, following in pairwise(files):
            if following.begin != one.end:
                what = "a gap" if following.begin > one.end else "an overlap"
                raise DataLoss(
                    f"the exported files in {self.where} do not join on: there is {what} between "
                    f"{one.path}, which ends at position {one.end}, and {following.path}, which begins at "
                    f"{following.begin}"
                )
        self.files = files

    def holds(self, begin: int, end: int) -> bool:
        """Whether all of ``[begin, end)`` is in files."""
        return bool(self.files) and self.start_position <= begin and end <= self.end_position

    def check_log(self, reader: LogReader, cluster: str) -> None:
        """Raise ConfigurationError when the files are not of this log of ``cluster``, or of what it was
        before it was restored to an earlier position. Raises as ``batches``.
        """
        if not self.files:
            return
        about = _described(self._open(self.files[-1]), self.files[-1])
        if not is_one_log(about["cluster"], cluster):
            raise ConfigurationError(
                f"{self.where} has files of the log of cluster {about['cluster']}, "
                f"expected those of {cluster}"
            )
        end = self.end_position
        if why := other_history(about.get("term"), end, reader.term_before(end)):
            raise ConfigurationError(f"{self.where} has files of a log up to {why}; expected another folder")

    def batches(
        self,
        begin: int,
        end: int,
        selection: Selection,
        entry_filter: EntryFilter | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The entries that the files hold, as ``LogReader.batches``. Raises LogDamaged, StorageError."""
        from cluster.log.columns import schema_of

        assert self.holds(begin, end)
        names = schema_of(selection.columns).names
        wanted = _wanted(begin, end, selection.entry_types, entry_filter)
        for file in self.files:
            if file.begin < end and begin < file.end:
                yield from self._rows(file, wanted, names, selection.rows_max or ROWS_PER_BATCH)

    def boundary_at_or_after(self, position: int) -> int:
        """``position``, or the end of the entry that it lies within."""
        import pyarrow.compute as pc

        lies_within = (pc.field("position") < position) & (pc.field("endPosition") > position)
        for file in self.files:
            if file.begin <= position < file.end:
                for batch in self._rows(file, lies_within, ["endPosition"], ROWS_PER_BATCH):
                    return int(batch.column(0)[0].as_py())
        return position

    def _rows(
        self, file: ExportedFile, wanted: pc.Expression, columns: list[str], rows_per_batch: int
    ) -> Iterator[pa.RecordBatch]:
        """The wanted rows, out of the row groups in which they can be."""
        from pyarrow import dataset

        fragment = self._open(file)
        _described(fragment, file)
        options = dataset.ParquetFragmentScanOptions(pre_buffer=False)  # which keeps all that was read
        try:
            for batch in fragment.to_batches(
                columns=columns,
                filter=wanted,
                batch_size=rows_per_batch,
                batch_readahead=1,
                fragment_scan_options=options,
                use_threads=False,
            ):
                if batch.num_rows:
                    yield batch
        except OSError as error:
            raise StorageError(file.path, error.errno, f"reading failed: {error}") from error

    def _open(self, file: ExportedFile) -> dataset.ParquetFileFragment:
        import pyarrow as pa
        from pyarrow import dataset

        try:
            fragment = dataset.ParquetFileFormat().make_fragment(file.path, self._file_system)
            fragment.ensure_complete_metadata()
            return fragment
        except pa.ArrowInvalid as error:
            raise LogDamaged(file.path, None, f"it is no Parquet file: {error}") from error
        except OSError as error:
            raise StorageError(file.path, error.errno, f"opening failed: {error}") from error

    # ---- writing

    def append(self, reader: LogReader) -> Iterator[ExportedFile]:
        """Write what is committed and in no file, each once it is there.

        Raises ConfigurationError (another log, or another export beside this one), LogPurged, LogDamaged,
        StorageError.
        """
        end, identity = reader.commit_position(), reader.identity
        if identity is None:
            return
        cluster = identity_text(*identity)
        self.check_log(reader, cluster)
        start = reader.start_position
        begin = self.end_position if self.files else start
        if begin < start:
            raise LogPurged(
                f"the files in {self.where} end at position {begin}, and the log of cluster {cluster} is "
                f"purged up to {start}; what lies between cannot be exported",
                start,
            )
        while begin < end:
            until = end
            if end - begin > FILE_BYTES:
                until = reader.boundary_at_or_after(begin + FILE_BYTES, known=begin, is_committed=True)
            file = self._write(reader, cluster, begin, until)
            self.files = [*self.files, file]
            yield file
            begin = until

    def _write(self, reader: LogReader, cluster: str, begin: int, end: int) -> ExportedFile:
        """Write aside, then rename. Raises as ``append``, and ConfigurationError where others write, too."""
        path = f"{self._folder}/{begin:020}-{end:020}.parquet"
        about = {
            "cluster": cluster,
            "begin": begin,
            "end": end,
            "term": reader.term_before(end),
            "termLength": reader.term_length,
            "timeUnit": reader.time_unit.name,
        }
        try:
            self._file_system.create_dir(self._folder, recursive=True)
            with written_aside(self._file_system, path, is_sibling=_NAME.fullmatch) as aside:
                with self._file_system.open_output_stream(aside) as out:
                    _write_rows(out, about, reader.batches(begin, end, is_committed=True))
                self._sync(aside)
                self.look()
                if self.files and self.end_position != begin:
                    raise ConfigurationError(
                        f"{self.where} has files up to position {self.end_position} now, and had them up to "
                        f"{begin}: another export writes there; expected one at a time"
                    )
            self._sync(self._folder)
        except OSError as error:
            raise StorageError(path, error.errno, f"writing failed: {error}") from error
        return ExportedFile(begin, end, path)

    def _sync(self, path: str) -> None:
        """To disk, where that is not what closing a file means: members may purge what is exported."""
        if self._file_system.type_name == "local":
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _wanted(
    begin: int, end: int, types: tuple[str, ...] | None, entry_filter: EntryFilter | None
) -> pc.Expression:
    """Which rows of a file are wanted: those of a range, and those that a filter leaves."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = (pc.field("position") >= begin) & (pc.field("position") < end)
    if entry_filter is not None:
        types = tuple(name for name in entry_filter.rows if types is None or name in types)
        if entry_filter.sessions:
            wanted &= pc.field("clusterSessionId").isin(entry_filter.sessions)
        if entry_filter.template_ids:
            ids = [template_id.to_bytes(2, "little") for template_id in entry_filter.template_ids]
            wanted &= pc.binary_slice(pc.field("payload"), 2, 4).isin(ids)
    return wanted if types is None else wanted & pc.field("entryType").isin(pa.array(types, pa.string()))


def _folder_of(where: str) -> tuple[FileSystem, str]:
    from pyarrow import fs

    file_system, folder = file_system_of(where)
    try:
        info = file_system.get_file_info(folder)
    except OSError as error:
        raise ConfigurationError(f"{masked(where)} cannot be opened: {error}") from error
    if info.type == fs.FileType.File:
        raise ConfigurationError(f"{masked(where)} is a file; expected a folder")
    return file_system, folder


def _described(parquet: dataset.ParquetFileFragment, file: ExportedFile) -> dict[str, Any]:
    """What a file says about itself. Raises LogDamaged when that is not what its name says."""
    text = (parquet.physical_schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise LogDamaged(file.path, None, "it is no part of an exported log: key cluster.log is missing")
    about: dict[str, Any] = json.loads(text)
    if (about["begin"], about["end"]) != (file.begin, file.end):
        raise LogDamaged(file.path, None, f"it has the log from {about['begin']} to {about['end']}")
    return about


def _write_rows(out: Any, about: dict[str, Any], batches: Iterator[pa.RecordBatch]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cluster.log.columns import ROW_SCHEMA

    schema = ROW_SCHEMA.with_metadata({METADATA_KEY: json.dumps(about).encode()})
    with pq.ParquetWriter(out, schema) as writer:
        group: list[pa.RecordBatch] = []
        for batch in batches:
            group.append(batch)
            if sum(one.nbytes for one in group) >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group).cast(schema))
                group = []
        if group:
            writer.write_table(pa.Table.from_batches(group).cast(schema))
