"""A lane by its name: what one partition of an application writes into the log, batch by batch.

The name stands after a zero byte at the end of two fields that Aeron has:

    SessionConnectRequest.encodedCredentials   the client's own .........  \\0lane:3:17:0:0:orders
    SessionOpenEvent.encodedPrincipal          the authenticator's word  \\0kept:9000\\0lane:3:17:0:0:orders
                                               partition, batch, partitions, rows, application

``known-lane:`` in place of ``lane:`` in the credentials says that the application has opened lanes before.

The leader says in the principal how long it keeps applications that open nothing, in the unit of the log's
timestamps: what is forgotten follows from the log, whatever other members are configured to.
Who has proved who he is opens any lane of an application that is his, so the name is no secret. The
SessionEvent OK of such a session has a ``LaneStanding`` as its detail, which is empty otherwise.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

from cluster.errors import ConfigurationError

REGISTRATION: Final = -1  # the partition in which an application registers its batches
FORGET: Final = -2  # the partition whose open has all lanes of the application forgotten
APPLICATION_BYTES_MAX: Final = 256
_MARK, _KNOWN_MARK = b"\0lane:", b"\0known-lane:"
_NAME = re.compile(
    rb"\0(known-)?lane:(-[12]|\d{1,10}):(\d{1,19}):(\d{1,10}):(\d{1,19}):([^\0]+)\Z", re.DOTALL
)
KEPT_MARK = b"\0kept:"
KEPT = re.compile(rb"\0kept:(\d{1,19})\Z")
_REGISTERED = "registered: "
_UNKNOWN = "unknown: "


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane, and the batch that its session writes.

    ``application``: the application that the lane belongs to, at most 256 bytes of UTF-8 without a zero byte.
    ``partition``: 0 or more. REGISTRATION (-1) registers the batch as a whole when the session opens. FORGET,
    for administrators, drops an application, none of whose lanes may be open.
    ``batch``: 0 or more; for one lane it never decreases.
    ``partitions``: how many partitions the registered batch has; otherwise 0.
    ``rows``: how many rows the registered batch has; otherwise 0.
    ``is_known``: the application has opened lanes before. If the cluster knows none, it refuses this one.

    Raises ConfigurationError for anything else.
    """

    application: str
    partition: int
    batch: int
    partitions: int = 0
    rows: int = 0
    is_known: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        name = self.application.encode(errors="surrogatepass")
        _check(0 < len(name) <= APPLICATION_BYTES_MAX, "application", f"of {len(name)} bytes", "1 to 256")
        _check(
            b"\0" not in name and _is_text(name), "application", repr(self.application), "text without \\0"
        )
        _check(FORGET <= self.partition < 1 << 31, "partition", self.partition, "-2 to 2**31 - 1")
        _check(0 <= self.batch < 1 << 63, "batch", self.batch, "0 to 2**63 - 1")
        partitions_max = (1 << 31) - 1 if self.is_registration else 0
        _check(
            0 <= self.partitions <= partitions_max, "partitions", self.partitions, f"0 to {partitions_max}"
        )
        rows_max = (1 << 63) - 1 if self.is_registration else 0
        _check(0 <= self.rows <= rows_max, "rows", self.rows, f"0 to {rows_max}")

    @property
    def is_registration(self) -> bool:
        """Whether it registers a batch as a whole (partition -1)."""
        return self.partition == REGISTRATION

    @property
    def is_forgetting(self) -> bool:
        """Whether it makes the members drop the application's lanes."""
        return self.partition == FORGET

    def __str__(self) -> str:
        return f"{self.application}/{self.partition}"


def _check(is_right: bool, name: str, value: object, expected: str) -> None:
    if not is_right:
        raise ConfigurationError(f"lane: {name} is {value}, expected {expected}")


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def with_lane(field: bytes, lane: Lane) -> bytes:
    """A field with the lane's name after it."""
    numbers = f"{lane.partition}:{lane.batch}:{lane.partitions}:{lane.rows}:"
    return field + (_KNOWN_MARK if lane.is_known else _MARK) + numbers.encode() + lane.application.encode()


def split_lane(field: bytes) -> tuple[bytes, Lane | None]:
    """The field without the lane's name, and the lane; None where no name stands that could be one."""
    found = _NAME.search(field)
    if found is None:
        return field, None
    known, *numbers, application = found.groups()
    partition, batch, partitions, rows = map(int, numbers)
    try:
        lane = Lane(application.decode(), partition, batch, partitions, rows, known is not None)
    except (ConfigurationError, UnicodeDecodeError):
        return field, None
    return field[: found.start()], lane


class LanePrincipal(NamedTuple):
    """A principal as it stands in the log; ``retention`` in the log's time unit, 0 without a lane."""

    principal: bytes
    lane: Lane | None = None
    retention: int = 0

    def encode(self) -> bytes:
        if self.lane is None:
            return self.principal
        lane = replace(self.lane, is_known=False)
        return with_lane(self.principal + KEPT_MARK + b"%d" % self.retention, lane)

    @classmethod
    def decode(cls, encoded_principal: bytes) -> Self:
        """Where not both marks stand, no leader has put them there: all of it is the principal."""
        field, lane = split_lane(encoded_principal)
        found = KEPT.search(field)
        if lane is None or found is None:
            return cls(encoded_principal)
        return cls(field[: found.start()], lane, int(found[1]))


class LaneStanding(NamedTuple):
    """What the log had of the lane's batch when a session opened the lane.

    ``rows`` is the number of messages that the lane's sessions, one after another, have sent for this batch.
    These are between the log positions ``begin``, where the first of these sessions was open, and ``end``,
    after the last row. ``session_id`` is the first session; SessionOpenEvents in between have the others.
    """

    rows: int
    begin: int
    end: int
    session_id: int

    def to_text(self) -> str:
        """As it stands in its event."""
        return f"lane rows={self.rows} begin={self.begin} end={self.end} session={self.session_id}"


_STANDING = re.compile(r"lane rows=(\d{1,19}) begin=(\d{1,19}) end=(\d{1,19}) session=(\d{1,19})")


def standing_of(detail: str) -> LaneStanding | None:
    """What the detail of an OK says; None from a member that knows no lanes."""
    found = _STANDING.fullmatch(detail)
    return None if found is None else LaneStanding(*map(int, found.groups()))


def registered_text(lane: Lane, batch: int) -> str:
    """Why a session is refused whose batch is in the log as a whole."""
    return f"{_REGISTERED}batch {lane.batch} of {lane.application} is in the log, {batch} is the last one"


def is_registered(detail: str) -> bool:
    """Whether a session was refused for that."""
    return detail.startswith(_REGISTERED)


def unknown_text(lane: Lane) -> str:
    """Why a session is refused whose application is to be known, and is not."""
    return (
        f"{_UNKNOWN}batch {lane.batch} of {lane.application} is not its first, and no lane of it is known: "
        "it has opened none for longer than lane_retention, or never"
    )


def is_unknown(detail: str) -> bool:
    """Whether a session was refused for that."""
    return detail.startswith(_UNKNOWN)
