"""What a client is given before it connects, checked before anything is sent (AeronCluster.Context)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from cluster.aeron.consensus_endpoints import parse_consensus_endpoints
from cluster.client.egress_dispatch import EgressDispatch, as_dispatch
from cluster.client.window import WINDOW_BYTES_DEFAULT
from cluster.errors import ConfigurationError
from cluster.protocol.consumer import Consumer
from cluster.protocol.lane import Lane
from cluster.transport.credentials import CredentialsSupplier, as_supplier
from cluster.transport.endpoint import Endpoint, Medium, parse_endpoints
from cluster.transport.tls import TlsFiles

SECOND_NS = 1_000_000_000
CLIENT_NAME_LENGTH_MAX = 100
_AERON = "aeron:"  # in front of consensus endpoints


class ClientSettings(TypedDict, total=False):
    """The keyword arguments of ``connect``; ``ClientContext`` describes them."""

    credentials: bytes | CredentialsSupplier
    client_name: str
    message_timeout_s: float
    new_leader_timeout_s: float | None
    keep_alive_interval_s: float | None
    window_bytes: int
    reopen: bool
    supervised: bool
    lane: Lane | None
    consumer: Consumer | None
    cluster_id: int
    tls: TlsFiles | None
    aeron_dir: str | None


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The settings of one client. Times are in seconds; properties with ``…_ns`` have them in nanoseconds.

    ``credentials``: who the client is, for the cluster's authenticator.
    ``client_name``: a name for people who look at the cluster's sessions, at most 100 characters.
    ``message_timeout_s``: how long connecting may take, and how long a leader may take to answer.
    ``new_leader_timeout_s``: how long a session may be without a leader before the client gives it up. None:
    twice the leader's heartbeat time-out, which the cluster announces.
    ``keep_alive_interval_s``: how long the client is silent before it sends a keep-alive. None: the
    application sends keep-alives itself, as with Aeron's client, and the client has no thread of its own.
    ``window_bytes``: the limit of messages that are kept, to be sent again, until they are committed.
    ``reopen``: if the session is lost, and no service has closed it, open another one, and retry until that
    succeeds. The listener needs ``on_session_lost``.
    ``supervised``: each answer arrives once, whichever leader dies, because the members keep answers until
    the client has them. A client that polls too rarely has to wait before it can send
    (``supervised_bytes_max``).
    ``lane``: the lane that this session opens (``cluster/protocol/lane.py``): the cluster counts its rows,
    and a lane has one session at a time.
    ``consumer``: report the position of a consumer group (``cluster/protocol/consumer.py``). The report is in
    the log when the session is open, and the session does nothing else. A position below the group's is
    refused.
    ``cluster_id``: refuse members of another cluster; -1 accepts any.
    ``tls``: paths of PEM files, if the members use TLS. The client checks the chain and the host name.
    ``aeron_dir``: with ``aeron:`` endpoints, the directory of a media driver on this host; None: the user's.
    """

    ingress_endpoints: str | Mapping[int, str | Endpoint]
    egress_listener: object = None
    credentials: bytes | CredentialsSupplier = field(default=b"", repr=False)
    client_name: str = ""
    message_timeout_s: float = 5.0
    new_leader_timeout_s: float | None = None
    keep_alive_interval_s: float | None = 1.0
    window_bytes: int = WINDOW_BYTES_DEFAULT
    reopen: bool = False
    supervised: bool = False
    lane: Lane | None = None
    consumer: Consumer | None = None
    cluster_id: int = -1
    tls: TlsFiles | None = None
    aeron_dir: str | None = None
    endpoints: dict[int, Endpoint] = field(init=False)
    dispatch: EgressDispatch = field(init=False)
    credentials_supplier: CredentialsSupplier = field(init=False)

    def __post_init__(self) -> None:
        """``ConfigurationError`` names the setting, its value and what was expected."""
        if isinstance(self.ingress_endpoints, str) and self.ingress_endpoints.startswith(_AERON):
            consensus_endpoints = parse_consensus_endpoints(self.ingress_endpoints.removeprefix(_AERON))
            endpoints = {-1: Endpoint(Medium.AERON, path=",".join(consensus_endpoints))}
        elif isinstance(self.ingress_endpoints, str):
            endpoints = parse_endpoints(self.ingress_endpoints)
        elif not isinstance(self.ingress_endpoints, Mapping):
            raise ConfigurationError(
                f"endpoints: expected a text or a dict of member ids, got {self.ingress_endpoints!r}"
            )
        else:
            listed = (f"{member_id}={endpoint}" for member_id, endpoint in self.ingress_endpoints.items())
            endpoints = parse_endpoints(",".join(listed))
        object.__setattr__(self, "endpoints", endpoints)
        object.__setattr__(self, "dispatch", as_dispatch(self.egress_listener))
        object.__setattr__(self, "credentials_supplier", as_supplier(self.credentials))
        if not isinstance(self.client_name, str) or len(self.client_name) > CLIENT_NAME_LENGTH_MAX:
            expected = f"a text of at most {CLIENT_NAME_LENGTH_MAX} characters"
            raise ConfigurationError(f"client_name: expected {expected}, got {self.client_name!r:.120}")
        for name in ("message_timeout_s", "new_leader_timeout_s", "keep_alive_interval_s"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float)
            if value is not None and not (is_number and 0 < value < float("inf")):
                raise ConfigurationError(f"{name} is {value!r}, expected more than 0, and an end")
        if self.reopen and not self.dispatch.hears_of_lost_sessions:
            raise ConfigurationError(
                f"reopen: expected a listener with on_session_lost, got {self.egress_listener!r}"
            )
        if self.lane is not None and not isinstance(self.lane, Lane):
            raise ConfigurationError(f"lane is {self.lane!r}, expected a Lane or None")
        if self.consumer is not None and not isinstance(self.consumer, Consumer):
            raise ConfigurationError(f"consumer is {self.consumer!r}, expected a Consumer or None")
        if self.consumer is not None and (self.reopen or self.lane is not None):
            other = "reopen" if self.reopen else "lane"
            raise ConfigurationError(f"consumer with {other}: a session that reports does nothing else")
        if self.reopen and self.lane is not None:
            raise ConfigurationError("reopen with a lane: a session that lost its lane must not come back")
        self._check_medium()
        if self.window_bytes < 4096:
            raise ConfigurationError(f"window_bytes is {self.window_bytes}, expected at least 4096")

    def _check_medium(self) -> None:
        """Raise ConfigurationError for what only members of ours can do."""
        for name, is_asked, why in (
            ("supervised", self.supervised, "its members keep no answers"),
            ("lane", self.lane is not None, "its members count no lanes"),
            ("consumer", self.consumer is not None, "its members know no consumer groups"),
            ("tls", self.tls is not None, "its media driver speaks none"),
            ("cluster_id", self.cluster_id != -1, "its members do not say theirs"),
        ):
            if is_asked:
                self.check_not_aeron(name, why)

    def check_not_aeron(self, what: str, why: str) -> None:
        """Raise ConfigurationError where the cluster is a real Aeron Cluster, which cannot do it."""
        if self.is_aeron:
            raise ConfigurationError(f"{what} with aeron: endpoints, a real Aeron Cluster: {why}")

    @property
    def is_aeron(self) -> bool:
        """Whether the cluster is a real Aeron Cluster."""
        return any(endpoint.medium is Medium.AERON for endpoint in self.endpoints.values())

    @property
    def message_timeout_ns(self) -> int:
        """``message_timeout_s`` in nanoseconds."""
        return int(self.message_timeout_s * SECOND_NS)

    @property
    def keep_alive_interval_ns(self) -> int | None:
        """``keep_alive_interval_s`` in nanoseconds."""
        return None if self.keep_alive_interval_s is None else int(self.keep_alive_interval_s * SECOND_NS)

    def silence_timeout_ns(self, leader_heartbeat_timeout_ns: int | None) -> int:
        """After how long without a sign a leader is asked for one, and given up after as long again.

        Together as long as its followers wait for it before they elect another.
        """
        return (leader_heartbeat_timeout_ns or 10 * SECOND_NS) // 2

    def new_leader_timeout_ns(self, leader_heartbeat_timeout_ns: int | None) -> int:
        """How long to look for a new leader, given what the cluster announced (None: nothing)."""
        if self.new_leader_timeout_s is not None:
            return int(self.new_leader_timeout_s * SECOND_NS)
        return 2 * (leader_heartbeat_timeout_ns or 10 * SECOND_NS)
