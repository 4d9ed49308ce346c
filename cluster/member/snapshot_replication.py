"""A member without a usable log gets snapshot and log from another one, and starts again from them.

    SnapshotRequest ──▶
    ◀── SnapshotOffer     which recordings, what log before them
    RecordingFetch ──▶    of the module, of each service, of the log up to the snapshot
    ◀── RecordingBlock …  pushed as fast as the link takes them
    all checked, recording.log replaced in one step: the member is restarted, and goes on from the snapshot

Meanwhile its election rests: it neither votes nor leads, as if it were not there. Any member can be asked,
for what is before a snapshot is committed; it is the leader that is. Source: SnapshotReplication and
RecordingReplication of Aeron; there a member's disk is filled by hand.
"""

from typing import TYPE_CHECKING

import numpy as np

from cluster.archive.files import Buffer
from cluster.archive.first_frame import keep_first_frame
from cluster.archive.frame_walk import log_params
from cluster.archive.recording import Recording
from cluster.archive.snapshot_archive import snapshot_session_id
from cluster.consensus.context import NULL_POSITION
from cluster.errors import ClusterError, MemberRestart, RemoteProtocolError
from cluster.log.checksum import restore_session_ids
from cluster.log.scan import check_run, fault_at, scan
from cluster.member.frames import RecordingBlockFrame
from cluster.member.recovery import LOG_CHANNEL, replace_log
from cluster.member.snapshots import read_snapshot
from cluster.protocol import streams
from cluster.protocol.link import (
    HeldRecording,
    LinkError,
    LinkErrorCode,
    RecordingBlock,
    RecordingFetch,
    SnapshotOffer,
    SnapshotRequest,
    TermEntry,
)
from cluster.protocol.recording_log import (
    CONSENSUS_MODULE_SERVICE_ID,
    SNAPSHOT,
    TERM,
    RecordingLogEntry,
)
from cluster.protocol.sbe import Message
from cluster.transport.message_frames import link_frame

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent

CHUNK_BYTES = 124 * 1024  # so that a block fits an envelope of the link
CHUNKS_PER_TURN = 32
QUEUED_BYTES_MAX = 4 * 1024 * 1024  # on a link, before the next chunk waits
SYNC_BYTES = 32 * 1024 * 1024  # fetched bytes that a sync may have to move


class SnapshotReplication:
    """What a member fetches from ``member_id``; exists while it does.

    ``is_needed``: the log alone would not do. Raises MemberRestart when everything is there.
    """

    def __init__(self, agent: "ConsensusModuleAgent", member_id: int, *, is_needed: bool) -> None:
        self._agent = agent
        self.member_id = member_id
        self.is_needed = is_needed
        self._correlation_id = agent.now_ns  # unlike any before it: a replication takes time
        self._progress_ns = agent.now_ns
        self._is_sent = False  # the request that is due
        self._offer: SnapshotOffer | None = None
        self._targets: list[tuple[int, int, Recording]] = []  # (source's id, end, ours), those to come
        self._done: dict[int, Recording] = {}  # by service, snapshots that are complete
        self._created: list[int] = []
        self._log: Recording | None = None
        agent.tell(f"asks member {member_id} for its snapshot")

    def do_work(self) -> int:
        """Send what is due; give up when nothing came for the heartbeat timeout. Raises ClusterError."""
        agent = self._agent
        if agent.now_ns - self._progress_ns >= agent.context.leader_heartbeat_timeout_ns:
            raise ClusterError(f"member {self.member_id} does not send its snapshot")
        if self._is_sent or not agent.links.is_up(self.member_id):
            return 0
        if self._offer is None:
            request: SnapshotRequest | RecordingFetch = SnapshotRequest(self._correlation_id)
        else:
            source_id, end, target = self._targets[0]
            request = RecordingFetch(self._correlation_id, source_id, target.append_position, end)
        self._is_sent = agent.links.send(self.member_id, link_frame(request)) > 0
        return int(self._is_sent)

    def on_message(self, member_id: int, message: SnapshotOffer | RecordingBlock | LinkError) -> None:
        """An answer. Raises ClusterError when the replication cannot go on."""
        if member_id != self.member_id or message.correlation_id != self._correlation_id:
            return
        self._progress_ns = self._agent.now_ns
        match message:
            case LinkError():
                raise ClusterError(f"member {member_id} sends no snapshot: {message.text}")
            case SnapshotOffer() if self._offer is None:
                self._on_offer(message)
            case RecordingBlock() if self._offer is not None:
                self._on_block(message)

    def _on_offer(self, offer: SnapshotOffer) -> None:
        agent = self._agent
        wanted = range(CONSENSUS_MODULE_SERVICE_ID, agent.context.service_count)
        own_end = 0 if agent.log.recording is None else agent.log.recording.append_position
        if offer.log_position <= own_end or sorted(r.service_id for r in offer.recordings) != list(wanted):
            if self.is_needed:
                self._on_too_little(offer, own_end)
                return
            agent.replications.on_nothing_offered(self.member_id)
            return
        self._offer = offer
        agent.tell(
            f"fetches the snapshot at {offer.log_position} and the log from {offer.log_start_position} "
            f"of member {self.member_id}"
        )
        for held in offer.recordings:
            self._targets.append((held.recording_id, held.length, self._create_snapshot(held, offer)))
        self._log = self._create_log(offer)
        self._targets.append((offer.log_recording_id, offer.log_position, self._log))
        self._go_on()

    def _on_too_little(self, offer: SnapshotOffer, own_end: int) -> None:
        """Neither log nor snapshot to go on with: asked again when its time is up, it may have one then."""
        error = ClusterError(
            f"the log of member {self.member_id} begins at {offer.log_start_position}, ours "
            f"ends at {own_end}, and member {self.member_id} has no snapshot after that"
        )
        if offer.log_start_position <= own_end:
            raise error  # the log is there after all
        self._agent.on_error(error)

    def _create_snapshot(self, held: HeldRecording, offer: SnapshotOffer) -> Recording:
        is_module = held.service_id == CONSENSUS_MODULE_SERVICE_ID
        stream_id = streams.CONSENSUS_MODULE_SNAPSHOT if is_module else streams.SERVICE_SNAPSHOT
        recording = self._agent.archive.create_recording(
            stream_id=stream_id,
            session_id=held.session_id or snapshot_session_id(stream_id, held.service_id, offer.log_position),
            initial_term_id=held.initial_term_id,
            term_length=held.term_length,
            mtu=held.mtu,
            channel=f"aeron:ipc?session-id={held.session_id}|alias=snapshot",
            is_sparse=True,
        )
        self._created.append(recording.recording_id)
        self._done[held.service_id] = recording
        return recording

    def _create_log(self, offer: SnapshotOffer) -> Recording:
        archive = self._agent.archive
        recording = archive.create_recording(
            stream_id=streams.LOG,
            session_id=0,
            initial_term_id=offer.initial_term_id,
            term_length=offer.term_length,
            mtu=offer.mtu,
            start_position=offer.log_start_position,
            channel=LOG_CHANNEL,
        )
        self._created.append(recording.recording_id)
        if offer.log_start_position > 0 and offer.first_frame:
            keep_first_frame(
                archive.files, archive.directory, recording.recording_id, bytes(offer.first_frame)
            )
        return recording

    def _on_block(self, block: RecordingBlock) -> None:
        if not self._targets:
            return
        _, _, target = self._targets[0]
        if block.position != target.append_position:
            return  # of the request before
        frames = np.frombuffer(bytearray(block.frames), np.uint8)
        params = log_params(target.descriptor)
        valid = check_run(frames, 0, len(frames), block.position, params, is_recording=True)
        if valid < len(frames):
            fault = fault_at(frames, valid, len(frames), block.position + valid, params, is_recording=True)
            raise RemoteProtocolError(
                f"frames of member {self.member_id} do not join on at {block.position + valid}: {fault}"
            )
        target.append(block.position, frames)
        if target.append_position - target.synced_position >= SYNC_BYTES:
            target.sync()
        self._go_on()

    def _go_on(self) -> None:
        """Ask for the next recording when one is complete; after the last, put them in place."""
        while self._targets and self._targets[0][2].append_position >= self._targets[0][1]:
            target = self._targets.pop(0)[2]
            self._agent.archive.stop_recording(target.recording_id)
            self._is_sent = False
            if not self._targets:
                self._install()
        if self._targets and self._targets[0][2].append_position == self._targets[0][2].start_position:
            self._is_sent = False

    def _install(self) -> None:
        """Everything is here: check it, and let recording.log say so. Raises MemberRestart."""
        agent, offer, log = self._agent, self._offer, self._log
        assert offer is not None and log is not None
        base = offer.terms[-1].term_base_log_position
        entries = tuple(
            RecordingLogEntry(
                recording.recording_id,
                offer.leadership_term_id,
                base,
                offer.log_position,
                offer.timestamp,
                service_id,
                SNAPSHOT,
            )
            for service_id, recording in sorted(self._done.items())
        )
        read_snapshot(agent.snapshots.archive, entries)
        terms = [
            RecordingLogEntry(
                log.recording_id,
                term.leadership_term_id,
                term.term_base_log_position,
                term.log_position,
                term.timestamp,
                CONSENSUS_MODULE_SERVICE_ID,
                TERM,
            )
            for term in offer.terms
        ]
        replace_log(agent.archive, agent.log.recording_log, terms, entries)
        raise MemberRestart(
            f"has the snapshot at {offer.log_position} and the log before it from member {self.member_id}"
        )

    def discard(self) -> None:
        """It failed: what was fetched goes."""
        for recording_id in self._created:
            if self._agent.archive.has_recording(recording_id):
                self._agent.archive.purge_recording(recording_id)


class SnapshotReplications:
    """Whether this member fetches a snapshot now, and what it serves to others."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent
        self.current: SnapshotReplication | None = None
        self.server = SnapshotServer(agent)
        self._without_snapshot: set[int] = set()  # members that had none when they were asked

    def is_wanted_of(self, leader_member_id: int) -> bool:
        """An empty member spares itself the replay of what a snapshot stands for."""
        agent = self._agent
        return (
            agent.election is not None
            and not agent.promise_keeper.promises.has_say
            and agent.log.recording is not None
            and agent.log.recording.append_position == 0
            and leader_member_id not in self._without_snapshot
        )

    def begin(self, member_id: int, *, is_needed: bool) -> None:
        if self.current is None:
            self.current = SnapshotReplication(self._agent, member_id, is_needed=is_needed)

    def on_nothing_offered(self, member_id: int) -> None:
        """The election goes on where it was: the log is fetched from its begin."""
        self._agent.tell(f"member {member_id} has no snapshot")
        self._without_snapshot.add(member_id)
        self.current = None

    def abort(self) -> None:
        """The election begins anew; the next leader may be asked again."""
        current, self.current = self.current, None
        self._without_snapshot.clear()
        if current is not None:
            current.discard()

    def on_link_down(self, member_id: int) -> ClusterError | None:
        """The error that ends what is fetched from this member."""
        self.server.stop(member_id)
        if self.current is not None and self.current.member_id == member_id:
            return ClusterError(f"the link to member {member_id} broke, its snapshot is not complete")
        return None

    def on_message(self, member_id: int, message: Message) -> None:
        """A request of a member, or an answer to ours. Raises ClusterError, MemberRestart."""
        match message:
            case SnapshotRequest():
                self.server.on_request(member_id, message)
            case SnapshotOffer() | RecordingBlock() | LinkError() if self.current is not None:
                self.current.on_message(member_id, message)
            case LinkError(code=LinkErrorCode.NOT_AVAILABLE):
                self._on_log_not_available(member_id, message)

    def _on_log_not_available(self, member_id: int, error: LinkError) -> None:
        """The leader's log begins behind the end of ours. A follower that hears it so begins anew."""
        agent = self._agent
        subscription = agent.subscription
        if (
            subscription is None
            or subscription.leader_member_id != member_id
            or subscription.correlation_id != error.correlation_id
        ):
            return
        agent.tell(f"member {member_id}: {error.text}")
        if agent.election is not None:
            self.begin(member_id, is_needed=True)
        else:
            agent.enter_election(f"leader {member_id} has no log to go on with")


# ---- the other side


class _Served:
    """One recording on its way to one member."""

    __slots__ = ("correlation_id", "end", "position", "recording")

    def __init__(self, correlation_id: int, recording: Recording, position: int, end: int) -> None:
        self.correlation_id = correlation_id
        self.recording = recording
        self.position = position
        self.end = end


class SnapshotServer:
    """Sends other members what they ask for, whatever this member does besides."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent
        self._served: dict[int, _Served] = {}
        self._chunk = np.empty(0, np.uint8)
        self._frame = RecordingBlockFrame()
        self.last_request_ns: int | None = None

    def on_request(self, member_id: int, request: SnapshotRequest) -> None:
        agent = self._agent
        self.last_request_ns = agent.now_ns
        offer = self._offer(request.correlation_id)
        agent.links.send(member_id, link_frame(offer))

    def _offer(self, correlation_id: int) -> SnapshotOffer:
        agent = self._agent
        recording = agent.log.recording
        entries = next(agent.log.recording_log.snapshot_sets(agent.context.service_count), ())
        start_position = 0 if recording is None else recording.start_position
        if recording is None or not entries or entries[0].log_position < start_position:
            nothing = (NULL_POSITION, NULL_POSITION, 0, -1, start_position, 0, 0, 0)
            return SnapshotOffer(correlation_id, *nothing)
        module = entries[0]
        known = [
            TermEntry(
                entry.leadership_term_id, entry.term_base_log_position, entry.log_position, entry.timestamp
            )
            for entry in agent.log.recording_log.entries
            if entry.entry_type is TERM
            and entry.is_valid
            and entry.leadership_term_id <= module.leadership_term_id
        ]
        first = max(i for i, term in enumerate(known) if term.term_base_log_position <= start_position)
        terms = [*known[first:-1], known[-1].replace(log_position=NULL_POSITION)]
        return SnapshotOffer(
            correlation_id=correlation_id,
            log_position=module.log_position,
            leadership_term_id=module.leadership_term_id,
            timestamp=module.timestamp,
            log_recording_id=recording.recording_id,
            log_start_position=start_position,
            initial_term_id=recording.initial_term_id,
            term_length=recording.term_length,
            mtu=recording.mtu,
            recordings=tuple(self._held(entry) for entry in entries),
            terms=tuple(terms),
            first_frame=recording.first_frame() if start_position > 0 else b"",
        )

    def _held(self, entry: RecordingLogEntry) -> HeldRecording:
        recording = self._agent.archive.recording(entry.recording_id)
        return HeldRecording(
            entry.recording_id,
            recording.append_position,
            entry.service_id,
            recording.session_id,
            recording.initial_term_id,
            recording.term_length,
            recording.mtu,
        )

    def on_fetch(self, member_id: int, fetch: RecordingFetch) -> None:
        """Begin to send, or refuse what is not here (any more). Raises LogDamaged, of the own recording."""
        agent = self._agent
        archive = agent.archive
        self.last_request_ns = agent.now_ns
        if agent.repair.mending is not None:
            self._refuse(member_id, fetch, "the log here is being repaired")
            return
        if not archive.has_recording(fetch.recording_id):
            self._refuse(member_id, fetch, f"recording {fetch.recording_id} is not here")
            return
        recording = archive.recording(fetch.recording_id)
        begin, end = fetch.from_position, fetch.to_position
        if not recording.start_position <= begin <= end <= recording.append_position:
            self._refuse(
                member_id,
                fetch,
                f"recording {fetch.recording_id} from {begin} to {end}: here are "
                f"{recording.start_position} to {recording.append_position}",
            )
            return
        if not (recording.is_boundary(begin) and recording.is_boundary(end)):
            text = f"recording {fetch.recording_id} from {begin} to {end}: a frame crosses one of them"
            self._refuse(member_id, fetch, text)
            return
        self._served[member_id] = _Served(fetch.correlation_id, recording, begin, end)

    def _refuse(self, member_id: int, fetch: RecordingFetch, text: str) -> None:
        error = LinkError(fetch.correlation_id, LinkErrorCode.NOT_AVAILABLE, text)
        self._agent.links.send(member_id, link_frame(error))

    def stop(self, member_id: int) -> None:
        """The link broke."""
        self._served.pop(member_id, None)

    def do_work(self) -> int:
        """Send the next chunks; returns how many."""
        if not self._served:
            return 0
        self.last_request_ns = self._agent.now_ns
        work_count = 0
        for member_id, served in list(self._served.items()):
            work_count += self._send(member_id, served)
            if served.position >= served.end:
                del self._served[member_id]
        return work_count

    def _send(self, member_id: int, served: _Served) -> int:
        links, recording = self._agent.links, served.recording
        count = 0
        while served.position < served.end and count < CHUNKS_PER_TURN:
            if links.queued_bytes(member_id) > QUEUED_BYTES_MAX:
                break
            if served.position < recording.start_position or not self._agent.archive.has_recording(
                recording.recording_id
            ):
                fetch = RecordingFetch(served.correlation_id, recording.recording_id, 0, 0)
                self._refuse(member_id, fetch, f"recording {recording.recording_id} was purged meanwhile")
                served.position = served.end
                break
            if not len(self._chunk):
                self._chunk = np.zeros(CHUNK_BYTES, np.uint8)  # reused: links copy what they keep
            wanted = min(served.end - served.position, CHUNK_BYTES)
            data = recording.read(served.position, wanted, self._chunk)
            length = scan(data, 0, min(len(data), served.end - served.position))
            assert length > 0, "a recording holds whole frames"
            if recording.has_checksums:
                restore_session_ids(data, 0, length, recording.session_id)
            correlation_id, position = served.correlation_id, served.position
            block: tuple[Buffer, ...] = self._frame.around(correlation_id, position, data[:length])
            if length > CHUNK_BYTES:  # one long frame of padding: links take whole frames apart, no others
                block = (link_frame(RecordingBlock(correlation_id, position, data[:length].tobytes())),)
            if links.send(member_id, *block) <= 0:
                break
            served.position += length
            count += 1
        return count
