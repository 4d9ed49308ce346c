"""The ``cluster`` format: what Spark makes of a name and options.

Spark makes one of these objects for each ``load()`` and ``start()``, and again for every micro-batch
of a sink. So making one costs nothing and touches nothing outside; it only refuses wrong options.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from cluster.errors import ConfigurationError
from spark_connector.options import SinkOptions, SourceOptions, check_names
from spark_connector.schema import ROW_DDL, check_sink_schema, wanted_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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
        """Every column of the log. Spark asks at ``load()``, when it was given no narrower schema."""
        options = SourceOptions.parse(self.options)
        if options.cluster_dir is not None:
            from cluster.archive.files import OsFiles
            from cluster.reader.member_directory import find_member

            find_member(OsFiles(), options.cluster_dir, options.archive_dir)  # says what it is not
        return ROW_DDL

    def reader(self, schema: StructType) -> ClusterBatchReader:
        from spark_connector.source import ClusterBatchReader

        return ClusterBatchReader(SourceOptions.parse(self.options), wanted_columns(schema))

    def streamReader(self, schema: StructType) -> ClusterStreamReader | RefusedStreamReader:
        from spark_connector.source import ClusterStreamReader, RefusedStreamReader

        try:
            options = SourceOptions.parse(self.options)
            if options.ending_offsets is not None:
                raise ConfigurationError(
                    "option endingOffsets is for a batch; a stream goes on as the log does"
                )
            return ClusterStreamReader(options, wanted_columns(schema))
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
