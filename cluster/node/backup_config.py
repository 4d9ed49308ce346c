"""The configuration of a backup; ``conf/backup.toml`` is made of it: python -m cluster.node.backup_config"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from cluster.backup.agent import BackupContext
from cluster.backup.supplier import SourceType
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.errors import ConfigurationError
from cluster.node.config import TIME_UNITS, service_modes_of
from cluster.node.config_keys import KIB, MIB, MODULE, SERVICE
from cluster.node.config_text import BACKUP_PREFIX, load_keys, text_of
from cluster.node.config_types import (
    DURATION,
    SIZE,
    Duration,
    Names,
    ServiceModes,
    Size,
    Version,
    duration_text,
    key,
    key_of,
    size_text,
)
from cluster.node.exposure import is_loopback
from cluster.node.ports import ServiceSettings
from cluster.protocol.versions import version_text
from cluster.transport.credentials import CredentialsSupplier, as_supplier, credentials_in, credentials_of
from cluster.transport.endpoint import ENDPOINTS_VARIABLE, Endpoint, Medium, parse_endpoint, parse_endpoints
from cluster.transport.tls import TlsFiles, tls_in

DEFAULTS = BackupContext()


class BackupConfig(BaseModel):
    """What one backup copies, from whom, and where to."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=key_of, populate_by_name=True)

    endpoints: str = key(
        "",
        """Members to copy from, as clients name them: "host:9000,…" over gRPC, "tcp:host:9001", "ipc:/path";
        CLUSTER_ENDPOINTS when empty. Name all members: one that fails is replaced by the next.""",
        section="What is copied",
    )
    cluster_id: int = key(
        DEFAULTS.cluster_id,
        "The cluster's, as in its members' configuration.",
        aeron="aeron.cluster.id",
        ge=0,
        le=2**31 - 1,
    )
    dir: str = key(
        "backup",
        """The backup's directory, made when missing: cluster/, archive/ and driver/ in it, as a member's.
        Nothing in it is deleted, unless the members' logs begin after its end: then it starts over.""",
        aeron="aeron.cluster.dir, aeron.archive.dir",
    )
    source_type: SourceType = key(
        DEFAULTS.source_type.value,
        """From whom to copy: any, leader or follower. A follower spares the leader the work.""",
        unit="any, leader or follower",
        aeron="aeron.cluster.backup.source.type",
    )
    interval_ns: Duration = key(
        "3600s",
        "How often the members are asked for a new snapshot. The log is copied as it is committed.",
        unit=DURATION,
        aeron="aeron.cluster.backup.interval",
        section="When",
        gt=0,
    )
    response_timeout_ns: Duration = key(
        duration_text(DEFAULTS.response_timeout_ns),
        "A member that says nothing for this long is given up for the next.",
        unit=DURATION,
        aeron="aeron.cluster.backup.response.timeout, aeron.cluster.backup.progress.timeout",
        gt=0,
    )
    cool_down_interval_ns: Duration = key(
        duration_text(DEFAULTS.cool_down_interval_ns),
        "The pause after an error, before another member is asked.",
        unit=DURATION,
        aeron="aeron.cluster.backup.cool.down.interval",
        ge=0,
    )
    file_sync_level: int = key(
        1,
        "As a member's: 0 written, 1 synced (fdatasync), 2 synced with metadata (fsync).",
        aeron="aeron.archive.file.sync.level",
        section="Disk",
        ge=0,
        le=2,
    )
    services: Names = key(
        [],
        """With services the backup is a standby: it runs them on the log that it copies, and takes their
        snapshots. As in its members' configuration, and so are all keys of this section; none, and it
        copies alone.""",
        aeron="aeron.cluster.service.class.name, aeron.cluster.service.count",
        section="Services: what makes it a standby",
        max_length=10,
    )
    service_mode: ServiceModes = key(
        ["auto"],
        """Where they run: process, inline, external, or auto, which is inline for echo and process for
        others.""",
    )
    service_snapshot_timeout_ns: Duration = key(
        "60s",
        """How long a snapshot waits for a service in a process of its own to come to its place in the log;
        then the standby goes on without that snapshot.""",
        unit=DURATION,
        gt=0,
    )
    app_version: Version = key(
        version_text(MODULE.app_version),
        "Version of the services. A log of another major version is not replayed.",
        unit="major.minor.patch",
    )
    cluster_clock: Literal["ms", "us", "ns"] = key(
        "ms", "Unit of cluster time in the log.", aeron="aeron.cluster.clock"
    )
    max_sessions: int = key(
        MODULE.max_sessions,
        "Most sessions that are open at a time: at least as many as at the members.",
        aeron="aeron.cluster.max.sessions",
        ge=1,
        le=1_000_000,
    )
    supervised_bytes_max: Size = key(
        size_text(MODULE.supervised_bytes_max),
        "Most bytes of answers that are kept of a supervised session until its client has them.",
        unit=SIZE,
        ge=64 * KIB,
        le=1024 * MIB,
    )
    lanes_max: int = key(MODULE.lanes_max, "Most lanes that are kept.", unit="lanes", ge=1, le=1_000_000)
    lane_retention_ns: Duration = key(
        duration_text(MODULE.lane_retention_ns),
        "An application that opens none of its lanes for this long is forgotten.",
        unit=DURATION,
        gt=0,
    )
    consumers_max: int = key(
        MODULE.consumers_max, "Most consumer groups that are kept.", unit="groups", ge=1, le=65536
    )
    consumer_retention_ns: Duration = key(
        duration_text(MODULE.consumer_retention_ns),
        "A consumer group that reports nothing for this long is forgotten.",
        unit=DURATION,
        gt=0,
    )
    endpoint: str = key(
        "",
        """Where it listens over gRPC, as host:port: readers read the log there, and members fetch the
        snapshots that a standby announces to them by this name. Nobody is served when empty. Without TLS
        and without a check of who reads.""",
        unit="host:port",
        section="Whom it serves",
    )
    insecure_network: bool = key(
        False,
        "Whether endpoint may be beyond loopback. Whoever reaches it may then read the whole log.",
    )
    tls_ca: str = key(
        "",
        """Authorities (PEM) to check the members by, which speak TLS. Where no key of TLS is set,
        the variables of clients hold (CLUSTER_TLS_CA and so on); so it is with the token and the user.""",
        section="Who the backup is: it needs the right to read",
    )
    tls_certificate: str = key("", "Its own certificate (PEM), where members ask for one.")
    tls_key: str = key("", "The certificate's key (PEM).")
    token_file: str = key("", "The token to show, in the first line of a file.")
    user: str = key("", "The user to be, with password_file.")
    password_file: str = key("", "The user's password, in the first line of a file.")

    @model_validator(mode="after")
    def _check_service_modes(self) -> BackupConfig:
        if len(self.service_mode) not in (1, len(self.services)):
            raise PydanticCustomError(
                "together",
                "service_mode: expected one mode, or one for each of services = {names}",
                {"names": ", ".join(self.services)},
            )
        return self

    @model_validator(mode="after")
    def _check_endpoint(self) -> BackupConfig:
        if not self.endpoint:
            return self
        try:
            endpoint = parse_endpoint(self.endpoint)
        except ConfigurationError as error:
            raise PydanticCustomError("endpoint", "endpoint: {why}", {"why": str(error)}) from None
        if endpoint.medium is not Medium.GRPC or endpoint.port == 0:
            raise PydanticCustomError(
                "endpoint", "endpoint {text}: expected host:port", {"text": repr(self.endpoint)}
            )
        if not self.insecure_network and not is_loopback(endpoint.host):
            raise PydanticCustomError(
                "endpoint",
                "endpoint {text} is not on loopback, where strangers could read the log: set "
                "insecure_network = true if they may",
                {"text": repr(self.endpoint)},
            )
        return self

    @property
    def context(self) -> BackupContext:
        return BackupContext(
            cluster_id=self.cluster_id,
            source_type=self.source_type,
            interval_ns=self.interval_ns,
            response_timeout_ns=self.response_timeout_ns,
            cool_down_interval_ns=self.cool_down_interval_ns,
        )

    @property
    def module_context(self) -> ConsensusModuleContext:
        """Of a standby: no member has its id."""
        return ConsensusModuleContext(
            member_id=NULL_VALUE,
            member_ids=(NULL_VALUE,),
            is_standby=True,
            cluster_id=self.cluster_id,
            service_count=len(self.services),
            app_version=self.app_version,
            time_unit=TIME_UNITS[self.cluster_clock],
            max_sessions=self.max_sessions,
            supervised_bytes_max=self.supervised_bytes_max,
            lanes_max=self.lanes_max,
            lane_retention_ns=self.lane_retention_ns,
            consumers_max=self.consumers_max,
            consumer_retention_ns=self.consumer_retention_ns,
        )

    @property
    def service_settings(self) -> ServiceSettings:
        """Of a standby's services."""
        context = self.module_context
        return ServiceSettings(
            context=context,
            archive_directory=f"{self.path}/archive",
            cluster_directory=f"{self.path}/cluster",
            services=self.services,
            service_modes=service_modes_of(self.services, self.service_mode),
            service_snapshot_timeout_ns=self.service_snapshot_timeout_ns,
            service_responder=True,
            service_error_policy="continue",
            service_cycle_threshold_ns=context.cycle_threshold_ns,
            log_fragment_limit=SERVICE.log_fragment_limit,
        )

    @property
    def path(self) -> Path:
        return Path(self.dir)

    @property
    def member_endpoints(self) -> list[Endpoint]:
        """Raises ConfigurationError."""
        text = self.endpoints or os.environ.get(ENDPOINTS_VARIABLE, "")
        if not text:
            raise ConfigurationError(f"endpoints: name the members, here or in {ENDPOINTS_VARIABLE}")
        return list(parse_endpoints(text).values())

    @property
    def tls_files(self) -> TlsFiles | None:
        """None: the members speak no TLS. Raises ConfigurationError."""
        if self.tls_ca or self.tls_certificate or self.tls_key:
            return TlsFiles(self.tls_ca, self.tls_certificate, self.tls_key)
        return tls_in(os.environ)

    @property
    def credentials(self) -> CredentialsSupplier:
        """Raises ConfigurationError."""
        if self.token_file or self.user or self.password_file:
            return as_supplier(credentials_of(self.token_file, self.user, self.password_file))
        return as_supplier(credentials_in(os.environ))


def load_backup_config(path: str | os.PathLike[str], overrides: Mapping[str, Any]) -> BackupConfig:
    """Of a file, under the variables CLUSTER_BACKUP_KEY, under ``overrides``. Raises ConfigurationError."""
    return load_keys(BackupConfig, path, prefix=BACKUP_PREFIX, overrides=overrides, environment=os.environ)


def backup_documentation() -> str:
    """The whole of ``conf/backup.toml``."""
    return text_of(
        BackupConfig,
        "The configuration of a backup, complete: each key at its default, so that any but endpoints may be "
        "left out. The environment variable CLUSTER_BACKUP_KEY wins over the file, --dir over both. "
        "docs/backup.md has the rest.",
        "cluster backup --config conf/backup.toml",
        required={"endpoints": "required, or CLUSTER_ENDPOINTS"},
    )


if __name__ == "__main__":
    print(backup_documentation(), end="")
