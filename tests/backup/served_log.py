"""What a member's log server answers, out of the files on its simulated disk, without sockets in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from cluster.archive.files import Files
from cluster.errors import ClusterError, DataLoss
from cluster.protocol import link
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterTimeUnit, Role
from cluster.reader.directory import DirectoryLog
from cluster.reader.served_recordings import ServedRecordings
from cluster.testing.disk import Disk
from cluster.testing.world import Clock, VirtualWorld
from cluster.transport.committed_log import BlockOptions
from cluster.transport.log_client import Answer, RecordingAnswer, Unreachable
from tests.simulation.counters_files import SimulatedCounters


class ServingMember(Protocol):
    """A member that runs, as its readers see it."""

    member_id: int
    world: VirtualWorld
    disk: Disk
    clock: Clock

    @property
    def is_leading(self) -> bool: ...

    @property
    def leadership_term_id(self) -> int: ...


class ServedLog:
    """The log of one member in ``directory``, read through ``files``. Raises Unreachable."""

    def __init__(self, member: ServingMember, directory: str, files: Files, cluster_id: int) -> None:
        self._member = member
        self._cluster_id = cluster_id
        try:
            self._log = DirectoryLog(
                None,
                archive_dir=f"{directory}/archive",
                cluster_dir=f"{directory}/cluster",
                files=files,
                now_ms=lambda: member.clock.epoch_ms(member.world.now_ns),
                open_counters=self._open_counters,
            )
        except ClusterError as error:
            raise Unreachable(str(error)) from error
        self._recordings = ServedRecordings(self._log)

    def _open_counters(self, path: str) -> SimulatedCounters:
        self._counters_path = path
        return SimulatedCounters(self._member.disk, path)

    def _leader_member_id(self) -> int:
        """As its counters say."""
        with SimulatedCounters(self._member.disk, self._counters_path) as counters:
            found = counters.find(CounterTypeId.LEADER_MEMBER_ID)
            return -1 if found is None else found.get()

    def status(self) -> link.LogStatus:
        member, log = self._member, self._log
        try:
            commit_position = log.commit_position()
        except ClusterError as error:
            raise Unreachable(str(error)) from error
        return link.LogStatus(
            0, log.start_position, commit_position, -1, member.leadership_term_id, None, None,
            self._cluster_id, member.member_id, self._leader_member_id(),
            Role.LEADER if member.is_leading else Role.FOLLOWER,
            0, 0, 0, log.term_length, 0, 0, ClusterTimeUnit.MILLIS,
        )  # fmt: skip

    def read(self, from_position: int, to_position: int, max_bytes: int) -> Iterator[Answer]:
        yield from _answered(self._frames(from_position, to_position, max_bytes))

    def _frames(self, from_position: int, to_position: int, max_bytes: int) -> Iterator[np.ndarray]:
        end = from_position
        for position, frames in self._log.blocks(from_position, to_position, BlockOptions(max_bytes)):
            yield frames
            end = position + len(frames)
        if to_position > end:
            raise DataLoss(f"committed up to {end} here, asked up to {to_position}")

    def read_recording(self, recording_id: int, max_bytes: int) -> Iterator[RecordingAnswer]:
        yield from _answered(self._recording(recording_id, max_bytes))

    def _recording(self, recording_id: int, max_bytes: int) -> Iterator[link.RecordingStatus | np.ndarray]:
        yield self._recordings.status(link.RecordingRequest(0, recording_id))
        for _, frames in self._recordings.blocks(recording_id, max_bytes=max_bytes):
            yield frames


def _answered(answers: Iterator[link.RecordingStatus | np.ndarray]) -> Iterator[RecordingAnswer]:
    """The answers, and the end of their stream: what a log server sends."""
    code, text = link.LinkErrorCode.OK, ""
    try:
        yield from answers
    except DataLoss as error:
        code, text = link.LinkErrorCode.NOT_AVAILABLE, str(error)
    except ClusterError as error:
        code, text = link.LinkErrorCode.FAILED, str(error)
    yield link.EndOfStream(0, -1, code, text)
