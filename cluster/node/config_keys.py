"""The keys of a member's configuration: one flat table, which ``config_text.py`` loads.

Each key says its unit, its default, Aeron's name for it, and why one would change it; ``conf/node.toml`` is
made of that. Attributes have the unit in their name (``session_timeout_ns``), keys in their value
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
    size_text,
)
from cluster.node.config_types import duration as _duration
from cluster.node.config_types import key as _key
from cluster.node.config_types import size as _size
from cluster.protocol.versions import version_text
from cluster.service.service_context import ServiceContext
from cluster.transport.bounds import DEFAULT_BOUNDS as BOUNDS

KIB, MIB = 1 << 10, 1 << 20
MODULE, SERVICE = ConsensusModuleContext(), ServiceContext()


class NodeKeys(BaseModel):
    """Each key by itself; what must hold among them is ``NodeConfig``'s (``config.py``)."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=key_of, populate_by_name=True)

    # -- who --
    cluster_id: int = _key(
        MODULE.cluster_id,
        """Distinguishes clusters that share a host: members of another id are refused, and the counters
        carry it.""",
        aeron="aeron.cluster.id",
        section="Who this member is",
        ge=0,
        le=2**31 - 1,
    )
    member_id: int = _key(
        MODULE.member_id,
        "This member, as in `members`. Overridden by --member.",
        aeron="aeron.cluster.member.id",
        ge=0,
        le=2**31 - 1,
    )
    members: Members = _key(
        ["0,127.0.0.1:9000,127.0.0.1:9002,127.0.0.1:9002,127.0.0.1:9002,127.0.0.1:9002"],
        """All members, each "id,ingress,consensus,log,catchup,archive" as in Aeron; the same on every member.
        Ingress is where clients reach it over gRPC. The other four are one link here, at the consensus
        endpoint. On one host it goes through Unix sockets by itself where {member_id} stands in `dir`, or in
        `driver_dir`. An odd number is best.""",
        aeron="aeron.cluster.members",
    )
    listen: str = _key(
        "",
        """The host at which this member listens, such as "0.0.0.0", where `members` gives others another
        address: in a container, or where a host's name is another address inside. Ports are those of
        `members`. When empty it listens at its endpoints in `members`.""",
        unit="host",
    )
    tcp_ingress: str = _key(
        "auto",
        """Where clients reach this member over plain TCP ("tcp:host:port" at the client): "auto" is the port
        after that of its ingress endpoint, "none" is nowhere.""",
        unit="host:port, auto or none",
    )
    ipc_ingress: bool = _key(
        True,
        """Whether clients on this host reach it over the Unix socket `driver_dir`/ingress.sock.""",
        aeron="aeron.cluster.ingress.ipc.allowed",
    )
    grpc_gateway: Literal["thread", "none"] = _key(
        "thread",
        """What serves gRPC at the ingress endpoint: a thread of the member, or nothing (then only tcp and ipc
        clients are served).""",
    )

    ingress_channel: str = _key(
        "none",
        """Where clients of Aeron's (`AeronCluster`) reach this member, over UDP and by a media driver on this
        host (docs/aeron.md): "aeron:udp" is the ingress endpoint of `members`, and
        "aeron:udp?endpoint=host:port" another. Aeron's medium knows no TLS: beyond loopback it takes
        insecure_network.""",
        aeron="aeron.cluster.ingress.channel",
    )
    archive_control_channel: str = _key(
        "none",
        """Where a `ClusterBackup` of Aeron's and other clients of archives replay this member's recordings,
        over UDP and by that media driver: "aeron:udp" is the archive endpoint of `members`, and
        "aeron:udp?endpoint=host:port" another. Backups are answered at the consensus endpoint, too. It knows
        no TLS, either.""",
        aeron="aeron.archive.control.channel",
    )
    consensus_channel: str = _key(
        "none",
        """The medium of all that members send each other: "none" is TCP, between members of this project.
        "aeron:udp" is Aeron's, by the media driver of `aeron_dir`: the others are members of Java's, and
        this one follows and votes (docs/aeron.md). It knows no TLS, either.""",
        aeron="aeron.cluster.consensus.channel",
    )
    leads_java_members: bool = _key(
        False,
        """Whether this member may lead members of Java's, too. What it commits then stands on what they have
        recorded, and they do not say whether it is on their disks (docs/aeron.md). It takes ingress_channel
        and archive_control_channel: clients and members go to their leader.""",
    )
    aeron_dir: str = _key(
        "", "The directory of that media driver; /dev/shm/aeron-<user> when empty, of the member's user."
    )

    # -- where --
    dir: str = _key(
        "member-{member_id}",
        """The member's directory, made when missing; {member_id} stands for the id, so that members can share
        one file. Overridden by --dir; CLUSTER_DIR is for commands. The next three lie within unless set.""",
        section="Where its files are",
    )
    cluster_dir: str = _key(
        "",
        "recording.log, node-state.dat and mark files; `dir`/cluster when empty.",
        aeron="aeron.cluster.dir",
    )
    archive_dir: str = _key(
        "", "Catalog and segments of the log; `dir`/archive when empty.", aeron="aeron.archive.dir"
    )
    driver_dir: str = _key(
        "",
        "cnc.dat with the counters, and the Unix sockets; `dir`/driver when empty. A tmpfs spares the disk.",
        aeron="aeron.dir",
    )

    # -- services --
    services: Names = _key(
        ["echo"],
        """The clustered services, by ascending service id: "echo", or "module:ClassName", found from the
        working directory too. At most ten; the same on every member.""",
        aeron="aeron.cluster.service.class.name, aeron.cluster.service.count",
        section="Services",
        min_length=1,
        max_length=10,
    )
    service_mode: ServiceModes = _key(
        ["auto"],
        """Where services run, one mode for all or one for each. process: in a process of its own, which the
        member starts, and starts again when it has died; however slow or broken the service is, its member
        goes on. inline: in the thread of the member, which waits as long as a callback takes. external:
        as process, but somebody else starts `cluster service`. auto: inline for echo, process for others.""",
    )
    service_snapshot_timeout_ns: Duration = _duration(
        "60s",
        """How long a snapshot waits for a service in a process of its own to come to its place in the log;
        then this member goes on without that snapshot.""",
    )
    app_version: Version = _key(
        version_text(MODULE.app_version),
        "Version of the services. A log of another major version is not replayed.",
        unit="major.minor.patch",
    )
    log_fragment_limit: int = _key(
        SERVICE.log_fragment_limit,
        """Most messages that a service is given in one turn. Aeron has 50; a vectorised service gains from
        more, a slow one wants fewer, lest its member be late with heartbeats.""",
        unit="messages",
        aeron="aeron.cluster.log.fragment.limit",
        ge=1,
        le=1 << 20,
    )
    service_responder: bool = _key(
        SERVICE.is_responder,
        "Whether services answer clients; if not, their offers return NOT_CONNECTED.",
        aeron="aeron.cluster.service.responder",
    )
    service_error_policy: Literal["continue", "stop"] = _key(
        "continue",
        """What an exception of a service's callback does to its member. continue: it is counted and reported,
        and the log goes on after the entry; a service that fails on every member alike stays alike. stop: the
        member ends, and meets the same entry again when it is started, until the service is repaired. The
        same on every member.""",
    )
    service_cycle_threshold_ns: Duration = _duration(
        "100ms",
        "Turns of a service that are longer than this are counted (counter 219).",
        aeron="aeron.cluster.service.cycle.threshold",
    )

    # -- sessions --
    max_sessions: int = _key(
        MODULE.max_sessions,
        "Most client sessions, pending ones included; Aeron has 10. A further connect is refused.",
        aeron="aeron.cluster.max.sessions",
        section="Client sessions",
        ge=1,
        le=1_000_000,
    )
    session_timeout_ns: Duration = _duration(
        MODULE.session_timeout_ns,
        "A session without a message or keep-alive for this long is closed.",
        aeron="aeron.cluster.session.timeout",
        reloadable=True,
    )
    clock_skew_max_ns: Duration = _duration(
        MODULE.clock_skew_max_ns,
        """How far a leader's clock may be from those of a majority. One that is further off counts only up
        to there; Aeron believes every clock.""",
    )
    # -- who may come in --
    insecure_network: bool = _key(
        False,
        """Whether the member may listen beyond loopback without TLS and an authenticator. Whoever reaches
        its ports may then read the whole log, write into it, and take part as a member.""",
        section="Who may come in",
    )
    authenticator: str = _key(
        "none",
        """Who a client is. none: nobody in particular. token: whom its token names. password: the user whose
        password it has. certificate: the name in its certificate, which TLS has verified. Or an Authenticator
        of your own, "module:ClassName", found from the working directory too. The same on every member.""",
        unit="none, token, password, certificate or module:ClassName",
        aeron="aeron.cluster.authenticator.supplier",
    )
    authenticator_file: str = _key(
        "",
        """Of token and password: a file with a line for each principal, which `cluster principal add` writes.
        It is read again when it changes.""",
    )
    authorisation: str = _key(
        "",
        """What each principal may do: a file of lines such as "alice: write, read", "*" for all others, read
        again when it changes; or an AuthorisationService of your own, "module:ClassName". When empty:
        without an authenticator all may write and read, with one nobody may do anything.""",
        aeron="aeron.cluster.authorisation.service.supplier",
    )
    # -- TLS --
    tls_certificate: str = _key(
        "",
        """This member's certificate in PEM, with those between it and the authority; {member_id} stands for
        the id. Its common name, and one of its DNS names, is "member-<id>.cluster-<cluster id>", as `cluster
        certs` makes it. Set together with the next two: TLS is then all that the TCP and gRPC ports speak, to
        clients, readers and members. Files that change are read again. These three have no environment
        variables: those of such names are the clients'.""",
        section="TLS",
    )
    tls_key: str = _key("", "Its key in PEM, without a passphrase; {member_id} stands for the id.")
    tls_ca: str = _key(
        "",
        "The authorities in PEM that members, and clients who show a certificate, are checked against; "
        "{member_id} stands for the id.",
    )
    tls_client_certificates: Literal["none", "required"] = _key(
        "none",
        """Whether clients and readers have to show a certificate of `tls_ca`, over TCP and gRPC. Members
        always do.""",
    )
    # -- strangers: whoever has no session yet, or only reads --
    connections_max: int = _key(
        BOUNDS.connections_max,
        """Most connections of clients, over all media. At this bound a new one takes the place of the oldest
        over which no session is served, and is refused where there is none.""",
        section="What strangers may take",
        unit="connections",
        ge=1,
        le=1 << 20,
    )
    address_connections_max: int = _key(
        BOUNDS.address_connections_max,
        "As connections_max, of one host over TCP or gRPC.",
        unit="connections",
        ge=1,
        le=1 << 20,
        reloadable=True,
    )
    session_open_timeout_ns: Duration = _duration(
        BOUNDS.session_open_timeout_ns,
        "A connection over which no session is open after this long is closed.",
    )
    connection_sessions_max: int = _key(
        MODULE.connection_sessions_max,
        "Most sessions of one connection; Aeron's clients, and ours, have one each.",
        unit="sessions",
        ge=1,
        reloadable=True,
    )
    supervised_bytes_max: Size = _size(
        size_text(MODULE.supervised_bytes_max),
        """Most bytes of answers that are kept of a supervised session until its client has them. Then no more
        of its messages are taken; at sixteen times as many the session is closed.""",
        ge=64 * KIB,
        le=1024 * MIB,
    )
    lanes_max: int = _key(
        MODULE.lanes_max,
        """Most lanes that are kept, one for each application and partition (docs/clients.md). Further
        ones are refused.""",
        unit="lanes",
        ge=1,
        le=1_000_000,
        reloadable=True,
    )
    lane_retention_ns: Duration = _duration(
        MODULE.lane_retention_ns,
        """An application that opens none of its lanes for this long is forgotten: a batch that it sends again
        is in the log twice then. The leader's counts.""",
        reloadable=True,
    )
    consumers_max: int = _key(
        MODULE.consumers_max,
        "Most consumer groups that are kept (docs/clients.md). Further ones are refused.",
        unit="groups",
        ge=1,
        le=65536,
        reloadable=True,
    )
    consumer_retention_ns: Duration = _duration(
        MODULE.consumer_retention_ns,
        """A consumer group that reports nothing for this long is forgotten, and keeps no log any more. The
        leader's counts.""",
        reloadable=True,
    )
    response_channel_length_max: int = _key(
        MODULE.response_channel_length_max,
        """Longest responseChannel of a connect request. It stands in the log, in every member's memory and in
        every snapshot.""",
        unit="characters",
        ge=128,
        le=64 * KIB,
        reloadable=True,
    )
    request_length_max: Size = _size(
        size_text(MODULE.request_length_max),
        """Longest message of a client other than those for the services: a connect request with its
        credentials, an answer to a challenge.""",
        ge=KIB,
        le=MIB,
    )
    frame_timeout_ns: Duration = _duration(
        BOUNDS.frame_timeout_ns,
        "Whoever has sent half a frame has this long for the rest.",
        reloadable=True,
    )
    received_bytes_max: Size = _size(
        size_text(BOUNDS.received_bytes_max),
        """Most bytes that are kept of frames that have not come whole, of all clients together. Beyond it
        whoever holds most is cut off, one without a session first.""",
        ge=MIB,
        reloadable=True,
    )
    egress_bytes_max: Size = _size(
        size_text(BOUNDS.egress_bytes_max),
        """Most bytes of egress that wait for one client, which is cut off then. When the log goes on after a
        pause of the majority, 32 MiB may be committed, and answered, at once.""",
        ge=MIB,
    )
    egress_bytes_total_max: Size = _size(
        size_text(BOUNDS.egress_bytes_total_max),
        "As egress_bytes_max, of all clients together; the client that lags most is cut off.",
        ge=MIB,
        reloadable=True,
    )
    readers_max: int = _key(
        BOUNDS.readers_max,
        "Most connections of readers, of which one over tcp has up to two; a further one is refused.",
        unit="connections",
        ge=2,
        le=1 << 16,
    )
    reader_bytes_max: Size = _size(
        size_text(BOUNDS.reader_bytes_max),
        """Most bytes in memory that all readers together have not taken yet: each gets blocks of at most its
        share.""",
        ge=MIB,
        reloadable=True,
    )
    reader_timeout_ns: Duration = _duration(
        BOUNDS.reader_timeout_ns,
        "A reader that takes nothing of what it is sent, or asks nothing, for this long is cut off.",
        reloadable=True,
    )
    greetings_max: int = _key(
        BOUNDS.greetings_max,
        """Most connections on the members' port that have not said Hello; at this bound the oldest of them
        makes room.""",
        unit="connections",
        ge=1,
        le=1 << 16,
    )
    greeting_timeout_ns: Duration = _duration(
        BOUNDS.greeting_timeout_ns,
        "A connection there that says no Hello for this long is closed.",
        reloadable=True,
    )
    greeting_length_max: Size = _size(
        size_text(BOUNDS.greeting_length_max),
        "Longest frame there before the Hello, which has some 100 bytes.",
        ge=KIB,
        le=MIB,
    )
    # -- elections --
    leader_heartbeat_timeout_ns: Duration = _duration(
        MODULE.leader_heartbeat_timeout_ns,
        """A leader that is silent for this long is given up, as is a follower. A leader whose process is gone
        is noticed by its broken links, long before.""",
        aeron="aeron.cluster.leader.heartbeat.timeout",
        section="Elections and heartbeats",
    )
    leader_heartbeat_interval_ns: Duration = _duration(
        MODULE.leader_heartbeat_interval_ns,
        "How often the leader reports the commit position, and a follower its append position, when idle.",
        aeron="aeron.cluster.leader.heartbeat.interval",
    )
    startup_canvass_timeout_ns: Duration = _duration(
        MODULE.startup_canvass_timeout_ns,
        "How long starting members wait for one whose host is silent before a majority is enough; at least "
        "twice leader_heartbeat_timeout. One whose host refuses the connection is waited for as long as "
        "leader_heartbeat_timeout, one whose process has ended since not at all. A new cluster, all of whose "
        "directories are empty, waits for every member without an end.",
        aeron="aeron.cluster.startup.canvass.timeout",
    )
    election_timeout_ns: Duration = _duration(
        MODULE.election_timeout_ns,
        "How long a candidate waits for votes; half of it bounds the random delay before it stands.",
        aeron="aeron.cluster.election.timeout",
    )
    election_status_interval_ns: Duration = _duration(
        MODULE.election_status_interval_ns,
        "How often positions are reported again during an election.",
        aeron="aeron.cluster.election.status.interval",
    )
    termination_timeout_ns: Duration = _duration(
        MODULE.termination_timeout_ns,
        "How long an orderly stop of the leader waits for the followers to reach its end.",
        aeron="aeron.cluster.termination.timeout",
    )
    appointed_leader_id: int = _key(
        MODULE.appointed_leader_id,
        "Only this member may stand for election; -1: any. For tests: a cluster without it has no leader.",
        aeron="aeron.cluster.appointed.leader.id",
        ge=-1,
        le=2**31 - 1,
    )

    # -- time --
    cluster_clock: Literal["ms", "us", "ns"] = _key(
        "ms",
        "Unit of cluster time: timestamps, timer deadlines. Fixed by the first start of a cluster.",
        aeron="aeron.cluster.clock",
        section="Time",
    )
    cycle_threshold_ns: Duration = _duration(
        MODULE.cycle_threshold_ns,
        "Turns of the consensus module that are longer than this are counted (counter 217).",
        aeron="aeron.cluster.cycle.threshold",
    )

    # -- log and disk --
    file_sync_level: int = _key(
        1,
        """When an appended position counts: 0 written, 1 its bytes synced (fdatasync), 2 its bytes and
        metadata synced (fsync). A power cut may lose at level 0 what was acknowledged.""",
        aeron="aeron.cluster.file.sync.level, aeron.archive.file.sync.level",
        section="Log and disk",
        ge=0,
        le=2,
    )
    log_term_length: Size = _size(
        size_text(MODULE.log_term_length),
        "Length of a term of the log, a power of two; an eighth of it is the longest message. Fixed by the "
        "first start of a cluster.",
        aeron="term-length of aeron.cluster.log.channel",
        ge=64 * KIB,
        le=1 << 30,
    )
    log_mtu: Size = _size(
        MODULE.log_mtu,
        "Longest frame in the log, a multiple of 32; longer messages are fragmented. Fixed by the first "
        "start of a cluster.",
        aeron="mtu of aeron.cluster.log.channel",
        ge=96,
        le=65_504,
    )
    archive_segment_file_length: Size = _size(
        "128m",
        "Length of a segment file of the log, a power of two and at least a term.",
        aeron="aeron.archive.segment.file.length",
        ge=64 * KIB,
        le=1 << 30,
    )
    archive_record_checksum: Literal["none", "crc32", "crc32c"] = _key(
        "crc32c",
        """Checksum that new recordings keep in each frame: what rots on a disk is found before it is served,
        and fetched from other members. A recording that exists keeps what it began with, and members may
        differ. crc32c goes by the processor's own instruction.""",
        aeron="aeron.archive.record.checksum",
    )
    archive_cached_length: Size = _size(
        "64m",
        """How many bytes before the end of the log stay in the page cache. Who reads further back reads from
        the disk, and the kernel has the same memory for what is appended next. More where readers lag by
        more; 0: the kernel decides.""",
        ge=0,
        le=1 << 62,
    )
    snapshot_every_bytes: Size = _size(
        MODULE.snapshot_every_bytes,
        """The leader has all members take a snapshot when the log has grown by so much since the last one; 0
        is never, because a service that writes no snapshot would lose its state by one. A start reads at most
        so much log. A cluster that is suspended, or at another operator's request, takes it later.""",
        ge=0,
        le=1 << 62,
        reloadable=True,
    )
    snapshot_every_ns: Duration = _duration(
        MODULE.snapshot_every_ns,
        """The same when the last one is so old, by cluster time, and anything was appended since; 0 is
        never.""",
        ge=0,
        le=1 << 62,
        reloadable=True,
    )
    log_retained_snapshots: int = _key(
        MODULE.log_retained_snapshots,
        """Segments of the log that are older than the n-th last snapshot are dropped, and older snapshots
        with them; 0 keeps everything. With 1 a damaged snapshot costs a copy from another member, with 2 a
        replay. Readers that ask for what was dropped get an error. In Aeron this is the operator's work.""",
        unit="snapshots",
        ge=0,
        le=1000,
        reloadable=True,
    )
    log_bytes_max: Size = _size(
        MODULE.log_bytes_max,
        """What the log may take of the disk, at least four segments. The leader takes a snapshot for each
        quarter of it. From a half on a member drops what its last snapshot stands for, whatever
        log_retained_snapshots says. What readers, an export or other members need stays; groups keep half of
        it at most. At nine tenths node.log says so. When all of it is used the leader takes no more input.
        0: no bound.""",
        ge=0,
        le=1 << 62,
        reloadable=True,
    )
    disk_free_min: Free = _key(
        MODULE.disk_free_min,
        """What stays free of the file system with the archive. Below four times as much the log before the
        last snapshot is dropped, and a snapshot taken each segment; below twice as much node.log says so,
        below this the leader takes no more input. auto: a twentieth of the file system, at most 1g; then
        log_retained_snapshots is kept to, and nobody takes a snapshot before one was asked for. 0: no
        bound.""",
        unit="bytes (k, m, g), or auto",
        reloadable=True,
    )
    accept_standby_snapshots: bool = _key(
        MODULE.accept_standby_snapshots,
        """Whether recording.log gets the snapshots that standbys announce. A member that starts fetches the
        newest first, if it is newer than its own; a running one at `cluster tool
        replicate-standby-snapshot`. Whoever has the right to read may announce some.""",
        aeron="aeron.cluster.accept.standby.snapshots",
    )
    standby_token_file: str = _key(
        "",
        """The token to show to a standby whose snapshot is fetched, where its authenticator asks for one, in
        the first line of a file. Over TLS this member shows its certificate, too.""",
    )
    consumer_hold_bytes: Size = _size(
        size_text(MODULE.consumer_hold_bytes),
        """Most bytes of log before the commit position that consumer groups keep, whatever
        log_retained_snapshots says. A group that needs more is not waited for. 0: nothing.""",
        ge=0,
        reloadable=True,
    )
    log_export_watermark: bool = _key(
        False,
        """Whether what was not exported yet is kept, whatever log_retained_snapshots says: the log from the
        position in `cluster_dir`/export-watermark on, which `cluster tool export-watermark` sets.""",
    )
    # -- process --
    idle_spin_ns: Duration = _duration(
        "0ns",
        """How long an idle member goes on polling before it sleeps until a socket wakes it. With 0 it polls
        for 30 us, and only as long as that finds something: right where members share cores. With a core to
        itself, 50us to 200us spare the wake-up of some 10 to 50 us in a conversation of short turns.""",
        aeron="aeron.cluster.idle.strategy",
        section="Process",
        ge=0,
        le=1_000_000_000,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "info",
        """Least level written to `dir`/node.log, one JSON object a line. What a member does is info; what
        should not happen, as a member that was not run for its lease, is a warning. With debug every message
        between members, clients and services is a line, at most 1,000 a second, without its payload. SIGUSR1
        turns that on and off.""",
        reloadable=True,
    )
    node_log_bytes: Size = _size(
        "64m",
        """At this length node.log becomes node.log.1, in place of the one before: twice this at most.
        `cluster up` looks after output.log in the same way once a minute.""",
        ge=65_536,
        reloadable=True,
    )
    metrics_endpoint: str = _key(
        "none",
        """Where a process beside this member serves /metrics, /livez, /readyz and /status over HTTP
        (docs/monitoring.md): "auto" is the third port after that of its ingress endpoint. It speaks TLS and
        asks for the right to read where the member does.""",
        unit="host:port, auto or none",
    )


KEYS = tuple(key_of(name) for name in NodeKeys.model_fields)
RELOADABLE = reloadable_of(NodeKeys)
