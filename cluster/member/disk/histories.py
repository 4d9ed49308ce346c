"""The terms' events in this member's log, sent to the others and compared with theirs (I-26).

What two lists say is in cluster/consensus/histories.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.consensus.histories import fault_of_events, history_difference, majority_elsewhere
from cluster.errors import RemoteProtocolError
from cluster.member.disk.member_files import MemberFiles
from cluster.member.disk.term_events import read_term_events
from cluster.member.log.member_log import MemberLog
from cluster.member.ports import Peers
from cluster.member.reporter import Reporter
from cluster.member.unrelated import Unrelated
from cluster.protocol.link_histories import TermEvents
from cluster.transport.message_frames import link_frame


@dataclass(eq=False)
class MemberHistories:
    """``do_work`` at the start, each slow tick, and whenever the log is cut."""

    _context: ConsensusModuleContext
    _files: MemberFiles
    _log: MemberLog
    _peers: Peers
    _unrelated: Unrelated
    _reporter: Reporter
    _find_election: Callable[[], Election | None]
    own: TermEvents = field(default_factory=lambda: TermEvents(0, 0))  # as it was sent last
    _settled_position: int = 0  # the last commit position of which ``committed_position`` is true
    _seen: tuple[object, ...] = ()
    _reported: dict[int, TermEvents] = field(default_factory=dict)  # by others, over their present links
    _untold: set[int] = field(default_factory=set)  # whose links did not take the last list
    _elsewhere: list[int] | None = None

    def do_work(self) -> None:
        """Report what is new in the log, note what is committed, compare histories. Raises StorageError."""
        self._settled_position = self.committed_position
        seen = self._state()
        if seen != self._seen:
            self._seen = seen
            self._files.life.commit(self.committed_position)
            own = read_term_events(
                self._files.archive, self._files.recording_log, self.committed_position, self.own.events
            )
            if own != self.own:
                self.own = own
                self._untold = {id_ for id_ in self._peers.ids if self._peers.links.is_up(id_)}
                for member_id in self._reported.keys() - set(self._unrelated):
                    self._compare(member_id)
                self._look_around()
        for member_id in sorted(self._untold):
            self._say(member_id)

    def on_link_up(self, member_id: int) -> None:
        """Send the events before anything else: the member judges later messages by them."""
        self.do_work()
        self._say(member_id)

    def on_link_down(self, member_id: int) -> None:
        self._reported.pop(member_id, None)
        self._untold.discard(member_id)

    def on_events(self, member_id: int, reported: TermEvents) -> None:
        """What another member has in its log."""
        if (fault := fault_of_events(reported)) is not None:
            self._reporter.error(RemoteProtocolError(f"member {member_id}: {fault}"))
            return
        self.do_work()  # what is committed is compared with events that are in the log by now
        self._reported[member_id] = reported
        self._compare(member_id)
        self._look_around()

    def _say(self, member_id: int) -> None:
        if self._peers.links.send(member_id, link_frame(self.own)) > 0:
            self._untold.discard(member_id)
        else:
            self._untold.add(member_id)

    def _compare(self, member_id: int) -> None:
        own = self.own.replace(committed_position=self.committed_position)
        found = history_difference(own, self._reported[member_id])
        if found is not None:
            self._unrelated.add(member_id, f"its log is of another history: {found}")
            self._files.life.commit(self.committed_position)  # the next life is to see it, too,
            self._seen = ()  # and so is the other

    def _look_around(self) -> None:
        elsewhere = majority_elsewhere(self.own, self._reported, self._context.quorum_threshold)
        if elsewhere is not None and elsewhere != self._elsewhere:
            names = ", ".join(map(str, elsewhere))
            self._reporter.event(
                f"members {names} are a majority of one history, and this log is of another: this member "
                "takes no part. Its directory stays as it is; once it is moved away, they fill a new one"
            )
        self._elsewhere = elsewhere

    # ---- the own log

    @property
    def _end(self) -> int:
        """Where what is safe of the log ends."""
        recording_id = self._files.recording_log.find_last_recording_id()
        if recording_id is None or not self._files.archive.has_recording(recording_id):
            return 0
        return self._files.archive.recording(recording_id).synced_position

    @property
    def committed_position(self) -> int:
        """What is known to be committed.

        No more than this log has: what was cut of it took events along that are before the rest.
        """
        known = max(self._settled_position, self._files.life.committed_position)
        if self._find_election() is None:
            known = max(self._log.commit_position, known)
        return min(known, self._end)

    def _state(self) -> tuple[object, ...]:
        """What changes when an event is new, gone, or committed."""
        last = self._files.recording_log.find_last_term()
        if last is None:
            return ()
        base = last.term_base_log_position
        return last.leadership_term_id, base, self._end > base, self.committed_position > base
