"""The options of the ``cluster`` format: what may be given, what it means, and what is refused.

Pure: nothing here touches a file, a socket or Spark. Options come as strings; Spark hands their
names lower-cased, so names compare without case. A wrong option fails when the source or sink is
made, before a query starts, with the option's name, its value and what was expected.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from cluster.errors import ConfigurationError
from cluster.reader.token import parse_token
from cluster.transport.credentials import CredentialsSupplier, credentials_of
from cluster.transport.endpoint import parse_endpoints
from cluster.transport.tls import TlsFiles
from spark_connector.offsets import Offset
from spark_connector.planning import PlanLimits

EARLIEST = Offset(None, -2)  # the numbers are Kafka's, and accepted in {"position": n}
LATEST = Offset(None, -1)

ENTRY_TYPES = (
    "SESSION_MESSAGE",
    "SESSION_OPEN",
    "SESSION_CLOSE",
    "TIMER",
    "CLUSTER_ACTION",
    "NEW_LEADERSHIP_TERM",
)

# What Spark itself puts among the options of a sink, or reads from them.
SPARK_SINK_OPTIONS = frozenset(
    {
        "path",
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

Parse = Callable[[str, str], Any]
T = TypeVar("T", bound="_Options")


def parse_text(name: str, value: str) -> str:
    if not value.strip():
        raise wrong_value(name, value, "a text that is not empty")
    return value.strip()


def parse_endpoint_list(name: str, value: str) -> str:
    """Members' endpoints, as a client takes them; what is wrong with them is named before dialling."""
    text = parse_text(name, value)
    parse_endpoints(text)
    return text


def parse_flag(name: str, value: str) -> bool:
    flag = {"true": True, "false": False}.get(value.strip().lower())
    if flag is None:
        raise wrong_value(name, value, "true or false")
    return flag


def parse_count(name: str, value: str) -> int:
    text = value.strip()
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
        raise wrong_value(name, value, "a whole number of at least 1")
    return int(text)


def parse_size(name: str, value: str) -> int:
    """Bytes: a number alone, or with ``k``, ``m``, ``g``, ``t`` (powers of 1024), ``b`` may follow."""
    match = re.fullmatch(r"([0-9]{1,15})\s*([kmgt]?)b?", value.strip().lower())
    size = 0 if match is None else int(match[1]) << (10 * " kmgt".index(match[2] or " "))
    if not 0 < size < 1 << 62:
        raise wrong_value(name, value, "a size in bytes such as 1048576, 512k, 64m or 1g")
    return size


def parse_offsets(name: str, value: str) -> Offset:
    """A place in the log, or ``EARLIEST`` or ``LATEST``; one that names no cluster fits every log.

    An offset is taken as it stands in a checkpoint or in a query's progress.
    """
    text = value.strip()
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict) and "v" in given:
        return _place_of_offset(name, given)
    if not _is_place(given):
        raise wrong_value(name, value, 'earliest, latest, {"position": n} or an offset of a checkpoint')
    return Offset(given.get("cluster"), given["position"])


def parse_at_least(name: str, value: str) -> str:
    try:
        parse_token(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"option {name}: {error}") from None
    return value


def _place_of_offset(name: str, given: dict[str, Any]) -> Offset:
    try:
        offset = Offset.from_json(given)
    except ConfigurationError as error:
        raise ConfigurationError(f"option {name}: {error}") from None
    return Offset(offset.cluster, offset.position)


def _is_place(given: Any) -> bool:
    """Whether ``given`` is a position, with or without the cluster whose log it is of, and nothing else."""
    return (
        isinstance(given, dict)
        and given.keys() <= {"cluster", "position"}
        and isinstance(given.get("cluster"), str | None)
        and type(position := given.get("position")) is int
        and EARLIEST.position <= position < 1 << 62
    )


def parse_entry_types(name: str, value: str) -> tuple[str, ...]:
    """The wanted entry types, each once, in the order of ``ENTRY_TYPES``."""
    wanted = [word.strip().upper() for word in value.split(",")]
    for word in wanted:
        if word not in ENTRY_TYPES:
            expected = f"a comma list of {', '.join(ENTRY_TYPES)}"
            raise wrong_value(name, value, f"{expected}{_hint(word, ENTRY_TYPES)}")
    return tuple(entry_type for entry_type in ENTRY_TYPES if entry_type in wanted)


def wrong_value(name: str, value: str, expected: str) -> ConfigurationError:
    return ConfigurationError(f"option {name} is {value!r}; expected {expected}")


def _option(name: str, parse: Parse, meaning: str, default: Any = None, shown: str = "") -> Any:
    """A field of an options class. ``shown`` is how the documentation writes the default."""
    return field(default=default, metadata={"name": name, "parse": parse, "meaning": meaning, "shown": shown})


class _Options:
    """What the options of the source and of the sink have in common: names, and how to read them."""

    SPARK_OPTIONS: frozenset[str]
    KIND: str

    @classmethod
    def names(cls) -> list[str]:
        return [f.metadata["name"] for f in fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def parse(cls: type[T], given: Mapping[str, str]) -> T:
        """The options ``given``, checked. Raises ConfigurationError for the first that is wrong."""
        values = {}
        known = {f.metadata["name"].lower(): f for f in fields(cls)}  # type: ignore[arg-type]
        for name, value in given.items():
            option = known.get(name.lower())
            if option is not None:
                values[option.name] = option.metadata["parse"](option.metadata["name"], str(value))
            elif name.lower() not in cls.SPARK_OPTIONS:
                raise _unknown(name, cls.KIND, cls.names())
        return cls(**values)


@dataclass(frozen=True, slots=True)
class _ConnectionOptions(_Options):
    """How members are met. The files are read where a task runs: only their paths are in a plan."""

    endpoints: str | None = _option(
        "endpoints", parse_endpoint_list, "ingress endpoints of the members: `0=host:9000,1=host:9010,…`"
    )
    tls_ca_file: str = _option(
        "tlsCaFile",
        parse_text,
        "authorities (PEM) to check members by that speak TLS; a path on every host",
        "",
    )
    tls_certificate_file: str = _option(
        "tlsCertificateFile", parse_text, "certificate (PEM) to show where the members ask for one", ""
    )
    tls_key_file: str = _option("tlsKeyFile", parse_text, "its key (PEM)", "")
    auth_token_file: str | None = _option(
        "authTokenFile", parse_text, "file of the token to show; a path on every host"
    )
    user: str | None = _option("user", parse_text, "user to be, with `passwordFile`")
    password_file: str | None = _option("passwordFile", parse_text, "file of the user's password")

    @property
    def tls(self) -> TlsFiles | None:
        """None where no option names a file: then the environment of the task may."""
        paths = self.tls_ca_file, self.tls_certificate_file, self.tls_key_file
        return TlsFiles(*paths) if any(paths) else None

    @property
    def credentials(self) -> bytes | CredentialsSupplier | None:
        """What to show the members; None where no option names a file, as with ``tls``."""
        return credentials_of(self.auth_token_file, self.user, self.password_file) or None

    def __post_init__(self) -> None:
        """ConfigurationError for a file that lacks another one."""
        _ = self.tls, self.credentials


@dataclass(frozen=True, slots=True)
class SourceOptions(_ConnectionOptions):
    """The options of a read, as a stream or as a batch. ``None`` stands for an option not given."""

    cluster_dir: str | None = _option(
        "clusterDir", parse_text, "a member's directory on this host, instead of `endpoints`"
    )
    archive_dir: str | None = _option(
        "archiveDir", parse_text, "its archive, where it does not lie beside the cluster directory"
    )
    starting_offsets: Offset | None = _option(  # noqa: RUF009 - a field, as all of these
        "startingOffsets",
        parse_offsets,
        '`earliest`, `latest`, `{"position": n}` or an offset; of a stream only without a checkpoint',
        shown="`latest` for a stream, `earliest` for a batch",
    )
    ending_offsets: Offset | None = _option(  # noqa: RUF009 - a field, as all of these
        "endingOffsets",
        parse_offsets,
        'where a batch read ends, excluded: `latest`, `{"position": n}` or an offset; a stream has no end',
        shown="`latest`",
    )
    at_least: str | None = _option(
        "atLeast",
        parse_at_least,
        "a client's position token: planning begins when the log is committed that far, within 20 s",
    )
    max_entries_per_trigger: int | None = _option(
        "maxEntriesPerTrigger", parse_count, "a micro-batch holds at most so many entries"
    )
    max_bytes_per_trigger: int = _option(
        "maxBytesPerTrigger",
        parse_size,
        "a micro-batch covers at most so many bytes of log, but always one entry",
        256 << 20,
        "`256m`",
    )
    min_partitions: int = _option(
        "minPartitions", parse_count, "cut a range into at least so many tasks", 1, "1"
    )
    max_bytes_per_partition: int = _option(
        "maxBytesPerPartition", parse_size, "bytes of log for one task", 64 << 20, "`64m`"
    )
    max_partitions: int = _option(
        "maxPartitions", parse_count, "but never into more tasks than this", 200, "200"
    )
    entry_types: tuple[str, ...] = _option(
        "entryTypes",
        parse_entry_types,
        "comma list of the entry types wanted: " + ", ".join(f"`{name}`" for name in ENTRY_TYPES),
        ENTRY_TYPES,
        "all",
    )
    read_uncommitted: bool = _option(
        "readUncommitted",
        parse_flag,
        "let a stream over the directory of a member that crashed go to the recording's end, "
        "past what is known to be committed",
        False,
        "false",
    )
    rows_per_batch: int = _option(
        "rowsPerBatch", parse_count, "rows of one Arrow record batch", 32768, "32768"
    )

    SPARK_OPTIONS = SPARK_SOURCE_OPTIONS
    KIND = "source"

    @property
    def plan_limits(self) -> PlanLimits:
        """How a range is cut into tasks."""
        return PlanLimits(self.max_bytes_per_partition, self.min_partitions, self.max_partitions)

    def __post_init__(self) -> None:
        _ConnectionOptions.__post_init__(self)
        if (self.endpoints is None) == (self.cluster_dir is None):
            given = "neither is" if self.endpoints is None else "both are"
            raise ConfigurationError(f"give either option endpoints or option clusterDir; {given} given")
        if self.archive_dir is not None and self.cluster_dir is None:
            raise ConfigurationError("option archiveDir goes with clusterDir, which is not given")
        if self.ending_offsets == EARLIEST:
            raise wrong_value("endingOffsets", "earliest", 'latest, {"position": n} or an offset')
        if self.min_partitions > self.max_partitions:
            raise ConfigurationError(
                f"option minPartitions is {self.min_partitions}, more than maxPartitions, "
                f"which is {self.max_partitions}"
            )


@dataclass(frozen=True, slots=True)
class SinkOptions(_ConnectionOptions):
    """The options of a write, as a stream or as a batch."""

    commit_timeout_ms: int = _option(
        "commitTimeoutMs",
        parse_count,
        "fail a task when the cluster has committed none of its rows for so long",
        60_000,
        "60000",
    )

    SPARK_OPTIONS = SPARK_SINK_OPTIONS
    KIND = "sink"

    def __post_init__(self) -> None:
        _ConnectionOptions.__post_init__(self)
        if not self.endpoints:
            raise ConfigurationError("the sink needs option endpoints, which is not given")


def check_names(given: Iterable[str]) -> None:
    """Raise ConfigurationError for a name that neither the source nor the sink knows.

    For the moment when it is not known yet which of them is being made. Tables of a catalog are refused.
    """
    if any(name.lower().startswith(TABLE_OPTION_PREFIX) for name in given):
        raise ConfigurationError(
            "there are no tables of format cluster: Spark hands a table's options to no Python data source; "
            "CREATE TEMPORARY VIEW name USING cluster OPTIONS (…) can be selected from and inserted into"
        )
    names = [*SourceOptions.names(), *(n for n in SinkOptions.names() if n not in SourceOptions.names())]
    known = {name.lower() for name in names} | SPARK_SINK_OPTIONS | SPARK_SOURCE_OPTIONS
    for name in given:
        if name.lower() not in known:
            raise _unknown(name, "source or sink", names)


def _unknown(name: str, kind: str, names: list[str]) -> ConfigurationError:
    if name.lower() == "path":
        return ConfigurationError("the source takes no path; give option clusterDir or option endpoints")
    known = f"known are {', '.join(sorted(names))}"
    return ConfigurationError(f"unknown {kind} option {name!r}{_hint(name, names) or '; ' + known}")


def _hint(word: str, names: Iterable[str]) -> str:
    by_folded_name = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), by_folded_name, n=3, cutoff=0.6)
    return f"; did you mean {', '.join(by_folded_name[name] for name in near)}?" if near else ""
