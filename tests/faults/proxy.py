"""A proxy on each way between two members: it delays, silences, cuts, halves and garbles what passes.

A member sends on the connection that it dialled, so the way from a to b is the port at which a believes b to
be. All ways live in one thread with an event loop; what they do is changed from the test's own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from benchmarks.real_members import RealMembers

CHUNK_BYTES = 64 * 1024


@dataclass
class Way:
    """From one member to another. Everything that is set holds for what passes from then on."""

    target: tuple[str, int]
    port: int = 0
    delay_s: float = 0.0
    is_silent: bool = False  # nothing passes, nothing is refused: a network that is gone
    cut_in: int = 0  # after so many chunks, half of the last one, its connection ends
    garble_each: int = 0  # one bit in so many chunks is another
    passed: int = 0
    garbled: int = 0
    cuts: int = 0
    random: random.Random = field(default_factory=lambda: random.Random(1))
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, both of its directions, until either ends."""
        try:
            back, forth = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self.writers |= {writer, forth}
        with contextlib.suppress(asyncio.CancelledError):  # at the network's end
            await self._pump_both(reader, writer, back, forth)

    async def _pump_both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamReader,
        forth: asyncio.StreamWriter,
    ) -> None:
        try:
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._pump(reader, forth)),
                    asyncio.ensure_future(self._pump(back, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for each in (writer, forth):
                self.writers.discard(each)
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := bytearray(await reader.read(CHUNK_BYTES)):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                while self.is_silent:
                    await asyncio.sleep(0.02)
                self.passed += 1
                if self.garble_each and self.passed % self.garble_each == 0:
                    bits = 32 if self.garbled % 4 == 0 else 8 * len(chunk)  # now and then the first length
                    bit = self.random.randrange(bits)
                    chunk[bit // 8] ^= 1 << bit % 8
                    self.garbled += 1
                if self.cut_in and self.passed % self.cut_in == 0:
                    self.cuts += 1
                    writer.write(chunk[: len(chunk) // 2])
                    await writer.drain()
                    return
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass


class Network:
    """The ways between all members, to be given to them before they start; a context manager."""

    def __init__(self, members: RealMembers) -> None:
        self.ways = {
            (a, b): Way((members.hosts[b], members.ports[b] + 2))
            for a in members.ids
            for b in members.ids
            if a != b
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._servers = [self._run(self._listen(way)) for way in self.ways.values()]
        for a in members.ids:
            ports = {b: self.ways[a, b].port for b in members.ids if b != a}
            members.keys_of[a]["members"] = members.members_key(ports)

    @staticmethod
    async def _listen(way: Way) -> asyncio.Server:
        server = await asyncio.start_server(way.serve, "127.0.0.1", 0, limit=CHUNK_BYTES)
        way.port = server.sockets[0].getsockname()[1]
        return server

    def _run(self, coroutine):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def of(self, member_id: int) -> list[Way]:
        """The ways to and from a member."""
        return [way for pair, way in self.ways.items() if member_id in pair]

    def set(self, ways: list[Way] | None = None, **what: float) -> None:
        """Let ways (none named: all) do something else from now on."""
        for way in self.ways.values() if ways is None else ways:
            for name, value in what.items():
                assert hasattr(way, name)
                setattr(way, name, value)

    def heal(self) -> None:
        self.set(delay_s=0.0, is_silent=False, cut_in=0, garble_each=0)

    def cut(self, ways: list[Way] | None = None) -> None:
        """End the connections that there are; new ones can be made."""

        async def abort() -> None:
            for way in self.ways.values() if ways is None else ways:
                way.cuts += len(way.writers)
                for writer in list(way.writers):
                    writer.transport.abort()

        self._run(abort())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def close() -> None:
            for server in self._servers:
                server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._run(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
