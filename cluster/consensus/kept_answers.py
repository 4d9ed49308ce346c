"""Answers to supervised sessions, which every member keeps until their clients have them.

    service 0 of a session   taken | in flight ...... | waiting ......        each numbered from 1
                                   | sent, by a leader | not sent, or not to be sent from here

What a service answers follows from the log, so all members number alike, and whoever leads next goes on where
the client says that it is. What is taken is a hint: a member that has not heard of it keeps more than others.

A session that keeps ``bytes_max`` is full: its leader takes no more of its messages. Answers of what the log
has already still come; beyond ``LOST_FACTOR`` times as much the oldest are lost, and the leader closes the
session.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cluster.log.session_frames import FRAME_OVERHEAD
from cluster.protocol.link import split_answer_id
from cluster.protocol.snapshot import SnapshotAnswer, SnapshotAnswered

LOST_FACTOR = 16
PIECE_LENGTH = 4096  # bytes of an answer in one record of a snapshot, which fits the shortest log


class KeptAnswer(NamedTuple):
    """One message to a session; ``answered``: the number of the message that it answers, or 0."""

    answer_id: int
    timestamp: int
    payload: bytes
    answered: int = 0

    @property
    def number(self) -> int:
        return split_answer_id(self.answer_id)[1]

    @property
    def byte_count(self) -> int:
        return FRAME_OVERHEAD + len(self.payload)


class _Answers:
    """Of one service to one session."""

    __slots__ = ("came", "in_flight", "taken", "waiting")

    def __init__(self) -> None:
        self.came = 0  # number of the last that was given
        self.taken = 0  # of the last that the client has, as far as is known
        self.in_flight: deque[KeptAnswer] = deque()
        self.waiting: deque[KeptAnswer] = deque()

    @property
    def first(self) -> deque[KeptAnswer]:
        """Where the oldest is; empty when there is none."""
        return self.in_flight or self.waiting

    @property
    def has_gap(self) -> bool:
        """Whether an answer that the client lacks is there no more."""
        return bool(self.first) and self.first[0].number > self.taken + 1

    def __iter__(self) -> Iterator[KeptAnswer]:
        yield from self.in_flight
        yield from self.waiting


class _Session:
    """What is kept of one session, by service id."""

    __slots__ = ("byte_count", "in_flight_bytes", "services")

    def __init__(self) -> None:
        self.byte_count = 0
        self.in_flight_bytes = 0
        self.services: dict[int, _Answers] = {}

    def of(self, service_id: int) -> _Answers:
        return self.services.setdefault(service_id, _Answers())

    def drop_first(self, answers: _Answers) -> None:
        answer = answers.first[0]
        if answers.in_flight:
            self.in_flight_bytes -= answer.byte_count
        answers.first.popleft()
        self.byte_count -= answer.byte_count


class KeptAnswers:
    """By session. ``bytes_max``: of one session, with the headers of the answers."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._sessions: dict[int, _Session] = {}

    def keep(self, session_id: int, answer: KeptAnswer) -> None:
        """Take an answer of a service, unless it was given before, or the client has it."""
        session = self._sessions.setdefault(session_id, _Session())
        service_id, number = split_answer_id(answer.answer_id)
        answers = session.of(service_id)
        if number <= answers.came:
            return
        answers.came = number
        if number <= answers.taken:
            return
        answers.waiting.append(answer)
        session.byte_count += answer.byte_count
        while session.byte_count > LOST_FACTOR * self.bytes_max and answers.first[0] is not answer:
            session.drop_first(answers)

    def take(self, session_id: int, service_id: int, number: int) -> bool:
        """The client has the answers of the service up to ``number``; True when that is news."""
        session = self._sessions.setdefault(session_id, _Session())
        answers = session.of(service_id)
        if number <= answers.taken:
            return False
        answers.taken = number
        while answers.first and answers.first[0].number <= number:
            session.drop_first(answers)
        return True

    def taken(self) -> Iterator[tuple[int, int, int]]:
        """All that is known to be taken: session, service, number."""
        for session_id, session in self._sessions.items():
            for service_id, answers in session.services.items():
                if answers.taken:
                    yield session_id, service_id, answers.taken

    # -- for a leader --

    def restart(self, session_id: int) -> None:
        """The client has another connection, or another leader: what was in flight is to be sent again."""
        session = self._sessions.setdefault(session_id, _Session())
        session.in_flight_bytes = 0
        for answers in session.services.values():
            answers.waiting.extendleft(reversed(answers.in_flight))
            answers.in_flight.clear()

    def due(self, session_id: int) -> Iterator[KeptAnswer]:
        """What may be sent now, in the order of each service: no more than ``bytes_max`` are in flight."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        for answers in session.services.values():
            while answers.waiting and session.in_flight_bytes < self.bytes_max:
                answer = answers.waiting.popleft()
                answers.in_flight.append(answer)
                session.in_flight_bytes += answer.byte_count
                yield answer

    def byte_count(self, session_id: int) -> int:
        """How much of the session is kept."""
        session = self._sessions.get(session_id)
        return 0 if session is None else session.byte_count

    def has_lost(self, session_id: int) -> bool:
        """Whether its client, which has said what it has, lacks an answer that is kept no more."""
        session = self._sessions.get(session_id)
        return session is not None and any(answers.has_gap for answers in session.services.values())

    # -- with the sessions --

    def prune(self, is_known: Callable[[int], bool]) -> None:
        """Forget the sessions that have come to their end."""
        for session_id in [known for known in self._sessions if not is_known(known)]:
            del self._sessions[session_id]

    def records(self) -> Iterator[bytes]:
        """What a snapshot has of all that is kept now, in pieces that are encoded as they are asked for."""
        kept = [
            (session_id, answer)
            for session_id, session in sorted(self._sessions.items())
            for _, answers in sorted(session.services.items())
            for answer in answers
        ]
        return (piece for session_id, answer in kept for piece in _pieces(session_id, answer))

    def load(self, records: list[SnapshotAnswer | SnapshotAnswered]) -> None:
        """Begin from the records of a snapshot."""
        payloads: dict[tuple[int, int, int], list[bytes]] = {}
        answered: dict[tuple[int, int], int] = {}
        for record in records:
            if isinstance(record, SnapshotAnswered):
                answered[record.cluster_session_id, record.answer_id] = record.number
            else:
                session_id, answer_id, timestamp, piece = record
                payloads.setdefault((session_id, answer_id, timestamp), []).append(piece)
        for (session_id, answer_id, timestamp), parts in payloads.items():
            number = answered.get((session_id, answer_id), 0)
            self.keep(session_id, KeptAnswer(answer_id, timestamp, b"".join(parts), number))


def _pieces(session_id: int, answer: KeptAnswer) -> Iterator[bytes]:
    if answer.answered:
        yield SnapshotAnswered(session_id, answer.answer_id, answer.answered).encode()
    for begin in range(0, max(len(answer.payload), 1), PIECE_LENGTH):
        piece = answer.payload[begin : begin + PIECE_LENGTH]
        yield SnapshotAnswer(session_id, answer.answer_id, answer.timestamp, piece).encode()
