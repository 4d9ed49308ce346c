"""The ``cluster`` format: what Spark makes of a name and options.

Spark makes one of these objects for each ``load()`` and ``start()``, and again for every micro-batch
of a sink. So making one costs nothing and touches nothing outside; it only refuses wrong options.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cluster.errors import ConfigurationError, NotAClusterDirectory
from spark_connector.columns import given_columns, struct_type
from spark_connector.decoding.decoded import DECODED
from spark_connector.decoding.decoders import decoded_type, decoder_of
from spark_connector.log import warn
from spark_connector.many_clusters.cluster_names import (
    CLUSTER_NAME,
    CLUSTER_NAME_TYPE,
    named_clusters,
    named_option,
    named_sinks,
    row_names,
)
from spark_connector.options.cluster_options import (
    AT_LEAST_ONCE,
    SinkOptions,
    SourceOptions,
    check_is_no_table,
    check_names,
)
from spark_connector.options.remarks import remarks, remarks_of_batch_write
from spark_connector.replay.replay_columns import STREAM_COLUMNS
from spark_connector.schema import check_sink_schema, ddl, wanted_columns

if TYPE_CHECKING:
    from spark_connector.many_clusters.routing import Routing
    from spark_connector.many_clusters.sinks import ManyBatchWriter, ManyStreamWriter
    from spark_connector.many_clusters.sources import ManyBatchReader, ManyStreamReader
    from spark_connector.sink.writers import ClusterBatchWriter, ClusterStreamWriter
    from spark_connector.source.decoded_column import DecodedColumn
    from spark_connector.source.readers import ClusterBatchReader, ClusterStreamReader, RefusedStreamReader


class ClusterDataSource(DataSource):
    """``spark.readStream.format("cluster")`` and ``df.writeStream.format("cluster")``."""

    @classmethod
    def name(cls) -> str:
        return "cluster"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names([name for name in options if named_option(name) is None])

    def schema(self) -> str | StructType:
        """The columns by option. Spark asks at ``load()``, when it was given no narrower schema."""
        clusters, parsed = self._parsed()
        for options in parsed:
            if options.cluster_dirs is not None:
                _check_directories(options.cluster_dirs, options.archive_dirs)
        if options.service is not None:
            if clusters:
                raise ConfigurationError(
                    "option service is given, and several clusters: a service has one log"
                )
            return struct_type(STREAM_COLUMNS)
        decoded = "" if options.decode is None else decoded_type(options.decode)
        if clusters:
            return ddl(row_names(self.options, options), decoded, {CLUSTER_NAME: CLUSTER_NAME_TYPE})
        return ddl(options.row_names(), decoded)

    def _parsed(self) -> tuple[dict[str, SourceOptions], list[SourceOptions]]:
        """The options of each cluster that has a name, and of all that are read."""
        clusters = named_clusters(self.options)
        return clusters, list(clusters.values()) or [SourceOptions.parse(self.options)]

    def reader(self, schema: StructType) -> ClusterBatchReader | ManyBatchReader:
        from spark_connector.source.readers import ClusterBatchReader, FilteringBatchReader

        check_is_no_table(self.options)
        clusters, parsed = self._parsed()
        for line in remarks(self.options, parsed, is_stream=False):
            warn(line)
        if clusters:
            return _many_batch_reader(clusters, schema)
        (options,) = parsed
        if options.service is not None:
            raise ConfigurationError(
                f"option service is {options.service}, which is for a stream; format cluster-replay gives a "
                "service the log as a batch"
            )
        kind = FilteringBatchReader if options.push_filters else ClusterBatchReader
        return kind(options, _columns(options, schema), _decoded_column(options, schema))

    def streamReader(
        self, schema: StructType
    ) -> ClusterStreamReader | ManyStreamReader | RefusedStreamReader:
        from spark_connector.source.readers import RefusedStreamReader

        try:
            clusters, parsed = self._parsed()
            lines = tuple(remarks(self.options, parsed, is_stream=True))
            if clusters:
                return _many_stream_reader(clusters, schema, lines)
            reader = _stream_reader(parsed[0], schema)
            reader.remarks = lines
            return reader
        except ConfigurationError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> ClusterBatchWriter | ManyBatchWriter:
        from spark_connector.many_clusters.sinks import ManyBatchWriter
        from spark_connector.sink.writers import ClusterBatchWriter

        check_is_no_table(self.options)
        sinks, routing = self._sinks(schema, overwrite)
        writers = {name: ClusterBatchWriter(options) for name, options in sinks.items()}
        first, *_ = writers.values()
        made = first if routing is None else ManyBatchWriter(writers, routing)
        for line in remarks_of_batch_write(self.options, first.options):
            warn(line, "sink")
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> ClusterStreamWriter | ManyStreamWriter:
        from spark_connector.many_clusters.sinks import ManyStreamWriter
        from spark_connector.sink.writers import ClusterStreamWriter

        sinks, routing = self._sinks(schema, overwrite)
        for options in sinks.values():
            _check_progress(self.options, options)
        writers = {name: ClusterStreamWriter(options) for name, options in sinks.items()}
        return writers[""] if routing is None else ManyStreamWriter(writers, routing)

    def _sinks(self, schema: StructType, overwrite: bool) -> tuple[dict[str, SinkOptions], Routing | None]:
        """The options of each cluster by its name, empty for one alone; where rows go among several."""
        if overwrite:
            raise ConfigurationError(
                "the log cannot be overwritten: write with mode append, stream with output mode append"
            )
        if sinks := named_sinks(self.options):
            return sinks, _routing(sinks, schema)
        check_sink_schema(schema)
        return {"": SinkOptions.parse(self.options)}, None


def _check_progress(given: Mapping[str, str], parsed: SinkOptions) -> None:
    """Raise ConfigurationError where Spark may give a micro-batch other rows when it runs again: those of one
    that is registered are not sent.
    """
    is_asynchronous = any(
        name.lower() == "asyncprogresstrackingenabled" and value.strip().lower() == "true"
        for name, value in given.items()
    )
    if is_asynchronous and parsed.delivery_mode != AT_LEAST_ONCE:
        raise ConfigurationError(
            "option asyncProgressTrackingEnabled is true, so that a micro-batch may have other rows when it "
            "runs again; expected deliveryMode at-least-once beside it"
        )


def _routing(sinks: dict[str, SinkOptions], schema: StructType) -> Routing:
    """Checks that the rows have ``payload``, and else only what they are routed by."""
    from spark_connector.many_clusters.routing import Routing

    route_by = next(iter(sinks.values())).route_by or ()
    routing = Routing(list(sinks), route_by, schema)
    keys = {name.lower() for name in route_by} - {"payload"}
    check_sink_schema(StructType([field for field in schema.fields if field.name.lower() not in keys]))
    return routing


def _stream_reader(options: SourceOptions, schema: StructType) -> ClusterStreamReader:
    from spark_connector.replay.replayed_stream import ServiceStreamReader
    from spark_connector.source.readers import ClusterStreamReader

    if (end := options.end()) is not None:
        raise ConfigurationError(f"option {end.option} is for a batch; a stream goes on as the log does")
    if options.service is not None:
        return ServiceStreamReader(options, given_columns(schema, STREAM_COLUMNS))
    return ClusterStreamReader(options, _columns(options, schema), _decoded_column(options, schema))


def _many_stream_reader(
    clusters: dict[str, SourceOptions], schema: StructType, lines: tuple[str, ...]
) -> ManyStreamReader:
    """``lines`` are logged by the first of its readers, for all of them."""
    from spark_connector.many_clusters.sources import ManyStreamReader

    of_the_log = _schema_of_the_log(schema)
    readers = {name: _stream_reader(options, of_the_log) for name, options in clusters.items()}
    next(iter(readers.values())).remarks = lines
    fails = any(options.fail_on_data_loss for options in clusters.values())
    return ManyStreamReader(readers, schema.fieldNames(), fail_on_data_loss=fails)


def _many_batch_reader(clusters: dict[str, SourceOptions], schema: StructType) -> ManyBatchReader:
    from spark_connector.many_clusters.sources import FilteringManyBatchReader, ManyBatchReader
    from spark_connector.source.readers import ClusterBatchReader

    of_the_log = _schema_of_the_log(schema)
    readers = {
        name: ClusterBatchReader(options, _columns(options, of_the_log), _decoded_column(options, of_the_log))
        for name, options in clusters.items()
    }
    is_filtering = any(options.push_filters for options in clusters.values())
    return (FilteringManyBatchReader if is_filtering else ManyBatchReader)(readers, schema.fieldNames())


def _schema_of_the_log(schema: StructType) -> StructType:
    """A schema without ``clusterName``, never empty. Raises ConfigurationError for its type."""
    fields = []
    for field in schema.fields:
        if field.name.lower() != CLUSTER_NAME.lower():
            fields.append(field)
        elif not isinstance(field.dataType, StringType) or not field.nullable:
            given = field.dataType.simpleString().upper()
            raise ConfigurationError(f"column {field.name} is STRING and nullable, the schema says {given}")
    return StructType(fields or [StructField("position", LongType())])


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
    from spark_connector.source.decoded_column import DecodedColumn

    decode = decoder_of(options.decode, field.dataType)
    return DecodedColumn(options.decode.format, options.decode_mode, decode)
