"""Members that are processes of their own: started by ``cluster node``, killed, stopped, started again.

For benchmarks that break a cluster, and for the tests that do. Every member has its folder, its TOML file and
what it printed in ``directory``/member-N.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from benchmarks.processes import port_is_free
from cluster.counters import CountersReader
from cluster.errors import ClusterError
from cluster.node.config_text import write
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ElectionState, Role

ROOT = Path(__file__).resolve().parent.parent
PORTS_PER_MEMBER = 10
DEADLINE_S = 60.0  # far beyond what anything here takes, also on a busy machine
LINES_SHOWN = 25

T = TypeVar("T")


def await_that(
    condition: Callable[[], T], what: str, *, within_s: float = DEADLINE_S, tell: Callable[[], str] = str
) -> T:
    """Ask again and again until the answer is true and return it; AssertionError tells ``what``."""
    deadline = time.monotonic() + within_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}\n{tell()}")
        time.sleep(0.02)
    return answer


def free_base_port(members: int) -> int:
    """A base port whose blocks of ten are free, below those that the system gives away by itself."""
    for _ in range(200):
        base = random.randrange(11_000, 30_000, PORTS_PER_MEMBER)
        ports = (
            base + PORTS_PER_MEMBER * member + offset for member in range(members) for offset in range(3)
        )
        if all(port_is_free(port) for port in ports):
            return base
    raise RuntimeError("no free ports between 11000 and 30000")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a member's counters say."""

    is_live: bool
    role: Role
    election_state: ElectionState
    leadership_term_id: int
    commit_position: int
    append_position: int
    errors: int

    @property
    def is_established(self) -> bool:
        return self.is_live and self.election_state is ElectionState.CLOSED


class RealMembers:
    """``count`` members with ids from 0; nothing runs before ``start``.

    ``keys`` are configuration keys of all of them, ``keys_of`` and ``prefix_of`` those of one and what stands
    before its command (strace, ip netns exec), to be changed while it does not run.
    """

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        *,
        base_port: int = 0,
        hosts: Sequence[str] = (),
        keys: Mapping[str, Any] | None = None,
    ) -> None:
        self.directory = directory
        self.ids = list(range(count))
        self.base_port = base_port or free_base_port(count)
        self.hosts = list(hosts) or ["127.0.0.1"] * count
        self.keys = {"insecure_network": bool(hosts), **(keys or {})}
        self.keys_of: dict[int, dict[str, Any]] = {member_id: {} for member_id in self.ids}
        self.prefix_of: dict[int, list[str]] = {member_id: [] for member_id in self.ids}
        self.command = ["-m", "cluster", "node"]
        self.ports = {i: self.base_port + PORTS_PER_MEMBER * i for i in self.ids}
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self._pid_of: dict[int, int] = {}
        self._paused: set[int] = set()
        self._outputs: list[IO[str]] = []

    # -- what they are --

    def member_dir(self, member_id: int) -> Path:
        return self.directory / f"member-{member_id}"

    def members_key(self, ports: Mapping[int, int] | None = None) -> list[str]:
        """The key ``members``; ``ports`` are other consensus ports than their own."""
        lines = []
        for i in self.ids:
            consensus = f"{self.hosts[i]}:{(ports or {}).get(i, self.ports[i] + 2)}"
            lines.append(f"{i},{self.hosts[i]}:{self.ports[i]}" + f",{consensus}" * 4)
        return lines

    @property
    def endpoints(self) -> str:
        return ",".join(f"{i}={self.hosts[i]}:{self.ports[i]}" for i in self.ids)

    @property
    def tcp(self) -> str:
        return ",".join(f"{i}=tcp:{self.hosts[i]}:{self.ports[i] + 1}" for i in self.ids)

    @property
    def ipc(self) -> str:
        return ",".join(f"{i}=ipc:{self.member_dir(i)}/driver/ingress.sock" for i in self.ids)

    # -- their life --

    def start(self, *member_ids: int) -> None:
        """Start these members (none named: all) and return when each of them listens."""
        wanted = member_ids or tuple(self.ids)
        for member_id in wanted:
            self._spawn(member_id)
        for member_id in wanted:
            self._await_listening(member_id)

    def spawn(self, member_id: int) -> None:
        """Start a member and do not wait for anything."""
        self._spawn(member_id)

    def _spawn(self, member_id: int) -> None:
        assert not self.is_running(member_id), f"member {member_id} runs"
        path = self.member_dir(member_id) / "node.toml"
        keys = {"member_id": member_id, "members": self.members_key(), "dir": str(self.member_dir(member_id))}
        write(path, {**keys, **self.keys, **self.keys_of[member_id]})
        errors = (self.directory / f"member-{member_id}.err").open("a")
        self._outputs.append(errors)
        self.processes[member_id] = subprocess.Popen(
            [*self.prefix_of[member_id], sys.executable, *self.command, "--config", str(path), "--json"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("CLUSTER_")},
        )
        self._paused.discard(member_id)
        self._pid_of.pop(member_id, None)

    def _await_listening(self, member_id: int) -> None:
        process = self.processes[member_id]
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait(DEADLINE_S)
            raise AssertionError(f"member {member_id} did not start\n{self.tell()}")
        self._pid_of[member_id] = json.loads(line)["pid"]  # not the wrapper's, where there is one

    def is_running(self, member_id: int) -> bool:
        process = self.processes.get(member_id)
        return process is not None and process.poll() is None

    @property
    def running(self) -> list[int]:
        """Those whose process is there and not paused."""
        return [i for i in self.ids if self.is_running(i) and i not in self._paused]

    def pid(self, member_id: int) -> int:
        return self._pid_of.get(member_id, self.processes[member_id].pid)

    def kill(self, *member_ids: int) -> None:
        """SIGKILL these, all before the first is waited for."""
        for member_id in member_ids:
            os.kill(self.pid(member_id), signal.SIGKILL)
        for member_id in member_ids:
            self.processes[member_id].wait(DEADLINE_S)
            self._close_output(member_id)

    def pause(self, member_id: int) -> None:
        os.kill(self.pid(member_id), signal.SIGSTOP)
        self._paused.add(member_id)

    def wake(self, member_id: int) -> None:
        os.kill(self.pid(member_id), signal.SIGCONT)
        self._paused.discard(member_id)

    def stop(self, *member_ids: int) -> None:
        """End these (none named: all) by SIGTERM; every status must be 0."""
        wanted = [i for i in member_ids or tuple(self.ids) if self.is_running(i)]
        for member_id in wanted:
            os.kill(self.pid(member_id), signal.SIGTERM)
        for member_id in wanted:
            status = self.processes[member_id].wait(DEADLINE_S)
            assert status == 0, f"member {member_id} ended with status {status}\n{self.tell()}"
            self._close_output(member_id)

    def _close_output(self, member_id: int) -> None:
        output = self.processes[member_id].stdout
        if output is not None:
            output.close()

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        for member_id, process in self.processes.items():
            if process.poll() is None:
                for pid in {self.pid(member_id), process.pid}:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                process.wait()
            self._close_output(member_id)
        for file in self._outputs:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- how they stand --

    def standing(self, member_id: int) -> Standing | None:
        """None while there are no counters to be read."""
        path = self.member_dir(member_id) / "driver" / "cnc.dat"
        try:
            with CountersReader(str(path)) as reader:
                value_of = {
                    record.type_id: record.value for record in reader.counters() if record.is_allocated
                }
                is_live = reader.is_live(time.time_ns() // 1_000_000) and self.is_running(member_id)
        except ClusterError:
            return None
        of = value_of.get
        return Standing(
            is_live=is_live,
            role=Role(of(CounterTypeId.NODE_ROLE, Role.FOLLOWER)),
            election_state=ElectionState(of(CounterTypeId.ELECTION_STATE, ElectionState.INIT)),
            leadership_term_id=of(CounterTypeId.LEADERSHIP_TERM_ID, -1),
            commit_position=of(CounterTypeId.COMMIT_POSITION, -1),
            append_position=of(CounterTypeId.RECORDING_POSITION, -1),
            errors=of(CounterTypeId.CONSENSUS_MODULE_ERRORS, 0),
        )

    def established(self, member_ids: Iterable[int] | None = None) -> dict[int, Standing]:
        """Of those that run, or of these: the ones whose election is over."""
        standings = {i: self.standing(i) for i in (self.running if member_ids is None else member_ids)}
        return {i: standing for i, standing in standings.items() if standing and standing.is_established}

    def leader(self) -> int | None:
        """Who leads the latest term, its election being over."""
        leaders = {i: s for i, s in self.established().items() if s.role is Role.LEADER}
        return max(leaders, key=lambda i: leaders[i].leadership_term_id, default=None)

    def await_leader(self, *, other_than: int | None = None, within_s: float = DEADLINE_S) -> int:
        """The id of a leader, which is not ``other_than``."""

        def found() -> list[int]:
            leader = self.leader()
            return [] if leader is None or leader == other_than else [leader]

        return await_that(found, "a leader is elected", within_s=within_s, tell=self.tell)[0]

    def await_level(self, within_s: float = DEADLINE_S) -> int:
        """Return a position that all that run have committed: what their leader had at first, or more.

        Under load the leader goes on, and members that are read one after the other are hardly ever equal.
        """
        goals: dict[int, int] = {}  # by leadership term: what its leader had at the first look

        def position() -> int | None:
            established = self.established()
            leaders = [standing for standing in established.values() if standing.role is Role.LEADER]
            if len(established) != len(self.running) or len(leaders) != 1:
                return None
            goal = goals.setdefault(leaders[0].leadership_term_id, leaders[0].commit_position)
            least = min(standing.commit_position for standing in established.values())
            return least if least >= goal else None

        return await_that(position, "all members that run are level", within_s=within_s, tell=self.tell) or 0

    def tell(self) -> str:
        """How the members stand, and the last that they wrote: for the messages of failures."""
        lines = []
        for i in self.ids:
            lines.append(f"member {i}: running {self.is_running(i)}, {self.standing(i)}")
            for path in (self.member_dir(i) / "node.log", self.directory / f"member-{i}.err"):
                if path.exists():
                    lines += [f"  {line}" for line in path.read_text().splitlines()[-LINES_SHOWN:]]
        return "\n".join(lines)
