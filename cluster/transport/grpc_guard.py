"""What strangers may take of a gRPC server beside connections: streams that they reset at once, and watches.

The core of gRPC has no bound for streams that are reset. So each call that is cancelled soon after it began
counts for its address. An address that has too many of them loses the connection of each further one: its
socket is reset, which gRPC itself has no call for.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NoReturn

from cluster.protocol.shares import Taken, sharer_at
from cluster.transport.grpc_core import grpc

SOON_S = 1.0  # after it began; who waits for an answer has a time-out, and this is none
RESETS_MAX = 1_000  # of one address, within
RESETS_WINDOW_S = 10.0
WATCHES_MAX = 256  # of the member's health, by all addresses together


def address_of(context: grpc.aio.ServicerContext) -> str:
    """The host of the peer, which gRPC names as in ``ipv4:127.0.0.1:40123``."""
    return str(context.peer()).partition(":")[2].rpartition(":")[0]


async def abort(context: grpc.aio.ServicerContext, code: grpc.StatusCode, text: str) -> NoReturn:
    """End a call."""
    await context.abort(code, text)
    raise AssertionError("abort raises")


class ResetGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is not typed
    """Watches every call of a server; used in its thread."""

    def __init__(self, on_flood: Callable[[str], None]) -> None:
        """``on_flood`` gets a line for an address that has had its connections cut off, once a window."""
        self._on_flood = on_flood
        self._resets: Counter[str] = Counter()  # by address, in this window
        self._window_end_s = 0.0
        self._cut_off: set[str] = set()  # peers, likewise

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """The same handler, watched from before its request has come; that of no method, too."""
        handler = await continuation(handler_call_details) or _UNKNOWN

        async def watched(requests: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> None:
            with self._watching(context):
                await _handle(handler, requests, context)

        return grpc.stream_stream_rpc_method_handler(
            watched, handler.request_deserializer, handler.response_serializer
        )

    @contextlib.contextmanager
    def _watching(self, context: grpc.aio.ServicerContext) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        except asyncio.CancelledError:
            if (now_s := time.monotonic()) < began_s + SOON_S:
                self._on_reset(context, now_s)
            raise

    def _on_reset(self, context: grpc.aio.ServicerContext, now_s: float) -> None:
        if now_s >= self._window_end_s:
            self._resets.clear()
            self._cut_off.clear()
            self._window_end_s = now_s + RESETS_WINDOW_S
        address = sharer_at(address_of(context))
        self._resets[address] += 1
        if (count := self._resets[address]) <= RESETS_MAX:
            return
        if (peer := context.peer()) not in self._cut_off:  # its other streams end with it, and come here
            self._cut_off.add(peer)
            _reset(peer)
        if count == RESETS_MAX + 1:
            self._on_flood(f"{address} was cut off: it reset {count} streams within {RESETS_WINDOW_S:g} s")


async def _handle(
    handler: grpc.RpcMethodHandler, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext
) -> None:
    """What gRPC does for each of its four kinds of methods, which are the same on the wire."""
    request: Any = requests
    if not handler.request_streaming:
        request = await anext(requests, None)
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a request")
    if not handler.response_streaming:
        behaviour = handler.stream_unary if handler.request_streaming else handler.unary_unary
        await context.write(await behaviour(request, context))
        return
    behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream
    answers = behaviour(request, context)
    if not isinstance(answers, AsyncGenerator):
        await answers  # it writes for itself
        return
    async with contextlib.aclosing(answers):
        async for answer in answers:
            await context.write(answer)


async def _unknown(request: bytes, context: grpc.aio.ServicerContext) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


_UNKNOWN = grpc.unary_unary_rpc_method_handler(_unknown)


def _reset(peer: str) -> None:
    """Reset our end of the connection to a peer that gRPC names as in ``ipv4:127.0.0.1:40123``.

    A socket that is only shut down goes on receiving what comes, so it is disconnected: ``connect`` to the
    family AF_UNSPEC, which ``socket`` cannot name.
    """
    host, _, port = peer.partition(":")[2].rpartition(":")
    wanted = {(form, int(port)) for form in (host[3:-3], host.strip("[]"), f"::ffff:{host}")}  # %5B::1%5D
    nowhere = bytes(16)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as sock:
                if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getpeername()[:2] in wanted:
                    ctypes.CDLL(None).connect(sock.fileno(), nowhere, len(nowhere))


class WatchBound:
    """So many at a time, of which nobody has more than his share (protocol/shares.py)."""

    def __init__(self) -> None:
        self._taken = Taken()

    @contextlib.contextmanager
    def taken(self, address: str) -> Iterator[str]:
        """Take one, or say why there is none: the text is empty where it is taken."""
        free = WATCHES_MAX - self._taken.count
        why = "none is free" if free <= 0 else self._taken.beyond_share(address, free)
        if why:
            yield f"watches of the health, {WATCHES_MAX} at most: {address} {why}"
            return
        with self._taken.by(address):
            yield ""
