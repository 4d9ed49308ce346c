"""AsyncClusterClient: a ClusterClient for asyncio. It waits on the client's descriptor, in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import Self, TypeVar, Unpack

from cluster.client.cluster_client import AsyncConnect, ClusterClient
from cluster.client.context import ClientSettings
from cluster.client.egress_dispatch import Answer, EgressBatch
from cluster.client.payloads import Payloads
from cluster.client.requests import TIMEOUT_S, Request
from cluster.client.session_conductor import WAIT_S, ClientState
from cluster.client.standing import ClientStanding
from cluster.errors import TimedOut
from cluster.protocol.enums import Offer
from cluster.service.buffer_claim import BufferClaim
from cluster.service.payload import Payload
from cluster.transport.endpoint import Endpoint

WAIT_MAX_S = 1.0

Taken = TypeVar("Taken", Answer, EgressBatch)


class Readiness:
    """Lets coroutines of one event loop wait until a descriptor is readable."""

    def __init__(self, descriptor: int) -> None:
        """``descriptor`` may be closed by others at any time: it is duplicated."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.dup(descriptor)
        self._ready: asyncio.Future[None] | None = None
        self._is_closed = False

    async def wait(self, timeout_s: float) -> None:
        """Until it is readable or closed, at most ``timeout_s``."""
        if self._is_closed:
            await asyncio.sleep(0)
            return
        if self._ready is None:
            self._ready = self._loop.create_future()
            self._loop.add_reader(self._descriptor, self._on_readable)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._ready), timeout_s)

    def _on_readable(self) -> None:
        if self._ready is not None:
            self._loop.remove_reader(self._descriptor)
            self._ready.set_result(None)
            self._ready = None

    def close(self) -> None:
        """Wake who waits. In the thread of the event loop."""
        if not self._is_closed:
            self._on_readable()
            self._is_closed = True
            os.close(self._descriptor)

    def close_soon(self) -> None:
        """The same from any thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self.close)


class AsyncClusterClient(ClientStanding):
    """An open session for asyncio. Open it with ``connect``, and use it in the event loop that opened it.

        async with AsyncClusterClient.connect("127.0.0.1:9000") as client:
            await client.offer(b"hello")
            async for answer in client.answers(timeout_s=1):
                print(answer.payload)

    If ``ClusterClient`` would return a code, this client waits: ``offer`` returns once the message is
    accepted. ``poll_egress``, and every method that polls, calls the listener in the event loop.
    """

    def __init__(self, client: ClusterClient, readiness: Readiness) -> None:
        self._client = client
        self._standing = client._standing
        self._readiness = readiness
        self._hearing: asyncio.Task[None] | None = None
        client.on_end(readiness.close_soon)

    @classmethod
    def connect(
        cls,
        endpoints: str | Mapping[int, str | Endpoint] | None = None,
        egress_listener: object = None,
        **settings: Unpack[ClientSettings],
    ) -> Connecting:
        """Open a session, with ``await`` or ``async with``. Takes what ``ClusterClient.connect`` takes."""
        return Connecting(lambda: AsyncConnect(endpoints, egress_listener, **settings))

    # -- sending --

    async def offer(self, *parts: Payload) -> int:
        """Send one message, made of the given parts. Returns its position once the client has accepted it.

        Waits while too much is uncommitted or the client looks for a leader. Raises ClientClosed if the
        session is over, LocalProtocolError if the message is longer than ``max_payload_length``, and
        TypeError if a part is not bytes.
        """
        return await self._taken(lambda: self._client.offer(*parts))

    async def offer_batch(self, payloads: Payloads) -> int:
        """Send many messages in one call; otherwise like ``offer``."""
        return await self._taken(lambda: self._client.offer_batch(payloads))

    async def try_claim(self, length: int, claim: BufferClaim) -> int:
        """Give ``claim`` a buffer for one message once there is room; otherwise like ``offer``."""
        return await self._taken(lambda: self._client.try_claim(length, claim))

    async def request(self, *parts: Payload, timeout_s: float = TIMEOUT_S) -> Answer:
        """Send one message, and return the first answer that the service sends while it handles the message.

        Many coroutines may wait at a time; otherwise like ``ClusterClient.request``.
        """
        loop = asyncio.get_running_loop()
        is_over = asyncio.Event()

        def on_over() -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(is_over.set)

        request = Request(on_over)
        try:
            async with asyncio.timeout(timeout_s):
                await self._taken(lambda: self._client.begin_request(request, *parts))
                self._hear_answers()
                await is_over.wait()
        except TimeoutError:
            if not request.number:
                raise TimedOut(f"the message was not taken in {timeout_s:g} s") from None
        finally:
            error = self._client.end_request(request, timeout_s)
        if (answer := request.result()) is None:
            raise error
        return answer

    def _hear_answers(self) -> None:
        """Have one task poll as long as requests wait."""
        if self._hearing is None or self._hearing.done():
            self._hearing = asyncio.get_running_loop().create_task(self._hear())

    async def _hear(self) -> None:
        try:
            while self._client.awaits_answers:
                self._client.poll_if_free()
                if self._client.awaits_answers:
                    await self._pause(WAIT_MAX_S)
        except Exception as error:
            self._client.fail_requests(error)

    async def _taken(self, attempt: Callable[[], int]) -> int:
        while (result := attempt()) < 0:
            if result == Offer.CLOSED:
                raise self._client.closed_error()
            await self._pause(WAIT_MAX_S)
        return result

    async def send_keep_alive(self) -> bool:
        """Keep the session open without a message; False if it could not be sent now."""
        return self._client.send_keep_alive()

    async def send_admin_request_to_take_a_snapshot(self, correlation_id: int) -> bool:
        """Ask for a snapshot, as ``ClusterClient`` does."""
        return self._client.send_admin_request_to_take_a_snapshot(correlation_id)

    async def await_committed(self, timeout_s: float | None = None) -> int:
        """Wait until every message that was offered before is committed, as ``ClusterClient`` does."""
        commit = self._client.commit_wait(timeout_s)
        while not commit.is_over():
            if not self._client.is_closed:
                self._client.poll_egress()
            if not commit.is_over():
                await self._pause(commit.rest_s(WAIT_MAX_S))
        return commit.position

    async def token(self) -> str:
        """A position token of what is known to be committed, as of ``ClusterClient.token``."""
        return await asyncio.to_thread(self._client.token)

    # -- hearing --

    async def poll_egress(self, fragment_limit: int | None = None) -> int:
        """Deliver what has arrived to the listener, without waiting, as ``ClusterClient`` does."""
        return self._client.poll_egress(fragment_limit)

    async def wait(self, timeout_s: float) -> None:
        """Wait, at most ``timeout_s`` seconds, until something arrives. Raises ClientClosed."""
        self._client.wait(0)  # which raises at the end
        if not self._client.has_egress:
            await self._readiness.wait(timeout_s)

    async def answers(self, timeout_s: float | None = None) -> AsyncIterator[Answer]:
        """Yield the service's answers one by one, as ``ClusterClient.answers`` does."""
        async for answer in self._each(self._client.take_answer, timeout_s):
            yield answer

    async def answer_batches(self, timeout_s: float | None = None) -> AsyncIterator[EgressBatch]:
        """Yield the same answers as columns, one batch for each run that arrived together."""
        async for batch in self._each(self._client.take_answer_batch, timeout_s):
            yield batch

    async def _each(self, take: Callable[[], Taken | None], timeout_s: float | None) -> AsyncIterator[Taken]:
        loop = asyncio.get_running_loop()
        while True:
            deadline = None if timeout_s is None else loop.time() + timeout_s
            while (taken := take()) is None:
                rest_s = WAIT_MAX_S if deadline is None else deadline - loop.time()
                if rest_s <= 0:
                    return
                await self._pause(min(rest_s, WAIT_MAX_S))
            yield taken

    async def _pause(self, timeout_s: float) -> None:
        """Wait for the socket; where no socket announces progress, not for long."""
        is_connected = self._client.state is ClientState.CONNECTED
        await self._readiness.wait(timeout_s if is_connected else min(timeout_s, WAIT_S))

    # -- ending --

    async def close(self) -> None:
        """Close the session, as ``ClusterClient.close`` does; the event loop keeps running meanwhile."""
        await asyncio.to_thread(self._client.close)
        self._readiness.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Connecting:
    """A session that is to be opened: ``await`` it, or enter it with ``async with``."""

    def __init__(self, begin: Callable[[], AsyncConnect]) -> None:
        self._begin = begin
        self._client: AsyncClusterClient | None = None

    def __await__(self) -> Generator[object, None, AsyncClusterClient]:
        return self._connect().__await__()

    async def _connect(self) -> AsyncClusterClient:
        attempt = self._begin()
        readiness = Readiness(attempt.fileno())
        try:
            while (client := attempt.poll()) is None:
                await readiness.wait(WAIT_S)
        except BaseException:
            readiness.close()
            raise
        finally:
            attempt.close()
        return AsyncClusterClient(client, readiness)

    async def __aenter__(self) -> AsyncClusterClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()
