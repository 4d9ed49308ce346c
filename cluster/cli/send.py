"""``cluster send``: lines or records of a file or of standard input, as the messages of one session."""

from __future__ import annotations

import errno
import os
import select
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import typer

from cluster.cli.connecting import connects
from cluster.cli.durations import duration_option
from cluster.cli.members import Endpoints
from cluster.cli.printable import plain
from cluster.errors import ClientClosed, ClusterError, LocalProtocolError, TimedOut, printable
from cluster.protocol.enums import EventCode
from cluster.protocol.session import NO_ROOM

if TYPE_CHECKING:
    from cluster.client import ClusterClient, EgressBatch

    Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # buffer, offsets, lengths

app = typer.Typer(rich_markup_mode=None, add_completion=False)

READ_BYTES = 256 * 1024
WAIT_S = 0.01
LENGTH_PREFIX = struct.Struct("<I")
RATE_INTERVAL_S = 0.2

EPILOG = """\b
Examples:
  echo hello | cluster send --endpoints 127.0.0.1:9000
  export CLUSTER_ENDPOINTS=127.0.0.1:9000,127.0.0.1:9010,127.0.0.1:9020
  cluster send --no-wait orders.csv
  cluster send --endpoints tcp:127.0.0.1:9001,tcp:127.0.0.1:9011,tcp:127.0.0.1:9021 orders.csv
  D=cluster-data S=driver/ingress.sock
  cluster send --endpoints ipc:$D/member-0/$S,ipc:$D/member-1/$S,ipc:$D/member-2/$S --binary in.bin >out
  CLUSTER_CLIENT_AERON_DIR=/dev/shm/aeron cluster send --endpoints aeron:10.0.0.5:9003 orders.csv

Over gRPC and tcp one reachable member is enough: it names the others. List every member for ipc, and for tcp
if tcp_ingress is not auto. For a real Aeron Cluster write its consensus endpoints
after aeron:, and name the directory of the media driver in CLUSTER_CLIENT_AERON_DIR.

Each line, without its line feed, is one message. Answers are printed one per line, in the order in which the
service sent them. With --binary, messages and answers are records: 4 bytes with the length, little-endian,
then the bytes.

The command ends when every message is committed and no answer has come for --linger. Exit status: 0; 1 if a
message is not committed, or if a service raised an exception on one (which is committed nevertheless). A
change of leader loses no message. It may lose answers, unless the session is --supervised; standard error
says so.
"""


@app.command(epilog=EPILOG)
@connects
def send(
    endpoints: Endpoints,
    file: Annotated[str, typer.Argument(help="What to send; - is standard input.", metavar="FILE")] = "-",
    binary: Annotated[
        bool, typer.Option("--binary", help="Send length-prefixed records, not lines.")
    ] = False,
    linger: Annotated[
        float,
        duration_option(
            help="End after this long without an answer; a bare number is in milliseconds.",
            default="500ms",
            unit="ms",
        ),
    ] = 0.5,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Print no answers and end when all is committed.")
    ] = False,
    timeout: Annotated[
        float,
        duration_option(help="Fail after this long without progress.", default="30s", least="100ms"),
    ] = 30.0,
    supervised: Annotated[
        bool,
        typer.Option("--supervised", help="Have the members keep answers: each comes once, whoever dies."),
    ] = False,
) -> None:
    """Send lines or records as one session; print what is answered."""
    source = sys.stdin.buffer.fileno() if file == "-" else _open(file, endpoints)
    from cluster.client import ClusterClient

    answers = None if no_wait else _Answers(binary)
    listener = answers or _Events()
    with ClusterClient.connect(
        endpoints,
        listener,
        client_name="cluster-send",
        message_timeout_s=timeout,
        new_leader_timeout_s=timeout,
        supervised=supervised,
    ) as client:
        messages = (_Records if binary else _Lines)(client.max_payload_length)
        is_shown = sys.stderr.isatty() and (no_wait or not sys.stdout.isatty())
        with _Progress(client, source, is_shown) as progress:
            _Sending(client, source, messages, answers, linger, timeout, progress).run()
    if answers is not None and answers.has_new_leader and not supervised:
        sys.stdout.flush()
        sys.stderr.write(
            "the leader changed: answers that were on their way then may be missing; "
            "every message is committed\n"
        )
    if listener.errors:
        raise ClusterError(f"every message is committed, but {_listed(listener.errors)}")


def _listed(errors: list[str]) -> str:
    return errors[0] if len(errors) == 1 else f"{errors[0]}; and {len(errors) - 1} more errors like it"


def _open(file: str, endpoints: str) -> int:
    path = Path(file)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        hint = f"; to send text: echo hello | cluster send --endpoints {endpoints}"
        raise ClusterError(f"{file}: {error.strerror}{hint * (error.errno == errno.ENOENT)}") from None


@dataclass
class _Lines:
    """Cuts what was read into lines; of each call come whole ones, as columns.

    LocalProtocolError names the first that cannot be sent.
    """

    _length_max: int
    _rest: bytes = b""
    _count: int = 0  # of lines taken

    def take(self, data: bytes, *, is_last: bool) -> Columns:
        data = self._rest + data
        if is_last and data and not data.endswith(b"\n"):
            data += b"\n"
        buffer = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(buffer == ord("\n"))
        offsets = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])[: len(ends)]
        lengths = ends - offsets
        self._rest = data[int(ends[-1]) + 1 :] if len(ends) else data
        too_long = np.flatnonzero(lengths > self._length_max)
        if len(too_long):
            row = int(too_long[0])
            raise self._too_long(self._count + row + 1, f"has {lengths[row]} bytes")
        self._count += len(ends)
        if len(self._rest) > self._length_max:
            raise self._too_long(self._count + 1, f"has more than {self._length_max} bytes")
        return buffer, offsets, lengths

    def _too_long(self, line: int, what: str) -> LocalProtocolError:
        return LocalProtocolError(
            f"line {line} {what}, the cluster's log takes messages of at most {self._length_max}"
        )


@dataclass
class _Records:
    """The same of records with their lengths before them."""

    _length_max: int
    _rest: bytes = b""
    _begin: int = 0  # of the rest, counted from the start of the input

    def take(self, data: bytes, *, is_last: bool) -> Columns:
        data = self._rest + data
        offsets: list[int] = []
        lengths: list[int] = []
        begin = 0
        while begin + LENGTH_PREFIX.size <= len(data):
            (length,) = LENGTH_PREFIX.unpack_from(data, begin)
            if length > self._length_max:
                raise LocalProtocolError(
                    f"the record at byte {self._begin + begin} says it has {length} bytes, "
                    f"the cluster's log takes messages of at most {self._length_max}"
                )
            end = begin + LENGTH_PREFIX.size + length
            if end > len(data):
                break
            offsets.append(begin + LENGTH_PREFIX.size)
            lengths.append(length)
            begin = end
        self._rest = data[begin:]
        if is_last and self._rest:
            raise LocalProtocolError(
                f"the record at byte {self._begin + begin} is cut off: "
                f"the input ends after {len(self._rest)} bytes of it"
            )
        self._begin += begin
        return np.frombuffer(data, np.uint8), np.array(offsets, np.int64), np.array(lengths, np.int64)


class _Events:
    """Notes what went wrong for the session while it was open."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def on_session_event(self, *event: Any) -> None:
        *_, code, detail = event
        if detail.startswith(NO_ROOM):
            sys.stderr.write(f"waits: {printable(detail)}\n")
        elif code is EventCode.ERROR:
            self.errors.append(detail)


class _Answers(_Events):
    """Prints egress as it comes."""

    def __init__(self, binary: bool) -> None:
        super().__init__()
        self._is_binary = binary
        self._out = sys.stdout.buffer
        self._is_terminal = sys.stdout.isatty()
        self.count = 0
        self.has_new_leader = False

    def on_messages(self, batch: EgressBatch) -> None:
        self.count += len(batch)
        payloads = [bytes(batch.payload(row)) for row in range(len(batch))]
        if self._is_binary:
            self._out.write(b"".join(LENGTH_PREFIX.pack(len(payload)) + payload for payload in payloads))
        else:
            if self._is_terminal:
                payloads = [printable(payload.decode(errors="replace")).encode() for payload in payloads]
            self._out.write(b"\n".join(payloads) + b"\n")
        self._out.flush()

    def on_new_leader(self, *event: object) -> None:
        self.has_new_leader = True


@dataclass
class _Sending:
    """Reads, offers and polls in turns, until all is committed and the answers have ended."""

    _client: ClusterClient
    _source: int
    _messages: _Lines | _Records
    _answers: _Answers | None
    _linger_s: float
    _timeout_s: float
    _progress: _Progress
    _waiting: Columns | None = None  # read, and not taken by the client yet
    _is_read: bool = False
    _state: tuple[int, int, int] = (0, 0, 0)  # offered, acknowledged, answered: what counts as progress
    _changed_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._source_poll = select.poll()  # select() takes no descriptor beyond 1,023
        self._source_poll.register(self._source, select.POLLIN)

    def run(self) -> None:
        client = self._client
        while not self._is_over():
            if self._waiting is None and not self._is_read:
                self._read(WAIT_S if client.acknowledged == client.offered else 0)
            if self._waiting is not None and client.offer_batch(self._waiting) > 0:
                self._waiting = None
            if client.is_closed:
                continue  # which is reported above, with what is missing
            if client.poll_egress() == 0 and (self._waiting is not None or self._is_read):
                client.wait(WAIT_S)
            self._progress.update()

    def _read(self, wait_s: float) -> None:
        """Take what the input has, at most ``wait_s`` later."""
        if self._source_poll.poll(wait_s * 1000):
            data = os.read(self._source, READ_BYTES)
            self._is_read = not data
            columns = self._messages.take(data, is_last=self._is_read)
            self._waiting = columns if len(columns[1]) else None
            self._progress.read(len(data))

    def _is_over(self) -> bool:
        """Whether all is done; raises when it cannot be any more."""
        client = self._client
        now_s = time.monotonic()
        state = client.offered, client.acknowledged, self._answers.count if self._answers else 0
        if state != self._state:
            self._state = state
            self._changed_s = now_s
        missing = client.offered - client.acknowledged
        is_idle = missing == 0 and self._waiting is None
        if client.is_closed:
            raise ClientClosed(
                f"the session ended ({client.why_closed}); {missing} of {client.offered} messages sent are "
                "not known to be committed"
            )
        if is_idle and self._is_read:
            return self._answers is None or now_s - self._changed_s >= self._linger_s
        if not is_idle and now_s - self._changed_s >= self._timeout_s:
            raise TimedOut(
                f"no message was committed for {self._timeout_s:g} s; {missing} of {client.offered} messages "
                "sent are not known to be committed"
            )
        return False


class _Progress:
    """A bar on standard error, when it ``is_shown``: at a terminal where no answers come in between."""

    def __init__(self, client: ClusterClient, source: int, is_shown: bool) -> None:
        self._client = client
        self._is_shown = is_shown
        self._bar: Any = None
        self._read = 0
        self._next_s = 0.0
        self._size = os.fstat(source).st_size or None

    def __enter__(self) -> Self:
        if self._is_shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                console=Console(file=plain(sys.stderr)),
                transient=True,
            )
            self._task = self._bar.add_task("sending", total=self._size, rate="")
            self._bar.start()
            self._started_s = time.monotonic()
        return self

    def read(self, length: int) -> None:
        """So many bytes more were read."""
        self._read += length

    def update(self) -> None:
        if self._bar is None or (now_s := time.monotonic()) < self._next_s:
            return
        self._next_s = now_s + RATE_INTERVAL_S
        committed = self._client.acknowledged
        rate = committed / max(now_s - self._started_s, 1e-6)
        self._bar.update(
            self._task,
            completed=self._read,
            description=f"{committed:,} of {self._client.offered:,} messages committed",
            rate=f"{rate:,.0f}/s",
        )

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
