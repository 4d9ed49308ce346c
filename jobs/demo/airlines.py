"""The airlines: one session each, every flight sent when its departure has come in compressed time."""

import datetime as dt
import threading
import time
from collections import deque

import numpy as np

from cluster import ClusterClient, ClusterError
from jobs.demo.flights import Carrier, Compression

TURN_S = 0.005
GAP_BEGINS_S = 0.25  # at most after a kill: what was committed before is still on its way
SETTLE_S = 60  # how long after the last departure everything may take to be confirmed


class Airline:
    """One carrier's session and how far it is."""

    def __init__(self, carrier: Carrier, timetable: Compression, endpoints: str) -> None:
        carrier.set_deadlines(timetable.cluster_ms(carrier.arrivals))
        self.carrier = carrier
        self.departures_ms = timetable.cluster_ms(carrier.departures)
        self.sent = 0
        self.confirmed = 0  # by the service, on egress
        self.leader_changes = 0
        self.latencies: list[tuple[float, float]] = []  # seconds: since the first departure, until the answer
        self._start_s = timetable.start_ms / 1000
        self._offers: deque[tuple[int, float]] = deque()  # how many were sent by then
        self.client = ClusterClient.connect(
            endpoints,
            egress_listener=self,
            client_name=carrier.name,
            credentials=carrier.code.encode(),
            supervised=True,  # a leader dies in mid-year, and every answer comes once
        )

    def on_messages(self, batch) -> None:  # type: ignore[no-untyped-def]  # cluster.EgressBatch
        self.confirmed += len(batch)
        now_s = time.time()
        while self._offers and self._offers[0][0] <= self.confirmed:
            offered_s = self._offers.popleft()[1]
            self.latencies.append((offered_s - self._start_s, now_s - offered_s))

    def on_new_leader(self, *_: object) -> None:
        self.leader_changes += 1

    def do_work(self, now_ms: int) -> None:
        """Send what has departed by ``now_ms``; what the cluster does not take goes with the next turn."""
        until = int(np.searchsorted(self.departures_ms, now_ms, side="right"))
        if until > self.sent:
            rows = slice(self.sent, until)
            carrier = self.carrier
            if self.client.offer_batch((carrier.buffer, carrier.offsets[rows], carrier.lengths[rows])) > 0:
                self.sent = until
                self._offers.append((until, time.time()))
        self.client.poll_egress()
        if self.client.is_closed:
            raise ClusterError(f"the session of {self.carrier.name} ended: {self.client.why_closed}")

    @property
    def is_done(self) -> bool:
        """Every flight is committed, and the service has confirmed it."""
        return self.sent == self.confirmed == self.client.acknowledged == len(self.carrier)


class Airlines:
    """All airlines on a thread of their own, until ``close``; ``failure`` is what went wrong."""

    def __init__(self, carriers: list[Carrier], endpoints: str, duration_ms: int) -> None:
        """Open a session for each carrier; the timetable begins a second from now, for all to be there."""
        self.timetable = Compression.of(carriers, time.time_ns() // 1_000_000 + 1_000, duration_ms)
        self.airlines = [Airline(carrier, self.timetable, endpoints) for carrier in carriers]
        self.failure: BaseException | None = None
        self._committed = 0
        self._grown_at_s = time.monotonic()
        self._gaps: list[tuple[float, float]] = []  # between two growths of what is committed
        self._is_stopping = threading.Event()
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="airlines", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            deadline_s = time.monotonic() + self.timetable.duration_ms / 1000 + SETTLE_S
            while not self._is_stopping.wait(TURN_S):
                now_ms = time.time_ns() // 1_000_000
                for airline in self.airlines:
                    airline.do_work(now_ms)
                self._note_commits()
                if not self._is_done.is_set():
                    if all(airline.is_done for airline in self.airlines):
                        self._is_done.set()
                    elif time.monotonic() > deadline_s:
                        raise ClusterError(
                            f"{self.total - self.committed} flights not committed, "
                            f"{self.total - self.confirmed} not confirmed, {SETTLE_S} s after the last one"
                        )
            for airline in self.airlines:
                airline.client.close()
        except BaseException as error:
            self.failure = error
            self._is_done.set()

    def _note_commits(self) -> None:
        committed, now_s = self.committed, time.monotonic()
        if committed > self._committed:
            self._gaps.append((self._grown_at_s, now_s))
            self._committed, self._grown_at_s = committed, now_s

    def gap_after(self, killed_s: float) -> float | None:
        """Seconds without a commit when a leader was killed then (monotonic); None while it goes on."""
        around = [
            end - begin for begin, end in self._gaps if end >= killed_s and begin <= killed_s + GAP_BEGINS_S
        ]
        return max(around, default=None)

    @property
    def leader_member_id(self) -> int:
        """As the sessions know it."""
        return self.airlines[0].client.leader_member_id

    @property
    def latencies(self) -> list[tuple[float, float]]:
        """Of all offers, in seconds: since the first departure, and until the answer to its last flight."""
        return [latency for airline in self.airlines for latency in airline.latencies]

    @property
    def total(self) -> int:
        return sum(len(airline.carrier) for airline in self.airlines)

    @property
    def committed(self) -> int:
        return sum(airline.client.acknowledged for airline in self.airlines)

    @property
    def confirmed(self) -> int:
        return sum(airline.confirmed for airline in self.airlines)

    @property
    def today(self) -> dt.date:
        """Which day of the year it is."""
        return self.timetable.flight_day(time.time_ns() // 1_000_000)

    @property
    def leader_changes(self) -> int:
        """As the sessions heard; all hear of the same ones."""
        return max(airline.leader_changes for airline in self.airlines)

    @property
    def is_done(self) -> bool:
        """All flights are confirmed; raises what went wrong instead."""
        if self.failure is not None:
            raise self.failure
        return self._is_done.is_set()

    def close(self) -> None:
        """Close the sessions in good order."""
        self._is_stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
