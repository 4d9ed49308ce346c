"""A member's state lent to the compiled turn, and taken back when that has found something rare.

    parts of the member ──lend──▶ tables ── busy_turns ──▶ tables ──take back──▶ parts of the member

In between nothing else reads or writes it. It is lent only while nothing rare is under way and Python's next
turn would have nothing to do before a socket or time-out gives it work: then a turn is what ``turn.py`` says.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from cluster.archive.recording import Recording
from cluster.archive.recording_words import RecordingTables
from cluster.consensus.context import NULL_POSITION
from cluster.counters import CountersFile
from cluster.log.calls import Calls
from cluster.log.connection_table import (
    IS_CUT,
    IS_QUEUED,
    KIND,
    LINK_OUT,
    OWNER,
    SERVICE_LINK,
    ConnectionTable,
)
from cluster.log.deliver import DeliveredMessages
from cluster.member.agent import ConsensusModuleAgent
from cluster.member.busy import words as at
from cluster.member.busy.services import SERVICE_ROWS, LentServices
from cluster.member.busy.turn import busy_turns
from cluster.member.frames import consensus_frame
from cluster.member.log.log_in_memory import LogInMemory
from cluster.member.phases.following import Following
from cluster.member.phases.leading import Leading
from cluster.member.services.service_table import ServiceTable
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.enums import AppendPositionFlags
from cluster.protocol.service_link import LogLimit
from cluster.transport.message_frames import link_frame

RECEIVE_BYTES = 1024 * 1024
FOLLOWER_LOG_BYTES = 32 * 1024 * 1024
FLUSH_BYTES = 4 * 1024 * 1024  # beyond what may be uncommitted
NO_WORDS = np.zeros(0, np.int64)
# After so many runs in a row that found only what is not served here (a client's challenge, say), runs pause.
VAIN_MAX = 4
REST_NS = 50_000_000


class ServedSockets(Protocol):
    """The sockets of the process (``cluster.transport.poller.Poller``)."""

    @property
    def table(self) -> ConnectionTable: ...

    def fileno(self) -> int: ...

    def target(self, fd: int) -> Any: ...


class BusyTurns:
    """``run`` turns the member in compiled code, as long as nothing is rare."""

    def __init__(
        self,
        agent: ConsensusModuleAgent,
        services: Sequence[object],
        service_table: ServiceTable,
        counters: CountersFile,
        poller: ServedSockets,
        calls: Calls,
        *,
        spin_ns: int,
        passes_max: int,
    ) -> None:
        """``services`` are the agents of the member's services, the table has a row for each."""
        self._calls = calls
        self._vain = 0  # runs without work, one after the other
        self._rests_until_ns = 0
        self._agent = agent
        self._poller = poller
        self._table_words = np.zeros(at.WORDS, np.int64)
        words = self._words = self._table_words.data  # the same memory, in half of the time
        self._services = LentServices(services, words, agent.replica.answers)
        words[at.PASSES_MAX], words[at.SPIN_NS] = passes_max, spin_ns
        words[at.EPOLL] = poller.fileno()
        context = agent.context
        words[at.TIME_DIVISOR] = context.time_unit.nanoseconds
        words[at.TICK_NS] = context.slow_tick_interval_ns
        words[at.UNCOMMITTED_MAX] = context.uncommitted_bytes_max
        words[at.SERVICE_ROWS] = SERVICE_ROWS
        words[at.CONTROL_TOGGLE] = agent.counters.control_toggle.index
        words[at.NODE_TOGGLE] = agent.counters.node_control_toggle.index
        words[at.COMMIT_COUNTER] = agent.counters.commit_position.index
        words[at.SYNC_TIME] = agent.counters.sync_time.index
        words[at.COMMIT_TIME] = agent.counters.commit_time.index
        sessions = agent.replica.sessions.table
        self._messages = DeliveredMessages(SERVICE_ROWS)
        self._follower_end = LogInMemory(0, FOLLOWER_LOG_BYTES)
        self._follower_end_of: Following | None = None
        self._scratch = np.zeros(at.SCRATCH, np.uint8)
        limit = np.frombuffer(link_frame(LogLimit(0)), np.uint8)
        self._scratch[at.LIMIT_AT : at.LIMIT_AT + at.LIMIT_LENGTH] = limit
        self._commit_frame = _frame(CommitPosition(0, 0, context.member_id))
        self._append_frame = _frame(AppendPosition(0, 0, context.member_id, AppendPositionFlags.NONE))
        poller.table.keep_parts()
        nothing = np.zeros(0, np.uint8)
        # Buffers are not zeroed: pages that no turn uses take no memory.
        self._tables = at.Tables(
            words=self._table_words,
            calls=calls.table,
            connections=poller.table.words,
            by_connection=poller.table.index,
            members=agent.parts.members.words,
            replica=agent.replica.words,
            member_log=agent.log.words,
            log_end=NO_WORDS,
            recording=RecordingTables(NO_WORDS, NO_WORDS, calls.table, nothing),
            cursor=NO_WORDS,
            service_cursor=NO_WORDS,
            time=NO_WORDS,
            leadership=NO_WORDS,
            follower=NO_WORDS,
            followers=agent.parts.log_sender.streams.words,
            sessions=sessions.words,
            ranges=sessions.ranges,
            params=NO_WORDS,
            counters=counters.words,
            columns=self._messages.words,
            service_call=NO_WORDS,
            answers=NO_WORDS,
            numbers=NO_WORDS,
            answer_ids=NO_WORDS,
            kept=agent.replica.answers.words,
            services=service_table.words,
            ready=np.zeros(at.READY_MAX, np.int64),
            received=np.empty(RECEIVE_BYTES, np.uint8),
            parts=poller.table.parts,
            keepers=poller.table.keepers,
            log=nothing,
            side=self._messages.side,
            answer_bytes=nothing,
            egress=agent.parts.egress.buffer,
            # All that a turn may send to members, and as much for clients; who would need more is closed.
            unsent=np.empty(
                (len(agent.parts.members) + 1) * (context.uncommitted_bytes_max + FLUSH_BYTES), np.uint8
            ),
            sealed=np.empty(at.SEALED_BYTES, np.uint8),
            scratch=self._scratch,
        )

    @property
    def work_turns(self) -> int:
        """Turns in compiled code that had something to do."""
        return self._words[at.WORK_TURNS]

    def let_go(self) -> None:
        """Refer to the counters no more, which are about to be unmapped; there are no runs after it."""
        self._use(counters=NO_WORDS)

    # ---- whether

    def run(self) -> int | None:
        """Turn until something is rare; returns why (bits of ``words``), None when Python has to turn.

        To be called where the agent ``may_be_lent``. Raises StorageError when the disk fails.
        """
        phase, recording = self._agent.phase, self._agent.parts.log.recording
        if (
            self._agent.turn.now_ns < self._rests_until_ns
            or recording is None
            or not self._may_run(recording)
        ):
            return None
        if isinstance(phase, Leading) and self._lend_leading(phase, recording):
            return self._turn(recording, partial(self._take_back_leading, phase))
        if isinstance(phase, Following) and self._lend_following(phase, recording):
            return self._turn(recording, self._take_back_following)
        return None

    def _may_run(self, recording: Recording) -> bool:
        parts = self._agent.parts
        return recording.may_be_lent and parts.termination.position == NULL_POSITION

    # ---- a leader

    def _lend_leading(self, phase: Leading, recording: Recording) -> bool:
        parts, words = self._agent.parts, self._words
        publication, streams, leader = parts.log.publication, parts.log_sender.streams, phase.leader
        if (
            publication is None
            or streams.has_suspended
            or publication.position != publication.flushed_position
            or publication.is_full
            or any(map(parts.links.is_full, parts.peers.ids))
            or not self._lend_log(publication, recording)
        ):
            return False
        self._use(params=publication.params.words, leadership=leader.leadership.words)
        streams.serve(self._serve_links())
        words[at.ROLE] = at.LEADER_ROLE
        words[at.INPUT_LIMIT] = min(publication.input_limit, parts.room.input_limit)
        self._scratch[at.FRAME_AT : at.FRAME_AT + len(self._commit_frame)] = self._commit_frame
        return True

    def _take_back_leading(self, phase: Leading, commit_position: int) -> None:
        words, streams = self._words, self._agent.parts.log_sender.streams
        streams.has_laggards |= bool(words[at.REASON] & at.LAGGARD)
        phase.take_back(commit_position, words[at.LAST_NS])

    # ---- a follower

    def _lend_following(self, phase: Following, recording: Recording) -> bool:
        parts, words = self._agent.parts, self._words
        subscription, follower, end = parts.log.subscription, phase.follower, self._follower_end
        if self._follower_end_of is not phase or end.position != recording.append_position:
            end.base = end.position = recording.append_position
        self._follower_end_of = phase
        if (
            subscription is None
            or not (subscription.has_image and subscription.is_live)
            or subscription.leader_member_id != follower.leader_member_id
            or not self._lend_log(end, recording)
        ):
            return False
        outgoing = self._serve_links()
        if follower.leader_member_id not in outgoing:
            return False
        words[at.ROLE] = at.FOLLOWER_ROLE
        words[at.LEADER_OUT] = outgoing[follower.leader_member_id]
        self._scratch[at.FRAME_AT : at.FRAME_AT + len(self._append_frame)] = self._append_frame
        self._use(params=subscription.params.words, follower=follower.words)
        return True

    def _take_back_following(self, commit_position: int) -> None:
        if self._agent.log.commit_position > commit_position:
            self._agent.replica.drop_logged_service_messages()

    # ---- what both lend

    def _lend_log(self, end: LogInMemory, recording: Recording) -> bool:
        """Have what is recorded and not processed in memory; False where it is too much."""
        cursor, time = self._agent.parts.processing.adapter.cursor, self._agent.parts.clocks.time
        if not end.reach_back(recording, self._services.needed_position(cursor.read_position)):
            return False
        self._services.lend()
        arrays = self._services.arrays()
        self._use(log=end.buffer, log_end=end.words, cursor=cursor.words, time=time.words, **arrays)
        return True

    def _use(self, **arrays: Any) -> None:
        """Have compiled turns work on these."""
        tables = self._tables
        if any(getattr(tables, name) is not array for name, array in arrays.items()):
            self._tables = tables._replace(**arrays)

    def _serve_links(self) -> dict[int, int]:
        """Descriptors that send to each member that is up, and counts."""
        links, unrelated, outgoing = self._agent.parts.links, self._agent.parts.unrelated, {}
        for member_id in self._agent.parts.peers.ids:
            if member_id in unrelated:
                links.withhold(member_id)  # it may have been served before
            elif (descriptor := links.serve(member_id)) is not None:
                outgoing[member_id] = descriptor
        return outgoing

    def _turn(self, recording: Recording, take_back: Callable[[int], None]) -> int:
        """Whatever is raised: what was lent is taken back, by the commit position before."""
        words, agent, table = self._words, self._agent, self._poller.table
        commit_position = agent.log.commit_position
        words[at.SLOW_TICK_NS], words[at.QUIET_UNTIL_NS] = agent.turn.slow_tick_ns, agent.quiet_until_ns
        words[at.DUE_NS] = min(agent.parts.links.next_dial_ns, agent.phase.next_due_ns)
        if words[at.ROLE] != at.LEADER_ROLE or words[at.MEASURED_POSITION] <= commit_position:
            words[at.MEASURED_POSITION] = 0  # it was committed by a turn of Python's
        words[at.LAST_NS], words[at.NOW_NS] = agent.last_turn_ns, agent.turn.now_ns
        words[at.PREPARE_AT] = recording.prepares_at
        words[at.POSITION_COUNTER] = recording.position_counter.index  # type: ignore[union-attr]
        self._use(connections=table.words, recording=recording.tables, kept=agent.replica.answers.words)
        try:
            busy_turns(self._tables)
            self._calls.raise_failure()
        finally:
            agent.on_busy_turns(
                words[at.NOW_NS], words[at.SLOW_TICK_NS], words[at.LAST_NS], words[at.LONGEST_GAP_NS]
            )
            self._services.take_back()
            take_back(commit_position)
        return self._end(recording)

    # ---- what both leave

    def _end(self, recording: Recording) -> int:
        """What was left to Python at the end of the turns. Raises StorageError."""
        words = self._words
        reason = words[at.REASON]
        if reason != at.EVENT or words[at.RUN_TURNS]:
            self._vain = 0
        else:
            self._vain += 1
            if self._vain == VAIN_MAX:
                self._vain = 0
                self._rests_until_ns = words[at.NOW_NS] + REST_NS
        if reason & at.FAILED:
            raise recording.fail_by(words[at.ERROR])
        if reason & at.FRAMES:
            begin, end = words[at.GIVEN_BEGIN], words[at.GIVEN_END]
            self._poller.target(words[at.GIVEN]).adopt(self._tables.received[begin:end])
        if reason & at.UNSENT:
            self._offer_unsent()
        if reason & at.PREPARE:
            recording.prepare()
        return reason

    def _offer_unsent(self) -> None:
        """Send, or queue, what sockets did not take. Who cannot be given all of it is closed."""
        unsent, end = self._tables.unsent, self._words[at.UNSENT_END]
        table, offset = self._poller.table, 0
        records = unsent[:end].view(np.int64)
        queued: dict[int, list[np.ndarray]] = {}
        to_close: set[int] = set()
        while offset < end:
            descriptor, length = records[offset // 8 : offset // 8 + 2].tolist()
            pieces = queued.setdefault(descriptor, [])
            if length == at.IS_TO_CLOSE:
                to_close.add(descriptor)
                length = 0
            else:
                pieces.append(unsent[offset + 16 : offset + 16 + length])
            offset += 16 + (length + 7 & ~7)
        for descriptor, pieces in queued.items():
            table.mark(descriptor, IS_QUEUED | IS_CUT, False)
            if table.get(descriptor, KIND) in (LINK_OUT, SERVICE_LINK):
                link = self._poller.target(descriptor)
                if not all(link.offer(piece) > 0 for piece in pieces) or descriptor in to_close:
                    link.close("it takes nothing more")  # what follows would not join on
                continue
            clients, connection_id = self._agent.parts.clients, table.get(descriptor, OWNER)
            for piece in pieces:  # one of them may end the connection of another client
                clients.send(connection_id, piece)
            if descriptor in to_close:
                clients.close(connection_id, "more egress waits than a turn has room for")


def _frame(message: AppendPosition | CommitPosition) -> np.ndarray:
    return np.frombuffer(consensus_frame(message), np.uint8)
