"""A consumer group by its name: how far in the log its readers are, kept by the cluster.

The name stands after a zero byte at the end of two fields that Aeron has:

    SessionConnectRequest.encodedCredentials   the client's own .........  \\0consumer:4096:billing
    SessionOpenEvent.encodedPrincipal          the authenticator's word  \\0kept:9000\\0consumer:4096:billing
                                               position, group

The leader says in the principal how long it keeps a group that reports nothing, in the unit of the log's
timestamps: what is forgotten follows from the log, whatever other members are configured to.
The SessionEvent OK of such a session says as its detail where the group is.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from cluster.errors import ConfigurationError, RemoteProtocolError
from cluster.protocol.lane import KEPT, KEPT_MARK, LanePrincipal

GROUP_BYTES_MAX: Final = 256
_NAME = re.compile(rb"\0consumer:(\d{1,19}):([^\0]+)\Z", re.DOTALL)
_STANDING = re.compile(r"consumer position=(\d{1,19})")


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer group, and the log position before which it needs nothing any more.

    ``group``: its name, at most 256 bytes of UTF-8 without a zero byte.
    ``position``: 0 or more.

    Raises ConfigurationError for anything else.
    """

    group: str
    position: int

    def __post_init__(self) -> None:
        name = self.group.encode(errors="surrogatepass")
        if not 0 < len(name) <= GROUP_BYTES_MAX:
            raise ConfigurationError(f"consumer: group is of {len(name)} bytes, expected 1 to 256")
        if b"\0" in name or self.group.encode(errors="replace") != name:
            raise ConfigurationError(f"consumer: group is {self.group!r}, expected text without \\0")
        if not 0 <= self.position < 1 << 63:
            raise ConfigurationError(f"consumer: position is {self.position}, expected 0 to 2**63 - 1")


def with_consumer(field: bytes, consumer: Consumer) -> bytes:
    """A field with the group's name and position after it."""
    return field + b"\0consumer:%d:" % consumer.position + consumer.group.encode()


def split_consumer(field: bytes) -> tuple[bytes, Consumer | None]:
    """The field without the group, and the group; None where nothing stands that could be one."""
    found = _NAME.search(field)
    if found is None:
        return field, None
    try:
        consumer = Consumer(found[2].decode(), int(found[1]))
    except (ConfigurationError, UnicodeDecodeError):
        return field, None
    return field[: found.start()], consumer


class ConsumerPrincipal(NamedTuple):
    """A principal as it stands in the log; ``retention`` in the log's time unit, 0 without a group."""

    principal: bytes
    consumer: Consumer | None = None
    retention: int = 0

    def encode(self) -> bytes:
        if self.consumer is None:
            return self.principal
        return with_consumer(self.principal + KEPT_MARK + b"%d" % self.retention, self.consumer)

    @classmethod
    def decode(cls, encoded_principal: bytes) -> Self:
        """Where not both marks stand, no leader has put them there: all of it is the principal."""
        field, consumer = split_consumer(encoded_principal)
        found = KEPT.search(field)
        if consumer is None or found is None:
            return cls(encoded_principal)
        return cls(field[: found.start()], consumer, int(found[1]))


def plain_principal(encoded_principal: bytes) -> bytes:
    """The authenticator's word alone, without the lane or the consumer group of its session."""
    return LanePrincipal.decode(ConsumerPrincipal.decode(encoded_principal).principal).principal


def group_text(position: int) -> str:
    """Where a group is, as it stands in its event."""
    return f"consumer position={position}"


def group_position(detail: str) -> int | None:
    """What the detail of an OK says; None from a member that knows no consumer groups."""
    found = _STANDING.fullmatch(detail)
    return None if found is None else int(found[1])


def positions_text(positions: dict[str, int]) -> str:
    """The positions of groups by name, as a member's status has them."""
    return "\0".join(f"{position}:{group}" for group, position in sorted(positions.items()))


def positions_in(text: str) -> dict[str, int]:
    """What ``positions_text`` says; RemoteProtocolError for a text that says nothing of the kind."""
    found = {}
    for part in text.split("\0") if text else ():
        position, colon, group = part.partition(":")
        if not (colon and group and re.fullmatch(r"[0-9]{1,19}", position)):
            raise RemoteProtocolError(f"consumer groups: {part!r}, expected a position, a colon and a name")
        found[group] = int(position)
    return found
