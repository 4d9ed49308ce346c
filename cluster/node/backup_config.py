"""The configuration of a backup, which ``conf/backup.toml`` documents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from cluster.aeron.consensus_endpoints import parse_consensus_endpoints
from cluster.backup.agent import BackupContext
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.errors import ConfigurationError
from cluster.node.config import TIME_UNITS, fields_of, service_modes_of
from cluster.node.config_keys import SERVICE, NodeKeys
from cluster.node.config_text import BACKUP_PREFIX, read_keys
from cluster.node.config_types import (
    Duration,
    Names,
    ServiceModes,
    Size,
    Version,
    do_not_fit,
    duration,
    key,
    key_of,
    reloadable_of,
    same_key,
)
from cluster.node.exposure import is_loopback
from cluster.node.ports import ServiceSettings
from cluster.reader.supplier import SourceType
from cluster.transport.credentials import CredentialsSupplier, as_supplier, credentials_in, credentials_of
from cluster.transport.endpoint import ENDPOINTS_VARIABLE, Endpoint, Medium, parse_endpoint, parse_endpoints
from cluster.transport.tls import TlsFiles, tls_in

DEFAULTS = BackupContext()
_as_member = partial(same_key, NodeKeys)


class BackupConfig(BaseModel):
    """What one backup copies, from whom, and where to."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=key_of, populate_by_name=True)

    endpoints: str = key("")
    consensus_endpoints: str = key("")
    aeron_dir: str = key("")
    cluster_id: int = _as_member("cluster_id")
    dir: str = key("backup")
    source_type: SourceType = key(DEFAULTS.source_type.value)
    interval_ns: Duration = duration("3600s", reloadable=True)
    response_timeout_ns: Duration = duration(DEFAULTS.response_timeout_ns)
    cool_down_interval_ns: Duration = duration(DEFAULTS.cool_down_interval_ns, ge=0, reloadable=True)
    file_sync_level: int = _as_member("file_sync_level")
    retained_snapshots: int = key(DEFAULTS.retained_snapshots, ge=0, le=1_000_000, reloadable=True)
    retained_for_ns: Duration = duration("0s", ge=0, reloadable=True)
    services: Names = key([], max_length=10)
    service_mode: ServiceModes = _as_member("service_mode")
    service_snapshot_timeout_ns: Duration = _as_member("service_snapshot_timeout_ns")
    app_version: Version = _as_member("app_version")
    cluster_clock: Literal["ms", "us", "ns"] = _as_member("cluster_clock")
    max_sessions: int = _as_member("max_sessions")
    supervised_bytes_max: Size = _as_member("supervised_bytes_max")
    lanes_max: int = _as_member("lanes_max")
    lane_retention_ns: Duration = _as_member("lane_retention_ns")
    consumers_max: int = _as_member("consumers_max")
    consumer_retention_ns: Duration = _as_member("consumer_retention_ns")
    endpoint: str = key("")
    insecure_network: bool = key(False)
    authenticator: str = _as_member("authenticator")
    authenticator_file: str = _as_member("authenticator_file")
    authorisation: str = _as_member("authorisation")
    tls_client_certificates: Literal["none", "required"] = _as_member("tls_client_certificates")
    tls_ca: str = key("")
    tls_certificate: str = key("")
    tls_key: str = key("")
    token_file: str = key("")
    user: str = key("")
    password_file: str = key("")
    node_log_bytes: Size = _as_member("node_log_bytes", reloadable=True)
    log_level: Literal["debug", "info", "warning", "error"] = _as_member("log_level", reloadable=True)

    @model_validator(mode="after")
    def _check_together(self) -> BackupConfig:
        service_modes_of(self.services, self.service_mode)  # raises
        if self.aeron_dir and not self.consensus_endpoints:
            raise do_not_fit("aeron_dir: expected consensus_endpoints beside it")
        try:
            if self.consensus_endpoints:
                parse_consensus_endpoints(self.consensus_endpoints)
        except ConfigurationError as error:
            raise do_not_fit(f"consensus_endpoints: {error}") from None
        if self.consensus_endpoints and (self.endpoints or self.services):
            raise do_not_fit("consensus_endpoints: expected neither endpoints nor services beside it")
        return self

    @model_validator(mode="after")
    def _check_endpoint(self) -> BackupConfig:
        if not self.endpoint:
            if self.authenticator != "none":
                raise do_not_fit("authenticator: expected an endpoint to ask readers at")
            return self
        try:
            endpoint = parse_endpoint(self.endpoint)
        except ConfigurationError as error:
            raise do_not_fit(f"endpoint: {error}") from None
        if endpoint.medium is not Medium.GRPC or endpoint.port == 0:
            raise do_not_fit(f"endpoint {self.endpoint!r}: expected host:port")
        tls = self.served_tls_files
        if tls is None and self.tls_client_certificates == "required":
            raise do_not_fit("tls_client_certificates: expected none without tls_certificate")
        is_guarded = tls is not None and self.authenticator != "none"
        if not (is_guarded or self.insecure_network or is_loopback(endpoint.host)):
            raise do_not_fit(
                f"endpoint {self.endpoint!r} is not on loopback, where strangers could read the log: set TLS "
                "(tls_certificate, tls_key, tls_ca) and an authenticator, or insecure_network = true"
            )
        return self

    def reloaded(self, found: BackupConfig) -> BackupConfig:
        """This one with what ``found`` has for the reloadable keys."""
        return self.model_copy(update={name: getattr(found, name) for name in reloadable_of(BackupConfig)})

    @property
    def context(self) -> BackupContext:
        """A new one each time."""
        return BackupContext(**fields_of(self, BackupContext))

    @property
    def module_context(self) -> ConsensusModuleContext:
        """Of a standby: no member has its id."""
        keys = {field.name for field in fields(ConsensusModuleContext)} & type(self).model_fields.keys()
        return ConsensusModuleContext(
            member_id=NULL_VALUE,
            member_ids=(NULL_VALUE,),
            is_standby=True,
            service_count=len(self.services),
            time_unit=TIME_UNITS[self.cluster_clock],
            **{name: getattr(self, name) for name in keys},
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
        """None of a real Aeron Cluster. Raises ConfigurationError."""
        if self.consensus_endpoints:
            return []
        text = self.endpoints or os.environ.get(ENDPOINTS_VARIABLE, "")
        if not text:
            raise ConfigurationError(f"endpoints: name the members, here or in {ENDPOINTS_VARIABLE}")
        return list(parse_endpoints(text).values())

    @property
    def aeron_endpoints(self) -> list[str]:
        """Consensus endpoints of a real Aeron Cluster, none of ours."""
        return parse_consensus_endpoints(self.consensus_endpoints) if self.consensus_endpoints else []

    @property
    def tls_files(self) -> TlsFiles | None:
        """None: the members speak no TLS. Raises ConfigurationError."""
        if self.tls_ca or self.tls_certificate or self.tls_key:
            return TlsFiles(self.tls_ca, self.tls_certificate, self.tls_key)
        return tls_in(os.environ)

    @property
    def served_tls_files(self) -> TlsFiles | None:
        """What ``endpoint`` shows; None: it speaks no TLS. Raises ConfigurationError."""
        files = self.tls_files
        return files if files is not None and files.certificate else None

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches ``endpoint`` may read."""
        return self.authenticator == "none" and not self.authorisation

    @property
    def credentials(self) -> CredentialsSupplier:
        """Raises ConfigurationError."""
        if self.token_file or self.user or self.password_file:
            return as_supplier(credentials_of(self.token_file, self.user, self.password_file))
        return as_supplier(credentials_in(os.environ))


def load_backup_config(path: str | os.PathLike[str] | None, overrides: Mapping[str, Any]) -> BackupConfig:
    """Of a file, or none, under the variables CLUSTER_BACKUP_KEY, under ``overrides``.

    Raises ConfigurationError.
    """
    return read_keys(BackupConfig, path, BACKUP_PREFIX, overrides, os.environ)[0]
