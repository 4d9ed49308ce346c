"""The options of the formats ``cluster-snapshot`` and ``cluster-replay``; as pure as ``options.py``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cluster.errors import ConfigurationError
from spark_connector.options import SPARK_SOURCE_OPTIONS, Options, option_field
from spark_connector.places import wrong_value
from spark_connector.replay_options import REPLAY_KINDS, parse_kinds, parse_service_id
from spark_connector.values import parse_flag, parse_text


def parse_service_ids(name: str, value: str) -> tuple[int, ...]:
    """Each once, ascending."""
    words = [word.strip() for word in value.split(",")]
    if not all(re.fullmatch(r"-1|[0-9]", word) for word in words):
        raise wrong_value(name, value, "a comma list of service ids from 0 to 9, -1 for the consensus module")
    return tuple(sorted({int(word) for word in words}))


@dataclass(frozen=True, slots=True)
class _DirectoryOptions(Options):
    """How members' directories are named where more than the log is read of them."""

    cluster_dir: str = option_field(
        "clusterDir", parse_text, "a member's directory, or that of all members", ""
    )
    archive_dir: str | None = option_field(
        "archiveDir", parse_text, "a member's archive, where it does not lie beside its cluster directory"
    )

    SPARK_OPTIONS = SPARK_SOURCE_OPTIONS

    def check_given(self, name: str, value: str) -> None:
        if not value:
            raise ConfigurationError(f"format cluster-{self.KIND} needs option {name}, which is not given")


@dataclass(frozen=True, slots=True)
class SnapshotOptions(_DirectoryOptions):
    """The options of ``cluster-snapshot``."""

    service_ids: tuple[int, ...] = option_field(
        "serviceIds", parse_service_ids, "comma list of service ids; -1 is the consensus module", (), "all"
    )
    is_latest: bool = option_field("latest", parse_flag, "only the newest log position", False, "false")

    KIND = "snapshot"

    def __post_init__(self) -> None:
        self.check_given("clusterDir", self.cluster_dir)


@dataclass(frozen=True, slots=True)
class ReplayOptions(_DirectoryOptions):
    """The options of ``cluster-replay``."""

    service: str = option_field(
        "service", parse_text, "the service, `module:ClassName`, as members name it", ""
    )
    service_id: int = option_field("serviceId", parse_service_id, "the service's id in the cluster", 0, "0")
    kinds: tuple[str, ...] = option_field(
        "kinds", parse_kinds, "comma list of the kinds of rows wanted", REPLAY_KINDS, "all"
    )
    is_whole: bool = option_field("whole", parse_flag, "replay all in one task", False, "false")

    KIND = "replay"

    def __post_init__(self) -> None:
        self.check_given("clusterDir", self.cluster_dir)
        self.check_given("service", self.service)
