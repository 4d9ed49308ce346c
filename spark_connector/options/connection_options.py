"""What all options have in common, and how members are met: options of everything that asks members.

Pure, as ``cluster_options.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from cluster.errors import ConfigurationError
from cluster.transport.credentials import CredentialsSupplier, credentials_of
from cluster.transport.endpoint import parse_endpoints
from cluster.transport.tls import TlsFiles
from spark_connector.values import Parse, checked_by, hint, parse_text

# What options of Spark's Kafka source and sink are here, by their lower-cased names.
_NO_TOPICS = "a log has no topics; entryTypes, sessions and templateIds say which of its entries are read"
OF_KAFKA = {
    "kafka.bootstrap.servers": "give option endpoints, such as 0=host:9000,1=host:9010",
    "subscribe": _NO_TOPICS,
    "subscribepattern": _NO_TOPICS,
    "assign": _NO_TOPICS,
    "topic": "a log has no topics; all rows go to the cluster of option endpoints",
    "groupidprefix": "give option consumerGroup, the whole name of a group",
    "kafka.group.id": "give option consumerGroup",
    "maxoffsetspertrigger": "give option maxEntriesPerTrigger",
    "minoffsetspertrigger": "give option minEntriesPerTrigger",
    "startingoffsetsbytimestamp": "give option startingTimestamp",
    "endingoffsetsbytimestamp": "give option endingTimestamp",
}
T = TypeVar("T", bound="Options")


def option_field(
    name: str, parse: Parse, meaning: str, default: Any = None, shown: str = "", *, repr: bool = True
) -> Any:
    """A field of an options class. ``shown`` is how the documentation writes a default that is no number."""
    if isinstance(default, int):
        shown = shown or str(default).lower()
    metadata = {"name": name, "parse": parse, "meaning": meaning, "shown": shown}
    return field(default=default, repr=repr, metadata=metadata)


class Options:
    """What the options of the source and of the sink have in common: names, and how to read them."""

    SPARK_OPTIONS: frozenset[str]
    KIND: str
    NEEDED: ClassVar[tuple[tuple[str, ...], ...]] = ()  # options that say nothing without one of the next
    ELSEWHERE: Mapping[str, str] = MappingProxyType({})  # by lower name: where an option belongs instead

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
                raise unknown_option(name, cls.KIND, cls.names(), cls.ELSEWHERE)
        return cls(**values)

    @property
    def given(self) -> set[str]:
        """The names of the options that have other values than their defaults."""
        options = fields(self)  # type: ignore[arg-type]
        return {option.metadata["name"] for option in options if getattr(self, option.name) != option.default}

    def __post_init__(self) -> None:
        given = self.given
        for name, *needed in self.NEEDED:
            if name in given and given.isdisjoint(needed):
                raise ConfigurationError(f"option {name} goes with {' or '.join(needed)}, which is not given")


@dataclass(frozen=True, slots=True)
class ConnectionOptions(Options):
    """How members are met. The files are read where a task runs: only their paths are in a plan."""

    endpoints: str | None = option_field(
        "endpoints",
        checked_by(parse_endpoints),
        "ingress endpoints of the members: `0=host:9000,1=host:9010,…`",
    )
    tls_ca_file: str = option_field(
        "tlsCaFile",
        parse_text,
        "CA certificates (PEM) to verify members that use TLS; a path on every host",
        "",
    )
    tls_certificate_file: str = option_field(
        "tlsCertificateFile", parse_text, "the client's certificate (PEM), if members ask for one", ""
    )
    tls_key_file: str = option_field("tlsKeyFile", parse_text, "its key (PEM)", "")
    auth_token_file: str | None = option_field(
        "authTokenFile", parse_text, "file with the token to present; a path on every host"
    )
    user: str | None = option_field("user", parse_text, "user to log in as, with `passwordFile`")
    password_file: str | None = option_field("passwordFile", parse_text, "file with the user's password")

    NEEDED: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("tlsCertificateFile", "tlsCaFile"),
        ("tlsKeyFile", "tlsCaFile"),
        ("tlsCertificateFile", "tlsKeyFile"),
        ("tlsKeyFile", "tlsCertificateFile"),
        ("user", "passwordFile"),
        ("passwordFile", "user"),
    )

    @property
    def tls(self) -> TlsFiles | None:
        """None where no option names a file: then the environment of the task may."""
        paths = self.tls_ca_file, self.tls_certificate_file, self.tls_key_file
        return TlsFiles(*paths) if any(paths) else None

    @property
    def credentials(self) -> bytes | CredentialsSupplier | None:
        """What to show the members; None where no option names a file, as with ``tls``."""
        return credentials_of(self.auth_token_file, self.user, self.password_file) or None

    def client_settings(self) -> dict[str, Any]:
        """How a client comes in; what is not given the environment of the task may say."""
        given = {"tls": self.tls, "credentials": self.credentials}
        return {name: value for name, value in given.items() if value is not None}

    def __post_init__(self) -> None:
        """ConfigurationError for an option that lacks another one, and for two ways to say who comes."""
        Options.__post_init__(self)
        if {"authTokenFile", "user"} <= self.given:
            raise ConfigurationError("option authTokenFile is given, and user with passwordFile: give one")


def unknown_option(
    name: str, kind: str, names: list[str], elsewhere: Mapping[str, str] = MappingProxyType({})
) -> ConfigurationError:
    if name.lower() == "path":
        return ConfigurationError(
            "format cluster takes no path; give option endpoints or, to read a directory, option clusterDir"
        )
    if name.lower() in elsewhere:
        return ConfigurationError(elsewhere[name.lower()])
    if name.lower() in OF_KAFKA:
        return ConfigurationError(f"unknown {kind} option {name!r}, one of Kafka's; {OF_KAFKA[name.lower()]}")
    option, dot, _ = name.partition(".")
    if dot and (of_one := [known for known in names if known.lower() == option.lower()]):
        return ConfigurationError(
            f"{kind} option {name!r} names one of several clusters, and here is one; expected {of_one[0]} "
            "without a name, and a run for each cluster"
        )
    known = f"known are {', '.join(sorted(names))}"
    return ConfigurationError(f"unknown {kind} option {name!r}{hint(name, names) or '; ' + known}")
