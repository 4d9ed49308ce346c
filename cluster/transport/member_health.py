"""gRPC's health service for a member: SERVING while it knows a leader, or leads."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from grpc_health.v1 import health, health_pb2

from cluster.protocol import link
from cluster.transport.grpc_core import grpc
from cluster.transport.grpc_guard import WatchBound, address_of

WATCH_INTERVAL_S = 0.5

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class MemberHealth(health.aio.HealthServicer):  # type: ignore[misc]  # grpc_health is not typed
    """Looks at the member when somebody asks, and as long as somebody watches."""

    def __init__(self, look: Callable[[], Awaitable[link.LogStatus]], services: tuple[str, ...]) -> None:
        """``look`` says how the member stands; whatever it raises, no leader is known."""
        super().__init__()
        self._look = look
        self._services = services
        self._bound = WatchBound()
        self._status: int | None = None
        self._watch_count = 0
        self._looking: asyncio.Task[None] | None = None

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """One look."""
        await self._update()
        return await super().Check(request, context)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext) -> None:
        """A response now and after each change; RESOURCE_EXHAUSTED at the bound of watches."""
        with self._bound.taken(address_of(context)) as refusal:
            if refusal:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal)
            await self._update()
            self._watch_count += 1
            if self._looking is None:
                self._looking = asyncio.create_task(self._keep_looking())
            try:
                await super().Watch(request, context)
            finally:
                self._watch_count -= 1
                if not self._watch_count:
                    self._looking.cancel()
                    self._looking = None

    async def _keep_looking(self) -> None:
        """For all who watch: who is notified of what has changed."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            await self._update()

    async def _update(self) -> None:
        is_led = False
        with contextlib.suppress(Exception):  # one that came out would end the looks of all who watch
            is_led = (await self._look()).leader_member_id >= 0
        status = SERVING if is_led else NOT_SERVING
        if status != self._status:  # setting it wakes everybody
            self._status = status
            for service in self._services:
                await self.set(service, status)
