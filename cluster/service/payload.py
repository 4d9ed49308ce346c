"""What a service sends: buffers of any kind, gathered into one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from cluster.errors import LocalProtocolError
from cluster.protocol.arrays import np

Payload: TypeAlias = bytes | bytearray | memoryview | np.ndarray


def gathered(payload: Sequence[Payload], length_max: int) -> bytes:
    """The buffers as one message. Raises LocalProtocolError when it is longer than ``length_max`` bytes."""
    message = b"".join(payload)  # type: ignore[arg-type]  # arrays are buffers too
    check_length(len(message), length_max)
    return message


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
