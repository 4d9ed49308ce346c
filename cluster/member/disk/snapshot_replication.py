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
from dataclasses import dataclass

import numpy as np

from cluster.archive.archive import Archive
from cluster.archive.recording import Recording
from cluster.archive.snapshot_archive import STREAM_IDS, SnapshotArchive, snapshot_session_id
from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import AgentTermination, ClusterError, DataLoss, MemberRestart, StorageError
from cluster.member.disk.fetched_recording import append_fetched, create_snapshot
from cluster.member.disk.recovery import create_log_at, replace_log
from cluster.member.disk.snapshots import read_snapshot
from cluster.member.log.member_log import MemberLog
from cluster.member.ports import Links
from cluster.member.reporter import Reporter
from cluster.member.turn import Turn
from cluster.protocol.link import (
    LinkError,
    LogGeometry,
    OfferedRecording,
    RecordingBlock,
    RecordingFetch,
    SnapshotOffer,
    SnapshotRequest,
)
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID, SNAPSHOT, TERM, RecordingLogEntry
from cluster.protocol.sbe import Message
from cluster.transport.message_frames import link_frame

Answer = SnapshotOffer | RecordingBlock | LinkError


@dataclass(frozen=True, slots=True)
class ReplicationPorts:
    """What a replication reaches of its member."""

    context: ConsensusModuleContext
    archive: Archive
    snapshots: SnapshotArchive
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
        self._ports = ports
        self._correlation_id = ports.turn.now_ns  # unlike any before it: a replication takes time
        self._progress_ns = ports.turn.now_ns
        self._is_sent = False  # the request that is due
        self._offer: SnapshotOffer | None = None
        self._targets: list[tuple[int, int, Recording]] = []  # (source's id, end, ours), those to come
        self._done: dict[int, Recording] = {}  # by service, snapshots that are complete
        self._created: list[int] = []

    @abstractmethod
    def _is_wanted(self, offer: SnapshotOffer) -> bool:
        """Whether a whole snapshot helps."""

    @abstractmethod
    def _fetch(self, offer: SnapshotOffer) -> None:
        """Say what is wanted of it, by ``_fetch_snapshots`` and more."""

    @abstractmethod
    def _install(self, offer: SnapshotOffer, snapshots: tuple[RecordingLogEntry, ...]) -> None:
        """Everything is here and checked: let recording.log say so. Raises MemberRestart."""

    def _on_unwanted(self, offer: SnapshotOffer) -> None:
        self.is_over = True

    def do_work(self) -> int:
        """Send what is due; fail when nothing came for the heartbeat timeout. Returns how much was done."""
        if self._ports.turn.now_ns - self._progress_ns >= self._ports.context.leader_heartbeat_timeout_ns:
            self.fail(ClusterError(f"member {self.member_id} does not send its snapshot"))
            return 1
        if self._is_sent or not self._ports.links.is_up(self.member_id):
            return 0
        if self._offer is None:
            request: SnapshotRequest | RecordingFetch = SnapshotRequest(self._correlation_id)
        else:
            source_id, end, target = self._targets[0]
            request = RecordingFetch(self._correlation_id, source_id, target.append_position, end)
        self._is_sent = self._ports.links.send(self.member_id, link_frame(request)) > 0
        return int(self._is_sent)

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
                    raise ClusterError(f"member {member_id} sends no snapshot: {message.text}")
                case SnapshotOffer() if self._offer is None:
                    self._on_offer(message)
                case RecordingBlock() if self._offer is not None:
                    self._on_block(message)
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
        self._offer = offer
        self._fetch(offer)
        self._go_on()

    def _fetch_snapshots(self, offer: SnapshotOffer, what: str) -> None:
        self._ports.reporter.event(f"fetches {what} of member {self.member_id}")
        for held in offer.recordings:
            self._targets.append((held.recording_id, held.length, self._create_snapshot(held, offer)))

    def _create_snapshot(self, held: OfferedRecording, offer: SnapshotOffer) -> Recording:
        stream_id = STREAM_IDS[held.service_id == CONSENSUS_MODULE_SERVICE_ID]
        session_id = held.session_id or snapshot_session_id(stream_id, held.service_id, offer.log_position)
        recording = create_snapshot(self._ports.archive, stream_id, session_id, held)
        self._created.append(recording.recording_id)
        self._done[held.service_id] = recording
        return recording

    def _on_block(self, block: RecordingBlock) -> None:
        if not self._targets:
            return
        _, _, target = self._targets[0]
        if block.position != target.append_position:
            return  # of the request before
        frames = np.frombuffer(bytearray(block.frames), np.uint8)
        append_fetched(f"member {self.member_id}", target, None, frames)
        self._go_on()

    def _go_on(self) -> None:
        """Ask for the next recording when one is complete; after the last, put them in place."""
        while self._targets and self._targets[0][2].append_position >= self._targets[0][1]:
            target = self._targets.pop(0)[2]
            self._ports.archive.stop_recording(target.recording_id)
            self._is_sent = False
            if not self._targets:
                self._on_complete()
        if self._targets and self._targets[0][2].append_position == self._targets[0][2].start_position:
            self._is_sent = False

    def _on_complete(self) -> None:
        offer = self._offer
        assert offer is not None
        base = offer.terms[-1].term_base_log_position
        place = offer.leadership_term_id, base, offer.log_position, offer.timestamp
        entries = tuple(
            RecordingLogEntry(recording.recording_id, *place, service_id, SNAPSHOT)
            for service_id, recording in sorted(self._done.items())
        )
        read_snapshot(self._ports.snapshots, entries)
        self._install(offer, entries)

    def discard(self) -> None:
        """It failed: what was fetched goes."""
        for recording_id in self._created:
            if self._ports.archive.has_recording(recording_id):
                self._ports.archive.purge_recording(recording_id)


class SnapshotAndLog(SnapshotReplication):
    """Of a member whose log ends before another one's begins; ``is_needed``: nothing else helps."""

    def __init__(self, member_id: int, ports: ReplicationPorts, *, is_needed: bool) -> None:
        super().__init__(member_id, ports)
        self._is_needed = is_needed
        self._log: Recording | None = None
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
            self._ports.reporter.event(f"member {self.member_id} has no snapshot")
            super()._on_unwanted(offer)
            return
        error = ClusterError(
            f"the log of member {self.member_id} begins at {offer.log_start_position}, ours "
            f"ends at {self._own_end}, and member {self.member_id} has no snapshot after that"
        )
        if offer.log_start_position <= self._own_end:
            raise error  # the log is there after all
        self._ports.reporter.error(error)

    def _fetch(self, offer: SnapshotOffer) -> None:
        what = f"the snapshot at {offer.log_position} and the log from {offer.log_start_position}"
        self._fetch_snapshots(offer, what)
        geometry = LogGeometry(offer.initial_term_id, offer.term_length, offer.mtu)
        self._log = create_log_at(
            self._ports.archive, geometry, offer.log_start_position, bytes(offer.first_frame)
        )
        self._created.append(self._log.recording_id)
        self._targets.append((offer.log_recording_id, offer.log_position, self._log))

    def _install(self, offer: SnapshotOffer, snapshots: tuple[RecordingLogEntry, ...]) -> None:
        log = self._log
        assert log is not None
        terms = [
            RecordingLogEntry.of((log.recording_id, *term, CONSENSUS_MODULE_SERVICE_ID), TERM)
            for term in offer.terms
        ]
        replace_log(self._ports.archive, self._ports.log.recording_log, terms, snapshots)
        raise MemberRestart(
            f"has the snapshot at {offer.log_position} and the log before it from member {self.member_id}"
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

    def _fetch(self, offer: SnapshotOffer) -> None:
        self._fetch_snapshots(offer, f"the snapshot at {offer.log_position}")

    def _install(self, offer: SnapshotOffer, snapshots: tuple[RecordingLogEntry, ...]) -> None:
        for entry in reversed(snapshots):
            self._ports.log.recording_log.append_snapshot(*entry[:6])
        raise MemberRestart(f"has the snapshot at {offer.log_position} of member {self.member_id}")
