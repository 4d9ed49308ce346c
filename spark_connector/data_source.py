"""The ``cluster`` format: what Spark makes of a name and options.

Spark makes one of these objects for each ``load()`` and ``start()``, and again for every micro-batch
of a sink. So making one costs nothing and touches nothing outside; it only refuses wrong options.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from cluster.errors import ConfigurationError, NotAClusterDirectory
from spark_connector.decoded import DECODED
from spark_connector.decoding import decoded_type, decoder_of
from spark_connector.options import SinkOptions, SourceOptions, check_names
from spark_connector.schema import check_sink_schema, ddl, wanted_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_connector.decoded_column import DecodedColumn
    from spark_connector.sink import ClusterBatchWriter, ClusterStreamWriter
    from spark_connector.source import ClusterBatchReader, ClusterStreamReader, RefusedStreamReader


class ClusterDataSource(DataSource):
    """``spark.readStream.format("cluster")`` and ``df.writeStream.format("cluster")``."""

    @classmethod
    def name(cls) -> str:
        return "cluster"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names(options)

    def schema(self) -> str:
        """The columns by option. Spark asks at ``load()``, when it was given no narrower schema."""
        options = SourceOptions.parse(self.options)
        if options.cluster_dirs is not None:
            _check_directories(options.cluster_dirs, options.archive_dirs)
        names = options.row_names()
        return ddl(names, "" if options.decode is None else decoded_type(options.decode))

    def reader(self, schema: StructType) -> ClusterBatchReader:
        from spark_connector.source import ClusterBatchReader, FilteringBatchReader

        options = SourceOptions.parse(self.options)
        kind = FilteringBatchReader if options.push_filters else ClusterBatchReader
        return kind(options, _columns(options, schema), _decoded_column(options, schema))

    def streamReader(self, schema: StructType) -> ClusterStreamReader | RefusedStreamReader:
        from spark_connector.source import ClusterStreamReader, RefusedStreamReader

        try:
            options = SourceOptions.parse(self.options)
            if (end := options.end()) is not None:
                raise ConfigurationError(
                    f"option {end.option} is for a batch; a stream goes on as the log does"
                )
            columns = _columns(options, schema)
            return ClusterStreamReader(options, columns, _decoded_column(options, schema))
        except ConfigurationError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> ClusterBatchWriter:
        from spark_connector.sink import ClusterBatchWriter

        return ClusterBatchWriter(self._sink_options(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> ClusterStreamWriter:
        from spark_connector.sink import ClusterStreamWriter

        return ClusterStreamWriter(self._sink_options(schema, overwrite))

    def _sink_options(self, schema: StructType, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise ConfigurationError(
                "the log cannot be overwritten: write with mode append, stream with output mode append"
            )
        check_sink_schema(schema)
        return SinkOptions.parse(self.options)


def _check_directories(dirs: tuple[str, ...], archive_dirs: tuple[str, ...] | None) -> None:
    """Raise NotAClusterDirectory, which says what is wrong with each, where none is a member's."""
    from cluster.archive.files import OsFiles
    from cluster.reader.member_directory import find_member

    refusals = []
    for place in zip(dirs, archive_dirs or [None] * len(dirs), strict=True):
        try:
            find_member(OsFiles(), *place)
        except NotAClusterDirectory as error:
            refusals.append(str(error))
    if len(refusals) == len(dirs):
        raise NotAClusterDirectory("; ".join(refusals))


def _columns(options: SourceOptions, schema: StructType) -> tuple[str, ...]:
    """The columns of a read; ``schema`` is what the user gave, or what the options made."""
    names = wanted_columns(schema, options.has_frame_header, options.decode is not None)
    if options.columns is not None and names != options.columns:
        raise ConfigurationError(
            f"option columns is {','.join(options.columns)}, the schema has {','.join(names)}: give one"
        )
    return names


def _decoded_column(options: SourceOptions, schema: StructType) -> DecodedColumn | None:
    """How column ``decoded`` of the schema is made; None where the schema has none."""
    field = next((field for field in schema.fields if field.name.lower() == DECODED), None)
    if options.decode is None or field is None:
        return None
    from spark_connector.decoded_column import DecodedColumn

    decode = decoder_of(options.decode, field.dataType)
    return DecodedColumn(options.decode.format, options.decode_mode, decode)
