"""A member without a usable log gets snapshot and log from another one, and starts again from them.

    SnapshotRequest ──▶
    ◀── SnapshotOffer     which recordings, what log before them
    RecordingFetch ──▶    of the module, of each service, of the log up to the snapshot
    ◀── RecordingBlock …  pushed as fast as the link takes them
    all checked, recording.log replaced in one step: the member is restarted, and goes on from the snapshot

Meanwhile its election rests: it neither votes nor leads, as if it were not there. Any member can be asked,
for what is before a snapshot is committed; it is the leader that is. The other side is snapshot_server.py.
A member that keeps its log fetches the snapshot alone, while it follows (missed_snapshots.py).
Source: SnapshotReplication and RecordingReplication of Aeron; there a member's disk is filled by hand.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.archive.archive import Archive
from cluster.archive.recording import Recording
from cluster.archive.snapshot_archive import STREAM_IDS, snapshot_session_id
from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import AgentTermination, ClusterError, DataLoss, MemberRestart, StorageError
from cluster.member.disk.fetched_recording import FetchedSnapshot
from cluster.member.disk.recovery import replace_log
from cluster.member.disk.snapshots import read_fetched
from cluster.member.log.member_log import MemberLog
from cluster.member.ports import Links
from cluster.member.reporter import Reporter
from cluster.member.turn import Turn
from cluster.protocol import streams
from cluster.protocol.link import (
    EndOfStream,
    LinkError,
    LinkErrorCode,
    OfferedRecording,
    RecordingBlock,
    RecordingFetch,
    RecordingStatus,
    SnapshotOffer,
    SnapshotRequest,
)
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID, TERM, RecordingLogEntry
from cluster.protocol.sbe import Message
from cluster.transport.message_frames import link_frame

Answer = SnapshotOffer | RecordingBlock | LinkError

_Entries = tuple[RecordingLogEntry, ...]  # of a snapshot, the module's first


@dataclass(frozen=True, slots=True)
class ReplicationPorts:
    """What a replication reaches of its member."""

    context: ConsensusModuleContext
    archive: Archive
    log: MemberLog
    links: Links
    turn: Turn
    reporter: Reporter


class SnapshotReplication(ABC):
    """Raises MemberRestart when everything is there.

    ``is_over``: the member has nothing that is wanted or, with an ``error``, it failed, which is reported.
    """

    def __init__(self, member_id: int, ports: ReplicationPorts) -> None:
        self.member_id = member_id
        self.is_over = False
        self.error: ClusterError | None = None
        self._name = f"member {member_id}"
        self._ports = ports
        self._correlation_id = ports.turn.now_ns  # unlike any before it: a replication takes time
        self._progress_ns = ports.turn.now_ns
        self._due: SnapshotRequest | RecordingFetch | None = SnapshotRequest(self._correlation_id)
        self._copy: FetchedSnapshot | None = None
        self._fetching: Generator[None, RecordingBlock] | None = None

    @abstractmethod
    def _is_wanted(self, offer: SnapshotOffer) -> bool:
        """Whether a whole snapshot helps."""

    @abstractmethod
    def _install(self, offer: SnapshotOffer, snapshot: _Entries, last: Recording) -> None:
        """Everything is here and checked: let recording.log say so. Raises MemberRestart."""

    def _log_of(self, offer: SnapshotOffer) -> tuple[RecordingStatus, ...]:
        """The log, where it is fetched after the snapshot."""
        return ()

    def _on_unwanted(self, offer: SnapshotOffer) -> None:
        self.is_over = True

    def do_work(self) -> int:
        """Send what is due; fail when nothing came for the heartbeat timeout. Returns how much was done."""
        if self._ports.turn.now_ns - self._progress_ns >= self._ports.context.leader_heartbeat_timeout_ns:
            self.fail(ClusterError(f"{self._name} does not send its snapshot"))
            return 1
        links, due = self._ports.links, self._due
        if due is None or not links.is_up(self.member_id) or links.send(self.member_id, link_frame(due)) <= 0:
            return 0
        self._due = None
        return 1

    def fail(self, error: ClusterError) -> None:
        """It cannot go on."""
        self._ports.reporter.error(error)
        self.is_over, self.error = True, error

    def on_message(self, member_id: int, message: Message) -> None:
        """What a member sends; everything but an answer is passed over. Raises what the disk here says."""
        if not isinstance(message, Answer) or member_id != self.member_id:
            return
        if self.is_over or message.correlation_id != self._correlation_id:
            return
        self._progress_ns = self._ports.turn.now_ns
        try:
            match message:
                case LinkError():
                    raise ClusterError(f"{self._name} sends no snapshot: {message.text}")
                case SnapshotOffer() if self._fetching is None:
                    self._on_offer(message)
                case RecordingBlock() if self._fetching is not None:
                    self._fetching.send(message)
        except (StorageError, DataLoss, AgentTermination):
            raise
        except ClusterError as error:  # of what was fetched
            self.fail(error)

    def _on_offer(self, offer: SnapshotOffer) -> None:
        wanted = range(CONSENSUS_MODULE_SERVICE_ID, self._ports.context.service_count)
        is_whole = sorted(r.service_id for r in offer.recordings) == list(wanted)
        if not is_whole or not self._is_wanted(offer):
            self._on_unwanted(offer)
            return
        logs = self._log_of(offer)
        what = "".join(f" and the log from {log.start_position}" for log in logs)
        self._ports.reporter.event(f"fetches the snapshot at {offer.log_position}{what} of {self._name}")
        self._fetching = self._fetch(
            offer, [*(_described(found, offer) for found in offer.recordings), *logs]
        )
        next(self._fetching)

    def _fetch(
        self, offer: SnapshotOffer, described: Sequence[RecordingStatus]
    ) -> Generator[None, RecordingBlock]:
        """Ask for one recording after the other, and take its blocks; then put all in place."""
        recording_ids, archive = [status.recording_id for status in described], self._ports.archive
        copy = self._copy = FetchedSnapshot(self._name, recording_ids, archive)
        for status in described:
            copy.begin(status)
        for status in described:
            if copy.position < status.stop_position:
                place = status.recording_id, copy.position, status.stop_position
                self._due = RecordingFetch(self._correlation_id, *place)
            while copy.position < status.stop_position:
                block = yield
                if block.position == copy.position:  # else it is of the request before
                    copy.take(np.frombuffer(bytearray(block.frames), np.uint8))
            copy.take(EndOfStream(self._correlation_id, status.stop_position, LinkErrorCode.OK))
        base = offer.terms[-1].term_base_log_position
        term = offer.leadership_term_id, base, offer.log_position, offer.timestamp
        entries = copy.entries((found.recording_id, *term, found.service_id) for found in offer.recordings)
        read_fetched(self._name, archive, entries)
        self._install(offer, entries, copy.recordings[-1])

    def discard(self) -> None:
        """It failed: what was fetched goes."""
        if self._copy is not None:
            self._copy.discard()


def _described(found: OfferedRecording, offer: SnapshotOffer) -> RecordingStatus:
    stream_id = STREAM_IDS[found.service_id == CONSENSUS_MODULE_SERVICE_ID]
    session_id = found.session_id or snapshot_session_id(stream_id, found.service_id, offer.log_position)
    place = offer.correlation_id, found.recording_id, 0, found.length
    return RecordingStatus(*place, session_id, stream_id, found.initial_term_id, found.term_length, found.mtu)


class SnapshotAndLog(SnapshotReplication):
    """Of a member whose log ends before another one's begins; ``is_needed``: nothing else helps."""

    def __init__(self, member_id: int, ports: ReplicationPorts, *, is_needed: bool) -> None:
        super().__init__(member_id, ports)
        self._is_needed = is_needed
        self._ports.reporter.event(f"asks member {member_id} for its snapshot")

    @property
    def _own_end(self) -> int:
        own_log = self._ports.log.recording
        return 0 if own_log is None else own_log.append_position

    def _is_wanted(self, offer: SnapshotOffer) -> bool:
        return offer.log_position > self._own_end

    def _on_unwanted(self, offer: SnapshotOffer) -> None:
        """Where one is needed it is asked for again when its time is up: the member may have one then."""
        if not self._is_needed:
            self._ports.reporter.event(f"{self._name} has no snapshot")
            super()._on_unwanted(offer)
            return
        error = ClusterError(
            f"the log of {self._name} begins at {offer.log_start_position}, ours "
            f"ends at {self._own_end}, and {self._name} has no snapshot after that"
        )
        if offer.log_start_position <= self._own_end:
            raise error  # the log is there after all
        self._ports.reporter.error(error)

    def _log_of(self, offer: SnapshotOffer) -> tuple[RecordingStatus, ...]:
        place = offer.correlation_id, offer.log_recording_id, offer.log_start_position, offer.log_position
        geometry = offer.initial_term_id, offer.term_length, offer.mtu
        return (RecordingStatus(*place, 0, streams.LOG, *geometry, first_frame=offer.first_frame),)

    def _install(self, offer: SnapshotOffer, snapshot: _Entries, last: Recording) -> None:
        terms = [
            RecordingLogEntry.of((last.recording_id, *term, CONSENSUS_MODULE_SERVICE_ID), TERM)
            for term in offer.terms
        ]
        replace_log(self._ports.archive, self._ports.log.recording_log, terms, snapshot)
        raise MemberRestart(
            f"has the snapshot at {offer.log_position} and the log before it from {self._name}"
        )


class SnapshotBesideLog(SnapshotReplication):
    """Of a member that keeps its log; it may ask again and again, and says only what it fetches."""

    def _is_wanted(self, offer: SnapshotOffer) -> bool:
        """Whether it is newer than the own ones, at a committed place in a term that is known."""
        recording_log = self._ports.log.recording_log
        newest, term = recording_log.latest_snapshot(), recording_log.find_term(offer.leadership_term_id)
        return (
            (0 if newest is None else newest.log_position)
            < offer.log_position
            <= self._ports.log.commit_position
            and term is not None
            and term.term_base_log_position == offer.terms[-1].term_base_log_position
        )

    def _install(self, offer: SnapshotOffer, snapshot: _Entries, last: Recording) -> None:
        for entry in reversed(snapshot):
            self._ports.log.recording_log.append_snapshot(*entry[:6])
        raise MemberRestart(f"has the snapshot at {offer.log_position} of {self._name}")
