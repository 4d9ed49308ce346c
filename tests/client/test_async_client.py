"""AsyncClusterClient in an event loop, over real sockets."""

import asyncio
import threading
import time

import pytest

from cluster import AsyncClusterClient, BufferClaim
from cluster.errors import ClientClosed, LocalProtocolError, TimedOut

DEADLINE_S = 20
MEDIA = ["ipc", "tcp", "grpc"]


def run(main):
    """Run ``main()`` in an event loop; returns its result."""
    return asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


@pytest.mark.parametrize("medium", MEDIA)
def test_messages_go_in_and_answers_come_out_as_an_iterator(leader, medium):
    async def main():
        async with AsyncClusterClient.connect(leader.endpoints[medium]) as client:
            assert client.cluster_session_id == 41
            assert await client.offer(b"one") > 0
            assert await client.offer(b"t", b"wo") > 0
            await client.offer_batch([b"three", b"four"])
            claim = BufferClaim()
            assert await client.try_claim(4, claim) > 0
            claim.buffer[:] = b"five"
            claim.commit()
            assert await client.await_committed(DEADLINE_S) == client.committed_position == 32 + 192 * 5
            taken = []
            async for answer in client.answers(timeout_s=DEADLINE_S):
                taken.append(answer.payload)
                if answer.payload == b"two":
                    break
            async for answer in client.answers(timeout_s=0.2):
                taken.append(answer.payload)
            return taken

    assert run(main) == [b"one", b"two", b"three", b"four", b"five"]
    deadline = time.monotonic() + DEADLINE_S
    while leader.closed != [41]:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("medium", MEDIA)
def test_a_listener_is_called_in_the_event_loop(leader, medium):
    heard = []

    def listener(session_id, timestamp, payload):
        asyncio.get_running_loop()
        heard.append(bytes(payload))

    async def main():
        client = await AsyncClusterClient.connect(
            leader.endpoints[medium], listener, keep_alive_interval_s=0.01
        )
        for number in range(300):
            await client.offer(b"%d" % number)
        while len(heard) < 300:
            await client.wait(DEADLINE_S)
            await client.poll_egress()
        with pytest.raises(LocalProtocolError, match="the listener takes the answers"):
            await anext(client.answers())
        await client.close()
        assert client.is_closed

    run(main)
    assert heard == [b"%d" % number for number in range(300)]


def test_an_offer_waits_for_room_and_other_coroutines_go_on(leader):
    leader.committed_max = 0
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def main():
        async with AsyncClusterClient.connect(leader.endpoints["tcp"], window_bytes=4096) as client:
            ticking = asyncio.create_task(tick())

            async def fill():
                while True:
                    await client.offer(bytes(100))

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(fill(), 0.3)
            full = client.offered
            assert len(ticks) >= 10
            leader.committed_max = None
            await client.send_keep_alive()  # what makes this leader say what is committed
            await client.offer(b"after")
            assert client.offered == full + 1
            ticking.cancel()

    run(main)


def test_waiting_costs_no_time_of_the_processor(leader):
    async def main():
        async with AsyncClusterClient.connect(leader.endpoints["tcp"]) as client:
            await client.offer(b"x")
            assert [answer.payload async for answer in client.answers(timeout_s=0.2)] == [b"x"]
            begin = time.thread_time()
            assert [answer async for answer in client.answers(timeout_s=2)] == []
            return time.thread_time() - begin

    assert run(main) < 0.2


def test_many_coroutines_share_a_client(leader):
    async def main():
        async with AsyncClusterClient.connect(leader.endpoints["ipc"], window_bytes=16_384) as client:

            async def offer(coroutine):
                for number in range(100):
                    await client.offer(b"%d:%d" % (coroutine, number))
                await client.await_committed(DEADLINE_S)

            await asyncio.gather(*(offer(coroutine) for coroutine in range(10)))

    run(main)
    assert sorted(leader.log) == sorted(b"%d:%d" % (c, n) for c in range(10) for n in range(100))


@pytest.mark.parametrize("keep_alive_interval_s", [0.01, None])
def test_a_session_that_ends_wakes_who_waits_and_says_why(leader, keep_alive_interval_s):
    async def main():
        client = await AsyncClusterClient.connect(
            leader.endpoints["tcp"], keep_alive_interval_s=keep_alive_interval_s
        )
        leader.closes_after = 1
        await client.offer(b"x")
        with pytest.raises(ClientClosed, match="session 41 is closed: SERVICE_ACTION"):
            async for _ in client.answers():
                pass
        for ask in (client.offer(b"y"), client.poll_egress(), client.wait(1), anext(client.answers())):
            with pytest.raises(ClientClosed, match="session 41 is closed: SERVICE_ACTION"):
                await ask
        await client.close()

    run(main)


def test_what_is_never_committed_is_told_after_the_timeout(leader):
    leader.committed_max = 0

    async def main():
        async with AsyncClusterClient.connect(leader.endpoints["tcp"]) as client:
            await client.offer(b"x")
            with pytest.raises(TimedOut, match=r"1 of 1 messages are not committed after 0\.2 s"):
                await client.await_committed(0.2)

    run(main)


def test_who_waits_for_commits_rests_no_longer_than_until_the_timeout(leader, monkeypatch):
    leader.committed_max = 0
    rests = []

    async def main():
        async with AsyncClusterClient.connect(leader.endpoints["tcp"]) as client:
            await client.offer(b"x")

            async def rest(timeout_s):  # and something else comes meanwhile
                rests.append(timeout_s)
                await asyncio.sleep(0.05)

            monkeypatch.setattr(client._readiness, "wait", rest)
            with pytest.raises(TimedOut):
                await client.await_committed(0.2)

    run(main)
    assert len(rests) > 1
    assert all(rest_s <= 0.2 - 0.05 * index for index, rest_s in enumerate(rests[:3])), rests


def test_nobody_there_raises_and_leaves_nothing_open():
    before = threading.active_count()

    async def main():
        with pytest.raises(TimedOut, match="No such file or directory"):
            await AsyncClusterClient.connect("ipc:/nowhere.sock", message_timeout_s=0.1)

    run(main)
    assert threading.active_count() == before
