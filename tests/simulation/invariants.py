"""What must hold, watched from outside: what members send, commit and apply, and what clients were told.

The numbers are those of docs/invariants.md.

after every message sent   one leader a term (I-1), one vote a term (I-9), what is spoken of is durable
after every turn           commit never falls (I-2), committed bytes are equal (I-2, I-4), a new leader has
                           all that is committed, services apply committed log only and agree (I-5, I-10)
from the committed log     each message once, in order (I-3, I-7), timers (I-8), terms and time (I-9)
when one is taken          snapshots of one position are the same, and what a replay comes to (I-6)
when a client is told      what is acknowledged is committed, at that position (I-3)
                           each answer to a supervised session comes once, in order (I-21)
                           rows of a lane are in once, in order, and all before it is registered (I-22)
when a reader is given log  it is committed, and follows on what it had (I-10, I-11)
at the end                 all members agree, nothing is missing (I-14, I-21 and again I-3, I-5, I-8)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.archive.files import Buffer
from cluster.errors import ClusterError, DataLoss
from cluster.protocol import decode, streams
from cluster.protocol.cnc import CNC_FILE_NAME
from cluster.protocol.consensus import AppendPosition, NewLeadershipTerm, RequestVote, Vote
from cluster.protocol.enums import CloseReason
from cluster.protocol.frame import HEADER_LENGTH, align
from cluster.protocol.node_state import decode_node_state
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID, TERM
from cluster.testing.world import MS
from tests.simulation.clients import Client, ClientObserver
from tests.simulation.committed_log import CommittedLog
from tests.simulation.counters_files import stored_commit_position
from tests.simulation.disk import FaultyDisk
from tests.simulation.disk_log import (
    HeldFrames,
    find_segment,
    is_durable,
    log_bytes,
    recorded_entries,
    snapshot_position,
    without_kept_answers,
)
from tests.simulation.member import Member, Observer
from tests.simulation.readers import Reader, ReaderObserver
from tests.simulation.silence import Silence
from tests.simulation.violation import require

if TYPE_CHECKING:
    from cluster.archive.recording import Recording

_APPEND_POSITION = AppendPosition.TEMPLATE_ID
_WATCHED = frozenset(kind.TEMPLATE_ID for kind in (AppendPosition, NewLeadershipTerm, RequestVote, Vote))


class _Watched:
    """What is remembered of one life of a member."""

    def __init__(self) -> None:
        self.commit_position = 0
        self.checked_durable = 0
        self.snapshots = 0
        self.recorded_terms: set[int] = set()
        self.led_terms: set[int] = set()
        self.silence: Silence | None = None  # of the sessions of the term that it leads
        self.has_followed = False


class Invariants(Observer, ClientObserver, ReaderObserver):
    """One for a run. Raises Violation as soon as one does not hold."""

    def __init__(
        self,
        file_sync_level: int,
        disks: dict[int, FaultyDisk],
        quorum: int,
        session_timeout_ms: int,
        frames: HeldFrames,
        service_count: int,
    ) -> None:
        self.log = CommittedLog(session_timeout_ms, service_count)
        self.frames = frames
        self.lost_to: dict[int, int] = {}  # of those not whole: how far they had had the log
        self.damaged: set[int] = set()  # of these: whose disks hold other bytes than were written
        self.ever_damaged: set[int] = set()  # what lies before their snapshots may still be rotten
        self.without_promises: set[int] = set()  # have lost them, and have not come level with a leader since
        self._disks = disks
        self._quorum = quorum
        self._recorded: set[tuple[int, int]] = set()  # (member, term) seen in its recording.log
        self.bases: dict[int, int] = {}  # term: its base
        self.votes: dict[tuple[int, int], int] = {}  # (member, term): candidate
        self.chains: list[dict[int, int]] = [{} for _ in range(service_count)]  # of each, by position
        self.snapshots: dict[tuple[int, int], bytes] = {}  # (position, service): its recording's bytes
        self.acknowledged = 0
        self.egress: dict[tuple[int, bytes], int] = {}  # (session, service): last number that was answered
        self.answered: dict[tuple[int, bytes], int] = {}  # likewise, of a supervised one: how often
        self.read_ahead: list[tuple[str, int, bytes]] = []  # what was read before it was seen to be committed
        self.left: dict[int, int] = {}  # session that was closed in peace: under the leader of which term
        self._sync_level = file_sync_level
        self._watched: dict[tuple[int, int], _Watched] = {}
        self.spoken: dict[int, int] = {}  # member: the most log that it has ever reported or led

    def _of(self, member: Member) -> _Watched:
        return self._watched.setdefault((member.member_id, member.incarnation), _Watched())

    # -- what members send --

    def on_sent(self, member: Member, to_member_id: int, buffers: tuple[Buffer, ...]) -> None:
        for buffer in buffers:
            view = memoryview(buffer)
            offset = 0
            while offset < len(view):
                length = int.from_bytes(view[offset : offset + 4], "little")
                stream_id = int.from_bytes(view[offset + 16 : offset + 20], "little")
                if stream_id == streams.LOG:
                    break  # a run of log
                if length > len(view) - offset:
                    return  # one frame in several buffers: a block of a recording
                if stream_id == streams.CONSENSUS:
                    template_id = int.from_bytes(view[offset + 34 : offset + 36], "little")
                    if template_id in _WATCHED:
                        message = decode(view[offset + HEADER_LENGTH : offset + length])
                        self._on_message(member, to_member_id, message)
                offset += align(length)

    def _on_message(self, member: Member, to_member_id: int, message: object) -> None:
        match message:
            case AppendPosition():
                self._on_append_position(member, message)
            case Vote(vote=True):
                self._on_vote(member, message.candidate_term_id, message.candidate_member_id)
            case RequestVote():
                self._on_vote(member, message.candidate_term_id, member.member_id)
            case NewLeadershipTerm():
                self._on_leader(member, message.leadership_term_id)
                base = self.bases.setdefault(message.leadership_term_id, message.term_base_log_position)
                require(
                    base == message.term_base_log_position,
                    "I-1",
                    f"{member.name} tells base {message.term_base_log_position} of term "
                    f"{message.leadership_term_id}, which was {base}",
                )

    def _on_leader(self, member: Member, term_id: int) -> None:
        who = member.member_id, member.incarnation
        known = self.log.leaders.setdefault(term_id, who)
        require(known == who, "I-1", f"{member.name} leads term {term_id}, so did member {known[0]}")

    def _on_vote(self, member: Member, term_id: int, candidate_id: int) -> None:
        require(
            member.member_id not in self.without_promises,
            "I-9",
            f"{member.name} votes in term {term_id} and does not know what it has promised",
        )
        known = self.votes.setdefault((member.member_id, term_id), candidate_id)
        require(
            known == candidate_id,
            "I-9",
            f"{member.name} votes for member {candidate_id} in term {term_id}, as for member {known}",
        )
        if self._sync_level > 0:
            inode = member.disk.inode(f"{member.directory}/cluster/node-state.dat")
            assert inode is not None
            held = decode_node_state(bytes(inode.cache)).candidate_term.candidate_term_id
            require(
                held >= term_id and inode.is_durable(0, len(inode.cache)),
                "I-9",
                f"{member.name} speaks of its vote in term {term_id} before it is on the disk",
            )

    def _on_append_position(self, member: Member, message: AppendPosition) -> None:
        term_id, position = message.leadership_term_id, message.log_position
        self.spoken[member.member_id] = max(position, self.spoken.get(member.member_id, 0))
        require(
            member.member_id not in self.without_promises,
            "I-3",
            f"{member.name} reports {position}, so that it counts, and does not know what it has promised",
        )
        if self._sync_level == 0:
            return
        watched = self._of(member)
        base = self.bases.get(term_id)
        if base is not None and position >= base and term_id not in watched.recorded_terms:
            inode = member.disk.inode(f"{member.directory}/cluster/recording.log")
            assert inode is not None
            recorded = {
                entry.leadership_term_id: entry.term_base_log_position
                for entry in recorded_entries(member.disk, member.member_id)
                if entry.entry_type is TERM
            }
            require(
                recorded.get(term_id) == base and inode.is_durable(0, len(inode.cache)),
                "I-19",
                f"{member.name} reports {position} of term {term_id} and has not recorded its base {base}",
            )
            watched.recorded_terms.add(term_id)
        recording = member.recording
        require(
            recording is None or position <= member.append_position,
            "I-3",
            f"{member.name} reports {position}, which it does not have",
        )
        if recording is not None and position > watched.checked_durable:
            begin = max(watched.checked_durable, recording.start_position, self._rotten_to(member))
            require(
                is_durable(member.disk, recording, begin, position),
                "I-3",
                f"{member.name} reports {position}, which is not on its disk",
            )
            watched.checked_durable = position

    # -- what members do --

    def on_started(self, member: Member) -> None:
        if self._sync_level > 0:
            voted = [term for (voter, term) in self.votes if voter == member.member_id]
            held = member.node_state.candidate_term_id
            require(
                held >= max(voted, default=-1),
                "I-9",
                f"{member.name} starts with candidate term {held} and voted in {max(voted, default=-1)}",
            )

    def on_wiped(self, member_id: int) -> None:
        """A member's disk is empty: it has forgotten its votes as well."""
        self.lost_to[member_id] = self.spoken.get(member_id, 0)
        self.on_votes_lost(member_id)

    def on_damaged(self, member_id: int, end: int = 0) -> None:
        """What is on a member's disk below ``end``, or below what is committed now, may be something else."""
        self.lost_to[member_id] = max(self.spoken.get(member_id, 0), self.log.end, end)
        self.damaged.add(member_id)
        self.ever_damaged.add(member_id)

    def on_whole(self, member_id: int) -> None:
        """It has again, as far as it needs it, what it had."""
        self.damaged.discard(member_id)
        self.lost_to.pop(member_id, None)

    def on_votes_lost(self, member_id: int) -> None:
        """What a member has voted is not on its disk any more; it must not vote until it may."""
        self.without_promises.add(member_id)
        self.on_unsynced_lost(member_id)

    def on_unsynced_lost(self, member_id: int) -> None:
        """A member may have forgotten its votes and terms, and does not know it."""
        self.votes = {key: vote for key, vote in self.votes.items() if key[0] != member_id}
        self._recorded = {key for key in self._recorded if key[0] != member_id}

    def on_level(self, member_id: int) -> None:
        """It has what its leader has committed, and stands by its term: it knows what it promises now."""
        self.without_promises.discard(member_id)

    def on_turn(self, member: Member) -> None:
        self.log.on_turn(member.world.now_ns // MS, member.incarnation)
        watched = self._of(member)
        commit_position = member.commit_position
        if commit_position != watched.commit_position:
            self._on_commit(member, watched, commit_position)
        recording = member.recording
        if recording is not None and recording.append_position < watched.checked_durable:
            watched.checked_durable = recording.append_position
        if member.counters.snapshot_count.get() != watched.snapshots:
            watched.snapshots = member.counters.snapshot_count.get()
            self._on_snapshot(member)
        if member.is_leading and member.leadership_term_id not in watched.led_terms:
            if not watched.led_terms and not watched.has_followed:
                self.log.startup_terms.add(member.leadership_term_id)
            watched.led_terms.add(member.leadership_term_id)
            watched.silence = Silence(self.log.session_timeout * MS)
            self._on_leadership(member, member.leadership_term_id)
        if member.is_leading and watched.silence is not None:
            watched.silence.on_turn(member)
        watched.has_followed = watched.has_followed or member.is_following

    def on_killed(self, member: Member) -> None:
        """Maybe within a turn: clients may have been told of what it had committed by then."""
        commit_position = member.commit_position
        if commit_position > self._of(member).commit_position:
            self._on_commit(member, self._of(member), commit_position)

    def _on_snapshot(self, member: Member) -> None:
        """What members take at one place in the log is the same, module and services, byte by byte."""
        latest = member.recording_log.latest_snapshot()
        assert latest is not None
        position, of_services = latest.log_position, set(range(len(self.chains)))
        # What a power failure has left of another one there is none: a member starts from whole sets.
        for entry in next(member.recording_log.snapshot_sets(len(self.chains)), ()):
            if entry.log_position == position:
                recording = member.archive.recording(entry.recording_id)
                data = self._recorded_bytes(member, recording, 0, recording.append_position)
                require(
                    is_durable(member.disk, recording, 0, len(data)) or self._sync_level == 0,
                    "I-3",
                    f"{member.name} records its snapshot at {latest.log_position} before it is on its disk",
                )
                if entry.service_id == CONSENSUS_MODULE_SERVICE_ID:
                    data = without_kept_answers(data)
                known = self.snapshots.setdefault((entry.log_position, entry.service_id), data)
                require(
                    data == known,
                    "I-6",
                    f"the snapshot of {member.name} at {entry.log_position} of service {entry.service_id} "
                    "differs from that of another member",
                )
                of_services.discard(entry.service_id)
        require(
            not of_services,
            "I-6",
            f"the snapshot of {member.name} at {position} lacks services {of_services}",
        )

        # It is the state that a replay comes to: the chain of all that was applied before.
        for service_id in range(len(self.chains)):
            chain = self._chain_at(service_id, position)
            require(
                chain is None or b"%d" % chain in self.snapshots[position, service_id],
                "I-6",
                f"the snapshot of {member.name} at {position} of service {service_id} is not of what was "
                "applied before",
            )

    def _on_commit(self, member: Member, watched: _Watched, commit_position: int) -> None:
        before = watched.commit_position
        require(
            commit_position > before,
            "I-2",
            f"the commit position of {member.name} falls from {before} to {commit_position}",
        )
        watched.commit_position = commit_position
        self.spoken[member.member_id] = max(commit_position, self.spoken.get(member.member_id, 0))
        recording = member.recording
        assert recording is not None
        require(
            commit_position <= recording.append_position,
            "I-10",
            f"{member.name} commits {commit_position}, its log ends at {recording.append_position}",
        )
        before = min(max(before, self._trusted_from(member)), commit_position)
        data = self._recorded_bytes(member, recording, before, commit_position)
        self.log.compare(before, data, member.name)
        if commit_position > self.log.end:
            begin = self.log.end
            self._require_majority(member, begin, data[begin - before :])
            self.log.extend(data[begin - before :])

    def _require_majority(self, member: Member, begin: int, data: bytes) -> None:
        """What nobody had committed before is on the disks of a majority that has recorded the term.

        The second half is what figure 8 of the Raft paper is about: bytes of older terms that a majority
        holds are not committed by that alone.
        """
        recording, election = member.recording, member.election
        assert recording is not None
        term_id = member.leadership_term_id if election is None else election.leadership_term_id
        holders = {
            member_id
            for member_id, disk in self._disks.items()
            if self.lost_to.get(member_id, 0) > begin  # it has told of it while it had it
            or (self._holds(disk, member_id, recording, begin, data) and self._has(disk, member_id, term_id))
        }
        require(
            len(holders) >= self._quorum,
            "I-3",
            f"{member.name} commits {begin + len(data)} in term {term_id}, which the disks of members "
            f"{sorted(holders)} alone hold, with the term",
        )

    def _holds(self, disk: FaultyDisk, member_id: int, like: Recording, begin: int, data: bytes) -> bool:
        """Whether a member's disk has these bytes of the log, or a snapshot that stands for them."""
        entries = recorded_entries(disk, member_id)
        if snapshot_position(entries) >= begin + len(data):
            return True
        recording_ids = {entry.recording_id for entry in entries if entry.entry_type is TERM}
        if len(recording_ids) != 1:
            return False
        directory, recording_id = f"/member-{member_id}/archive", recording_ids.pop()
        position, end = begin, begin + len(data)
        held = bytearray()
        while position < end:
            base, segment = find_segment(disk, directory, recording_id, like, position)
            last = min(end, base + like.segment_length)
            if segment is None:
                return False
            if self._sync_level > 0 and not segment.is_durable(position - base, last - base):
                return False
            held += segment.cache[position - base : last - base]
            position = last
        return self.frames.comparable(member_id, bytes(held)) == data

    def _has(self, disk: FaultyDisk, member_id: int, term_id: int) -> bool:
        if (member_id, term_id) not in self._recorded:
            inode = disk.inode(f"/member-{member_id}/cluster/recording.log")
            if inode is None or (self._sync_level > 0 and not inode.is_durable(0, len(inode.cache))):
                return False
            for entry in recorded_entries(disk, member_id):
                if entry.entry_type is TERM:
                    self._recorded.add((member_id, entry.leadership_term_id))
        return (member_id, term_id) in self._recorded

    def _on_leadership(self, member: Member, term_id: int) -> None:
        """Leader completeness (Raft §5.4.3)."""
        self._on_leader(member, term_id)
        end = self.log.end
        require(
            member.append_position >= end,
            "I-3",
            f"{member.name} leads term {term_id} with a log to {member.append_position}, {end} was committed",
        )
        self._compare_all(member, end)

    def _compare_all(self, member: Member, end: int) -> None:
        """All that a member has recorded up to ``end`` is the log."""
        assert member.recording is not None
        begin = min(self._trusted_from(member), end)
        data = self._recorded_bytes(member, member.recording, begin, end)
        self.log.compare(begin, data, member.name)

    def _recorded_bytes(self, member: Member, recording: Recording, begin: int, end: int) -> bytes:
        """What a member has of a recording, as it is compared with that of others."""
        return self.frames.comparable(member.member_id, log_bytes(member.disk, recording, begin, end))

    def _trusted_from(self, member: Member) -> int:
        """Where a member's log begins, or what it needs of it if what is before may be rotten."""
        assert member.recording is not None
        begin = member.start_position
        if member.member_id in self.ever_damaged and (snapshot := member.recording_log.latest_snapshot()):
            begin = max(begin, snapshot.log_position)
        return max(begin, self.log.first_frame_from(self._rotten_to(member)))

    def _rotten_to(self, member: Member) -> int:
        """Up to where the bytes on a member's disk may be others than those it has written."""
        return self.lost_to[member.member_id] if member.member_id in self.damaged else 0

    def on_applied(self, member: Member, service_id: int, position: int, chain: int) -> None:
        known = self.chains[service_id].setdefault(position, chain)
        require(
            known == chain,
            "I-5",
            f"service {service_id} of {member.name} has another state at {position} than others had",
        )
        require(
            position <= member.commit_position,
            "I-10",
            f"service {service_id} of {member.name} is given {position}, committed is "
            f"{member.commit_position}",
        )

    def _chain_at(self, service_id: int, position: int) -> int | None:
        """The state of a service that has applied all up to ``position``; None if that is nothing."""
        chains = self.chains[service_id]
        applied = [end for end in chains if end <= position]
        return chains[max(applied)] if applied else None

    def has_applied_all(self, member: Member) -> bool:
        """Whether each service of a member has the state that belongs to all that is committed."""
        return bool(member.services) and all(
            service.chain == self._chain_at(service_id, self.log.end)
            for service_id, service in enumerate(member.services)
        )

    # -- what clients are told --

    def on_acknowledged(self, client: Client, session_id: int, messages: int, position: int) -> None:
        session = self.log.sessions.get(session_id)
        require(
            session is not None and session.messages >= messages,
            "I-3",
            f"{messages} messages of session {session_id} are acknowledged, "
            f"{0 if session is None else session.messages} are committed",
        )
        assert session is not None
        require(
            session.ends[messages - 1] == position,
            "I-3",
            f"message {messages} of session {session_id} is acknowledged at {position}, "
            f"it ends at {session.ends[messages - 1]}",
        )
        self.acknowledged += 1

    def on_left(self, client: Client, session_id: int, leadership_term_id: int) -> None:
        """``leadership_term_id``: of the leader that is asked to close the session; -1 for none."""
        session = self.log.sessions.get(session_id)
        require(session is not None, "I-3", f"session {session_id} was told to be open, and is not committed")
        assert session is not None
        session.is_left = True
        if client.is_leaving:
            self.left[session_id] = leadership_term_id

    def on_egress(self, client: Client, session_id: int, payload: bytes) -> None:
        number = int(payload[: payload.index(b"|")].split(b".")[2])
        by_service = session_id, payload[:1]
        last = self.egress.get(by_service, 0)
        require(number > last, "I-7", f"session {session_id} is answered {number} after {last}: out of order")
        self.egress[by_service] = number
        if client.is_supervised:
            answered = self.answered.setdefault(by_service, 0)
            expected = client.asked[answered] if answered < len(client.asked) else None
            require(
                number == expected,
                "I-21",
                f"the supervised session {session_id} is answered {number}, expected {expected}",
            )
            self.answered[by_service] += 1

    def unanswered(self, client: Client) -> str:
        """What a client with a supervised session waits for, empty for nothing."""
        if client.client is None or not client.is_supervised:
            return ""
        session_id, asked = client.client.cluster_session_id, len(client.asked)
        answered = [
            self.answered.get((session_id, b"%d" % service_id), 0) for service_id in range(len(self.chains))
        ]
        if min(answered) == asked:
            return ""
        return f"supervised session {session_id}: {asked} messages asked for answers, {answered} came"

    def check_answered(self, clients: list[Client]) -> None:
        """All had time to hear everything."""
        for client in clients:
            told = self.unanswered(client)
            require(not told, "I-21", told)

    # -- what readers are given --

    def on_bound(self, reader: Reader) -> None:
        """A member that died within a turn may have stored a commit position that no turn has shown."""
        committed = self.log.end
        if reader.bound > committed:
            path = f"/member-{reader.member_id}/driver/{CNC_FILE_NAME}"
            committed = max(committed, stored_commit_position(self._disks[reader.member_id], path))
        require(
            reader.bound <= committed,
            "I-10",
            f"the reader of member {reader.member_id} may read to {reader.bound}, committed is {committed}",
        )

    def on_read(self, reader: Reader, position: int, data: bytes) -> None:
        end, whose = position + len(data), f"the reader of member {reader.member_id}"
        require(
            position == reader.position,
            "I-11",
            f"{whose} is given {position} to {end}, and has come to {reader.position}",
        )
        require(end <= reader.bound, "I-10", f"{whose} is given {end}, committed was {reader.bound}")
        data = self.frames.comparable(reader.member_id, data)
        self.log.compare(position, data, whose, "I-11")
        if end > self.log.end:
            self.read_ahead.append((whose, position, data))

    def on_read_error(self, reader: Reader, error: ClusterError) -> None:
        told = str(error)
        require(
            not isinstance(error, DataLoss) or str(reader.position) in told or "recording" in told,
            "I-11",
            f"the reader of member {reader.member_id} at {reader.position} is told: {told}",
        )

    # -- at the end --

    def check_converged(self, members: list[Member]) -> None:
        """All members are there, and had time to come to rest."""
        end = self.log.end
        for member in members:
            assert member.recording is not None
            require(
                member.commit_position == end,
                "I-14",
                f"{member.name} has committed {member.commit_position}, others {end}",
            )
            require(
                self.has_applied_all(member),
                "I-5",
                f"a service of {member.name} has another state than others at the end",
            )
            require(
                list(member.replica.sessions.lanes.records())
                == list(members[0].replica.sessions.lanes.records()),
                "I-22",
                f"{member.name} keeps other lanes than {members[0].name} at the end",
            )
            require(
                list(member.replica.sessions.consumers.records())
                == list(members[0].replica.sessions.consumers.records()),
                "I-25",
                f"{member.name} keeps other consumer groups than {members[0].name} at the end",
            )
            require(member.member_id not in self.damaged, "I-12", f"{member.name} was not repaired")
            self._compare_all(member, end)
        for whose, position, data in self.read_ahead:
            self.log.compare(position, data, whose, "I-11")
        for session_id, leadership_term_id in self.left.items():
            session = self.log.sessions[session_id]
            require(
                session.close_reason is not CloseReason.TIMEOUT
                or leadership_term_id != self.log.leadership_term_id,
                "I-7",
                f"session {session_id} was closed by its client, and came to an end by time-out",
            )
