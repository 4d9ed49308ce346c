"""Members of a simulated cluster in production's own loop: ``ClusterNode.run`` over ``AgentRunner.run``.

Each has a thread, and one of them runs at a time: where a loop looks for sockets it hands over to the
simulator, which lets time pass. Disk, network and clock are simulated, so all that a member does is seen.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import cluster
from cluster.member.busy.words import IDLE
from cluster.node import node, runner
from cluster.node.config_text import load
from cluster.node.life import MemberLife
from cluster.node.message_trace import MessageTrace
from cluster.node.node import ClusterNode
from cluster.node.runner import AgentRunner
from cluster.testing import SimulatedCluster
from cluster.testing import cluster as simulated
from cluster.testing.member import TURN_NS, SimulatedPorts
from cluster.testing.network import SimulatedPoller
from cluster.testing.world import ProcessDied

PRODUCT = str(Path(cluster.__file__).parent)
SIMULATOR = f"{PRODUCT}/testing"
CALLBACKS = (f"{PRODUCT}/service/echo.py", f"{PRODUCT}/service/clustered_service.py")
Point = tuple[str, str]  # function, and whether it is called or returns
_running = threading.local()  # ``member``: whose thread it is


def _member() -> Any:
    return _running.member


class _Poller(SimulatedPoller):
    def wait(self, timeout_s: float) -> int:
        """As long as the simulator lets time pass."""
        _member().hand_over(int(timeout_s * 1e9))
        return super().wait(0)


class _Machine(SimulatedPorts):
    """What a node asks its machine for, besides ``Ports``."""

    certificate_end_ms = connection_count = reader_count = cut_off_count = 0

    def refresh_certificates(self) -> None:
        """There are none."""


class _Node(ClusterNode):
    """Opened on what is simulated; all that it does from then on is production's."""

    def __init__(self, member: LoopMember) -> None:
        self._member = member
        ids = member.settings.context.member_ids
        members = [",".join([str(i), *["127.0.0.1:9000"] * 5]) for i in ids]
        keys = {"members": members, "member_id": member.member_id, "grpc_gateway": "none"}
        super().__init__(load(None, environment={}, overrides=keys))

    def _open_log(self) -> None:
        member = self._member

        def tell(event: str, **fields: Any) -> None:
            member.say(f"{event} {fields or ''}")

        self.log: Any = SimpleNamespace(
            info=tell, warning=tell, is_debugging=False, report_repeated=lambda now_ns: None
        )

    def _open(self, on_service_error: Any) -> None:
        member = self._member
        self._trace = MessageTrace(self.log, member.member_id, member.clock_ns)
        self._readers: Any = SimpleNamespace(do_work=lambda now_ms: 0)
        self._metrics: Any = SimpleNamespace(do_work=lambda now_ns: 0)
        self._poller: Any = member.poller
        context = replace(member.settings.context, member_id=member.member_id, cluster_id=member.cluster_id)
        self._machine: Any = _Machine(member, context, member._random)
        self._mark_file = self._machine.mark_file
        self._settings = member._life_settings(context)
        self._runner = AgentRunner(
            self,
            member.poller,
            self._clock,
            spin_ns=0,
            turn_busily=self._turn_busily,
            next_due_ns=self._next_due_ns,
        )

    def _begin_life(self) -> None:
        super()._begin_life()
        life = self._life
        assert life is not None
        turn_busily = life.turn_busily

        def waiting() -> int | None:
            """The compiled code of a simulated member waits for nothing: that is done here."""
            if (reason := turn_busily()) is not None:
                idle_ns = life.next_due_ns - self._member.clock_ns() if reason == IDLE else 0
                self._member.hand_over(max(idle_ns, 0))
            return reason

        life.turn_busily = waiting  # type: ignore[method-assign]


class LoopMember(simulated._Member):
    """A process whose thread runs a ``ClusterNode``."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.poller = _Poller(self.network, self)
        self.on_call: Callable[[FrameType, str, Any], None] | None = None  # of production's functions
        self.effects_after: list[str] = []  # of the life in which ``on_call`` has raised
        self.raised_in: MemberLife | None = None
        self.was_in_callback = False  # of the service
        self.node: _Node | None = None
        self._thread: threading.Thread | None = None
        self._ours, self._simulators = threading.Semaphore(0), threading.Semaphore(0)
        self._again_ns = 0
        self._is_over = False

    def turn(self) -> int | None:
        """Let its thread run until it looks for sockets again."""
        self.spend(TURN_NS)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._ours.release()
        self._simulators.acquire()
        if self.end is not None and not isinstance(self.end, ProcessDied):
            raise self.end
        self.life = None if self.node is None else self.node._life
        self.is_up = self.life is not None
        return None if self._is_over else min(self._again_ns, self.settings.tick_ns)

    def _run(self) -> None:
        _running.member = self
        try:
            self.node = _Node(self)
            self.node.run()
        except BaseException as error:
            self.end = error
        self._is_over = True
        self._simulators.release()

    def hand_over(self, for_ns: int) -> None:
        """Called in its thread: the simulator goes on, for so long unless sockets have something."""
        sys.setprofile(None)
        self._again_ns = for_ns
        self._simulators.release()
        self._ours.acquire()
        if self._is_over:
            raise ProcessDied
        sys.setprofile(self.on_call)

    def end_thread(self) -> None:
        """At the end of a test."""
        if self._thread is not None and not self._is_over:
            self._is_over = True
            self._ours.release()
            self._thread.join()

    def effect(self) -> None:
        if self.raised_in is not None and self.node is not None and self.node._life is self.raised_in:
            frame: FrameType | None = sys._getframe(1)
            names = []
            while frame is not None and len(names) < 5:
                names.append(frame.f_code.co_qualname)
                frame = frame.f_back
            self.effects_after.append(" < ".join(names))
        super().effect()

    def on_recorded_error(self, where: str, error: BaseException) -> None:
        self.say(f"error: {where}: {type(error).__name__}: {error}")

    # -- what it calls --

    def note_points(self, points: dict[Point, None]) -> None:
        """Add all functions of production that it calls and leaves from now on."""

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if (point := point_of(frame, event)) is not None:
                points[point] = None

        self.on_call = note

    def raise_at(self, wanted: Point, error: type[Exception]) -> None:
        """Raise once, the next time that it comes to that point."""

        def look(frame: FrameType, event: str, argument: Any) -> None:
            if point_of(frame, event) == wanted:
                self.was_in_callback = is_below(sys._getframe(), CALLBACKS)  # that of a kernel has no caller
                self.on_call, self.raised_in = None, self.node._life if self.node else None
                raise error("planted")

        self.effects_after, self.raised_in = [], None
        self.on_call = look


def is_below(frame: FrameType | None, paths: tuple[str, ...]) -> bool:
    """Whether it is of those files, or called by what is in them."""
    while frame is not None:
        if frame.f_code.co_filename in paths:
            return True
        frame = frame.f_back
    return False


def point_of(frame: FrameType, event: str) -> Point | None:
    """None where it is no function of production's."""
    path = frame.f_code.co_filename
    if event not in ("call", "return") or not path.startswith(PRODUCT) or path.startswith(SIMULATOR):
        return None
    return f"{path.removeprefix(PRODUCT)[1:]}:{frame.f_code.co_qualname}", event


@pytest.fixture
def looped(monkeypatch):
    """Makes clusters of such members."""
    monkeypatch.setattr(simulated, "_Member", LoopMember)
    times = SimpleNamespace(
        monotonic_ns=lambda: _member().clock_ns(), time_ns=lambda: _member().epoch_ms() * 1_000_000
    )
    monkeypatch.setattr(node, "time", times)
    monkeypatch.setattr(runner, "time", times)
    monkeypatch.setattr(node, "epoch_ms", lambda: _member().epoch_ms())
    made: list[SimulatedCluster] = []

    def make(*services: Any, **settings: Any) -> SimulatedCluster:
        made.append(SimulatedCluster(*services, **settings))
        return made[-1]

    yield make
    for each in made:
        for member in each._members.values():
            member.end_thread()
