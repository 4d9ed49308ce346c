"""Several elections connected in memory: what an agent, disks and links would do for them, and nothing else.

A log is a list of texts, each ``ENTRY`` bytes long. What an action makes durable is on the member's ``Disk``
and survives ``kill``; links are queues of messages. Every step is checked: a term has one leader, a voter one
vote a term, what one member has processed no other member contradicts, and the disk holds what the election
believes that it holds.
"""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from cluster.consensus import actions
from cluster.consensus.cluster_member import LogEnd, MemberTable
from cluster.consensus.context import MS, NULL_VALUE, SECOND, ConsensusModuleContext
from cluster.consensus.election import LEADER_STATES, Election
from cluster.consensus.follower import Follower
from cluster.consensus.leader import Leader
from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from cluster.consensus.module import ModuleState
from cluster.consensus.promises import Promises, StoredPromises, recall
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    Vote,
)
from cluster.protocol.enums import AppendPositionFlags, ElectionState
from cluster.protocol.link import CatchupProgress, PromiseState, PromiseStatement
from cluster.protocol.sbe import Message

ENTRY = 32
STEP_NS = 20 * MS


class Disk:
    """What survives a crash."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.terms = LeadershipTerms()
        self.candidate_term_id = NULL_VALUE
        self.promises: StoredPromises | None = None
        self.acknowledged_end: LogEnd | None = None  # of a damaged log; noted until it is whole

    @classmethod
    def of(cls, *terms: tuple[int, list[str]], candidate_term: int | None = None) -> "Disk":
        """A log of (term, entries), each term beginning where the one before it ended."""
        disk = cls()
        recorded = []
        for term_id, entries in terms:
            base = disk.position
            disk.entries += entries
            recorded.append(LeadershipTerm(term_id, base, disk.position))
        disk.terms = LeadershipTerms(recorded)
        disk.candidate_term_id = disk.terms.last_term_id if candidate_term is None else candidate_term
        return disk

    @property
    def position(self) -> int:
        return ENTRY * len(self.entries)

    @property
    def end(self) -> LogEnd:
        return LogEnd(self.terms.last_term_id, self.position)

    def damage(self, index: int) -> None:
        """The entry rots, and the next start finds that: it is noted, and cut off with all behind it."""
        assert index < len(self.entries)
        self.acknowledged_end = max(self.end, self.acknowledged_end or self.end)
        self.terms.truncate(ENTRY * index, self.terms.last_term_id + 1)
        del self.entries[index:]


class Stream:
    """Bytes that a member takes from its leader: recorded ones up to ``stop``, or the live log."""

    def __init__(self, leader_id: int, term_id: int, stop: int | None, is_joined: bool) -> None:
        self.leader_id = leader_id
        self.term_id = term_id
        self.stop = stop
        self.is_joined = is_joined


class Member:
    """One process on its disk."""

    def __init__(self, cluster: "Cluster", member_id: int, disk: Disk) -> None:
        self.cluster = cluster
        self.id = member_id
        self.disk = disk
        self.context = ConsensusModuleContext(member_id=member_id, member_ids=cluster.ids, **cluster.changed)
        self.members = MemberTable(cluster.ids)
        self.gone: set[int] = set()
        self.processed = 0
        self.replay_stop: int | None = None
        self.stream: Stream | None = None
        self.is_slow = False  # takes no log bytes from its leader
        self.election: Election | None = None
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.story: list[str] = []
        disk.promises = recall(
            disk.promises,
            disk.candidate_term_id,
            is_lost=False,
            draw_id=lambda: cluster.random.getrandbits(62),
        )
        self.promises = Promises(member_id, cluster.ids, self.context.quorum_threshold, disk.promises)
        self._begin(is_startup=True)

    def _begin(self, *, is_startup: bool = False) -> None:
        heard_ns = self.cluster.now_ns
        if self.follower is not None:
            heard_ns = self.follower.time_of_last_leader_message_ns
        self.leader = self.follower = None
        self.election = Election(
            self.context,
            self.members,
            LeadershipTerms(self.disk.terms),
            self.promises,
            self.cluster.random,
            module=ModuleState(),
            candidate_term_id=self.disk.candidate_term_id,
            log_position=self.processed,
            append_position=self.disk.position,
            is_node_startup=is_startup,
            acknowledged_end=self.disk.acknowledged_end,
            time_of_last_leader_message_ns=heard_ns,
            gone_member_ids=self.gone,
        )

    def enter_election(self, reason: str) -> None:
        self.story.append(reason)
        self._begin()

    # ---- what it is

    @property
    def led_term(self) -> int | None:
        """The term that it leads, in an election or after it."""
        if self.leader is not None:
            return self.leader.leadership_term_id
        if self.election is not None and self.election.state in LEADER_STATES:
            return self.election.leadership_term_id
        return None

    def __repr__(self) -> str:
        state = "leads" if self.leader else "follows" if self.follower else self.election.state.name
        return f"member {self.id} {state}, {list(map(tuple, self.disk.terms))} {self.disk.entries}"

    # ---- a turn

    def turn(self) -> None:
        cluster = self.cluster
        for sender in cluster.ids:
            for message in cluster.take(sender, self.id):
                self._on_message(sender, message)
        self._take_stream()
        if self.election is not None:
            self._election_turn(self.election)
        elif self.leader is not None:
            self._leader_turn(self.leader)
        elif self.follower is not None:
            self._follower_turn(self.follower)

    def _election_turn(self, election: Election) -> None:
        now_ns = self.cluster.now_ns
        election.on_append_position(self.disk.position, now_ns)
        self.carry_out(election.do_work(now_ns, 0))
        if self.election is not election:
            return
        assert election.terms == self.disk.terms, f"{self!r}: {list(election.terms)}"
        if self.replay_stop is not None:
            self._process(self.replay_stop)
        elif election.state is ElectionState.FOLLOWER_CATCHUP:
            self._process(min(election.effective_commit_position, self.disk.position))

    def _leader_turn(self, leader: Leader) -> None:
        now_ns = self.cluster.now_ns
        if leader.update(self.disk.position, now_ns):
            message = leader.leadership.commit_position_message()
            for other in self.cluster.ids:
                self.cluster.post(self.id, other, message)
        self._process(leader.commit_position)
        if not leader.has_active_quorum(now_ns):
            self.enter_election("inactive follower quorum")

    def _follower_turn(self, follower: Follower) -> None:
        now_ns, position = self.cluster.now_ns, self.disk.position
        if follower.is_append_position_due(position, now_ns):
            message = AppendPosition(follower.leadership_term_id, position, self.id, AppendPositionFlags.NONE)
            if self.cluster.post(self.id, follower.leader_member_id, message):
                follower.on_append_position_sent(position, now_ns)
        self._process(min(follower.notified_commit_position, position))
        if follower.is_leader_silent(now_ns):
            self.enter_election("leader heartbeat timeout")

    def _process(self, limit: int) -> None:
        while self.processed < limit:
            self.cluster.on_processed(self, self.processed // ENTRY)
            self.processed += ENTRY
        if self.election is not None:
            self.election.on_log_position(self.processed, self.cluster.now_ns)

    def _take_stream(self) -> None:
        stream = self.stream
        if stream is None or self.is_slow or not self.cluster.is_linked(stream.leader_id, self.id):
            return
        leader = self.cluster.running[stream.leader_id]
        if leader.led_term != stream.term_id or leader.disk.position < self.disk.position:
            return
        if not stream.is_joined:
            assert self.election is not None
            self.carry_out(
                self.election.on_log_image(stream.term_id, self.disk.position, self.cluster.now_ns)
            )
            return
        begin = len(self.disk.entries)
        end = leader.disk.position if stream.stop is None else stream.stop
        self.disk.entries += leader.disk.entries[begin : min(begin + 2, end // ENTRY)]

    # ---- messages

    def tell_promises(self, member_id: int, *, asks: bool = True) -> None:
        candidate_term_id, led_term_id = self.disk.candidate_term_id, self.disk.terms.last_term_id
        if self.election is not None:
            candidate_term_id = self.election.candidate_term_id
        asks = asks and not self.promises.may_follow
        statement = self.promises.statement(candidate_term_id, led_term_id, asks=asks)
        self.cluster.post(self.id, member_id, statement)

    def _on_statement(self, sender: int, told: PromiseStatement) -> None:
        self.promises.on_statement(sender, told)
        self.disk.promises = self.promises.stored
        if told.asks:
            self.tell_promises(sender, asks=False)

    def _on_message(self, sender: int, message: Message) -> None:
        now_ns, cluster = self.cluster.now_ns, self.cluster
        if isinstance(message, PromiseStatement):
            self._on_statement(sender, message)
            return
        if isinstance(message, CatchupProgress):
            if self.led_term == message.leadership_term_id and message.log_position >= self.disk.position:
                cluster.post(self.id, sender, StopCatchup(message.leadership_term_id, sender))
            return
        leader, follower, election, reason = self.leader, self.follower, self.election, None
        if isinstance(message, AppendPosition):
            catches_up = message.flags == AppendPositionFlags.CATCHUP
            if (
                catches_up
                and message.leadership_term_id == self.led_term
                and message.log_position >= self.disk.position
            ):
                stop = StopCatchup(message.leadership_term_id, message.follower_member_id)
                cluster.post(self.id, message.follower_member_id, stop)
        if election is not None:
            match message:
                case CanvassPosition():
                    self.carry_out(election.on_canvass_position(message, now_ns))
                case RequestVote():
                    self.carry_out(election.on_request_vote(message, now_ns))
                case Vote():
                    self.carry_out(election.on_vote(message, now_ns))
                case NewLeadershipTerm():
                    self.carry_out(election.on_new_leadership_term(message, now_ns))
                case AppendPosition():
                    self.carry_out(election.on_append_position_of(message, now_ns))
                case CommitPosition():
                    self.carry_out(election.on_commit_position(message, now_ns))
                case StopCatchup():
                    self.carry_out(election.on_stop_catchup(message, now_ns))
        elif leader is not None:
            match message:
                case CanvassPosition():
                    answer = leader.on_canvass_position(message, self.disk.position, 0, now_ns)
                    if answer is not None:
                        cluster.post(self.id, message.follower_member_id, answer)
                case RequestVote():
                    reason = leader.on_request_vote(message, now_ns)
                case Vote():
                    reason = leader.on_vote(message)
                    if reason is not None:
                        self.disk.candidate_term_id = message.candidate_term_id
                case NewLeadershipTerm():
                    reason = leader.on_new_leadership_term(message)
                case CommitPosition():
                    reason = leader.on_commit_position(message)
                case AppendPosition(term, position, sender):
                    leader.on_append_position(sender, term, position, now_ns)
        elif follower is not None:
            match message:
                case RequestVote():
                    reason = follower.on_request_vote(message, now_ns)
                case NewLeadershipTerm():
                    reason = follower.on_new_leadership_term(message, now_ns)
                case CommitPosition(term, position, sender):
                    reason = follower.on_commit_position(term, position, sender, now_ns)
        if reason is not None:
            self.enter_election(reason)

    def on_link_up(self, member_id: int) -> None:
        self.gone.discard(member_id)
        self.tell_promises(member_id)
        if self.election is not None:
            self.carry_out(self.election.on_link_up(member_id, self.cluster.now_ns))

    def on_link_down(self, member_id: int) -> None:
        self.promises.on_link_down(member_id)
        self.members[member_id].clear_report()
        if self.election is not None:
            self.carry_out(self.election.on_link_down(member_id, self.cluster.now_ns))
        elif self.leader is not None:
            self.leader.on_link_down(member_id)
        elif self.follower is not None and self.follower.leader_member_id == member_id:
            self.enter_election("the log stream of the leader broke")

    def on_member_gone(self, member_id: int) -> None:
        self.gone.add(member_id)
        if self.election is not None:
            self.carry_out(self.election.on_member_gone(member_id, self.cluster.now_ns))

    # ---- actions

    def carry_out(self, wanted: Iterable[actions.Action]) -> None:
        for action in wanted:
            election, disk, now_ns = self.election, self.disk, self.cluster.now_ns
            match action:
                case actions.Send(member_id, message):
                    if isinstance(message, CanvassPosition | Vote):
                        self.tell_promises(member_id)
                    if self.cluster.post(self.id, member_id, message) and election is not None:
                        election.on_sent(member_id, message)
                case actions.ProposeTerm(term_id, _):
                    disk.candidate_term_id = max(disk.candidate_term_id, term_id)
                case actions.KeepPromises():
                    disk.promises = self.promises.stored
                case actions.RecordTerm(term_id, base, end):
                    disk.terms.record(term_id, base, end)
                case actions.TruncateLog(position, first_removed):
                    assert position >= self.processed, f"{self!r} is to lose what it has processed"
                    disk.terms.truncate(position, first_removed)
                    del disk.entries[position // ENTRY :]
                case actions.PrepareForNewLeadership(position):
                    assert position == self.processed
                    self.stream = self.replay_stop = None
                    self.carry_out(election.on_prepared(disk.position, now_ns))
                case actions.StartReplay(position, stop):
                    assert position == self.processed
                    self.replay_stop = stop
                case actions.StopReplay():
                    self.replay_stop = None
                case actions.StartReplication(leader_id, term_id, position, stop):
                    assert position == disk.position
                    self.stream = Stream(leader_id, term_id, stop, is_joined=True)
                case actions.StopReplication():
                    self.stream = None
                case actions.SubscribeToLog(leader_id, term_id, _, position):
                    assert position == disk.position
                    self.stream = Stream(leader_id, term_id, None, is_joined=False)
                case actions.JoinServicesToLog(_, position):
                    assert position == disk.position == self.processed
                    if self.stream is not None:
                        self.stream.is_joined = True
                    election.on_log_joined(now_ns)
                case actions.AppendNewLeadershipTermEvent(term_id, base):
                    assert base == disk.position
                    disk.entries.append(f"term {term_id}")
                    self.carry_out(election.on_term_event_appended(disk.position, now_ns))
                case actions.ChangeState(_, new, reason):
                    self.story.append(f"{new.name}: {reason}")
                    if new in LEADER_STATES:
                        self.cluster.on_leader(self, election.leadership_term_id)
                case actions.CompleteElection():
                    self._complete(action)

    def _complete(self, done: actions.CompleteElection) -> None:
        election, now_ns = self.election, self.cluster.now_ns
        self.election = None
        self.disk.acknowledged_end = None
        if self.disk.promises.state is PromiseState.EMPTY:
            self.promises.keep(self.disk.candidate_term_id)
            self.disk.promises = self.promises.stored
        if done.leader_member_id == self.id:
            self.leader = Leader(
                self.context,
                self.members,
                election.leadership,
                commit_position=done.log_position,
                candidate_term_id=election.candidate_term_id,
            )
        else:
            self.follower = Follower(
                self.context,
                leadership_term_id=done.leadership_term_id,
                leader_member_id=done.leader_member_id,
                notified_commit_position=done.notified_commit_position,
                candidate_term_id=self.disk.candidate_term_id,
                now_ns=now_ns,
            )


class Cluster:
    """All members, their links, and what must hold of them together."""

    def __init__(
        self, *disks: Disk, seed: int = 0, running: Iterable[int] | None = None, **changed: int
    ) -> None:
        """Members 0, 1, ... on their disks; those of ``running`` start, by default all."""
        self.ids = tuple(range(len(disks)))
        self.changed = changed
        self.random = Random(seed)
        self.now_ns = 1_000 * SECOND
        self.disks = list(disks)
        self.running: dict[int, Member] = {}
        self.paused: set[int] = set()
        self.processed: list[str] = []  # what any member has ever processed: acknowledged to clients
        self.leader_of_term: dict[int, int] = {}
        self.vote_of: dict[tuple[int, int], int] = {}
        self._queues: dict[tuple[int, int], deque[Message]] = {}
        self._cut: set[frozenset[int]] = set()
        self._dropping: set[tuple[int, int]] = set()
        for member_id in self.ids if running is None else running:
            self.start(member_id)

    # ---- processes and links

    def start(self, member_id: int) -> Member:
        assert member_id not in self.running
        member = self.running[member_id] = Member(self, member_id, self.disks[member_id])
        for other in [id_ for id_ in self.running if self.is_linked(id_, member_id)]:
            self._connect(other, member_id)
        return member

    def kill(self, member_id: int) -> None:
        linked = [id_ for id_ in self.running if self.is_linked(id_, member_id)]
        for other in linked:
            self._disconnect(other, member_id)
        del self.running[member_id]
        self.paused.discard(member_id)
        for other in linked:
            self.running[other].on_member_gone(member_id)

    def cut(self, one: int, other: int) -> None:
        if self.is_linked(one, other):
            self._disconnect(one, other)
        self._cut.add(frozenset((one, other)))

    def isolate(self, member_id: int) -> None:
        for other in self.ids:
            if other != member_id:
                self.cut(member_id, other)

    def heal(self) -> None:
        self._dropping.clear()
        cut, self._cut = self._cut, set()
        for pair in sorted(map(sorted, cut)):
            if self.is_linked(*pair):
                self._connect(*pair)

    def drop(self, sender: int, receiver: int) -> None:
        """From now on messages in this direction are lost, and nobody notices."""
        self._dropping.add((sender, receiver))

    def is_linked(self, one: int, other: int) -> bool:
        return (
            one != other
            and one in self.running
            and other in self.running
            and frozenset((one, other)) not in self._cut
        )

    def _connect(self, one: int, other: int) -> None:
        self._queues[one, other] = deque()
        self._queues[other, one] = deque()
        self.running[one].on_link_up(other)
        self.running[other].on_link_up(one)

    def _disconnect(self, one: int, other: int) -> None:
        self._queues.pop((one, other), None)
        self._queues.pop((other, one), None)
        self._cut.add(frozenset((one, other)))
        self.running[one].on_link_down(other)
        self.running[other].on_link_down(one)
        self._cut.discard(frozenset((one, other)))

    def post(self, sender: int, receiver: int, message: Message) -> bool:
        queue = self._queues.get((sender, receiver)) if self.is_linked(sender, receiver) else None
        if queue is None:
            return False
        if isinstance(message, Vote) and message.vote:
            self.on_vote(sender, message.candidate_term_id, receiver)
        if isinstance(message, RequestVote):
            self.on_vote(sender, message.candidate_term_id, sender)
        if (sender, receiver) not in self._dropping and not isinstance(message, CatchupPosition):
            queue.append(message)
        return True

    def take(self, sender: int, receiver: int) -> list[Message]:
        queue = self._queues.get((sender, receiver))
        if not queue:
            return []
        messages = list(queue)
        queue.clear()
        return messages

    # ---- time

    def step(self) -> None:
        self.now_ns += STEP_NS
        for member_id in sorted(self.running):
            if member_id not in self.paused:
                self.running[member_id].turn()

    def run(self, duration_ns: int) -> None:
        for _ in range(duration_ns // STEP_NS):
            self.step()

    def run_until(self, what: Callable[[], object], limit_ns: int = 200 * SECOND) -> None:
        for _ in range(limit_ns // STEP_NS):
            if what():
                return
            self.step()
        raise AssertionError(
            "it never came about:\n" + "\n".join(f"{m!r}\n    {m.story[-6:]}" for m in self.running.values())
        )

    # ---- what a test says and asks

    @property
    def leader(self) -> Member | None:
        """The established leader of the highest term."""
        leaders = [member for member in self.running.values() if member.leader is not None]
        return max(leaders, key=lambda member: member.led_term or 0, default=None)

    def await_leader(self, *besides: int) -> Member:
        """A leader, of ``besides`` none, that has processed its term's first entry."""

        def found() -> bool:
            leader = self.leader
            return (
                leader is not None
                and leader.id not in besides
                and leader.processed > leader.leader.leadership.term_base
            )

        self.run_until(found)
        assert self.leader is not None
        return self.leader

    def write(self, member: Member, *texts: str) -> None:
        """A client's messages reach the leader's log."""
        assert member.leader is not None
        member.disk.entries += texts

    def await_processed(self, text: str, *on: int) -> None:
        """Members, by default all that run, have processed the entry."""

        def done() -> bool:
            ids = on or tuple(self.running)
            return all(text in self.disks[id_].entries[: self.running[id_].processed // ENTRY] for id_ in ids)

        self.run_until(done)

    def has_processed(self, text: str) -> bool:
        return text in self.processed

    def forget_votes_of(self, member_id: int) -> None:
        """Its disk was wiped: nothing keeps it from voting again in a term, but that it must not vote."""
        self.vote_of = {key: value for key, value in self.vote_of.items() if key[0] != member_id}

    # ---- what must hold

    def on_processed(self, member: Member, index: int) -> None:
        entry = member.disk.entries[index]
        if index < len(self.processed):
            assert self.processed[index] == entry, (
                f"member {member.id} processes {entry!r} at {index}, "
                f"where {self.processed[index]!r} was processed before"
            )
        else:
            self.processed.append(entry)

    def on_leader(self, member: Member, term_id: int) -> None:
        before = self.leader_of_term.setdefault(term_id, member.id)
        assert before == member.id, f"members {before} and {member.id} lead term {term_id}"

    def on_vote(self, voter: int, term_id: int, candidate: int) -> None:
        before = self.vote_of.setdefault((voter, term_id), candidate)
        assert before == candidate, f"member {voter} votes for {before} and {candidate} in term {term_id}"
        assert self.disks[voter].candidate_term_id >= term_id, (
            f"a vote of {voter} is spoken before it is stored"
        )
