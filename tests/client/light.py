"""A client where only gRPC is installed: run with an endpoint and a way to use it, in its own process."""

import sys
import time

MISSING = ["numpy", "numba", "llvmlite", "pyarrow", "cryptography", "pydantic", "typer", "rich", "structlog"]
MISSING += ["hdrh", "google.protobuf"]
for name in MISSING:
    sys.modules[name] = None  # type: ignore[assignment]

began = time.process_time()
import cluster  # noqa: E402

imported = time.process_time()
import asyncio  # noqa: E402
from itertools import islice  # noqa: E402

ENDPOINT, WAY = sys.argv[1:]
SENT = [
    b"in parts",
    bytes(5_000),
    b"one",
    b"two" * 3_000,
    b"",
    b"claimed",
    *(b"%d" % row for row in range(300)),
]


def send_all(client: cluster.ClusterClient) -> None:
    assert client.request(b"question").payload == b"question"
    client.send(b"in ", b"parts")
    client.offer(SENT[1])
    client.offer_batch(SENT[2:5])
    claim = cluster.BufferClaim()
    assert client.try_claim(7, claim) > 0
    claim.buffer[:] = SENT[5]
    claim.commit()
    for payload in SENT[6:]:
        client.send(payload)
    client.await_committed(timeout_s=30)


def by_listener() -> float:
    heard = []
    with cluster.ClusterClient.connect(ENDPOINT, lambda *told: heard.append(bytes(told[2]))) as client:
        connected = time.process_time()
        send_all(client)
        while len(heard) < len(SENT):
            client.wait(1)
            client.poll_egress()
    assert heard == SENT
    return connected


def by_answers() -> float:
    with cluster.ClusterClient.connect(ENDPOINT) as client:
        connected = time.process_time()
        send_all(client)
        answers = islice(client.answers(timeout_s=30), len(SENT))
        assert [answer.payload for answer in answers] == SENT
    return connected


async def by_asyncio() -> float:
    async with cluster.AsyncClusterClient.connect(ENDPOINT) as client:
        connected = time.process_time()
        answers = await asyncio.gather(*map(client.request, SENT))
        assert [answer.payload for answer in answers] == SENT
    return connected


ways = {"listener": by_listener, "answers": by_answers, "asyncio": lambda: asyncio.run(by_asyncio())}
connected = ways[WAY]()
assert not [name for name in MISSING if sys.modules.get(name)]
print(imported - began, connected - imported)
