"""Serves the committed log and a member's status to readers elsewhere, from the member's files.

A stream of answers is frames: first LogStatus (the log's identity and geometry), then runs of log frames,
last EndOfStream with the position reached and why it ended.

    LogRequest(from, to)  ->  LogStatus | log frames ... | EndOfStream(OK)
    LogRequest(…, wanted) ->  LogStatus | ThinnedBlock or log frames ... | EndOfStream(OK)
    LogRequest(from, -1)  ->  LogStatus | log frames as they are committed ...
    RecordingRequest(id)  ->  RecordingStatus | frames, of a snapshot ... | EndOfStream(OK)
    EventsRequest(place)  ->  EventLines ... | EndOfStream(OK)
    ControlRequest        ->  ControlOutcome, from an administrator

A member that has not committed as far as it was asked waits a little, then ends with NOT_AVAILABLE: the
reader asks another one. Files are read in worker threads, so one slow disk read holds up nobody.

Readers are strangers (``bounds.py``): so many are served at once, each has one block in memory, and who does
not take it in time, or asks nothing, is cut off.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from cluster.errors import ClusterError, DataLoss, LogDamaged, RemoteProtocolError
from cluster.log.entry_filter import EntryFilter
from cluster.protocol import Message, decode, link, streams
from cluster.protocol.frame import FRAME_ALIGNMENT
from cluster.protocol.shares import FillLevel, Taken
from cluster.transport.bounds import DEFAULT_BOUNDS, SECOND_NS, Bounds
from cluster.transport.committed_log import BlockOptions
from cluster.transport.endpoint import Medium
from cluster.transport.frame_splitter import FrameSplitter
from cluster.transport.handed_over import HandedOver
from cluster.transport.message_frames import each_frame, link_frame
from cluster.transport.reader_stream import ReaderStream
from cluster.transport.wanted import wanted_entries

BLOCK_BYTES_DEFAULT = 1024 * 1024
BLOCK_BYTES_MAX = 4 * 1024 * 1024
FOLLOW_INTERVAL_S = 0.01
FOLLOWERS_AT_FULL_RATE = 8  # more readers that wait for commits look for them less often each
STATUS_INTERVAL_S = 0.01  # between two looks at the files; who asks meanwhile shares the next one
LAG_TIMEOUT_S = 1.0
DECISION_TIMEOUT_S = 5.0  # of the member, about who a reader is
REQUEST_LENGTH_MAX = 4096
CONTROLS_MAX = 4  # administrators that are waited on at once; others wait for their turn
IDLE_READER_S = 60.0  # after which a reader that takes nothing does not keep the log from being dropped


class ServedLog(Protocol):
    """A member's log as it is served (``cluster.reader.served_member``); used by one thread at a time."""

    def status(self, correlation_id: int) -> link.LogStatus: ...

    def term_before(self, position: int) -> str | None: ...

    def commit_position(self) -> int: ...

    def blocks(
        self, from_position: int, to_position: int, how: BlockOptions
    ) -> Iterator[tuple[int, np.ndarray]]: ...

    def frame_around(self, position: int) -> int | None: ...

    def recording_status(self, request: link.RecordingRequest) -> link.RecordingStatus: ...

    def recording_blocks(self, recording_id: int, *, max_bytes: int) -> Iterator[tuple[int, np.ndarray]]: ...

    def close(self) -> None: ...


OpenLog = Callable[[], ServedLog]


class ReaderIdentity(NamedTuple):
    """What is known of a reader: where it is, the name in its certificate, and what it has shown."""

    peer: str
    certificate_name: str | None
    credentials: bytes = b""


class Judged(NamedTuple):
    """Why a reader may not make a request, empty if it may; and who it has proved to be."""

    why: str
    encoded_principal: bytes = b""


# What is found of a reader and a request of this template, later.
Ask = Callable[[ReaderIdentity, int], "Future[Judged]"]


class Administrator(NamedTuple):
    """Who asks for an action: from where, as whom, and over which medium."""

    peer: str
    encoded_principal: bytes
    medium: Medium


# Does what an administrator asks for, and says what came of it; may take half a minute.
Control = Callable[[link.ControlRequest, Administrator], link.ControlOutcome]
# What the member has written down for people; raises OSError.
Events = Callable[[link.EventsRequest], Iterator[link.EventLines]]
StreamRequest = link.LogRequest | link.RecordingRequest | link.EventsRequest


class RequestRefused(ClusterError):
    """A request that is not served, here or anywhere."""

    def __init__(self, code: link.LinkErrorCode, text: str) -> None:
        self.link_code = code
        super().__init__(text)


class LogServer:
    """Opens a log for each stream; ``on_error`` hears of readers that were refused or cut off."""

    def __init__(
        self,
        open_log: OpenLog,
        executor: Executor,
        bounds: Bounds = DEFAULT_BOUNDS,
        on_error: Callable[[ClusterError], None] = lambda error: None,
        ask: Ask | None = None,
        control: Control | None = None,
        events: Events = lambda _: iter(()),
    ) -> None:
        assert control is None or ask is not None, "else everybody administers"
        self._open_log = open_log
        self._ask = ask
        self._control = control
        self._events = events
        self._control_executor = ThreadPoolExecutor(CONTROLS_MAX, "control")
        self._on_error = on_error
        self._executor = executor
        self._status_executor = ThreadPoolExecutor(1, "log-status")  # not after the readers
        self._bounds = bounds
        self._readers = Taken()  # by their address; empty for this host
        self._fill = FillLevel("readers_max", lambda text: on_error(ClusterError(text)))
        self._following_count = 0  # readers that wait for commits
        self._next_look: asyncio.Task[link.LogStatus] | None = None
        self._looked_s = 0.0  # when the last look at the status began
        self._status_turn = threading.Lock()
        self._status_log: ServedLog | None = None
        self._status_start = 0
        self._positions: dict[object, tuple[int, float]] = {}  # of each reader: where, and since when

    @property
    def least_position(self) -> int | None:
        """Where the slowest reader that still moves is, None without one. May be asked from any thread."""
        oldest = time.monotonic() - IDLE_READER_S
        positions = [position for position, moved in tuple(self._positions.values()) if moved >= oldest]
        return min(positions, default=None)

    @contextlib.contextmanager
    def admitted(self, address: str) -> Iterator[None]:
        """Count one reader while it is served; ``address`` is empty on this host. Raises RequestRefused."""
        count = self._readers.count
        if (free := self._bounds.readers_max - count) <= 0:
            raise self._refusal(f"{count} readers are served, as many as readers_max allows")
        if address and (why := self._readers.beyond_share(address, free)):
            raise self._refusal(f"readers: {address} {why} (readers_max)")
        try:
            with self._readers.by(address):
                self._fill.update(self._readers.count, self._bounds.readers_max)
                yield
        finally:
            self._fill.update(self._readers.count, self._bounds.readers_max)

    @property
    def _timeout_s(self) -> float:
        """Of a reader."""
        return self._bounds.reader_timeout_ns / SECOND_NS

    def _refusal(self, why: str) -> RequestRefused:
        """For a bound that is met, reported to the member too."""
        refusal = RequestRefused(link.LinkErrorCode.REFUSED, why)
        self._on_error(refusal)
        return refusal

    async def in_time(self, sending: Awaitable[None]) -> None:
        """Wait for the reader to take what is sent; RequestRefused when it does not within its time-out."""
        try:
            async with asyncio.timeout(self._timeout_s):  # wait_for loses a cancellation beside a result
                await sending
        except TimeoutError:
            text = f"the reader took nothing for {self._timeout_s:g} s (reader_timeout)"
            raise self._refusal(text) from None

    async def check(self, identity: ReaderIdentity, message: Message) -> bytes:
        """The principal of a reader who may make this request. Raises RequestRefused."""
        if self._ask is None:
            return b""
        try:
            async with asyncio.timeout(DECISION_TIMEOUT_S):
                judged = await asyncio.wrap_future(self._ask(identity, message.TEMPLATE_ID))
        except TimeoutError:
            text = f"the member has not said within {DECISION_TIMEOUT_S:g} s whether this reader may read"
            raise self._refusal(text) from None
        if judged.why:
            raise RequestRefused(link.LinkErrorCode.UNAUTHORISED, judged.why)
        return judged.encoded_principal

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """In a worker thread. Whose reader is gone meanwhile waits for it: a log that is closed while it is
        read opens its files again.
        """
        running = asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    @property
    def reader_count(self) -> int:
        """Readers that are served now. May be asked from any thread."""
        return self._readers.count

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[ServedLog]:
        """A log for one stream; closed, too, if its reader is gone before it opens. Raises ClusterError."""
        opening = asyncio.ensure_future(self._run(self._open_log))
        try:
            log = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise
        try:
            yield log
        finally:
            await self._run(log.close)

    async def status(self, correlation_id: int) -> bytes:
        """One LogStatus frame of a look that begins after the request; raises as ``look``."""
        return link_frame((await self.look()).replace(correlation_id=correlation_id))

    async def look(self) -> link.LogStatus:
        """How the member stands now; ``ClusterError`` when there is no log.

        Each look takes the interpreter from the member's own thread, so they are so many a second at most:
        who asks in between shares the next one.
        """
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look())
            self._next_look.add_done_callback(_forget_failure)
        return await asyncio.shield(self._next_look)

    async def _look(self) -> link.LogStatus:
        await asyncio.sleep(self._looked_s + STATUS_INTERVAL_S - time.monotonic())
        self._next_look, self._looked_s = None, time.monotonic()
        return await asyncio.get_running_loop().run_in_executor(self._status_executor, self._status)

    def _status(self) -> link.LogStatus:
        """From a log that stays open, as idle readers ask often; opened again when it fails or was purged."""
        with self._status_turn:
            if self._status_log is not None:
                with contextlib.suppress(ClusterError):
                    status = self._status_log.status(0)
                    if status.start_position == self._status_start:
                        return status
                self._close_status_log()
            self._status_log = self._open_log()
            try:
                status = self._status_log.status(0)
            except ClusterError:
                self._close_status_log()
                raise
            self._status_start = status.start_position
            return status

    async def control(self, request: link.ControlRequest, who: Administrator) -> bytes:
        """One ControlOutcome frame, when the action is done. RequestRefused by a member that serves none."""
        if self._control is None:
            raise RequestRefused(
                link.LinkErrorCode.FAILED, "this member is not administered over the network"
            )
        loop = asyncio.get_running_loop()
        return link_frame(await loop.run_in_executor(self._control_executor, self._control, request, who))

    def _close_status_log(self) -> None:
        log, self._status_log = self._status_log, None
        if log is not None:
            log.close()

    def close(self) -> None:
        """Streams close what they opened themselves."""
        self._status_executor.shutdown(wait=False, cancel_futures=True)
        self._control_executor.shutdown(wait=False, cancel_futures=True)
        with self._status_turn:
            self._close_status_log()

    async def read(self, request: link.LogRequest) -> AsyncGenerator[bytes, None]:
        """The frames that answer ``request``; every failure ends in an EndOfStream.

        RequestRefused for a range that cannot be.
        """
        position, reader = request.from_position, object()
        code, text = link.LinkErrorCode.OK, ""
        try:
            async with self._opened() as log:
                status = await self._run(_status_before, log, request)
                yield link_frame(status)
                code, text = self._judge(request, status)
                if code is link.LinkErrorCode.OK:
                    self._positions[reader] = position, time.monotonic()
                    async for end_position, data in self._blocks(log, request):
                        yield data
                        position = end_position
                        self._positions[reader] = position, time.monotonic()
                    if request.to_position > position:
                        code = link.LinkErrorCode.NOT_AVAILABLE
                        text = f"committed up to {position} here, asked up to {request.to_position}"
        except RequestRefused:
            raise
        except ClusterError as error:
            code, text = _why_it_ends(error)
        finally:
            self._positions.pop(reader, None)
        yield link_frame(link.EndOfStream(request.correlation_id, position, code, text))

    async def read_recording(self, request: link.RecordingRequest) -> AsyncGenerator[bytes, None]:
        """The frames that answer ``request``; every failure ends in an EndOfStream."""
        position, code, text = 0, link.LinkErrorCode.OK, ""
        try:
            async with self._opened() as log:
                yield link_frame(await self._run(log.recording_status, request))
                blocks = log.recording_blocks(request.recording_id, max_bytes=self._block_bytes(0))
                while (block := await self._run(_next_block, blocks)) is not None:
                    position, data = block
                    yield data
        except ClusterError as error:
            code, text = _why_it_ends(error)
        yield link_frame(link.EndOfStream(request.correlation_id, position, code, text))

    async def read_events(self, request: link.EventsRequest) -> AsyncGenerator[bytes, None]:
        """The frames that answer ``request``; every failure ends in an EndOfStream."""
        code, text = link.LinkErrorCode.OK, ""
        try:
            blocks = self._events(request)
            while (block := await self._run(next, blocks, None)) is not None:
                yield link_frame(block)
        except OSError as error:
            code, text = link.LinkErrorCode.FAILED, str(error)
        yield link_frame(link.EndOfStream(request.correlation_id, 0, code, text))

    def answers_to(self, request: StreamRequest) -> AsyncGenerator[bytes, None]:
        """``read``, ``read_recording`` or ``read_events``."""
        match request:
            case link.LogRequest():
                return self.read(request)
            case link.RecordingRequest():
                return self.read_recording(request)
            case link.EventsRequest():
                return self.read_events(request)

    async def serve(self, reader: HandedOver) -> None:
        """Answer the requests of one reader's socket, one after the other, until it is closed."""
        stream = ReaderStream(reader)
        try:
            is_local = reader.sock.family == socket.AF_UNIX  # whoever comes there may read the files, too
            address = "" if is_local else str(reader.sock.getpeername()[0])
            with self.admitted(address):
                await self._serve(stream, reader, address)
        except RequestRefused as error:
            with contextlib.suppress(OSError):
                stream.send_at_once(link_frame(link.LinkError(0, error.link_code, str(error))))
        except (OSError, RemoteProtocolError):
            return  # the reader is gone, or is none
        finally:
            reader.sock.close()

    async def _serve(self, stream: ReaderStream, reader: HandedOver, address: str) -> None:
        splitter = FrameSplitter(REQUEST_LENGTH_MAX)
        medium = Medium.TCP if address else Medium.IPC
        identity = ReaderIdentity(address, reader.certificate_name if address else None)
        data = reader.received
        while True:
            frames = splitter.split(data)
            for stream_id, offset, length in each_frame(np.frombuffer(frames, np.uint8), 0, len(frames)):
                message = decode(frames, offset, length) if stream_id == streams.LINK else None
                if isinstance(message, link.ReaderCredentials):
                    identity = identity._replace(credentials=bytes(message.encoded_credentials))
                    continue
                principal = await self.check(identity, message) if message is not None and address else b""
                who = Administrator(address or "this host", principal, medium)
                async with contextlib.aclosing(self._answer(message, who)) as answers:
                    async for answer in answers:
                        try:
                            await self.in_time(stream.send(answer))
                        except RequestRefused:
                            return  # within an answer nothing else can be sent
            try:
                async with asyncio.timeout(self._timeout_s):
                    data = await stream.receive(REQUEST_LENGTH_MAX)
            except TimeoutError:
                text = f"the reader asked nothing for {self._timeout_s:g} s (reader_timeout)"
                raise self._refusal(text) from None
            if not data:
                return

    async def _answer(self, message: Message | None, who: Administrator) -> AsyncGenerator[bytes, None]:
        match message:
            case link.LogRequest() | link.RecordingRequest() | link.EventsRequest():
                try:
                    async with contextlib.aclosing(self.answers_to(message)) as answers:
                        async for data in answers:
                            yield data
                except RequestRefused as error:
                    position = message.from_position if isinstance(message, link.LogRequest) else 0
                    end = link.EndOfStream(message.correlation_id, position, error.link_code, str(error))
                    yield link_frame(end)
            case link.StatusRequest():
                try:
                    yield await self.status(message.correlation_id)
                except ClusterError as error:
                    code = link.LinkErrorCode.FAILED
                    yield link_frame(link.LinkError(message.correlation_id, code, str(error)))
            case link.ControlRequest():
                yield await self.control(message, who)
            case _:
                raise RemoteProtocolError(f"{message} is no request of a reader")

    async def _blocks(self, log: ServedLog, request: link.LogRequest) -> AsyncIterator[tuple[int, bytes]]:
        """(position after it, bytes) of each block, until the end or until it lies too far ahead."""
        position, to_position = request.from_position, request.to_position
        how = BlockOptions(self._block_bytes(request.max_bytes))
        thin = partial(_thinned, request.correlation_id, wanted_entries(request)) if request.wanted else None
        waited_s = 0.0
        while to_position < 0 or position < to_position:
            bound = await self._run(log.commit_position)
            if to_position >= 0:
                bound = min(bound, to_position)
            before = position
            if bound > position:
                blocks = log.blocks(position, bound, how)
                try:
                    while (block := await self._run(_next_block, blocks, thin)) is not None:
                        position = block[0]
                        yield block
                except LogDamaged:
                    is_first = position == request.from_position
                    begin = await self._run(log.frame_around, position) if is_first else None
                    if begin is None:
                        raise
                    text = f"from_position {position} is within the frame that begins at {begin}"
                    raise _invalid(text) from None
            if position > before:
                waited_s = 0.0
                continue
            if waited_s >= LAG_TIMEOUT_S:
                if bound < request.from_position:
                    text = f"from_position {position} is beyond what is committed here, {bound}"
                    raise RequestRefused(link.LinkErrorCode.OUT_OF_RANGE, text)
                if to_position >= 0:
                    return
            waited_s += await self._await_commits()

    def _block_bytes(self, max_bytes: int) -> int:
        """How much one reader has in memory at once; ``max_bytes`` is what it asks for, 0 nothing."""
        wanted = min(max_bytes, BLOCK_BYTES_MAX) if max_bytes > 0 else BLOCK_BYTES_DEFAULT
        return min(wanted, self._bounds.reader_block_bytes)

    async def _await_commits(self) -> float:
        """Wait before the next look at the commit position; returns how long, in seconds."""
        self._following_count += 1
        try:
            interval_s = FOLLOW_INTERVAL_S * max(1.0, self._following_count / FOLLOWERS_AT_FULL_RATE)
            await asyncio.sleep(interval_s)
        finally:
            self._following_count -= 1
        return interval_s

    @staticmethod
    def _judge(request: link.LogRequest, status: link.LogStatus) -> tuple[link.LinkErrorCode, str]:
        position, to_position = request.from_position, request.to_position
        if position < 0 or position % FRAME_ALIGNMENT:
            raise _invalid(f"from_position {position}: expected a multiple of {FRAME_ALIGNMENT}, at least 0")
        if to_position < position and to_position != -1:
            raise _invalid(f"to_position {to_position}: expected at least from_position, {position}, or -1")
        if request.from_position < status.start_position:
            text = f"position {request.from_position} was purged, the log begins at {status.start_position}"
            return link.LinkErrorCode.NOT_AVAILABLE, text
        return link.LinkErrorCode.OK, ""


def _why_it_ends(error: ClusterError) -> tuple[link.LinkErrorCode, str]:
    kinds = link.LinkErrorCode
    return kinds.NOT_AVAILABLE if isinstance(error, DataLoss) else kinds.FAILED, str(error)


def _invalid(text: str) -> RequestRefused:
    return RequestRefused(link.LinkErrorCode.INVALID_ARGUMENT, text)


def _forget_failure(look: asyncio.Task[link.LogStatus]) -> None:
    """Everybody who asked may have left by now: else asyncio prints the traceback of a failure."""
    if not look.cancelled():
        look.exception()


def _close_opened(opening: asyncio.Future[ServedLog]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _status_before(log: ServedLog, request: link.LogRequest) -> link.LogStatus:
    """How the member stands, and in which term the log is where the answer begins."""
    status = log.status(request.correlation_id)
    return status.replace(term=log.term_before(request.from_position) or "")


def _next_block(
    blocks: Iterator[tuple[int, np.ndarray]], thin: Callable[[int, np.ndarray], bytes] | None = None
) -> tuple[int, bytes] | None:
    """The position after the next block, and what is sent of it."""
    block = next(blocks, None)
    if block is None:
        return None
    position, frames = block
    return position + len(frames), frames.tobytes() if thin is None else thin(position, frames)


def _thinned(correlation_id: int, wanted: EntryFilter, position: int, frames: np.ndarray) -> bytes:
    """A block without what is not wanted, or as it is where that is nothing."""
    thinned = wanted.thinned(frames).tobytes()
    if len(thinned) == len(frames):
        return thinned
    return link_frame(link.ThinnedBlock(correlation_id, position, len(frames), thinned))
