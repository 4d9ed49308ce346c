"""Where the readers of a member's log are: what they still need is kept for them, for a while."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import socket
import termios
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cluster.errors import NotAClusterDirectory
from cluster.protocol import decode, link
from cluster.protocol.enums import ClusterTimeUnit
from cluster.reader.served_member import ServedMember
from cluster.transport import log_server
from cluster.transport.bounds import Bounds
from cluster.transport.handed_over import HandedOver
from cluster.transport.log_server import LogServer, RequestRefused
from cluster.transport.message_frames import each_frame, link_frame
from tests.archive.logs import a_log
from tests.archive.members import write_member

END = 4096
BLOCK = 1024
DEADLINE_S = 20


class Log:
    """Four blocks of a kibibyte, committed."""

    def status(self, correlation_id):
        return link.LogStatus(
            correlation_id, 0, END, END, 0, None, None, 0, 0, 0, 0, 0, 0, 0, 65536, 1408, 0,
            ClusterTimeUnit.MILLIS,
        )  # fmt: skip

    def term_before(self, position):
        return f"3:{position}:7" if position else None

    def commit_position(self):
        return END

    def blocks(self, from_position, to_position, how):
        for position in range(from_position, to_position, BLOCK):
            yield position, np.zeros(BLOCK, np.uint8)

    def close(self):
        pass


@pytest.fixture
def server():
    with ThreadPoolExecutor(1) as executor:
        yield LogServer(Log, executor)


def test_the_slowest_reader_is_known_while_it_reads_and_forgotten_when_it_ends(server):
    async def read():
        fast = server.read(link.LogRequest(1, 2 * BLOCK, END, 0))
        slow = server.read(link.LogRequest(2, 0, END, 0))
        assert server.least_position is None
        seen = []
        for _ in range(3):  # the status, then two blocks
            await anext(fast)
            await anext(slow)
            seen.append(server.least_position)
        await slow.aclose()
        seen.append(server.least_position)
        await fast.aclose()
        seen.append(server.least_position)
        return seen

    assert asyncio.run(read()) == [None, 0, BLOCK, 3 * BLOCK, None]


def test_a_reader_that_takes_nothing_for_a_minute_is_not_waited_for(server, monkeypatch):
    async def read():
        reader = server.read(link.LogRequest(1, 0, END, 0))
        await anext(reader)
        await anext(reader)
        before = server.least_position
        monkeypatch.setattr(log_server, "IDLE_READER_S", -1.0)
        after = server.least_position
        await reader.aclose()
        return before, after

    assert asyncio.run(read()) == (0, None)


class EndlessReader:
    """A socket of a reader that asks, and reads as the test says."""

    def __init__(self, request=None):
        self.sock, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.sock.settimeout(20)
        self.theirs = theirs
        self.request = link_frame(request or link.LogRequest(1, 0, END, 0))

    def unread(self):
        """How many bytes have come that nobody has read."""
        return int.from_bytes(fcntl.ioctl(self.sock, termios.FIONREAD, bytes(4)), "little")

    def answers(self):
        """Every message of ours until the end of the stream."""
        received = b""
        while data := self.sock.recv(65536):
            received += data
        return [
            decode(received, offset, length)
            for stream_id, offset, length in each_frame(np.frombuffer(received, np.uint8), 0, len(received))
            if stream_id == 1000
        ]


def a_server(executor, **bounds):
    return LogServer(Log, executor, Bounds(**bounds))


def test_a_range_that_cannot_be_is_refused_on_a_socket_too():
    async def serve(executor, reader):
        reader.sock.shutdown(socket.SHUT_WR)
        await a_server(executor).serve(HandedOver(reader.theirs, reader.request))

    with ThreadPoolExecutor(1) as executor:
        reader = EndlessReader(link.LogRequest(1, 33, END, 0))
        asyncio.run(serve(executor, reader))

    status, end = reader.answers()
    assert isinstance(status, link.LogStatus)
    assert (end.code, end.position) == (link.LinkErrorCode.INVALID_ARGUMENT, 33)
    assert end.text == "from_position 33: expected a multiple of 32, at least 0"


def test_one_address_leaves_a_quarter_of_the_readers_to_others_and_four_fifths_are_told():
    errors = []
    with ThreadPoolExecutor(1) as executor, contextlib.ExitStack() as readers:
        server = LogServer(Log, executor, Bounds(readers_max=8), errors.append)
        for _ in range(6):
            readers.enter_context(server.admitted("10.0.0.1"))
        with pytest.raises(RequestRefused, match=r"10.0.0.1 has 6, and 2 are free: .* \(readers_max\)"):
            readers.enter_context(server.admitted("10.0.0.1"))
        for address in ("10.0.0.2", ""):
            readers.enter_context(server.admitted(address))
        server.close()
    assert [str(error) for error in errors][1:] == ["readers_max: 7 of 8 are taken"]


def test_a_reader_above_the_bound_is_told_so_and_the_others_are_served():
    errors = []

    async def serve(executor, first, second):
        server = LogServer(Log, executor, Bounds(readers_max=1), errors.append)
        serving = asyncio.create_task(server.serve(HandedOver(first.theirs, b"")))
        await asyncio.sleep(0)
        await server.serve(HandedOver(second.theirs, second.request))
        first.sock.sendall(first.request)
        first.sock.shutdown(socket.SHUT_WR)
        await serving

    with ThreadPoolExecutor(1) as executor:
        first, second = EndlessReader(link.StatusRequest(7)), EndlessReader()
        asyncio.run(serve(executor, first, second))

    (refusal,) = second.answers()
    assert refusal.code is link.LinkErrorCode.REFUSED
    assert refusal.text == "1 readers are served, as many as readers_max allows"
    assert [str(error) for error in errors] == [refusal.text]
    (status,) = first.answers()
    assert status.correlation_id == 7


def test_a_reader_that_goes_as_its_answer_was_sent_is_not_served_on():
    """What it was sent is done in the same turn of the loop in which its call is cancelled."""

    async def serve(executor):
        sent = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(LogServer(Log, executor).in_time(sent))
        await asyncio.sleep(0)
        sent.set_result(None)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(serve(executor))


def test_a_log_that_is_opened_for_a_reader_that_is_gone_is_closed():
    may_open, closed = threading.Event(), threading.Event()

    class SlowLog(Log):
        def __init__(self):
            may_open.wait(DEADLINE_S)

        def close(self):
            closed.set()

    async def serve(executor):
        answers = LogServer(SlowLog, executor).read(link.LogRequest(1, 0, END, 0))
        reading = asyncio.create_task(anext(answers))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        may_open.set()
        await asyncio.get_running_loop().run_in_executor(None, closed.wait, DEADLINE_S)

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(serve(executor))
    assert closed.is_set()


def test_a_log_whose_reader_goes_while_it_is_read_is_closed_after_that():
    """One that is read when it is closed opens its files again, and nobody closes those."""
    is_read, may_end, calls = threading.Event(), threading.Event(), []

    class SlowLog(Log):
        def commit_position(self):
            is_read.set()
            may_end.wait(DEADLINE_S)
            calls.append("read")
            return END

        def close(self):
            calls.append("closed")

    async def serve(executor):
        answers = LogServer(SlowLog, executor).read(link.LogRequest(1, 0, END, 0))
        await anext(answers)
        reading = asyncio.create_task(anext(answers))
        await asyncio.get_running_loop().run_in_executor(None, is_read.wait, DEADLINE_S)
        reading.cancel()
        await asyncio.sleep(0.01)  # to the close of a text that does not wait
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await reading

    with ThreadPoolExecutor(2) as executor:
        asyncio.run(serve(executor))
    assert calls == ["read", "closed"]


def cut_off(monkeypatch, received):
    """What is told of a reader, to the member and to itself, that goes on neither to ask nor to take."""
    monkeypatch.setattr(Log, "blocks", lambda self, *_, **__: iter([(0, np.zeros(16 << 20, np.uint8))]))
    errors = []

    async def serve(executor, reader):
        server = LogServer(Log, executor, Bounds(reader_timeout_ns=50_000_000), errors.append)
        await server.serve(HandedOver(reader.theirs, received))

    with ThreadPoolExecutor(1) as executor:
        reader = EndlessReader()
        asyncio.run(serve(executor, reader))

    assert reader.theirs.fileno() == -1
    return [str(error) for error in errors], reader


def test_a_reader_that_takes_nothing_is_cut_off_and_the_member_told(monkeypatch):
    """It is in the middle of a block: what it takes later must not be mistaken for the rest of that."""
    told, reader = cut_off(monkeypatch, link_frame(link.LogRequest(1, 0, END, 0)))

    assert told == ["the reader took nothing for 0.05 s (reader_timeout)"]
    received = b""
    while data := reader.sock.recv(65536):
        received += data
    assert b"reader_timeout" not in received


def test_a_reader_that_asks_nothing_is_told_so_and_the_member_too(monkeypatch):
    told, reader = cut_off(monkeypatch, b"")

    assert told == ["the reader asked nothing for 0.05 s (reader_timeout)"]
    (answer,) = reader.answers()
    assert (answer.code, answer.text) == (link.LinkErrorCode.REFUSED, told[0])


def test_all_readers_together_hold_no_more_than_their_bytes(monkeypatch):
    asked = []

    def blocks(self, from_position, to_position, how):
        asked.append(how.max_bytes)
        yield from_position, np.zeros(to_position - from_position, np.uint8)

    monkeypatch.setattr(Log, "blocks", blocks)

    async def serve(executor, reader):
        reader.sock.shutdown(socket.SHUT_WR)
        server = a_server(executor, readers_max=8, reader_bytes_max=8 * 4096)
        await server.serve(HandedOver(reader.theirs, reader.request))

    with ThreadPoolExecutor(1) as executor:
        for max_bytes in (0, 1024, 2**62):
            asyncio.run(serve(executor, EndlessReader(link.LogRequest(1, 0, END, max_bytes))))

    assert asked == [2048, 1024, 2048]


def test_readers_that_take_nothing_cost_what_their_key_says(tmp_path):
    readers, share = 4, 256 * 1024
    log = a_log(0)
    for _ in range(readers * share // 1024):
        log.message(bytes(1024))
    write_member(tmp_path, log)

    def open_log():
        return ServedMember(
            cluster_dir=f"{tmp_path}/cluster",
            archive_dir=f"{tmp_path}/archive",
            aeron_dir=f"{tmp_path}/driver",
            cluster_id=0,
            member_id=0,
        )

    async def serve(executor):
        server = LogServer(open_log, executor, Bounds(readers_max=readers, reader_bytes_max=readers * share))
        stuck = [EndlessReader(link.LogRequest(1, 0, -1, 0)) for _ in range(readers)]
        for each in stuck:
            each.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        tracemalloc.start()
        try:
            serving = [
                asyncio.create_task(server.serve(HandedOver(each.theirs, each.request))) for each in stuck
            ]
            while not all(each.unread() > 2048 for each in stuck):  # of the log, and no more goes in
                await asyncio.sleep(0.01)
            gc.collect()
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        for each in stuck:
            each.sock.close()
        await asyncio.wait(serving)
        server.close()
        return held

    with ThreadPoolExecutor(1) as executor:
        held = asyncio.run(asyncio.wait_for(serve(executor), DEADLINE_S))
    # gRPC has as much again of its own; the rest is what a log that is open costs.
    assert held <= readers * (share // 2 + 64 * 1024)


def test_requests_for_the_status_share_a_look_that_begins_after_them():
    begun, go_on = threading.Event(), threading.Event()
    looks = []

    class SlowLog(Log):
        def status(self, correlation_id):
            looks.append(len(looks))
            begun.set()
            assert go_on.wait(DEADLINE_S)
            return super().status(correlation_id).replace(commit_position=len(looks))

    async def ask():
        server = LogServer(SlowLog, executor)
        first = [asyncio.create_task(server.status(id_)) for id_ in range(50)]
        await asyncio.to_thread(begun.wait, DEADLINE_S)
        later = [asyncio.create_task(server.status(id_)) for id_ in range(50, 100)]
        await asyncio.sleep(2 * log_server.STATUS_INTERVAL_S)
        go_on.set()
        answers = [decode(answer, 32) for answer in await asyncio.gather(*first, *later)]
        server.close()
        return answers

    with ThreadPoolExecutor(1) as executor:
        answers = asyncio.run(asyncio.wait_for(ask(), DEADLINE_S))

    assert [answer.correlation_id for answer in answers] == list(range(100))
    assert looks == [0, 1]
    assert [answer.commit_position for answer in answers] == [1] * 50 + [2] * 50


def test_one_reader_that_asks_for_the_status_again_and_again_gets_so_many_looks_a_second(server):
    async def ask():
        began = asyncio.get_running_loop().time()
        for number in range(5):
            await server.status(number)
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(asyncio.wait_for(ask(), DEADLINE_S)) >= 4 * log_server.STATUS_INTERVAL_S


def test_a_look_that_fails_after_its_asker_has_left_is_told_to_nobody():
    told = []

    def no_log():
        raise NotAClusterDirectory("none yet")

    async def ask_and_leave():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        with ThreadPoolExecutor(1) as executor:
            server = LogServer(no_log, executor)
            asking = asyncio.create_task(server.look())
            await asyncio.sleep(0)
            look = server._next_look
            asking.cancel()
            await asyncio.wait([asking, look])
            del asking, look
            gc.collect()
            await asyncio.sleep(0)
            server.close()

    asyncio.run(ask_and_leave())
    assert told == []
