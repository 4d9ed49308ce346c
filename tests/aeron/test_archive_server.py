"""The thread that replays a member's recordings outlives media drivers, and tells how far its replays are."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest

from cluster.aeron import archive_server, driver_thread
from cluster.aeron.archive_server import ArchiveServer
from cluster.errors import MediaDriverError
from cluster.protocol import archive_control as control
from cluster.transport.log_server import Judged
from tests.aeron.scripted_media import ScriptedAeron
from tests.aeron.served_archive import BOUNDS, CONNECT, LOG, REPLAY, Archive

DEADLINE_S = 10.0


def await_that(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def allowed(identity, template_id):
    answer = Future()
    answer.set_result(Judged(""))
    return answer


@pytest.fixture
def drivers(monkeypatch):
    """Those that run, one after another."""
    running = []

    def connect(aeron_dir, timeout_s):
        if not running or running[-1].failure is not None:
            raise MediaDriverError("no media driver runs")
        return running[-1]

    monkeypatch.setattr(driver_thread.Aeron, "connect", connect)
    monkeypatch.setattr(driver_thread, "RETRY_S", 0.005)
    monkeypatch.setattr(archive_server, "IDLE_S", 0.001)
    return running


def serve_one(drivers, server, archives):
    """A driver starts, and a client has the log replayed by it; returns the driver."""
    driver = ScriptedAeron()
    drivers.append(driver)
    await_that(lambda: driver.subscribed)
    image = driver.client()
    image.sends(CONNECT.encode())
    await_that(lambda: driver.publications and driver.publications[0].offered)
    image.sends(control.ReplayRequest(0, 41, LOG, 0, -1, 7, replay_channel=REPLAY).encode())
    await_that(lambda: server.least_position == archives[-1].committed_position)
    assert server.replay_count == 1
    return driver


def test_it_serves_as_soon_as_a_driver_runs_and_again_by_the_next(drivers):
    told, archives = [], []

    def open_archive():
        archives.append(Archive())
        return archives[-1]

    server = ArchiveServer(
        "aeron:udp?endpoint=localhost:9002",
        "/dev/shm/somebody",
        open_archive,
        allowed,
        2,
        BOUNDS,
        on_error=lambda error: told.append(str(error)),
        on_event=told.append,
    )
    server.start()
    await_that(lambda: "no media driver runs" in told)
    assert (server.replay_count, server.least_position) == (0, None)
    first = serve_one(drivers, server, archives)
    first.failure = MediaDriverError("the media driver was stopped")
    await_that(lambda: "the media driver was stopped" in told and server.replay_count == 0)
    assert server.least_position is None
    serve_one(drivers, server, archives)
    server.stop()
    assert all(archive.is_closed for archive in archives)
    where = "aeron:udp?endpoint=localhost:9002, by the media driver of /dev/shm/somebody"
    assert told.count(f"replays its recordings to Aeron's clients at {where}") == 2
