"""A running media driver's cnc.dat, mapped to be read and written."""

from __future__ import annotations

import mmap
import os
import time

import numpy as np

from cluster.errors import LogDamaged, MediaDriverError
from cluster.protocol.cnc import (
    BROADCAST_TRAILER_LENGTH,
    CNC_FILE_NAME,
    DRIVER_TIMEOUT_MS,
    KEY_OFFSET,
    METADATA_LENGTH,
    RING_TRAILER_LENGTH,
    VALUE_LENGTH,
    CncHeader,
    CounterRecord,
    consumer_heartbeat_offset,
    decode_cnc_header,
    decode_counters,
    regions,
)

_LOOK_AGAIN_S = 0.02


def map_shared(path: str) -> np.ndarray:
    """The whole file, mapped: what is stored others see. Raises OSError, and ValueError for an empty one."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
    finally:
        os.close(descriptor)


class CncFile:
    """Header, regions and counters of the driver whose directory is ``aeron_dir``."""

    def __init__(self, aeron_dir: str, timeout_s: float = 10.0) -> None:
        """Waits until the driver runs. Raises MediaDriverError when none does within ``timeout_s``."""
        self.aeron_dir = aeron_dir
        self.path = os.path.join(aeron_dir, CNC_FILE_NAME)
        deadline = time.monotonic() + timeout_s
        while (why := self._open()) is not None:
            if time.monotonic() > deadline:
                raise MediaDriverError(
                    f"no media driver runs with directory {aeron_dir}: {why}; "
                    f"`cluster aeron driver --aeron-dir {aeron_dir}` runs one"
                )
            time.sleep(_LOOK_AGAIN_S)

    def _open(self) -> str | None:
        """Map the file; why it is not ready yet, if it is not."""
        try:
            self._inode = os.stat(self.path).st_ino  # first: a driver that is started meanwhile is noticed
            self.buffer = map_shared(self.path)
            self.header = decode_cnc_header(self.buffer)
        except FileNotFoundError:
            return f"{self.path} is not there"
        except PermissionError:
            raise MediaDriverError(f"{self.path}: this user may not write it") from None
        except (OSError, ValueError) as error:
            return f"{self.path}: {error}"
        except LogDamaged as damage:
            if len(self.buffer) < CncHeader.BLOCK_LENGTH:
                return f"{self.path} has {len(self.buffer)} bytes"
            raise MediaDriverError(f"{self.path}: {damage.what}") from None
        if self.header.version == 0:
            return f"{self.path} is being made"
        self._check_lengths()
        self.regions = regions(self.header)
        self._heartbeat = self.buffer[consumer_heartbeat_offset(self.header) :][:8].view(np.int64)
        if not self.is_driver_alive():
            return "the driver's heartbeat is old"
        return None

    def _check_lengths(self) -> None:
        header = self.header
        for name, length, trailer in (
            ("to-driver ring", header.to_driver_length, RING_TRAILER_LENGTH),
            ("to-clients buffer", header.to_clients_length, BROADCAST_TRAILER_LENGTH),
        ):
            capacity = length - trailer
            if capacity < 1024 or capacity & (capacity - 1):
                raise MediaDriverError(
                    f"{self.path}: the {name} has {capacity} bytes, expected a power of two from 1024"
                )

    def is_driver_alive(self) -> bool:
        """Whether the driver's duty cycle ran within the last 10 s."""
        return time.time_ns() // 1_000_000 - int(self._heartbeat[0]) <= DRIVER_TIMEOUT_MS

    def check_driver(self) -> None:
        """Raise MediaDriverError for a driver that is gone, or was started again in this directory."""
        try:
            is_same = os.stat(self.path).st_ino == self._inode
        except OSError:
            is_same = False
        if not is_same:
            raise MediaDriverError(f"the media driver of {self.aeron_dir} was stopped, or started again")
        if not self.is_driver_alive():
            raise MediaDriverError(f"the media driver of {self.aeron_dir} has not run for 10 s")

    # ---- counters

    def counters(self) -> list[CounterRecord]:
        """All counters as they are now."""
        found = self.regions
        return list(
            decode_counters(found.counters_metadata.of(self.buffer), found.counters_values.of(self.buffer))
        )

    def value_offset(self, counter_id: int) -> int:
        """Where the counter's value is in ``buffer``. Raises MediaDriverError for an id that there is not."""
        region = self.regions.counters_values
        if not 0 <= counter_id < region.length // VALUE_LENGTH:
            raise MediaDriverError(f"{self.path}: the driver named counter {counter_id}, which there is not")
        return region.offset + counter_id * VALUE_LENGTH

    def metadata_offset(self, counter_id: int) -> int:
        """Where the counter's state is in ``buffer``; its key lies ``KEY_OFFSET`` after it."""
        self.value_offset(counter_id)
        return self.regions.counters_metadata.offset + counter_id * METADATA_LENGTH

    def key_offset(self, counter_id: int) -> int:
        """Where the counter's key is in ``buffer``."""
        return self.metadata_offset(counter_id) + KEY_OFFSET
