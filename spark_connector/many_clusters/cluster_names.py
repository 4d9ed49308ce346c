"""Several clusters in one read: option ``endpoints.eu`` is option ``endpoints`` of the cluster called ``eu``.

Pure. What has no name after it holds for all of them. Spark hands names lower-cased.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from cluster.errors import ConfigurationError
from spark_connector.options.cluster_options import SinkOptions, SourceOptions
from spark_connector.options.connection_options import Options

CLUSTER_NAME = "clusterName"
CLUSTER_NAME_TYPE = "STRING"
# Of one cluster each: where it is, how to come in, and where a read of it begins and ends.
NAMED_OPTIONS = (
    "endpoints",
    "consensusEndpoints",
    "aeronArchive",
    "recordingId",
    "clusterId",
    "clusterDir",
    "archiveDir",
    "exportDir",
    "tlsCaFile",
    "tlsCertificateFile",
    "tlsKeyFile",
    "authTokenFile",
    "user",
    "passwordFile",
    "readPreference",
    "requestTimeoutMs",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "atLeast",
    "consumerGroup",
    "failOnDataLoss",
    "readUncommitted",
)
T = TypeVar("T", bound=Options)
# What says that there is a cluster of a name.
_WHERE = ("endpoints", "clusterdir", "consensusendpoints", "aeronarchive")
_BY_LOWER_NAME = {name.lower(): name for name in NAMED_OPTIONS}
_OF_ALL = {
    name.lower(): name
    for name in (*SourceOptions.names(), *SinkOptions.names())
    if name.lower() not in _BY_LOWER_NAME
}


def named_option(name: str) -> tuple[str, str] | None:
    """Option and cluster in a name such as ``endpoints.eu``, or None. Raises ConfigurationError."""
    option, dot, cluster = name.partition(".")
    if dot and option.lower() in _OF_ALL:
        raise ConfigurationError(
            f"option {_OF_ALL[option.lower()]} takes no name of a cluster, and {cluster!r} is given: "
            "it holds for all of them"
        )
    if not dot or option.lower() not in _BY_LOWER_NAME:
        return None
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", cluster.lower()):
        raise ConfigurationError(
            f"option {name} names cluster {cluster!r}; expected letters, digits, - and _, 64 at most"
        )
    return _BY_LOWER_NAME[option.lower()], cluster.lower()


def named_clusters(given: Mapping[str, str]) -> dict[str, SourceOptions]:
    """The options of each cluster that has a name, in the order of the names; none where one cluster is read.

    The number of tasks of a micro-batch, and the least of its entries, are shared out. What it holds at most
    is shared in each by those that have news. Raises ConfigurationError.
    """
    by_name = _by_name(given)
    return {name: _shared(_parsed(SourceOptions, name, own), len(by_name)) for name, own in by_name.items()}


def named_sinks(given: Mapping[str, str]) -> dict[str, SinkOptions]:
    """As ``named_clusters``, of a sink, which then needs ``routeBy``. Raises ConfigurationError."""
    sinks = {name: _parsed(SinkOptions, name, own) for name, own in _by_name(given).items()}
    for name, options in sinks.items():
        if options.consensus_endpoints is not None:
            raise ConfigurationError(
                f"cluster {name}: option consensusEndpoints is given; expected endpoints of each cluster: a "
                "write to several knows no real Aeron Cluster"
            )
    has_route = any(name.lower() == "routeby" for name in given)
    if sinks and not has_route:
        raise ConfigurationError(
            f"option routeBy is not given; expected columns that say where of {', '.join(sinks)} a row goes"
        )
    if has_route and not sinks:
        raise ConfigurationError("option routeBy goes with endpoints.NAME of several clusters; none is given")
    return sinks


def _by_name(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Each cluster's options, with those of all."""
    common: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {}
    for name, value in given.items():
        if (named := named_option(name)) is None:
            common[name.lower()] = value
        else:
            own.setdefault(named[1], {})[named[0].lower()] = value
    for option in _WHERE:
        if own and option in common:
            raise ConfigurationError(
                f"option {_BY_LOWER_NAME[option]} names no cluster, others name {', '.join(sorted(own))}; "
                "expected a name for each cluster, or none"
            )
    for name in sorted(own):
        if not any(option in own[name] for option in _WHERE):
            raise ConfigurationError(
                f"cluster {name} has neither option endpoints.{name} nor clusterDir.{name}"
            )
    if "columns" in common:
        common["columns"] = _without_name(common["columns"])
    return {name: common | own[name] for name in sorted(own)}


def _parsed(kind: type[T], name: str, given: dict[str, str]) -> T:
    try:
        return kind.parse(given)
    except ConfigurationError as error:
        raise ConfigurationError(f"cluster {name}: {error}") from None


def _shared(options: SourceOptions, count: int) -> SourceOptions:
    def share(limit: int) -> int:
        return max(limit // count, 1)

    least = options.min_entries_per_trigger
    return replace(
        options,
        min_entries_per_trigger=None if least is None else share(least),
        min_partitions=share(options.min_partitions),
        max_partitions=share(options.max_partitions),
    )


def _without_name(columns: str) -> str:
    """What of option ``columns`` the log has, never nothing. Raises ConfigurationError."""
    names = [word.strip() for word in columns.split(",")]
    if [name.lower() for name in names].count(CLUSTER_NAME.lower()) > 1:
        raise ConfigurationError(f"option columns is {columns}: a column occurs twice: {CLUSTER_NAME}")
    return ",".join(name for name in names if name.lower() != CLUSTER_NAME.lower()) or "position"


def row_names(given: Mapping[str, str], options: SourceOptions) -> tuple[str, ...]:
    """The columns of a read of several clusters, where no schema is given."""
    columns = next((value for name, value in given.items() if name.lower() == "columns"), None)
    if columns is None:
        return CLUSTER_NAME, *options.row_names()
    return tuple(word.strip() for word in columns.split(","))
