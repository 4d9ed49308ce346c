"""The options of the ``cluster`` format: what may be given, what it means, and what is refused.

Pure: nothing here touches a file, a socket or Spark. Options come as strings; Spark hands their
names lower-cased, so names compare without case. A wrong option fails when the source or sink is
made, before a query starts, with the option's name, its value and what was expected.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster.errors import ConfigurationError
from cluster.protocol.consumer import Consumer
from cluster.protocol.lane import REGISTRATION, Lane
from cluster.protocol.token import parse_token
from cluster.transport.preference import ReadPreference, parse_preference
from spark_connector.decoding.decoded import DECODED
from spark_connector.decoding.decoders import DECODE_MODES, PERMISSIVE, Decoding, parse_decode
from spark_connector.options.aeron_options import AeronOptions, AeronSourceOptions
from spark_connector.options.connection_options import option_field, unknown_option
from spark_connector.options.places import (
    GROUP,
    Instant,
    NamedPlace,
    Place,
    parse_end,
    parse_instant,
    parse_offsets,
)
from spark_connector.options.replay_options import (
    NOT_OF_SERVICES,
    STREAM_KINDS,
    parse_service_id,
    parse_stream_kinds,
)
from spark_connector.planning import PlanLimits
from spark_connector.schema import FRAME_COLUMNS, ROW_COLUMNS, check_columns
from spark_connector.values import (
    checked_by,
    one_of,
    parse_count,
    parse_directories,
    parse_duration,
    parse_flag,
    parse_milliseconds,
    parse_names,
    parse_session_ids,
    parse_size,
    parse_template_ids,
    parse_text,
    parse_version,
    some_of,
    wrong_value,
)

ENTRY_TYPES = (
    "SESSION_MESSAGE",
    "SESSION_OPEN",
    "SESSION_CLOSE",
    "TIMER",
    "CLUSTER_ACTION",
    "NEW_LEADERSHIP_TERM",
)

# What becomes of a startingTimestamp after the log's last entry.
ERROR, LATEST_STRATEGY = "error", "latest"
EXACTLY_ONCE, AT_LEAST_ONCE = DELIVERY_MODES = ("exactly-once", "at-least-once")

# What Spark itself puts among the options of a sink, or reads from them.
SPARK_SINK_OPTIONS = frozenset(
    {
        "checkpointlocation",
        "queryname",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
        "_asyncprogresstrackingoverridesinksupportcheck",
    }
)
# What Spark adds to the options of a view that was created with USING cluster.
SPARK_SOURCE_OPTIONS = frozenset({"serialization.format"})

# Under which a catalog keeps the options of CREATE TABLE among a table's properties.
TABLE_OPTION_PREFIX = "option."


def parse_group(name: str, value: str) -> str:
    try:
        return Consumer(value if value.strip() else "", 0).group
    except ConfigurationError:
        raise wrong_value(name, value, "a text of 1 to 256 bytes that is not blank") from None


def parse_read_preference(name: str, value: str) -> ReadPreference:
    try:
        return parse_preference(value)
    except ConfigurationError:
        raise wrong_value(name, value, "follower, leader, any or a member's id") from None


@dataclass(frozen=True, slots=True)
class SourceOptions(AeronSourceOptions):
    """The options of a read, as a stream or as a batch. ``None`` stands for an option not given."""

    cluster_dirs: tuple[str, ...] | None = option_field(
        "clusterDir",
        parse_directories,
        "a member's directory on this host, instead of `endpoints`; or a comma list of directories of "
        "members and backups, where each supplies what those before it lack",
    )
    archive_dirs: tuple[str, ...] | None = option_field(
        "archiveDir",
        parse_directories,
        "the archive's directory, if it is not beside the cluster directory; one for each `clusterDir`",
    )
    export_dir: str | None = option_field(
        "exportDir",
        parse_text,
        "folder that `cluster log export --append` writes, on this host or as `s3://…`, `hdfs://…`; supplies "
        "what the cluster has purged",
        repr=False,  # it may have credentials
    )
    read_preference: ReadPreference | None = option_field(  # noqa: RUF009 - a field, as all of these
        "readPreference",
        parse_read_preference,
        "which of `endpoints` or `consensusEndpoints` to ask first: a `follower`, the `leader`, `any` "
        "member, or a member's id; if it fails, the others are asked",
        shown="`follower`",
    )
    request_timeout_ms: int | None = option_field(
        "requestTimeoutMs",
        parse_milliseconds,
        "how long a member or an archive may take to answer before another one is asked",
        shown="5000",
    )
    starting_offsets: Place | None = option_field(  # noqa: RUF009 - a field, as all of these
        "startingOffsets",
        parse_offsets,
        'where a read begins: `earliest`, `latest`, `group`, `{"position": n}`, `{"term": n}` or an offset; '
        "a stream with a checkpoint ignores it",
        shown="`latest` for a stream, `earliest` for a batch",
    )
    starting_timestamp: Instant | None = option_field(  # noqa: RUF009 - a field, as all of these
        "startingTimestamp",
        parse_instant,
        "begin with the first entry of this time or later, in place of `startingOffsets`: milliseconds "
        "since 1970, or a time such as `2026-11-22T09:30:00Z`",
    )
    starting_strategy: str = option_field(
        "startingOffsetsByTimestampStrategy",
        one_of(ERROR, LATEST_STRATEGY),
        "if the log has no entry of `startingTimestamp` or later: `error`, or begin at `latest`",
        ERROR,
        "`error`",
    )
    ending_offsets: Place | None = option_field(  # noqa: RUF009 - a field, as all of these
        "endingOffsets",
        parse_end,
        'where a batch read ends, exclusive: `latest`, `{"position": n}`, `{"term": n}` or an offset; a '
        "stream has no end",
        shown="`latest`",
    )
    ending_timestamp: Instant | None = option_field(  # noqa: RUF009 - a field, as all of these
        "endingTimestamp",
        parse_instant,
        "end a batch read before the first entry of this time or later, in place of `endingOffsets`",
    )
    at_least: str | None = option_field(
        "atLeast",
        checked_by(parse_token),
        "a client's position token: wait up to 20 s until the log is committed that far",
    )
    consumer_group: str | None = option_field(
        "consumerGroup",
        parse_group,
        "report the stream's progress to the cluster under this name: members keep what the group has "
        "not read",
    )
    fail_on_data_loss: bool = option_field(
        "failOnDataLoss",
        parse_flag,
        "fail if the log to be read is purged; with `false` continue where the log begins, and print the "
        "range that is lost",
        True,
    )
    max_entries_per_trigger: int | None = option_field(
        "maxEntriesPerTrigger", parse_count, "maximum number of entries in a micro-batch"
    )
    max_bytes_per_trigger: int = option_field(
        "maxBytesPerTrigger",
        parse_size,
        "maximum bytes of log in a micro-batch, which always has at least one entry",
        256 << 20,
        "`256m`",
    )
    min_entries_per_trigger: int | None = option_field(
        "minEntriesPerTrigger",
        parse_count,
        "minimum number of entries that a micro-batch waits for, at most for `maxTriggerDelay`",
    )
    max_trigger_delay_ms: int = option_field(
        "maxTriggerDelay",
        parse_duration,
        "with `minEntriesPerTrigger`: longest time since the last micro-batch, as `500ms`, `30s`, `15m`, "
        "`2h`; a number alone is in milliseconds",
        15 * 60_000,
        "`15m`",
    )
    min_partitions: int = option_field(
        "minPartitions", parse_count, "minimum number of tasks in a micro-batch or a batch read", 1
    )
    max_bytes_per_partition: int = option_field(
        "maxBytesPerPartition", parse_size, "target size of a task, in bytes of log", 64 << 20, "`64m`"
    )
    max_partitions: int = option_field(
        "maxPartitions", parse_count, "maximum number of tasks, whatever their size", 200
    )
    entry_types: tuple[str, ...] = option_field(
        "entryTypes",
        some_of(*ENTRY_TYPES),
        "comma list of the entry types to read: " + ", ".join(f"`{name}`" for name in ENTRY_TYPES),
        ENTRY_TYPES,
        "all",
    )
    columns: tuple[str, ...] | None = option_field(
        "columns",
        parse_names,
        "comma list of the columns to read, in this order; others are not decoded",
        shown="all",
    )
    has_frame_header: bool = option_field(
        "includeFrameHeader",
        parse_flag,
        "add columns with the header of each entry's first frame",
        False,
    )
    decode: Decoding | None = option_field(  # noqa: RUF009 - a field, as all of these
        "decode",
        parse_decode,
        "add the column `decoded`, computed from the payload: `json:COLUMNS`, `arrow:COLUMNS`, `dtype:DTYPE` "
        "or `sbe:FILE`",
    )
    decode_mode: str = option_field(
        "decodeMode",
        one_of(*DECODE_MODES),
        "if a payload cannot be decoded: `PERMISSIVE` sets `decoded` to null, `FAILFAST` fails the task",
        PERMISSIVE,
        "`PERMISSIVE`",
    )
    sessions: tuple[int, ...] = option_field(
        "sessions",
        parse_session_ids,
        "comma list of the cluster session ids to read: their messages, opens and closes",
        (),
        "all",
    )
    template_ids: tuple[int, ...] = option_field(
        "templateIds",
        parse_template_ids,
        "comma list of SBE template ids: read the messages whose payload begins with such a header",
        (),
        "all",
    )
    push_filters: bool = option_field(
        "pushFilters",
        parse_flag,
        "apply the query's filters on `position`, `timestamp`, `entryType` and `clusterSessionId` before a "
        "batch reads the log; needs `spark.sql.python.filterPushdown.enabled`",
        False,
    )
    read_uncommitted: bool = option_field(
        "readUncommitted",
        parse_flag,
        "in a stream over the directory of a crashed member, read to the recording's end, "
        "past what is known to be committed",
        False,
    )
    rows_per_batch: int = option_field(
        "rowsPerBatch", parse_count, "maximum number of rows in one Arrow record batch", 32768
    )

    service: str | None = option_field(
        "service",
        parse_text,
        "a service, `module:ClassName`: the rows of the stream are what it sends as it processes the log",
    )
    service_id: int = option_field("serviceId", parse_service_id, "with `service`: its id in the cluster", 0)
    kinds: tuple[str, ...] = option_field(
        "kinds",
        parse_stream_kinds,
        "with `service`: comma list of the kinds of rows to read: "
        + ", ".join(f"`{kind}`" for kind in (*STREAM_KINDS, "STATE")),
        STREAM_KINDS,
        "all but `STATE`",
    )

    SPARK_OPTIONS = SPARK_SOURCE_OPTIONS
    KIND = "source"
    NEEDED = (
        *AeronSourceOptions.NEEDED,
        ("archiveDir", "clusterDir"),
        ("readPreference", "endpoints", "consensusEndpoints"),
        ("requestTimeoutMs", "endpoints", "consensusEndpoints", "aeronArchive"),
        ("consumerGroup", "endpoints"),
        ("serviceId", "service"),
        ("kinds", "service"),
    )

    def row_names(self) -> tuple[str, ...]:
        """The columns of the rows, where no schema is given."""
        if self.columns is not None:
            return self.columns
        names = (*ROW_COLUMNS, *FRAME_COLUMNS) if self.has_frame_header else tuple(ROW_COLUMNS)
        return names if self.decode is None else (*names, DECODED)

    @property
    def plan_limits(self) -> PlanLimits:
        """How a range is cut into tasks."""
        most = self.max_partitions
        if self.is_over_aeron:
            most = min(most, self.aeron_replays_max)
        return PlanLimits(self.max_bytes_per_partition, self.min_partitions, most)

    def start(self, default: Place) -> NamedPlace:
        """Where a read begins. A time goes before an offset, as in Kafka's source."""
        if self.starting_timestamp is not None:
            return NamedPlace("startingTimestamp", self.starting_timestamp)
        return NamedPlace("startingOffsets", self.starting_offsets or default)

    def end(self) -> NamedPlace | None:
        """Where a batch read ends, if an option says so."""
        if self.ending_timestamp is not None:
            return NamedPlace("endingTimestamp", self.ending_timestamp)
        return None if self.ending_offsets is None else NamedPlace("endingOffsets", self.ending_offsets)

    def __post_init__(self) -> None:
        AeronSourceOptions.__post_init__(self)
        self._check_place()
        if self.archive_dirs is not None and len(self.archive_dirs) != len(self.cluster_dirs or ()):
            raise ConfigurationError(
                f"option archiveDir is {','.join(self.archive_dirs)}; expected one for each of clusterDir, "
                f"which is {','.join(self.cluster_dirs or ())}"
            )
        if self.starting_offsets == GROUP and self.consumer_group is None:
            raise ConfigurationError("option startingOffsets is group, and option consumerGroup is not given")
        if self.export_dir is not None and self.has_frame_header:
            raise ConfigurationError(
                "option exportDir is given, and includeFrameHeader: files have no frames"
            )
        if self.export_dir is not None and self.starting_offsets == GROUP:
            raise ConfigurationError(
                "option exportDir is given, and startingOffsets is group, whose log members keep: give one"
            )
        if self.columns is not None:
            try:
                check_columns(self.columns, self.has_frame_header, self.decode is not None)
            except ConfigurationError as error:
                raise ConfigurationError(f"option columns is {','.join(self.columns)}: {error}") from None
        self._check_service()
        _check_order("minPartitions", self.min_partitions, "maxPartitions", self.max_partitions)
        if self.is_over_aeron:
            _check_order("minPartitions", self.min_partitions, "aeronReplaysMax", self.aeron_replays_max)
        least, most = self.min_entries_per_trigger, self.max_entries_per_trigger
        if least is not None and most is not None:
            _check_order("minEntriesPerTrigger", least, "maxEntriesPerTrigger", most)

    def _check_place(self) -> None:
        """Raise ConfigurationError unless one option says where the log is."""
        places = {
            "endpoints": self.endpoints,
            "clusterDir": self.cluster_dirs,
            "consensusEndpoints": self.consensus_endpoints,
            "aeronArchive": self.aeron_archive,
        }
        given = [name for name, value in places.items() if value is not None]
        if len(given) > 1:
            raise ConfigurationError(f"give either option {given[0]} or option {given[1]}; both are given")
        if not given:
            *others, last = places
            raise ConfigurationError(f"give one of the options {', '.join(others)} and {last}; none is given")

    def _check_service(self) -> None:
        """What a service is given is the whole log, in order, in one task."""
        given = self.given
        refused = [name for name in self.names() if name in NOT_OF_SERVICES and name in given]
        if self.service is not None and refused:
            raise ConfigurationError(
                f"option service is given, and {refused[0]}, which is not for it: give one"
            )


def _check_order(least: str, value: int, most: str, bound: int) -> None:
    if value > bound:
        raise ConfigurationError(f"option {least} is {value}, more than {most}, which is {bound}")


@dataclass(frozen=True, slots=True)
class SinkOptions(AeronOptions):
    """The options of a write, as a stream or as a batch."""

    commit_timeout_ms: int = option_field(
        "commitTimeoutMs",
        parse_milliseconds,
        "fail a task if the cluster has committed none of its rows for this long",
        60_000,
    )
    delivery_mode: str | None = option_field(
        "deliveryMode",
        one_of(*DELIVERY_MODES),
        "`exactly-once`: rows that an earlier attempt has in the log are not sent again; or `at-least-once`",
        shown="`exactly-once`; for a batch write without `txnAppId` `at-least-once`",
    )
    check_order: bool = option_field(
        "checkOrder",
        parse_flag,
        "read back rows that are not sent again, and fail if the task's rows differ; needs the right to read",
        True,
    )
    fail_on_unknown_query: bool = option_field(
        "failOnUnknownQuery",
        parse_flag,
        "fail a micro-batch that is not the query's first if the cluster does not know the query",
        True,
    )
    txn_app_id: str | None = option_field(
        "txnAppId",
        parse_text,
        "application that writes the batch: each `txnVersion` of it is in the log once",
    )
    txn_version: int | None = option_field(
        "txnVersion",
        parse_version,
        "number of the batch write, which rises from one write of `txnAppId` to the next",
    )

    route_by: tuple[str, ...] | None = option_field(
        "routeBy", parse_names, "columns whose values choose the cluster, among several named ones, for a row"
    )

    aeron_search_max: int | None = option_field(
        "aeronSearchMax",
        parse_size,
        "with `consensusEndpoints`: bytes at the end of the log in which the first micro-batch of a query "
        "looks for rows of earlier attempts",
        shown="all",
    )

    SPARK_OPTIONS = SPARK_SINK_OPTIONS
    KIND = "sink"
    NEEDED = (*AeronOptions.NEEDED, ("aeronSearchMax", "consensusEndpoints"))

    def __post_init__(self) -> None:
        AeronOptions.__post_init__(self)
        if not self.endpoints and self.consensus_endpoints is None:
            raise ConfigurationError("the sink needs option endpoints or consensusEndpoints; none is given")
        self._check_transaction(self.txn_app_id, self.txn_version)

    def _check_transaction(self, application: str | None, version: int | None) -> None:
        if application is None and version is None:
            return
        if application is None or version is None:
            missing = "txnVersion" if version is None else "txnAppId"
            raise ConfigurationError(f"options txnAppId and txnVersion go together; {missing} is not given")
        if self.delivery_mode == AT_LEAST_ONCE:
            raise ConfigurationError(
                f"option deliveryMode is at-least-once, txnAppId is {application!r}; expected one of them"
            )
        try:
            Lane(application, REGISTRATION, version)
        except ConfigurationError as error:
            raise ConfigurationError(f"option txnAppId is {application!r}: {error}") from None


NO_TABLES = (
    "there are no tables of format cluster: Spark hands a table's options to no Python data source; "
    "CREATE TEMPORARY VIEW name USING cluster OPTIONS (…) can be selected from and inserted into"
)

SourceOptions.ELSEWHERE = {
    **{
        name.lower(): f"option {name} is for a write, and this is a read"
        for name in SinkOptions.names()
        if name not in SourceOptions.names()
    },
    **{
        name: f"option {spelt} is for the query that writes, df.writeStream, and this is a read"
        for name, spelt in (("checkpointlocation", "checkpointLocation"), ("queryname", "queryName"))
    },
}
SinkOptions.ELSEWHERE = {
    name.lower(): f"option {name} is for a read, and this is a write"
    for name in SourceOptions.names()
    if name not in SinkOptions.names()
}


def check_is_no_table(given: Mapping[str, str]) -> None:
    """Raise ConfigurationError where no option is given: of a table in a catalog Spark hands over none."""
    if not given:
        expected = "expected endpoints or, to read, clusterDir"
        raise ConfigurationError(f"no option is given, {expected}; {NO_TABLES}")


def check_names(given: Iterable[str]) -> None:
    """Raise ConfigurationError for a name that neither source nor sink knows, or of a catalog's table."""
    if any(name.lower().startswith(TABLE_OPTION_PREFIX) for name in given):
        raise ConfigurationError(NO_TABLES)
    names = [*SourceOptions.names(), *(n for n in SinkOptions.names() if n not in SourceOptions.names())]
    known = {name.lower() for name in names} | SPARK_SINK_OPTIONS | SPARK_SOURCE_OPTIONS
    for name in given:
        if name.lower() not in known:
            raise unknown_option(name, "source or sink", names)
