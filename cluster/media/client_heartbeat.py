"""The sign of life that a media driver expects of each client: a counter, which a thread keeps fresh.

The driver gives a client up that is silent for 10 s. So the thread is compiled code that holds no lock of
Python's: no import, no garbage collection and no long computation of other threads makes it late.
"""

from __future__ import annotations

import threading

import numpy as np

from cluster.log.calls import address_of, call_at, function_address
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES_OUT, I64, WORDS_OUT, get_i64
from cluster.log.ordered import load_i32, load_i64, store_i64
from cluster.media.cnc_file import CncFile
from cluster.protocol.enums import CounterState

INTERVAL_US = 100_000  # Aeron's client: 500 ms
_CLOCK_REALTIME = 0
_ALLOCATED = int(CounterState.ALLOCATED)
_STOPPED, _LOST = 0, 1


@kernel(I64(BYTES_OUT, I64, I64, I64, I64, BYTES_OUT, WORDS_OUT, I64, I64), nogil=True)
def _beat(counters, state, key, value, client_id, stop, now, clock, sleep):  # type: ignore[no-untyped-def]
    while load_i64(stop, 0) == 0:
        if load_i32(counters, state) != _ALLOCATED or get_i64(counters, key) != client_id:
            return _LOST
        call_at(clock, _CLOCK_REALTIME, address_of(now, 0))
        store_i64(counters, value, now[0] * 1000 + now[1] // 1_000_000)
        call_at(sleep, INTERVAL_US)
    return _STOPPED


class ClientHeartbeat:
    """Keeps the client alive until ``close``; ``is_lost`` once the driver has given it up."""

    def __init__(self, cnc: CncFile, client_id: int, counter_id: int) -> None:
        self.is_lost = False
        self._stop = np.zeros(8, np.uint8)
        places = cnc.metadata_offset(counter_id), cnc.key_offset(counter_id), cnc.value_offset(counter_id)
        self._arguments = (cnc.buffer, *places, client_id, self._stop, np.zeros(2, np.int64))
        self._thread = threading.Thread(target=self._run, name="aeron-client-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        result = _beat(*self._arguments, function_address("clock_gettime"), function_address("usleep"))
        self.is_lost = result == _LOST

    def close(self) -> None:
        """End the thread, and wait for it."""
        self._stop[0] = 1
        if self._thread.is_alive():  # none is in a process that was forked off
            self._thread.join()
