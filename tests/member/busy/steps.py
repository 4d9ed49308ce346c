"""Each turn of a run, taken twice from one state: by compiled code, and by Python in a fork of the process.

the run ──▶ state ──┬── compiled turn ──▶ calls, state ──▶ the run goes on
                    └── fork: Python's turn ──▶ calls, state ──▶ compared, and gone
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from cluster.consensus import quorum
from cluster.consensus.cluster_time import go_on
from cluster.log.connection_table import (
    CRC,
    HEARD_NS,
    IS_PART_NEW,
    KIND,
    LINK_IN,
    PART_BYTES,
    PART_LENGTH,
    PART_ROW,
    ROW_WORDS,
    ConnectionTable,
)
from cluster.member.clocks import MemberClocks
from cluster.member.phases.following import Following
from cluster.member.phases.leading import Leading
from cluster.member.services.remote_service import RemoteService
from cluster.member.services.service_table import FIRST_LIMIT, LIMIT, UNREACHED
from cluster.node.hosted_service import ServiceAgent
from cluster.node.life import MemberLife
from cluster.protocol.frame import HEADER_LENGTH, header_at
from cluster.testing.disk import SimulatedFile
from cluster.testing.member import MemberProcess
from cluster.testing.network import SimulatedSocket

FILE_CALLS = ("pwrite", "datasync", "fullsync", "push", "start_writeback")


class Turn(NamedTuple):
    """What a turn did."""

    files: list[tuple[Any, ...]]  # path, call, arguments, in their order
    clients: dict[int, bytes]  # sent, by descriptor
    links: dict[int, list[bytes]]  # frames sent, by descriptor
    processes: dict[int, bytes]  # sent to those of services, by descriptor
    state: dict[str, Any]


class Step(NamedTuple):
    """A turn that compiled code took to its end, and what Python's does in its place."""

    role: str
    holds_commit: bool  # a commit position goes on waiting for log to go with, which Python sends alone
    compiled: Turn
    python: Turn


class Steps:
    """``taken`` fills while a run is ``watched``."""

    def __init__(self) -> None:
        self.taken: list[Step] = []
        self._files: list[tuple[Any, ...]] = []
        self._sent: dict[SimulatedSocket, bytes] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Meanwhile each turn that compiled code begins is taken by Python, too."""
        turn_busily = MemberLife.turn_busily
        with ExitStack() as stack:
            for name in FILE_CALLS:
                noting = self._noting(name, getattr(SimulatedFile, name))
                stack.enter_context(patch.object(SimulatedFile, name, noting))
            stack.enter_context(
                patch.object(SimulatedSocket, "send", self._noting_send(SimulatedSocket.send))
            )
            stack.enter_context(
                patch.object(MemberLife, "turn_busily", lambda life: self._take(life, turn_busily))
            )
            yield

    def _noting(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        def noting(file: SimulatedFile, *arguments: Any) -> None:
            noted = [each if isinstance(each, int) else bytes(memoryview(each)) for each in arguments]
            self._files.append((file.path, name, *noted))
            call(file, *arguments)

        return noting

    def _noting_send(self, call: Callable[..., int]) -> Callable[..., int]:
        def noting(sock: SimulatedSocket, data: Any) -> int:
            taken = call(sock, data)
            self._sent[sock] = self._sent.get(sock, b"") + bytes(memoryview(data).cast("B")[:taken])
            return taken

        return noting

    def _take(self, life: MemberLife, turn_busily: Callable[[MemberLife], int | None]) -> int | None:
        member: MemberProcess = life._ports._member  # type: ignore[attr-defined]
        if life.busy is None or not life._may_be_lent or not member.poller.ready():
            return turn_busily(life)
        phase = life.consensus_module.phase
        was_unsent = isinstance(phase, Leading) and phase.leader.is_commit_unsent
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            self._take_python_turn(member, life, writing)
        os.close(writing)
        self._files, self._sent = [], {}
        reason = turn_busily(life)
        compiled = self._turn_of(life)
        with os.fdopen(reading, "rb") as pipe:
            python = pickle.load(pipe)
        os.waitpid(child, 0)
        if reason == 0:  # to the end, and nothing is left to Python
            role = "leader" if isinstance(phase, Leading) else "follower"
            self.taken.append(Step(role, was_unsent and not compiled.links, compiled, python))
        return reason

    def _take_python_turn(self, member: MemberProcess, life: MemberLife, pipe: int) -> None:
        """In the fork, which ends here."""
        try:
            self._files, self._sent = [], {}
            now_ns, now_ms = member.clock_ns(), member.epoch_ms()
            member.poller.wait(0)
            with patch.object(MemberClocks, "advance", _go_on):  # by monotonic time alone
                life.do_work(now_ns, now_ms)
            with os.fdopen(pipe, "wb") as file:
                pickle.dump(self._turn_of(life), file)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def _turn_of(self, life: MemberLife) -> Turn:
        peers = life.links._peers.values()
        links = {peer.outgoing.descriptor for peer in peers if peer.outgoing is not None}
        remote = [service.agent for service in life.services if isinstance(service.agent, RemoteService)]
        processes = {agent._ports.process.descriptor for agent in remote}
        sent = {sock.fd: data for sock, data in self._sent.items()}
        files, self._files = self._files, []
        return Turn(
            files,
            {fd: data for fd, data in sent.items() if fd not in links | processes},
            {fd: _frames(data) for fd, data in sent.items() if fd in links},
            {fd: data for fd, data in sent.items() if fd in processes},
            _state(life),
        )


def _go_on(clocks: MemberClocks) -> None:
    go_on(clocks.time.words, clocks._turn.now_ns)
    clocks._stamp()


def _frames(sent: bytes) -> list[bytes]:
    """The frames within the envelopes."""
    frames, offset = [], 0
    while offset < len(sent):
        end = offset + header_at(sent[offset:]).aligned_length
        offset += HEADER_LENGTH
        while offset < end:
            length = header_at(sent[offset:]).aligned_length
            frames.append(sent[offset : offset + length])
            offset += length
    return frames


def _service_state(agent: ServiceAgent) -> tuple[int, ...]:
    if isinstance(agent, RemoteService):
        assert agent._taken is not None
        return agent._position, agent._taken.position, agent._taken.answers
    cursor = agent.adapter.cursor
    return cursor.read_position, cursor.position, agent.state.cluster_time


def _connections(table: ConnectionTable) -> np.ndarray:
    """Rows by descriptor, without checksums, and what one of the two notes alone."""
    rows = table.words.reshape(-1, ROW_WORDS).copy()
    rows[:, [CRC, IS_PART_NEW]] = 0
    rows[rows[:, KIND] != LINK_IN, HEARD_NS] = 0
    return rows


def _half_frames(table: ConnectionTable) -> dict[int, bytes]:
    """What waits for its rest, by descriptor."""
    rows = table.words.reshape(-1, ROW_WORDS)
    return {
        fd: table.parts[row[PART_ROW] * PART_BYTES :][: row[PART_LENGTH]].tobytes()
        for fd, row in enumerate(rows)
        if row[PART_LENGTH]
    }


def _numbers(agent: ServiceAgent) -> bytes:
    """The numbers of messages and answers that a service in line was given, and has given."""
    return b"" if isinstance(agent, RemoteService) else agent.numbers.words.tobytes()


def _state(life: MemberLife) -> dict[str, Any]:
    """What a member knows that its turns change."""
    agent = life.consensus_module
    parts, phase = agent.parts, agent.phase
    recording, cursor = parts.log.recording, parts.processing.adapter.cursor
    table = life._ports._member.poller.table  # type: ignore[attr-defined]
    assert recording is not None and recording.position_counter is not None
    state: dict[str, Any] = {
        "recorded": recording.words.tolist(),
        "shown": (recording.position_counter.get(), agent.counters.commit_position.get()),
        "processed": (cursor.read_position, cursor.position),
        "commit position": parts.log.commit_position,
        "sessions": agent.replica.sessions.table.words.tobytes(),
        "slow tick": agent.turn.slow_tick_ns,
        "checksums": {i: (peer.incoming.crc, peer.outgoing.crc) for i, peer in life.links._peers.items()},
        "connections": _connections(table).tolist(),
        "half frames": _half_frames(table),
        "services": [_service_state(service.agent) for service in life.services],
        "kept answers": agent.replica.answers.words.tobytes(),
        "messages": [_numbers(service.agent) for service in life.services],
        "services shown": [[counter.get() for counter in service.counters] for service in life.services],
    }
    if (proof := recording.proof) is not None:
        state["proof"] = proof.words.tolist()
    if isinstance(phase, Leading):
        publication, leader = parts.log.publication, phase.leader
        assert publication is not None
        state["published"] = publication.position, publication.flushed_position
        state["cluster time"] = agent.replica.cluster_time
        state["is unsent"] = phase.leader.is_commit_unsent
        state["leadership"] = np.delete(leader.leadership.words, quorum.IS_COMMIT_UNSENT).tolist()
        remote = [service.agent for service in life.services if isinstance(service.agent, RemoteService)]
        state["limits"] = [agent.words.tolist()[LIMIT : UNREACHED + 1] for agent in remote]
        state["limits"] += [agent.words[FIRST_LIMIT:].tolist() for agent in remote]
        state["time"] = parts.clocks.time.words.tolist()
        state["own"] = leader._this.report_term_id, leader._this.report_position
        others = [member for member in parts.members.values() if member is not leader._this]
        state["others"] = [(m.report_term_id, m.report_position, m.time_of_last_activity_ns) for m in others]
        streams = [parts.log_sender.streams.get(member.id) for member in others]
        state["streams"] = [None if stream is None else stream.position for stream in streams]
    elif isinstance(phase, Following):
        state["follower"] = phase.follower.words.tolist()
    return state
