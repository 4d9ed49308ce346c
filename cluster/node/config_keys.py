"""The keys of a member's configuration: one flat table, which ``config_text.py`` loads.

``conf/node.toml`` says of each key what it is for and why one would change it, its unit, its default and
Aeron's name for it. Attributes have the unit in their name (``session_timeout_ns``), keys in their value
(``session_timeout = "10s"``).

A ``reloadable`` key changes while the member runs (``reload.py``). It is read at each use, and members with
different values of it still agree: only the leader goes by it, or each member for itself.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from cluster.consensus.context import ConsensusModuleContext
from cluster.node.config_types import (
    Duration,
    Free,
    Members,
    Names,
    ServiceModes,
    Size,
    Version,
    key_of,
    reloadable_of,
)
from cluster.node.config_types import duration as _duration
from cluster.node.config_types import key as _key
from cluster.protocol.versions import version_text
from cluster.service.service_context import ServiceContext
from cluster.transport.bounds import DEFAULT_BOUNDS as BOUNDS

KIB, MIB = 1 << 10, 1 << 20
MODULE, SERVICE = ConsensusModuleContext(), ServiceContext()


class NodeKeys(BaseModel):
    """Each key by itself; what must hold among them is ``NodeConfig``'s (``config.py``)."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=key_of, populate_by_name=True)

    # -- who --
    cluster_id: int = _key(MODULE.cluster_id, ge=0, le=2**31 - 1)
    member_id: int = _key(MODULE.member_id, ge=0, le=2**31 - 1)
    members: Members = _key(["0,127.0.0.1:9000,127.0.0.1:9002,127.0.0.1:9002,127.0.0.1:9002,127.0.0.1:9002"])
    listen: str = _key("")
    tcp_ingress: str = _key("auto")
    ipc_ingress: bool = _key(True)
    grpc_gateway: Literal["thread", "none"] = _key("thread")

    ingress_channel: str = _key("none")
    archive_control_channel: str = _key("none")
    consensus_channel: str = _key("none")
    leads_java_members: bool = _key(False)
    aeron_dir: str = _key("")

    # -- where --
    dir: str = _key("member-{member_id}")
    cluster_dir: str = _key("")
    archive_dir: str = _key("")
    driver_dir: str = _key("")

    # -- services --
    services: Names = _key(["echo"], min_length=1, max_length=10)
    service_mode: ServiceModes = _key(["auto"])
    service_snapshot_timeout_ns: Duration = _duration("60s")
    app_version: Version = _key(version_text(MODULE.app_version))
    log_fragment_limit: int = _key(SERVICE.log_fragment_limit, ge=1, le=1 << 20)
    service_responder: bool = _key(SERVICE.is_responder)
    service_error_policy: Literal["continue", "stop"] = _key("continue")
    service_cycle_threshold_ns: Duration = _duration("100ms")

    # -- sessions --
    max_sessions: int = _key(MODULE.max_sessions, ge=1, le=1_000_000)
    session_timeout_ns: Duration = _duration(MODULE.session_timeout_ns, reloadable=True)
    clock_skew_max_ns: Duration = _duration(MODULE.clock_skew_max_ns)
    # -- who may come in --
    insecure_network: bool = _key(False)
    authenticator: str = _key("none")
    authenticator_file: str = _key("")
    authorisation: str = _key("")
    # -- TLS --
    tls_certificate: str = _key("")
    tls_key: str = _key("")
    tls_ca: str = _key("")
    tls_client_certificates: Literal["none", "required"] = _key("none")
    # -- strangers: whoever has no session yet, or only reads --
    connections_max: int = _key(BOUNDS.connections_max, ge=1, le=1 << 20)
    address_connections_max: int = _key(BOUNDS.address_connections_max, ge=1, le=1 << 20, reloadable=True)
    session_open_timeout_ns: Duration = _duration(BOUNDS.session_open_timeout_ns)
    connection_sessions_max: int = _key(MODULE.connection_sessions_max, ge=1, reloadable=True)
    supervised_bytes_max: Size = _key(MODULE.supervised_bytes_max, ge=64 * KIB, le=1024 * MIB)
    lanes_max: int = _key(MODULE.lanes_max, ge=1, le=1_000_000, reloadable=True)
    lane_retention_ns: Duration = _duration(MODULE.lane_retention_ns, reloadable=True)
    consumers_max: int = _key(MODULE.consumers_max, ge=1, le=65536, reloadable=True)
    consumer_retention_ns: Duration = _duration(MODULE.consumer_retention_ns, reloadable=True)
    response_channel_length_max: int = _key(
        MODULE.response_channel_length_max, ge=128, le=64 * KIB, reloadable=True
    )
    request_length_max: Size = _key(MODULE.request_length_max, ge=KIB, le=MIB)
    frame_timeout_ns: Duration = _duration(BOUNDS.frame_timeout_ns, reloadable=True)
    received_bytes_max: Size = _key(BOUNDS.received_bytes_max, ge=MIB, reloadable=True)
    egress_bytes_max: Size = _key(BOUNDS.egress_bytes_max, ge=MIB)
    egress_bytes_total_max: Size = _key(BOUNDS.egress_bytes_total_max, ge=MIB, reloadable=True)
    readers_max: int = _key(BOUNDS.readers_max, ge=2, le=1 << 16)
    reader_bytes_max: Size = _key(BOUNDS.reader_bytes_max, ge=MIB, reloadable=True)
    reader_timeout_ns: Duration = _duration(BOUNDS.reader_timeout_ns, reloadable=True)
    greetings_max: int = _key(BOUNDS.greetings_max, ge=1, le=1 << 16)
    greeting_timeout_ns: Duration = _duration(BOUNDS.greeting_timeout_ns, reloadable=True)
    greeting_length_max: Size = _key(BOUNDS.greeting_length_max, ge=KIB, le=MIB)
    # -- elections --
    leader_heartbeat_timeout_ns: Duration = _duration(MODULE.leader_heartbeat_timeout_ns)
    leader_heartbeat_interval_ns: Duration = _duration(MODULE.leader_heartbeat_interval_ns)
    startup_canvass_timeout_ns: Duration = _duration(MODULE.startup_canvass_timeout_ns)
    election_timeout_ns: Duration = _duration(MODULE.election_timeout_ns)
    election_status_interval_ns: Duration = _duration(MODULE.election_status_interval_ns)
    termination_timeout_ns: Duration = _duration(MODULE.termination_timeout_ns)
    appointed_leader_id: int = _key(MODULE.appointed_leader_id, ge=-1, le=2**31 - 1)

    # -- time --
    cluster_clock: Literal["ms", "us", "ns"] = _key("ms")
    cycle_threshold_ns: Duration = _duration(MODULE.cycle_threshold_ns)

    # -- log and disk --
    file_sync_level: int = _key(1, ge=0, le=2)
    log_term_length: Size = _key(MODULE.log_term_length, ge=64 * KIB, le=1 << 30)
    log_mtu: Size = _key(MODULE.log_mtu, ge=96, le=65_504)
    archive_segment_file_length: Size = _key("128m", ge=64 * KIB, le=1 << 30)
    archive_record_checksum: Literal["none", "crc32", "crc32c"] = _key("crc32c")
    archive_cached_length: Size = _key("64m", ge=0, le=1 << 62)
    snapshot_every_bytes: Size = _key(MODULE.snapshot_every_bytes, ge=0, le=1 << 62, reloadable=True)
    snapshot_every_ns: Duration = _duration(MODULE.snapshot_every_ns, ge=0, le=1 << 62, reloadable=True)
    log_retained_snapshots: int = _key(MODULE.log_retained_snapshots, ge=0, le=1000, reloadable=True)
    log_bytes_max: Size = _key(MODULE.log_bytes_max, ge=0, le=1 << 62, reloadable=True)
    disk_free_min: Free = _key(MODULE.disk_free_min, reloadable=True)
    accept_standby_snapshots: bool = _key(MODULE.accept_standby_snapshots)
    standby_token_file: str = _key("")
    consumer_hold_bytes: Size = _key(MODULE.consumer_hold_bytes, ge=0, reloadable=True)
    log_export_watermark: bool = _key(False)
    # -- process --
    idle_spin_ns: Duration = _duration("0ns", ge=0, le=1_000_000_000)
    log_level: Literal["debug", "info", "warning", "error"] = _key("info", reloadable=True)
    node_log_bytes: Size = _key("64m", ge=65_536, reloadable=True)
    metrics_endpoint: str = _key("none")


KEYS = tuple(key_of(name) for name in NodeKeys.model_fields)
RELOADABLE = reloadable_of(NodeKeys)
