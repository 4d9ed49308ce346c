"""The options of the formats ``cluster-snapshot`` and ``cluster-replay``."""

from dataclasses import dataclass

from cluster.errors import ConfigurationError
from spark_connector.options.cluster_options import SPARK_SOURCE_OPTIONS
from spark_connector.options.connection_options import ConnectionOptions, option_field
from spark_connector.options.replay_options import REPLAY_KINDS, parse_kinds, parse_service_id
from spark_connector.values import numbers, parse_flag, parse_milliseconds, parse_text

parse_service_ids = numbers(-1, 9, "service ids from 0 to 9, -1 for the consensus module")


@dataclass(frozen=True, slots=True)
class PlaceOptions(ConnectionOptions):
    """Where snapshots are: at members that run, or in directories. ``None``: the option is not given."""

    cluster_dir: str | None = option_field(
        "clusterDir", parse_text, "a member's directory, or that of all members, instead of `endpoints`"
    )
    archive_dir: str | None = option_field(
        "archiveDir", parse_text, "a member's archive, where it does not lie beside its cluster directory"
    )
    request_timeout_ms: int | None = option_field(
        "requestTimeoutMs",
        parse_milliseconds,
        "how long one of `endpoints` may take to answer",
        shown="5000",
    )

    NEEDED = (
        *ConnectionOptions.NEEDED,
        ("archiveDir", "clusterDir"),
        ("requestTimeoutMs", "endpoints"),
    )

    @property
    def cluster_dirs(self) -> tuple[str, ...] | None:
        """As ``SourceOptions`` has them."""
        return None if self.cluster_dir is None else (self.cluster_dir,)

    @property
    def archive_dirs(self) -> tuple[str, ...] | None:
        """As ``SourceOptions`` has them."""
        return None if self.archive_dir is None else (self.archive_dir,)

    def __post_init__(self) -> None:
        ConnectionOptions.__post_init__(self)
        if (self.endpoints is None) == (self.cluster_dir is None):
            given = "neither is" if self.endpoints is None else "both are"
            raise ConfigurationError(
                f"format cluster-{self.KIND} needs option endpoints or option clusterDir; {given} given"
            )


@dataclass(frozen=True, slots=True)
class SnapshotOptions(PlaceOptions):
    """The options of ``cluster-snapshot``."""

    service_ids: tuple[int, ...] = option_field(
        "serviceIds", parse_service_ids, "comma list of service ids; -1 is the consensus module", (), "all"
    )
    is_latest: bool = option_field("latest", parse_flag, "only the newest log position", False)

    SPARK_OPTIONS = SPARK_SOURCE_OPTIONS
    KIND = "snapshot"


@dataclass(frozen=True, slots=True)
class ReplayOptions(PlaceOptions):
    """The options of ``cluster-replay``."""

    service: str = option_field(
        "service", parse_text, "the service, `module:ClassName`, as members name it", ""
    )
    service_id: int = option_field("serviceId", parse_service_id, "the service's id in the cluster", 0)
    kinds: tuple[str, ...] = option_field(
        "kinds", parse_kinds, "comma list of the kinds of rows wanted", REPLAY_KINDS, "all"
    )
    is_whole: bool = option_field("whole", parse_flag, "replay all in one task", False)

    SPARK_OPTIONS = SPARK_SOURCE_OPTIONS
    KIND = "replay"

    def __post_init__(self) -> None:
        if not self.service:
            raise ConfigurationError("format cluster-replay needs option service, which is not given")
        PlaceOptions.__post_init__(self)
