"""Mistakes that supervised sessions must not survive unseen: answers lost, or given twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cluster.client.answer_progress import AnswerProgress
from cluster.client.window import UnacknowledgedWindow
from cluster.consensus.kept_answers import KeptAnswers
from cluster.log.session_frames import FRAME_OVERHEAD, EgressMessages, parse_egress
from cluster.protocol.enums import Role
from cluster.protocol.session import split_answer_id
from cluster.service import open_sessions
from cluster.service.session_egress import MOCKED_OFFER, SessionEgress
from tests.simulation.mistakes import Patch, Sought


def answers_not_kept_on_followers(patch: Patch) -> None:
    """As those to other sessions: whoever leads next has none of them."""
    offer = SessionEgress.offer

    def acted(self: Any, payload: Any) -> int:
        if self._numbers is not None and self._state.role is not Role.LEADER:
            self._numbers.count_answers(self._session_id, self._numbers.answered_of(self._session_id) + 1)
            return MOCKED_OFFER
        return offer(self, payload)

    patch(SessionEgress, "offer", acted)


def answers_not_in_the_snapshot(patch: Patch) -> None:
    patch(KeptAnswers, "records", lambda self: iter(()))


def answer_counts_not_in_the_snapshot(patch: Patch) -> None:
    """A service that starts from its snapshot numbers its answers from 1 on."""
    patch(open_sessions, "with_answer_count", lambda channel, count: channel)


def answers_forgotten_when_sent(patch: Patch) -> None:
    """What is written to the client's connection counts as taken."""
    due = KeptAnswers.due

    def eager(self: Any, session_id: int, leadership_term_id: int) -> Iterator[Any]:
        for frames in map(bytes, due(self, session_id, leadership_term_id)):
            batch = EgressMessages(len(frames) // FRAME_OVERHEAD)
            parse_egress(np.frombuffer(frames, np.uint8), 0, len(frames), batch)
            service_id, number = split_answer_id(int(batch.answer_ids[-1]))
            self.take(session_id, service_id, number)
            yield frames

    patch(KeptAnswers, "due", eager)


def answers_taken_twice(patch: Patch) -> None:
    """The client tells of one answer less than it has, and takes what comes."""
    numbers, take = AnswerProgress.numbers, AnswerProgress.take

    def modest(self: Any) -> Any:
        return tuple(taken.replace(number=taken.number - 1) for taken in numbers.fget(self))  # type: ignore[attr-defined]

    def greedy(self: Any, answer_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        take(self, answer_ids, lengths)
        return np.ones(len(answer_ids), bool)

    patch(AnswerProgress, "numbers", property(modest))
    patch(AnswerProgress, "take", greedy)


def held_messages_not_sent_again(patch: Patch) -> None:
    """A window that was paused goes on where it stopped."""
    rewind = UnacknowledgedWindow.rewind

    def forgetful(self: Any, messages: int, leadership_term_id: int) -> None:
        if self.is_paused:
            self.is_paused = False
        else:
            rewind(self, messages, leadership_term_id)

    patch(UnacknowledgedWindow, "rewind", forgetful)


SUPERVISED_MISTAKES: dict[Callable[[Patch], None], Sought] = {
    answers_taken_twice: Sought(("I-21", "I-7")),
    held_messages_not_sent_again: Sought(("I-3", "I-7")),
}
