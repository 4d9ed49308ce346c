"""The HTTP server beside a member: one request a connection, and bounds on what strangers take."""

import asyncio
import socket
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from cluster.cli import http_port
from cluster.cli.http_port import HttpPort, Response


@asynccontextmanager
async def served(answer):
    """A port that answers so; where it is."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = asyncio.create_task(HttpPort(listener, answer).run())
        yield listener.getsockname()
        port.cancel()


async def answer_path(request):
    return Response(HTTPStatus.OK, f"{request.path} {request.query} {request.headers.get('a')}".encode())


async def said(address, data: bytes) -> bytes:
    """All that comes back until the other side ends the connection."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def until(is_so) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def test_a_request_gets_its_answer_and_the_connection_ends():
    async def run():
        async with served(answer_path) as address:
            answer = await said(address, b"GET /x?all HTTP/1.1\r\nHost: h\r\nA: b c\r\n\r\n")
            head = await said(address, b"HEAD /x HTTP/1.0\r\n\r\n")
            return answer, head, await said(address, b"PUT /x HTTP/1.1\r\n\r\n")

    answer, head, put = asyncio.run(run())
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\n/x all b c")
    assert head.endswith(b"\r\n\r\n") and b"Content-Length: 8\r\n" in head
    assert put.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01" + bytes(range(14, 254)) * 2 + b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"a" * 70_000,
        b"\r\n\r\n",
    ],
    ids=lambda garbage: repr(garbage[:8]),
)
def test_what_is_no_request_is_closed_without_a_word_and_the_next_is_served(garbage):
    async def run():
        async with served(answer_path) as address:
            return await said(address, garbage), await said(address, b"GET /x HTTP/1.1\r\n\r\n")

    nothing, answer = asyncio.run(run())
    assert nothing == b"" and answer.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("request_", [b"GET / HT", b"GET / HTTP/1.1\r\n\r\n"], ids=["writes", "reads"])
def test_who_writes_or_reads_too_slowly_is_cut_off(monkeypatch, request_):
    monkeypatch.setattr(http_port, "EXCHANGE_TIMEOUT_S", 0.1)

    async def answer(request):
        return Response(HTTPStatus.OK, bytes(32 << 20))

    async def run():
        async with served(answer) as address:
            idle = len(asyncio.all_tasks())
            with socket.create_connection(address) as client:
                client.sendall(request_)
                client.setblocking(False)
                await until(lambda: len(asyncio.all_tasks()) > idle)
                await until(lambda: len(asyncio.all_tasks()) == idle)
            return await said(address, b"PUT / HTTP/1.1\r\n\r\n")

    assert asyncio.run(asyncio.wait_for(run(), 10)).startswith(b"HTTP/1.1 405")


def test_one_address_has_so_many_connections_and_gets_more_when_some_have_ended():
    async def run():
        async with served(answer_path) as address:
            held = [await asyncio.open_connection(*address) for _ in range(http_port.ADDRESS_CONNECTIONS_MAX)]
            refused = await said(address, b"GET / HTTP/1.1\r\n\r\n")
            for _, writer in held:
                writer.close()
            while not (answer := await said(address, b"GET / HTTP/1.1\r\n\r\n")):
                await asyncio.sleep(0.001)
            return refused, answer

    refused, answer = asyncio.run(asyncio.wait_for(run(), 10))
    assert refused == b"" and answer.startswith(b"HTTP/1.1 200 OK\r\n")
