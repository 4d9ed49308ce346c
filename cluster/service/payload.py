"""What a service sends: buffers of any kind, gathered into one message."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from cluster.errors import LocalProtocolError
from cluster.protocol.arrays import np

Payload: TypeAlias = bytes | bytearray | memoryview | np.ndarray


def gathered(payload: Sequence[Payload], length_max: int) -> bytes:
    """The buffers as one message. Raises LocalProtocolError when it is longer than ``length_max`` bytes."""
    message = joined(payload)
    check_length(len(message), length_max)
    return message


def joined(parts: Sequence[Payload]) -> bytes:
    """One message from its parts. TypeError for a part that is no buffer of bytes."""
    try:
        return b"".join(parts)  # type: ignore[arg-type]  # arrays are buffers too
    except TypeError:
        raise not_bytes(parts) from None


def not_bytes(payloads: Any) -> TypeError:
    """What is wrong with the first that is not bytes, or with a batch that is no sequence of them."""
    if isinstance(payloads, bytes | str) or not isinstance(payloads, Sequence):
        return TypeError(f"payloads: expected a sequence of bytes, got {payloads!r:.60}")
    for row, payload in enumerate(payloads):
        if isinstance(payload, str):
            return TypeError(f"payload {row}: expected bytes, got the text {payload!r:.60}: encode it")
        if not hasattr(payload, "__buffer__") and not isinstance(payload, bytes | bytearray | memoryview):
            return TypeError(f"payload {row}: expected bytes, got {payload!r:.60}")
    return TypeError("payloads: expected buffers of bytes")


def check_length(length: int, length_max: int) -> None:
    """Raise LocalProtocolError for a message of ``length`` bytes that cannot be."""
    if length > length_max:
        raise LocalProtocolError(f"a message of {length} bytes is longer than the maximum of {length_max}")
    if length < 0:
        raise LocalProtocolError(f"a message of {length} bytes cannot be")


def view_of(buffer: Payload) -> memoryview:
    """The bytes of a buffer, not copied."""
    view = buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
    return view.cast("B")


def copied_bytes(buffer: Payload) -> np.ndarray:
    """The bytes of a buffer that its owner may use again."""
    # Through a bytearray: the kernel that frames answers takes writable arrays of at least one byte.
    return np.frombuffer(bytearray(view_of(buffer)) or bytearray(1), np.uint8)
