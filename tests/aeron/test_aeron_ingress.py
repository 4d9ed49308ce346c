"""The thread that serves Aeron's clients outlives media drivers, and reaches again who was served."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass, field

import pytest

from cluster.aeron import aeron_clients, driver_thread
from cluster.aeron.aeron_ingress import AeronIngress
from cluster.errors import MediaDriverError, RemoteProtocolError
from cluster.protocol import streams
from cluster.protocol.enums import EventCode
from tests.aeron.scripted_media import REQUEST, SESSION, ScriptedAeron, an_event, egress
from tests.transport.echo_port import MESSAGE_LENGTH_MAX, servers

CHANNEL = "aeron:udp?endpoint=localhost:9000"


@dataclass
class Drivers:
    """What runs in the directory: the last of ``running``, if that is one; ``asked`` has each directory."""

    running: list[ScriptedAeron] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def connect(self, aeron_dir: str, timeout_s: float) -> ScriptedAeron:
        self.asked.append(aeron_dir)
        if not self.running or self.running[-1].failure is not None:
            raise MediaDriverError("no media driver runs")
        return self.running[-1]

    def starts(self) -> ScriptedAeron:
        self.running.append(ScriptedAeron())
        return self.running[-1]

    def dies(self, of: Exception) -> None:
        self.running[-1].failure = of


@pytest.fixture
def drivers(monkeypatch):
    drivers = Drivers()
    monkeypatch.setattr(driver_thread, "Aeron", drivers)
    monkeypatch.setattr(driver_thread, "RETRY_S", 0.005)
    monkeypatch.setattr(aeron_clients, "ALONE_IDLE_S", 0.001)
    return drivers


@pytest.fixture
def server():
    with servers() as serve:
        server = serve()
        server.is_echo = False
        yield server


@pytest.fixture
def ingress(drivers, server):
    told = []
    ingress = AeronIngress(
        {streams.INGRESS: CHANNEL},
        "",
        2,
        server.port.connect,
        MESSAGE_LENGTH_MAX,
        on_error=lambda error: told.append(str(error)),
        on_event=told.append,
    )
    ingress.told = told
    ingress.start()
    yield ingress
    ingress.stop()
    assert "aeron-ingress" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    "failure",
    [
        MediaDriverError("the media driver was stopped"),
        RemoteProtocolError("not a frame"),
        OSError(errno.EMFILE, "Too many open files"),
        KeyError("a mistake"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_clients_come_as_soon_as_a_driver_runs_and_those_served_are_dialled_after_any_failure(
    drivers, server, ingress, failure
):
    server.turn_until(lambda: ingress.told)
    assert ingress.told[0] == "no media driver runs"
    first = drivers.starts()
    first.client().sends(REQUEST.encode())
    server.turn_until(lambda: server.frames[1])
    assert first.subscribed == [(CHANNEL, 101)]
    server.port.send(1, egress(an_event(EventCode.OK).encode()))
    server.turn_until(lambda: first.publications[0].offered)

    drivers.dies(failure)
    server.turn_until(lambda: ("disconnect", 1) in server.told)
    server.turn_until(lambda: str(failure) in ingress.told)
    second = drivers.starts()
    server.turn_until(lambda: ("connect", 2) in server.told)
    assert server.port.dialled_session(2) == SESSION
    assert second.publications[0].channel == first.publications[0].channel
    assert set(drivers.asked) == {driver_thread.default_aeron_dir()}
    assert len([line for line in ingress.told if line.startswith("serves Aeron's clients at")]) == 2


def test_sessions_of_another_leader_are_dialled_and_those_that_no_network_leads_to_are_not(
    drivers, server, ingress
):
    ingress.dial(7, "aeron:ipc", 102)
    ingress.dial(8, "aeron:udp?endpoint=[::1]:9020", 103)
    driver = drivers.starts()
    server.turn_until(lambda: ("connect", 1) in server.told)
    assert (server.port.dialled_session(1), server.port.address(1)) == (8, "[::1]")
    (publication,) = driver.publications
    assert (publication.channel, publication.stream_id) == ("aeron:udp?endpoint=[::1]:9020", 103)
