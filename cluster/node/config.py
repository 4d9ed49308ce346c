"""A member's configuration: its keys (``config_keys.py``), what must hold among them, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, model_validator
from pydantic_core import PydanticCustomError

from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import ConfigurationError
from cluster.node.config_keys import KIB, RELOADABLE, NodeKeys
from cluster.node.config_types import do_not_fit
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.members import MemberEndpoints, ingress_endpoints, parse_members
from cluster.protocol.response_channel import parameter, with_parameter
from cluster.protocol.streams import CONSENSUS, INGRESS
from cluster.transport.bounds import Bounds
from cluster.transport.endpoint import LOOPBACK_HOSTS, parse_endpoint
from cluster.transport.tls import TlsFiles

TIME_UNITS = {"ms": ClusterTimeUnit.MILLIS, "us": ClusterTimeUnit.MICROS, "ns": ClusterTimeUnit.NANOS}


def service_modes_of(services: Sequence[str], modes: Sequence[str]) -> list[str]:
    """Of each service: process, inline or external. Raises PydanticCustomError for too few or many modes."""
    if len(modes) not in (1, len(services)):
        raise do_not_fit(
            f"service_mode: expected one mode, or one for each of services = {', '.join(services)}"
        )
    of_auto = {name: "inline" if name == "echo" else "process" for name in services}
    return [
        of_auto[name] if mode == "auto" else mode
        for name, mode in zip(services, list(modes) * len(services), strict=False)
    ]


def fields_of(config: BaseModel, part: type[Any], **given: Any) -> dict[str, Any]:
    """The fields of a dataclass that takes what is not ``given`` from a configuration, name by name."""
    names = (field.name for field in fields(part))
    return given | {name: getattr(config, name) for name in names if name not in given}


class NodeConfig(NodeKeys):
    """One member, and what it needs to know of the others."""

    @model_validator(mode="after")
    def _validate_together(self) -> NodeConfig:
        return self._check_together()

    def _check_together(self) -> NodeConfig:
        try:
            ids = [member.member_id for member in self.cluster_members]
            for member in self.cluster_members:
                _check_port(member.ingress_endpoint)
                _check_port(member.consensus_endpoint)
                if self.consensus_channel != "none":
                    for endpoint in (member.log_endpoint, member.catchup_endpoint, member.archive_endpoint):
                        _check_port(endpoint)
            for endpoint in (
                self.tcp_ingress,
                self.metrics_endpoint,
                parameter(self.ingress_channel, "endpoint"),
                parameter(self.archive_control_channel, "endpoint"),
                *((self.member.archive_endpoint,) if self.archive_control_channel != "none" else ()),
            ):
                if endpoint not in ("auto", "none", ""):
                    _check_port(endpoint)
        except ConfigurationError as error:
            raise do_not_fit(str(error)) from None
        if self.member_id not in ids:
            expected = ", ".join(map(str, ids))
            raise do_not_fit(f"member_id = {self.member_id}: expected one of members: {expected}")
        service_modes_of(self.services, self.service_mode)  # raises
        segment = self.archive_segment_file_length
        _expect(_is_power_of_two(self.log_term_length), "log_term_length", "a power of two")
        _expect(_is_power_of_two(segment), "archive_segment_file_length", "a power of two")
        _expect(
            segment >= self.log_term_length,
            "archive_segment_file_length",
            f"at least log_term_length = {self.log_term_length}",
        )
        _expect(
            not 0 < self.log_bytes_max < 4 * segment,
            "log_bytes_max",
            f"0, or at least four times archive_segment_file_length = {segment}",
        )
        _expect(
            self.reader_bytes_max // self.readers_max >= 64 * KIB,
            "reader_bytes_max",
            f"at least 64k for each of readers_max = {self.readers_max}",
        )
        _expect(self.log_mtu % 32 == 0, "log_mtu", "a multiple of 32")
        timeout_ns = self.leader_heartbeat_timeout_ns
        _expect(
            self.startup_canvass_timeout_ns >= 2 * timeout_ns,
            "startup_canvass_timeout",
            "at least twice leader_heartbeat_timeout",
        )
        _expect(
            self.leader_heartbeat_interval_ns < timeout_ns,
            "leader_heartbeat_interval",
            "less than leader_heartbeat_timeout",
        )
        tls = {bool(path) for path in (self.tls_certificate, self.tls_key, self.tls_ca)}
        _expect(len(tls) == 1, "tls_certificate, tls_key and tls_ca", "all of them or none")
        for name in ("ingress_channel", "archive_control_channel", "consensus_channel"):
            medium = getattr(self, name).partition("?")[0]
            _expect(medium in ("none", "aeron:udp"), name, "none, or a channel such as aeron:udp")
        is_of_java = self.consensus_channel != "none"
        _expect(not is_of_java or len(ids) > 1, "consensus_channel", "none for a member alone: it would lead")
        is_reached = "none" not in (self.ingress_channel, self.archive_control_channel)
        what = "false without consensus_channel, archive_control_channel and ingress_channel"
        _expect((is_of_java and is_reached) or not self.leads_java_members, "leads_java_members", what)
        _expect(
            self.tls_client_certificates == "none" or bool(self.tls_certificate),
            "tls_client_certificates",
            "none without tls_certificate",
        )
        return self

    def reloaded(self, found: NodeConfig) -> NodeConfig:
        """This one with what ``found`` has for the reloadable keys. Raises ConfigurationError."""
        config = self.model_copy(update={name: getattr(found, name) for name in RELOADABLE})
        try:
            return config._check_together()
        except PydanticCustomError as error:
            raise ConfigurationError(f"{error.message()}, before a restart") from None

    # -- what follows from the keys --

    @property
    def cluster_members(self) -> tuple[MemberEndpoints, ...]:
        """The members in the order given."""
        return parse_members("|".join(self.members))

    @property
    def member(self) -> MemberEndpoints:
        """This member's own endpoints."""
        return next(member for member in self.cluster_members if member.member_id == self.member_id)

    @property
    def member_ids(self) -> tuple[int, ...]:
        """The ids of all members, ascending."""
        return tuple(sorted(member.member_id for member in self.cluster_members))

    @property
    def ingress_endpoints(self) -> str:
        """Of all members, as clients get them."""
        return ingress_endpoints(self.cluster_members)

    @property
    def tcp_endpoints(self) -> str:
        """Where the members take plain TCP clients as far as this configuration knows, as ``--endpoints``."""
        pairs = [(member.member_id, self.tcp_ingress_of(member)) for member in self.cluster_members]
        return ",".join(f"{member_id}=tcp:{address}" for member_id, address in pairs if address)

    @property
    def tcp_ingress_endpoints(self) -> str:
        """Of all members, as clients that came by ``tcp:`` get them; empty unless all are known."""
        return self.tcp_endpoints if self.tcp_ingress == "auto" else ""

    @property
    def member_endpoints(self) -> str:
        """All members, as backups get them."""
        return "|".join(str(member) for member in self.cluster_members)

    @property
    def service_modes(self) -> list[str]:
        """Of each service: process, inline or external."""
        return service_modes_of(self.services, self.service_mode)

    def tcp_ingress_of(self, member: MemberEndpoints) -> str:
        """``host:port`` of a member's plain TCP ingress as far as this configuration knows it, else empty."""
        if self.tcp_ingress == "auto":
            return _port_after(member.ingress_endpoint, 1)
        return self.tcp_ingress if member.member_id == self.member_id and self.tcp_ingress != "none" else ""

    def listens_at(self, endpoint: str) -> str:
        """Where this member listens, for an endpoint of its own that others know."""
        if not self.listen:
            return endpoint
        host = f"[{self.listen}]" if ":" in self.listen else self.listen
        return f"{host}:{endpoint.rpartition(':')[2]}"

    @property
    def tcp_listen(self) -> str:
        """``host:port`` at which it listens for plain TCP clients; empty for nowhere."""
        endpoint = self.tcp_ingress_of(self.member)
        return self.listens_at(endpoint) if self.tcp_ingress == "auto" else endpoint

    @property
    def aeron_ingress(self) -> str:
        """The channel of Aeron's clients with its endpoint; empty for none."""
        channel = self._aeron_channel(self.ingress_channel, self.member.ingress_endpoint)
        return channel and with_parameter(channel, "rejoin", "false")

    @property
    def aeron_archive(self) -> str:
        """The channel of clients of the archive with its endpoint; empty for none."""
        return self._aeron_channel(self.archive_control_channel, self.member.archive_endpoint)

    @property
    def aeron_backups(self) -> str:
        """The channel where backups of Aeron's ask what to copy, as of the links; empty for none."""
        if self.archive_control_channel == "none":
            return ""
        channel = "aeron:udp" if self.consensus_channel == "none" else self.consensus_channel
        return self._aeron_channel(channel, self.member.consensus_endpoint)

    def _aeron_channel(self, channel: str, endpoint: str) -> str:
        if channel == "none":
            return ""
        if parameter(channel, "endpoint"):
            return channel
        return with_parameter(channel, "endpoint", self.listens_at(endpoint))

    @property
    def aeron_channels(self) -> dict[int, str]:
        """Where the consensus module is asked by Aeron's medium, by stream."""
        found = {INGRESS: self.aeron_ingress, CONSENSUS: self.aeron_backups}
        return {stream_id: channel for stream_id, channel in found.items() if channel}

    @property
    def may_lead(self) -> bool:
        """Members of Java's are followed only, unless it is said that they are led, too."""
        return self.consensus_channel == "none" or self.leads_java_members

    @property
    def hears_clocks(self) -> bool:
        """Members of Java's report none."""
        return self.consensus_channel == "none"

    @property
    def metrics_address(self) -> str:
        """``host:port`` of this member's metrics; empty: none are served."""
        if self.metrics_endpoint == "auto":
            return self.listens_at(_port_after(self.member.ingress_endpoint, 3))
        return "" if self.metrics_endpoint == "none" else self.metrics_endpoint

    @property
    def path(self) -> Path:
        """The member's directory."""
        return self._path(self.dir)

    @property
    def cluster_path(self) -> Path:
        """Folder of the cluster's files: recording.log, counters, marks."""
        return self._path(self.cluster_dir) if self.cluster_dir else self.path / "cluster"

    @property
    def archive_path(self) -> Path:
        """Folder of the recordings."""
        return self._path(self.archive_dir) if self.archive_dir else self.path / "archive"

    @property
    def driver_path(self) -> Path:
        """Folder of the sockets of one host (``driver_dir``)."""
        return self._path(self.driver_dir) if self.driver_dir else self.path / "driver"

    def _path(self, text: str) -> Path:
        return Path(text.replace("{member_id}", str(self.member_id)))

    @property
    def link_paths(self) -> dict[int, Path]:
        """The Unix sockets of the links on this host; none when {member_id} stands in no directory."""
        ports = {m.member_id: parse_endpoint(f"tcp:{m.consensus_endpoint}") for m in self.cluster_members}
        paths = {
            member_id: self.model_copy(update={"member_id": member_id}).driver_path / f"link-{at.port}.sock"
            for member_id, at in ports.items()
            if at.host in LOOPBACK_HOSTS
        }
        return paths if len({path.parent for path in paths.values()}) == len(paths) else {}

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches the member may write and read."""
        return self.authenticator == "none" and not self.authorisation

    @property
    def bounds(self) -> Bounds:
        """What strangers may take, for the ports."""
        return Bounds(**fields_of(self, Bounds))

    @property
    def tls_files(self) -> TlsFiles | None:
        """What this member shows and checks over TLS; None: it speaks none."""
        if not self.tls_certificate:
            return None
        return TlsFiles(
            *(str(self._path(text)) for text in (self.tls_ca, self.tls_certificate, self.tls_key))
        )

    @property
    def module_context(self) -> ConsensusModuleContext:
        """What concerns the consensus module."""
        time_unit, service_count = TIME_UNITS[self.cluster_clock], len(self.services)
        given = {"is_standby": False, "time_unit": time_unit, "service_count": service_count}
        return ConsensusModuleContext(**fields_of(self, ConsensusModuleContext, **given))

    @property
    def ipc_path(self) -> Path:
        """The Unix socket of ipc clients."""
        return self.driver_path / "ingress.sock"


def _expect(is_right: bool, name: str, expected: str) -> None:
    if not is_right:
        raise do_not_fit(f"{name}: expected {expected}")


def _check_port(endpoint: str) -> None:
    """Raise ConfigurationError for an endpoint that nobody can be reached at."""
    if parse_endpoint(endpoint).port == 0:
        raise ConfigurationError(f"endpoint {endpoint!r}: expected a port from 1 to 65535")


def _port_after(endpoint: str, count: int) -> str:
    host, _, port = endpoint.rpartition(":")
    return f"{host}:{int(port) + count}"


def _is_power_of_two(value: int) -> bool:
    return value & (value - 1) == 0
