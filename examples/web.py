"""A web application on a cluster: each HTTP request is a question to the service, its answer the response.

    cluster up --dir c1                             in one terminal
    python examples/web.py 127.0.0.1:9000 8080     in another
    curl -d hello http://127.0.0.1:8080/

All requests share one session: ``AsyncClusterClient.request`` finds the answer to each. Kill the leader
meanwhile: what waits is answered by the next one, because the session is supervised. In Starlette or FastAPI
the body of ``answer`` is an endpoint, and the client is opened in the application's lifespan.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from functools import partial

from cluster import AsyncClusterClient, ClientClosed, TimedOut

TIMEOUT_S = 10.0
BODY_MAX = 64 * 1024


async def answer(client: AsyncClusterClient, method: str, body: bytes) -> tuple[str, bytes]:
    """Status and body of the response to one request."""
    if method == "GET":
        return "200 OK", f"member {client.leader_member_id} leads\n".encode()
    if method != "POST":
        return "405 Method Not Allowed", b"POST a question\n"
    try:
        return "200 OK", (await client.request(body, timeout_s=TIMEOUT_S)).payload
    except TimedOut as error:
        return "504 Gateway Timeout", f"{error}\n".encode()
    except ClientClosed as error:
        return "503 Service Unavailable", f"{error}\n".encode()


async def serve_one(client: AsyncClusterClient, reader: StreamReader, writer: StreamWriter) -> None:
    """One connection, with one request."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = dict(line.lower().split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)
        length = int(fields.get("content-length", "0"))
        if length > BODY_MAX:
            status, body = "413 Content Too Large", f"at most {BODY_MAX} bytes\n".encode()
        else:
            status, body = await answer(client, head.split(" ")[0], await reader.readexactly(length))
        headers = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(headers.encode() + body)
        await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, ConnectionError):
        pass  # no HTTP, or nobody waits for the answer any more
    finally:
        writer.close()


async def serve(endpoints: str, port: int) -> None:
    """Until it is cancelled; the port that it listens on is printed."""
    async with AsyncClusterClient.connect(endpoints, supervised=True) as client:
        server = await asyncio.start_server(partial(serve_one, client), "127.0.0.1", port)
        async with server:
            print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
