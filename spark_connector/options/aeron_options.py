"""The options of a read from, and of a write to, a real Aeron Cluster over its own medium."""

from dataclasses import dataclass
from typing import ClassVar

from cluster.aeron.consensus_endpoints import parse_archive_endpoint, parse_consensus_endpoints
from cluster.errors import ConfigurationError
from spark_connector.options.connection_options import ConnectionOptions, option_field
from spark_connector.values import checked_by, parse_count, parse_size, parse_text, wrong_value


def parse_number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise wrong_value(name, value, "a number") from None


@dataclass(frozen=True, slots=True)
class AeronOptions(ConnectionOptions):
    """Where a real Aeron Cluster is."""

    consensus_endpoints: str | None = option_field(
        "consensusEndpoints",
        checked_by(parse_consensus_endpoints),
        "consensus endpoints of a running real Aeron Cluster, `host:port,…`, instead of `endpoints`: it is "
        "reached through a media driver",
    )
    aeron_dir: str | None = option_field(
        "aeronDir",
        parse_text,
        "for a real Aeron Cluster or Archive: directory of the media driver on every host",
        shown="`/dev/shm/aeron-USER`",
    )

    PLACES: ClassVar[tuple[str, ...]] = ("consensusEndpoints",)
    NEEDED: ClassVar[tuple[tuple[str, ...], ...]] = (*ConnectionOptions.NEEDED, ("aeronDir", *PLACES))

    @property
    def is_over_aeron(self) -> bool:
        """Whether it goes over Aeron's own medium."""
        return not self.given.isdisjoint(self.PLACES)

    def __post_init__(self) -> None:
        ConnectionOptions.__post_init__(self)
        places = " or ".join(self.PLACES)
        if self.is_over_aeron and self.endpoints is not None:
            raise ConfigurationError(f"give either option {places}, or option endpoints")
        if self.is_over_aeron and self.tls is not None:
            raise ConfigurationError(f"option {places} is given, and tlsCaFile: Aeron has no TLS")


@dataclass(frozen=True, slots=True)
class AeronSourceOptions(AeronOptions):
    """Where a recording of an Aeron Archive is, and how much a read may take of archives."""

    aeron_archive: str | None = option_field(
        "aeronArchive",
        checked_by(parse_archive_endpoint),
        "control endpoint of an Aeron Archive, `host:port`, instead of `endpoints`: reads one recording to "
        "its end, as fragments if it is not a cluster's log",
    )
    recording_id: int | None = option_field(
        "recordingId",
        parse_number,
        "with `aeronArchive`: the recording to read; without it an error lists them",
    )
    cluster_id: int = option_field(
        "clusterId",
        parse_number,
        "with `consensusEndpoints`: the id that the cluster is configured with; part of offsets",
        0,
    )
    aeron_replays_max: int = option_field(
        "aeronReplaysMax",
        parse_count,
        "with `consensusEndpoints` or `aeronArchive`: maximum number of tasks; each is one replay",
        8,
    )
    aeron_file_io_max: int | None = option_field(
        "aeronFileIoMax",
        parse_size,
        "with `consensusEndpoints` or `aeronArchive`: bytes that an archive reads at once for a task",
        shown="the archive's own",
    )
    aeron_rate_max: int | None = option_field(
        "aeronRateMax",
        parse_size,
        "with `consensusEndpoints` or `aeronArchive`: maximum number of bytes per second and task",
        shown="no limit",
    )

    PLACES = ("consensusEndpoints", "aeronArchive")
    NEEDED: ClassVar[tuple[tuple[str, ...], ...]] = (
        *ConnectionOptions.NEEDED,
        ("aeronDir", *PLACES),
        ("aeronFileIoMax", *PLACES),
        ("aeronRateMax", *PLACES),
        ("recordingId", "aeronArchive"),
    )
