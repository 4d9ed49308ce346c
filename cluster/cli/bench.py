"""``cluster bench``: how many messages a cluster takes and echoes, and how long one takes."""

from __future__ import annotations

import gc
import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from cluster.cli.connecting import connects
from cluster.cli.durations import duration_option
from cluster.cli.members import Endpoints, ask_members
from cluster.cli.verbs import json_option, print_result
from cluster.errors import ClientClosed, ClusterError, ConfigurationError, StorageErrors, TimedOut
from cluster.transport.endpoint import Medium, parse_endpoints

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

    from cluster.client import ClusterClient, EgressBatch

app = typer.Typer(rich_markup_mode=None, add_completion=False)

WAIT_S = 0.1
STALL_TIMEOUT_S = 30.0
DRAIN_TIMEOUT_S = 10.0
LATENCY_MAX_NS = 60_000_000_000
HISTOGRAM_BITS = 11  # of a value that 3 digits keep
PERCENTILES = (50.0, 90.0, 99.0, 99.9)

EPILOG = """\b
Examples:
  cluster bench --endpoints 127.0.0.1:9000
  cluster bench --endpoints tcp:127.0.0.1:9001,tcp:127.0.0.1:9011,tcp:127.0.0.1:9021 --window 1
  cluster bench --endpoints 127.0.0.1:9000,127.0.0.1:9010,127.0.0.1:9020 --transport ipc
  D=cluster-data S=driver/ingress.sock
  cluster bench --endpoints ipc:$D/member-0/$S,ipc:$D/member-1/$S,ipc:$D/member-2/$S --json

The service must answer each message with one message, as echo does. A message counts when it is committed and
its answer is received here. Latency is the time from sending a message to receiving its answer; with
--window 1 it is the round trip of one message alone.

\b
--json prints one object:
  {"transport": "ipc", "size": 100, "window": 16384, "batch": 1024,   as run
   "durationS": 10.0,               measured, without the warm-up before
   "messages": 4211712,             committed, echoed and received in that time
   "messagesPerSecond": 421150.3,
   "bytesPerSecond": 42115030.0,    of payload, one way
   "latencyUs": {"p50": 31457.3, "p90": 40370.2, "p99": 58982.4, "p99.9": 70516.7, "max": 71237.6,
                 "mean": 32801.1, "count": 4113},    an HDR histogram with 3 digits, one sample per batch
   "offered": 4620288, "committed": 4620288, "echoed": 4620288}       in all, warm-up and end included
"""


class Transport(StrEnum):
    """What carries the session."""

    grpc = "grpc"
    tcp = "tcp"
    ipc = "ipc"


@app.command(epilog=EPILOG)
@connects
def bench(
    endpoints: Endpoints,
    size: Annotated[int, typer.Option(help="Bytes of payload in a message.", min=0)] = 100,
    duration: Annotated[
        float, duration_option(help="How long to measure.", default="10s", least="100ms")
    ] = 10.0,
    window: Annotated[
        int, typer.Option(help="How many messages may be on their way at once.", min=1)
    ] = 16_384,
    batch: Annotated[
        int | None, typer.Option(help="Messages per call. Default: a sixteenth of --window.", min=1)
    ] = None,
    transport: Annotated[
        Transport | None,
        typer.Option(
            help="The transport to use; the members name its endpoints. Default: that of --endpoints."
        ),
    ] = None,
    warm_up: Annotated[float, duration_option(help="How long to send before measuring.", default="1s")] = 1.0,
    histogram: Annotated[
        Path | None,
        typer.Option(help="Write the latencies to this file: an HDR percentile distribution, in us."),
    ] = None,
    supervised: Annotated[
        bool, typer.Option("--supervised", help="Have the members keep each answer until it has come.")
    ] = False,
    as_json: Annotated[bool, json_option("Print one JSON object.")] = False,
) -> None:
    """Measure throughput and round-trip latency of a running cluster."""
    batch = batch or max(1, window // 16)
    if batch > window:
        raise typer.BadParameter(f"{batch}: more than --window, {window}", param_hint="--batch")
    from cluster.client import ClusterClient

    chosen, medium = _choose(endpoints, transport)
    run = _Run(size, window, batch)
    with ClusterClient.connect(
        chosen, run, client_name="cluster-bench", message_timeout_s=10.0, supervised=supervised
    ) as client:
        result = run.measure(client, warm_up, duration)
    report = {"transport": medium, "size": size, "window": window, "batch": batch, **result}
    if histogram is not None:
        with StorageErrors(histogram, "writing the histogram"), histogram.open("wb") as out:
            run.latencies.output_percentile_distribution(out, 1_000.0)
    print_result(as_json, report, _text(report))


def _choose(endpoints: str, transport: Transport | None) -> tuple[str, str]:
    """The endpoints to use and their medium; asks the members when another one is wanted."""
    if transport is None and endpoints.startswith("aeron:"):
        return endpoints, Medium.AERON.value
    given = parse_endpoints(endpoints)
    media = {endpoint.medium.value for endpoint in given.values()}
    if len(media) > 1:
        raise ConfigurationError(f"endpoints: {' and '.join(sorted(media))} are mixed, give one of them")
    (medium,) = media
    if transport is None or transport.value == medium:
        return endpoints, medium
    found: dict[int, str] = {}
    for status in ask_members(given).values():
        if isinstance(status, ClusterError):
            raise status
        for text in (status.ingress_endpoints, status.tcp_endpoints, status.ipc_endpoints):
            for member_id, other in (parse_endpoints(text) if text else {}).items():
                if other.medium.value == transport.value:
                    found[member_id] = str(other)
    if not found:
        raise ConfigurationError(
            f"--transport {transport.value}: no member at {endpoints} names such an endpoint"
        )
    return ",".join(f"{member_id}={found[member_id]}" for member_id in sorted(found)), transport.value


@dataclass
class _Run:
    """One measurement, and the listener of its session: the n-th echo is that of the n-th message."""

    size: int
    window: int
    batch: int
    echoed: int = 0
    latencies: HdrHistogram = field(init=False)
    _sent_ns: deque[int] = field(default_factory=deque)  # of the offers that are on their way
    _echoed_offers: int = 0
    _latencies_ns: array[int] = field(default_factory=lambda: array("q"))
    _is_measuring: bool = False

    def __post_init__(self) -> None:
        from hdrh.histogram import HdrHistogram

        self.latencies = HdrHistogram(1_000, LATENCY_MAX_NS, 3)

    def on_messages(self, batch: EgressBatch) -> None:
        now_ns, take = time.perf_counter_ns(), self._sent_ns.popleft
        self.echoed += len(batch)
        echoed_offers = self.echoed // self.batch
        latencies_ns = [now_ns - take() for _ in range(echoed_offers - self._echoed_offers)]
        self._echoed_offers = echoed_offers
        if self._is_measuring:
            self._latencies_ns.extend(latencies_ns)

    def measure(self, client: ClusterClient, warm_up_s: float, duration_s: float) -> dict[str, Any]:
        """Load the cluster for both times; what counts is what comes back in the second."""
        if self.size > client.max_payload_length:
            raise ConfigurationError(
                f"--size {self.size}: the cluster's log takes messages of at most {client.max_payload_length}"
            )
        gc.collect()
        gc.disable()  # a pause of the collector would be measured as the cluster's
        try:
            self._load(client, warm_up_s)
            self._is_measuring = True
            begun_s, echoed = time.perf_counter(), self.echoed
            self._load(client, duration_s)
            ended_s, messages = time.perf_counter(), self.echoed - echoed
            self._is_measuring = False
        finally:
            gc.enable()
        self._record_latencies()
        self._drain(client)
        seconds = ended_s - begun_s
        return {
            "durationS": round(seconds, 3),
            "messages": messages,
            "messagesPerSecond": round(messages / seconds, 1),
            "bytesPerSecond": round(messages * self.size / seconds, 1),
            "latencyUs": self._latencies_us(),
            "offered": client.offered,
            "committed": client.acknowledged,
            "echoed": self.echoed,
        }

    def _load(self, client: ClusterClient, seconds: float) -> None:
        """Keep the window full."""
        offsets = np.arange(self.batch, dtype=np.int64) * self.size
        lengths = np.full(self.batch, self.size, np.int64)
        buffer = np.full(max(self.batch * self.size, 1), ord("x"), np.uint8)
        payload = bytes(buffer[: self.size])
        clock, offer, offer_batch = time.perf_counter_ns, client.offer, client.offer_batch
        now_ns = clock()
        end_ns = now_ns + int(seconds * 1e9)
        heard_ns, echoed = now_ns, self.echoed
        offered, batch, note = client.offered, self.batch, self._sent_ns.append
        while now_ns < end_ns:
            while offered - self.echoed + batch <= self.window and now_ns < end_ns:
                now_ns = clock()
                note(now_ns)  # before the offer, which may poll
                result = offer(payload) if batch == 1 else offer_batch((buffer, offsets, lengths))
                if result < 0:
                    self._sent_ns.pop()
                    break
                offered += batch
            client.wait(WAIT_S)
            client.poll_egress()
            now_ns = clock()
            if self.echoed > echoed:
                heard_ns, echoed = now_ns, self.echoed
            elif now_ns - heard_ns > STALL_TIMEOUT_S * 1e9:
                raise TimedOut(
                    f"no echo came for {STALL_TIMEOUT_S:g} s; does the service answer each message?"
                )
            if client.is_closed:
                raise ClientClosed(f"the session ended: {client.why_closed}")

    def _drain(self, client: ClusterClient) -> None:
        """Wait for what is still on its way."""
        deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
        while (self.echoed < client.offered or client.acknowledged < client.offered) and not client.is_closed:
            if time.monotonic() > deadline_s:
                raise TimedOut(
                    f"{client.offered - client.acknowledged} messages not committed and "
                    f"{client.offered - self.echoed} not echoed {DRAIN_TIMEOUT_S:g} s after the last one"
                )
            client.wait(WAIT_S)
            client.poll_egress()

    def _record_latencies(self) -> None:
        """Put what was measured into the histogram, which takes longer for each than an offer does."""
        values = np.array(self._latencies_ns, np.int64)
        _, exponents = np.frexp(values)
        lost_bits = np.maximum(exponents - HISTOGRAM_BITS, 0)  # as many as the histogram counts as one value
        values, counts = np.unique(values >> lost_bits << lost_bits, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.latencies.record_value(value, count)

    def _latencies_us(self) -> dict[str, float]:
        latencies = self.latencies
        found: dict[str, float] = {
            f"p{percentile:g}": round(latencies.get_value_at_percentile(percentile) / 1e3, 1)
            for percentile in PERCENTILES
        }
        found["max"] = round(latencies.get_max_value() / 1e3, 1)
        found["mean"] = round(latencies.get_mean_value() / 1e3, 1)
        found["count"] = latencies.get_total_count()
        return found


def _text(report: dict[str, Any]) -> str:
    latency = report["latencyUs"]
    times = "  ".join(f"{name} {latency[name]:,.1f}" for name in ("p50", "p90", "p99", "p99.9", "max"))
    return (
        f"{report['messagesPerSecond']:,.0f} messages/s of {report['size']} bytes "
        f"over {report['transport']}, window {report['window']:,}, batch {report['batch']:,} "
        f"({report['messages']:,} committed, echoed and received in {report['durationS']:.1f} s)\n"
        f"latency us: {times}"
    )
