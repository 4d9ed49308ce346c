"""Reads the committed log of a running Aeron Cluster over its own medium, by the client of a media driver.

    consensus endpoints ── who is there, who leads, which counter says what is committed (``aeron_member.py``)
    one replay that does not end ── follows the commit position: how far the log goes now
    a replay for each range ── its frames

Followers are asked first unless another preference is given. Every member has the same committed log, so what
breaks off at one goes on at the next. A client that its driver has lost is opened again.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from operator import methodcaller
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from cluster.aeron.aeron_member import AeronMember, ArchiveAccess, RecordingSource, answered_members
from cluster.aeron.consensus_endpoints import parse_consensus_endpoints
from cluster.aeron.pace import Pace
from cluster.aeron.silence import Silence
from cluster.errors import (
    AuthenticationRejected,
    ClusterError,
    ConfigurationError,
    LogPurged,
    MediaDriverError,
    RemoteProtocolError,
    TimedOut,
)
from cluster.log.scan import frame_starts, last_message_end, split
from cluster.log.term_event import term_event_in, time_unit_by
from cluster.media.aeron import Aeron
from cluster.media.aeron_archive import ArchiveRefusal, BoundedReplay
from cluster.media.client_conductor import IDLE_S, ChannelRefused
from cluster.protocol.backup import BackupResponse
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.frame import FRAME_ALIGNMENT, MTU_MAX
from cluster.protocol.token import LogIdentity
from cluster.transport.clock import monotonic_ns, pause
from cluster.transport.committed_log import AS_COMMITTED, AS_READ, BLOCK_LENGTH, BlockOptions, LogOfOthers
from cluster.transport.credentials import CredentialsSupplier, supplier_of
from cluster.transport.preference import FOLLOWER, ReadPreference, in_order

TIMEOUT_S = 5.0  # of one request to one member, and of a replay that sends nothing
GIVE_UP_S = 60.0  # without any member that goes on: a real cluster takes some ten seconds to elect a leader
RETRY_INTERVAL_S = 0.1
LEVEL_S = 0.3  # a replay that sends nothing for so long is level with what is committed
QUIET_S = 10.0  # a commit position that stands still for so long: its member is asked
WITHOUT_END = 2**63 - 1
DRIVER = "the media driver"  # among those that fail
SAY_AFTER_NS = 1_000_000_000  # that none goes on, once
T = TypeVar("T")
logger = logging.getLogger(__name__)


class AeronLog(LogOfOthers):
    """The log of the cluster whose members have ``consensus_endpoints``, a comma list; one is enough."""

    EXPECTED: ClassVar[str] = "; expected consensus endpoints, the second of each in clusterMembers"

    def __init__(
        self,
        consensus_endpoints: str,
        *,
        aeron_dir: str | None = None,
        cluster_id: int = 0,
        read_preference: ReadPreference = FOLLOWER,
        file_io_max_length: int | None = None,
        rate_max: int | None = None,
        credentials: bytes | CredentialsSupplier | None = None,
        timeout_s: float = TIMEOUT_S,
        give_up_s: float = GIVE_UP_S,
        spread: int | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
        wait: Callable[[float], object] = pause,
    ) -> None:
        """``aeron_dir`` is that of a media driver on this host, by default the user's.

        ``cluster_id`` is the cluster's, which its members tell nobody: it is part of the log's identity.
        ``file_io_max_length`` is how many bytes a member's archive reads at once for us, ``rate_max`` how
        many of a range we read a second. ``credentials`` are for archives that ask for them, by default those
        of the environment.
        Raises MediaDriverError, TimedOut when no member answers, AuthenticationRejected, ConfigurationError.
        """
        self.warnings: list[str] = []
        self._known = parse_consensus_endpoints(consensus_endpoints)
        self._aeron_dir = aeron_dir
        self._cluster_id = cluster_id
        self._preference = read_preference
        self._access = ArchiveAccess(supplier_of(credentials), timeout_s, file_io_max_length)
        self._give_up_ns = int(give_up_s * 1e9)
        self._spread = os.getpid() if spread is None else spread
        self._now_ns = now_ns
        self._pace = Pace(rate_max, now_ns)
        self._wait = wait
        self._aeron: Aeron | None = None
        self._members: dict[str, RecordingSource] = {}  # that have answered, by endpoint, preferred first
        self._expected = self.EXPECTED  # said until a member has answered
        self._tip: _Tip | None = None
        self._followed: BoundedReplay | None = None
        self._tip_received = _Received(0, 0, True)
        self._commit_position = 0
        self._identity: LogIdentity | None = None
        try:
            # What the archive of the member that was asked last says of the log's recording.
            self.recording: RecordingDescriptor = self._with_a_source(methodcaller("recording"))
            least, given = self.recording.mtu_length, file_io_max_length
            if given is not None and not least <= given < 2**31:
                raise ConfigurationError(
                    f"aeronFileIoMax is {given}; expected from {least}, the MTU of the log, to {2**31 - 1}"
                )
        except BaseException:
            self.close()
            raise

    # ---- members

    def _with_a_source(self, act: Callable[[RecordingSource], T]) -> T:
        """What the first member gives, in the order of preference, that can.

        Raises LogPurged when none has the position any more, TimedOut, with each reason, when none can for
        long, and MediaDriverError when the driver does not come back.
        """
        begin_ns, is_said = self._now_ns(), False
        deadline_ns = begin_ns + self._give_up_ns
        while True:
            failures: dict[str, ClusterError] = {}
            try:
                self._find_members(failures)
                for endpoint, member in list(self._members.items()):
                    try:
                        return act(member)
                    except (ConfigurationError, AuthenticationRejected):
                        raise
                    except ClusterError as error:
                        if _is_of_driver(error):
                            raise
                        failures[endpoint] = error
                    self._let_go(endpoint)
            except MediaDriverError as error:
                self._close_client()
                failures[DRIVER] = error
            purged = [error for error in failures.values() if isinstance(error, LogPurged)]
            now_ns = self._now_ns()
            is_over = now_ns > deadline_ns
            if purged and (is_over or len(purged) == len(failures)):
                start = min(error.start_position for error in purged)
                self.recording = self.recording.replace(start_position=start)
                raise LogPurged(_describe(failures), start)
            if is_over:
                raise failures.get(DRIVER) or TimedOut(
                    f"no member goes on: {_describe(failures)}{self._expected}"
                )
            if not is_said and now_ns > begin_ns + SAY_AFTER_NS:
                is_said, left_s = True, (deadline_ns - now_ns) / 1e9
                logger.warning(
                    "nothing can be read yet: %s; trying for another %.0f s", _describe(failures), left_s
                )
            self._wait(RETRY_INTERVAL_S)

    def _find_members(self, failures: dict[str, ClusterError]) -> None:
        """Ask endpoints without a known member, a second once somebody is there; others in ``failures``."""
        if self._members:
            return
        aeron = self._aeron = self._aeron or Aeron.connect(self._aeron_dir, self._access.timeout_s)
        asked: dict[str, RecordingSource] = {}
        self._begin_queries(aeron, self._known, asked, failures)
        deadline_ns = self._now_ns() + int(self._access.timeout_s * 1e9)
        answered: dict[str, RecordingSource] = {}
        while asked and self._now_ns() < deadline_ns:
            aeron.conductor.do_work()
            for endpoint, member in list(asked.items()):
                try:
                    is_answered = member.poll_response()
                except RemoteProtocolError as error:
                    failures[endpoint] = error
                    asked.pop(endpoint).close()
                    continue
                if is_answered:
                    self._expected = ""
                    answered[endpoint] = asked.pop(endpoint)
                    self._begin_queries(aeron, self._others(answered, asked), asked, failures)
                    deadline_ns = min(deadline_ns, self._now_ns() + 1_000_000_000)
            self._wait(IDLE_S)
        for endpoint, member in asked.items():
            failures[endpoint] = TimedOut(f"it does not answer within {self._access.timeout_s:g} s")
            member.close()
        self._members = self._in_order(answered)

    def _begin_queries(
        self,
        aeron: Aeron,
        endpoints: list[str],
        asked: dict[str, RecordingSource],
        failures: dict[str, ClusterError],
    ) -> None:
        for endpoint in endpoints:
            try:
                asked[endpoint] = self._source(aeron, endpoint)
                asked[endpoint].begin_query()
            except ChannelRefused as error:
                failures[endpoint] = error

    def _source(self, aeron: Aeron, endpoint: str) -> RecordingSource:
        return AeronMember(aeron, endpoint, self._access)

    def _others(self, answered: dict[str, RecordingSource], asked: dict[str, RecordingSource]) -> list[str]:
        """Consensus endpoints that a member has named first, of members that none was given of.

        They are asked again as those that were given, one of whose members may be the next to die.
        """
        if len(answered) > 1 or len(self._known) > 1:
            return []
        first = next(iter(answered.values()))
        assert isinstance(first, AeronMember) and first.response is not None
        members = answered_members(first.response)
        others = [each.consensus_endpoint for id_, each in members.items() if id_ != first.member_id]
        self._known = [*self._known, *others]
        return others

    def _in_order(self, answered: dict[str, RecordingSource]) -> dict[str, RecordingSource]:
        """Each member once, preferred first; ``spread`` chooses among equals."""
        by_id = {member.member_id: (endpoint, member) for endpoint, member in answered.items()}
        for member in answered.values():
            if by_id[member.member_id][1] is not member:
                member.close()  # of an old release: its leader has answered for it
        leads = {member_id: member.is_leader for member_id, (_, member) in by_id.items()}
        return dict(by_id[member_id] for member_id in in_order(leads, self._preference, self._spread))

    def _let_go(self, endpoint: str) -> None:
        """The member has failed; it is asked again when all others have."""
        self._tip = None
        self._members.pop(endpoint).close()

    def _close_client(self) -> None:
        self._tip = None
        for member in self._members.values():
            member.close()
        self._members = {}
        if self._aeron is not None:
            self._aeron.close()
            self._aeron = None

    def close(self) -> None:
        self._close_client()

    def backup_response(self) -> BackupResponse:
        """What the first member that can says of itself, its leader and all members."""
        return self._with_a_source(methodcaller("query"))

    def ingress_endpoints(self) -> dict[int, str]:
        """Where each member takes sessions, by its id, as the first that can says it."""
        members = answered_members(self.backup_response())
        return {member_id: member.ingress_endpoint for member_id, member in members.items()}

    # ---- what the log is

    @property
    def identity(self) -> LogIdentity | None:
        if self._identity is None:
            if self.start_position == 0:
                frame = self._frame_at(0)
                event = None if frame is None else term_event_in(frame)
                if event is not None:
                    self._identity = LogIdentity(self._cluster_id, event.timestamp, event.log_session_id)
            elif self.start_position >= self.term_length:
                return LogIdentity(self._cluster_id, None, None)
        return self._identity

    @property
    def has_messages(self) -> bool:
        """Whether what is read are whole messages, else frames."""
        return True

    @property
    def start_position(self) -> int:
        return self.recording.start_position

    def await_start(self) -> int:
        """Asks all members that answer: what one has purged another may still have."""
        recordings = [self._with_a_source(methodcaller("recording"))]
        if recordings[0].start_position > 0:
            for member in list(self._members.values())[1:]:
                with contextlib.suppress(ClusterError):
                    recordings.append(member.recording())
        self.recording = min(recordings, key=lambda recording: recording.start_position)
        return self.start_position

    def term_before(self, position: int) -> str | None:
        """None: an archive has no list of terms to ask for."""

    @property
    def term_length(self) -> int:
        return self.recording.term_buffer_length

    @cached_property
    def time_unit(self) -> ClusterTimeUnit:
        """From the event of the first or of the last term; or from how large timestamps are."""
        response = self.backup_response()
        for position in (0, response.last_term_base_log_position):
            frame = self._frame_at(position) if position >= self.start_position else None
            event = None if frame is None else term_event_in(frame)
            if event is not None:
                return event.time_unit or ClusterTimeUnit.MILLIS
        return time_unit_by(max((snapshot.timestamp for snapshot in response.snapshots), default=0))

    def _frame_at(self, position: int) -> bytes | None:
        """The first committed frames at ``position``; None while there are none."""
        if self.end_position() <= position:
            return None
        for _, block in self.blocks(position, position + 1, AS_COMMITTED):
            return block.tobytes()
        return None

    # ---- how far it goes

    def commit_position(self) -> int:
        """How far the replay is that follows the commit position; never less than before."""
        if self._tip is None:
            return self.end_position()
        for _ in self._tip_blocks():
            pass
        return self._commit_position

    def end_position(self) -> int:
        """All that a member has recorded now, as far as it is committed in a moment."""
        for _ in self.blocks_to_end():
            pass
        return self._commit_position

    def blocks_to_end(self) -> Iterator[tuple[int, np.ndarray]]:
        """Blocks of whole messages up to ``end_position``, which is known once all were taken.

        Of a log that was not followed before they begin where its last term does, or an earlier one.
        """
        recorded, began_ns = self._with_a_source(self._follow), self._now_ns()
        while (tip := self._tip) is not None and self._commit_position < recorded:
            yield from self._tip_blocks()
            if self._now_ns() - max(began_ns, tip.silence.since_ns) > LEVEL_S * 1e9:
                return
            self._wait(IDLE_S)

    def _follow(self, member: RecordingSource) -> int:
        """How far the member has recorded; its commit position is followed from now on."""
        recorded = member.recorded_end()
        if self._tip is None:
            self.recording = member.recording()
            self._tip = _Tip(self._open_tip(member, recorded), self._silence_of(member, QUIET_S))
        return recorded

    def _open_tip(self, member: RecordingSource, recorded: int) -> BoundedReplay:
        """A replay that does not end, from a place near the end on where a frame begins and all is committed.

        That is the start of the last term of the recording, or of an earlier one. What is beyond the commit
        position an archive refuses; only what it has sent, however, shows that its beginning is not.
        """
        least = self._commit_position = max(self.start_position, self._commit_position)
        last = max(recorded - FRAME_ALIGNMENT, 0)  # in the last frame
        begin, step = max(last - last % self.term_length, least), self.term_length
        while True:
            try:
                replay = member.replay(begin, WITHOUT_END)
                self._tip_received = _Received(begin, BLOCK_LENGTH, True)
                if begin == least or self._has_sent(replay):
                    return replay
                replay.stop()
            except ArchiveRefusal:
                if begin == least:
                    raise
            begin, step = max(begin - step, least), 2 * step

    def _has_sent(self, replay: BoundedReplay) -> bool:
        """Whether a frame arrives."""
        deadline_ns = self._now_ns() + int(LEVEL_S * 1e9)
        while not (self._tip_received.take(replay) or self._tip_received.is_full):
            if self._now_ns() > deadline_ns:
                return False
            self._wait(IDLE_S)
        return True

    def _tip_blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """What has arrived: the log is committed up to the end of a whole message.

        A replay that is over, or whose member is silent, is let go.
        """
        assert self._tip is not None
        (replay, silence), received, has_moved = self._tip, self._tip_received, False
        try:
            while True:
                length, is_full = received.take(replay), received.is_full
                for position, block in received.messages(WITHOUT_END):
                    self._commit_position = max(self._commit_position, position + block.size)
                    yield position, block
                    has_moved = True  # who took the block may have taken long
                if length == 0 and not is_full:
                    break
                has_moved = True
        except MediaDriverError:
            self._close_client()
            return
        if has_moved:
            silence.heard()
        elif replay.is_over or not self._is_level(silence):
            self._tip = None

    # ---- its frames

    def blocks(
        self, from_position: int | None = None, to_position: int | None = None, how: BlockOptions = AS_READ
    ) -> Iterator[tuple[int, np.ndarray]]:
        begin = self.start_position if from_position is None else from_position
        if to_position is None or not how.is_committed:
            end = self.end_position()
            to_position = end if to_position is None else min(to_position, end)
        received = _Received(begin, max(how.max_bytes, 2 * MTU_MAX), self.has_messages)
        until = to_position  # further than that, where the last message is not whole there
        while received.begin < to_position:
            for _ in self._receive(received, until):
                if received.is_full or until > to_position:
                    yield from received.messages(to_position)
                if received.begin >= to_position:
                    return
            yield from received.messages(to_position)
            if received.begin < to_position:  # no message crosses the end of a term
                until = received.begin - received.begin % self.term_length + self.term_length

    def _receive(self, received: _Received, until: int) -> Iterator[None]:
        """Take frames up to ``until``, from whichever member sends them; yields after each piece."""
        deadline_ns = self._now_ns() + self._give_up_ns
        while received.end < until:
            replay = self._with_a_source(methodcaller("replay", received.end, until - received.end))
            try:
                while received.end < until:
                    before = received.end
                    yield from self._poll(replay, received, until)
                    if received.end == before:
                        break  # it sends nothing more, though it should
                    deadline_ns = self._now_ns() + self._give_up_ns
            except MediaDriverError:
                self._close_client()
            finally:
                if received.end < until:  # else it has ended by itself
                    with contextlib.suppress(ClusterError):
                        replay.stop()
            if received.end < until:
                if self._now_ns() > deadline_ns:
                    raise TimedOut(
                        f"no member sends the log from position {received.end} on, asked for up to {until}"
                    )
                if self._members:
                    self._let_go(next(iter(self._members)))

    def follow(self, from_position: int) -> Iterator[tuple[int, np.ndarray] | None]:
        """Blocks of whole messages from ``from_position`` on, as they are committed; None when nothing came.

        Has no end. A member whose replay ends gives way to the next, and so does one that has been silent and
        has recorded more, or hears no more of its leader. Raises as ``blocks``.
        """
        received = _Received(from_position, BLOCK_LENGTH, self.has_messages)
        while True:
            replay = self._with_a_source(methodcaller("replay", received.end, WITHOUT_END - received.end))
            self._followed = replay
            silence = self._silence_of(next(iter(self._members.values())), self._access.timeout_s)
            try:
                while True:
                    if received.take(replay) or received.is_full:
                        silence.heard()
                        yield from received.messages(WITHOUT_END)
                    elif replay.is_over and not received.take(replay):
                        self._let_go(next(iter(self._members)))
                        break
                    elif self._is_level(silence, received.end):
                        yield None
                    else:
                        break
            except MediaDriverError:
                self._close_client()
            finally:
                with contextlib.suppress(ClusterError):
                    replay.stop()

    def await_more(self, timeout_s: float, *, is_due: bool) -> None:
        """Until there is more of what is followed, at most so long; other threads run meanwhile."""
        if self._followed is not None:
            self._followed.wait(timeout_s, is_due=is_due)

    def _silence_of(self, member: RecordingSource, patience_s: float) -> Silence:
        timeout_ns = int(self._access.timeout_s * 1e9)
        return Silence(member, int(patience_s * 1e9), timeout_ns, self._now_ns)

    def _is_level(self, silence: Silence, end: int | None = None) -> bool:
        """Whether to wait for what its member sends; it is let go when it does not answer."""
        try:
            return silence.is_level(end)
        except ClusterError as error:
            if _is_of_driver(error):
                raise
            for endpoint in [each for each, member in self._members.items() if member is silence.member]:
                self._let_go(endpoint)
            return False

    def _poll(self, replay: BoundedReplay, received: _Received, until: int) -> Iterator[None]:
        """Take what comes until nothing has for a while; yields after each piece."""
        deadline_ns = self._now_ns() + int(self._access.timeout_s * 1e9)
        while received.end < until and self._now_ns() < deadline_ns:
            room = self._pace.room()
            is_over = replay.is_over  # else what comes meanwhile could be missed
            length = received.take(replay, room)
            if length or (received.is_full and room != 0):
                self._pace.take(length)
                yield
            elif room != 0 and is_over:
                return
            else:
                self._wait(IDLE_S)
            if length or room == 0:
                deadline_ns = self._now_ns() + int(self._access.timeout_s * 1e9)


class _Tip(NamedTuple):
    """The replay that does not end, and whether its member still hears its leader."""

    replay: BoundedReplay
    silence: Silence


class _Received:
    """Frames that have arrived, from ``begin`` to ``end`` of the log."""

    def __init__(self, begin: int, length: int, has_messages: bool) -> None:
        self.begin = begin
        self._has_messages = has_messages
        self._bytes = np.empty(length, np.uint8)
        self._length = 0
        self._needed = 0  # room for the next frame, where there was less

    @property
    def end(self) -> int:
        return self.begin + self._length

    @property
    def is_full(self) -> bool:
        """Whether what it has is to be taken, or it is to grow, before it has room for the next frames."""
        return self._bytes.size - self._length < max(MTU_MAX + FRAME_ALIGNMENT, self._needed)

    def take(self, replay: BoundedReplay, length_max: int | None = None) -> int:
        """What the replay has, as far as there is room, and at most so much."""
        room = self._bytes if length_max is None else self._bytes[: self._length + length_max]
        length = replay.poll(room, self._length)
        if replay.needed and length_max != 0:  # padding may be longer than that
            length = replay.poll(self._bytes[: self._length + replay.needed], self._length)
        self._needed = replay.needed
        self._length += length
        return length

    def messages(self, to_position: int) -> Iterator[tuple[int, np.ndarray]]:
        """The whole messages, or frames, that begin before ``to_position``; where a longer one fills it, it
        grows.
        """
        limit = to_position - self.begin
        if not self._has_messages:
            starts = frame_starts(self._bytes[: self._length])
            cut = min([self._length, *starts[np.searchsorted(starts, limit) :][:1].tolist()])
        elif (cut := last_message_end(self._bytes, 0, self._length)) > limit:
            cut = int(split(self._bytes, 0, self._length, [limit])[0])
        if cut:
            block = self._bytes[:cut].copy()
            self._length -= cut
            self._bytes[: self._length] = self._bytes[cut : cut + self._length].copy()
            self.begin += cut
            yield self.begin - cut, block
        elif self.is_full:
            self._bytes = np.concatenate((self._bytes, np.empty(self._bytes.size, np.uint8)))


def _is_of_driver(error: ClusterError) -> bool:
    """Whether it ends the driver's client, and not one member's part alone."""
    return isinstance(error, MediaDriverError) and not isinstance(error, ChannelRefused)


def _describe(failures: dict[str, ClusterError]) -> str:
    return "; ".join(f"{endpoint}: {error}" for endpoint, error in failures.items())
