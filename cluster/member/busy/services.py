"""A member's services as compiled turns have them: any number in processes of their own, and a compiled one.

Python gives all others in line their part of the log, once the turns end for it; and a compiled one beside
them, or beside a process that has yet to say again what the one before it had said.
"""

from collections.abc import Sequence

import numpy as np

from cluster.consensus.kept_answers import AnswerColumns, KeptAnswers
from cluster.log.message_columns import MessageColumns
from cluster.member.busy import words as at
from cluster.member.services.remote_service import RemoteService
from cluster.protocol.enums import Role
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.compiled_callback import ANSWER_ROWS

SERVICE_ROWS = 4096
LIVE = 1 << 62  # a log without an end that is known


class LentServices:
    """``lend`` says in ``words`` who serves, ``take_back`` what came of it."""

    def __init__(self, services: Sequence[object], words: memoryview, answers: KeptAnswers) -> None:
        """``services`` are agents."""
        self._inline = [service for service in services if isinstance(service, ClusteredServiceAgent)]
        self._remote = [service for service in services if isinstance(service, RemoteService)]
        self._lent: list[RemoteService] = []
        self._words = words
        self._answers = answers
        self._answer_ids = np.zeros(max(SERVICE_ROWS, ANSWER_ROWS), np.int64)

    @property
    def _compiled_service(self) -> ClusteredServiceAgent | None:
        match self._inline:
            case [service] if service.is_compiled:
                return service
        return None

    def arrays(self) -> dict[str, np.ndarray]:
        """What is of the compiled service, by the names of ``Tables``."""
        service = self._compiled_service
        if service is None:
            return {}
        found = {"service_cursor": service.adapter.cursor.words, "numbers": service.numbers.words}
        found["answer_ids"] = self._answer_ids
        if service.compiled is not None:
            answers = service.compiled.answers
            found |= {"answers": answers.words, "answer_bytes": answers.buffer}
            found["service_call"] = service.compiled.call
        return found

    def needed_position(self, position: int) -> int:
        """From where on the log has to be in memory, by what the consensus module needs of it."""
        service = self._compiled_service
        return position if service is None else min(position, service.adapter.cursor.read_position)

    def lend(self) -> None:
        words, compiled = self._words, self._compiled_service
        words[at.SERVICE], words[at.LIMIT_DUE_NS] = at.PYTHON_SERVICE, at.NEVER
        self._lent = [service for service in self._remote if service.lend()]
        if len(self._lent) < len(self._remote):
            return
        if not self._inline:
            words[at.SERVICE] = at.NO_SERVICE
        elif compiled is not None and compiled.adapter.max_log_position > LIVE:
            self._lend_compiled(compiled)

    def _lend_compiled(self, service: ClusteredServiceAgent) -> None:
        words, state = self._words, service.state
        words[at.SERVICE] = at.COMPILED_SERVICE
        words[at.SERVICE_FUNCTION] = at.ECHO if service.compiled is None else service.compiled.address
        words[at.SERVICE_LEADERSHIP_TERM_ID], words[at.SERVICE_TIME] = (
            state.leadership_term_id,
            state.cluster_time,
        )
        words[at.SERVICE_ID] = service.service_id
        words[at.HAS_SUPERVISED] = service.has_supervised_sessions
        words[at.IS_SERVING] = state.role is Role.LEADER and service.is_responder

    def take_back(self) -> None:
        words = self._words
        for inline in self._inline:
            inline.on_busy_turns(words[at.LAST_NS], words[at.LONGEST_GAP_NS])
        if words[at.SERVICE] == at.COMPILED_SERVICE:
            (service,) = self._inline
            service.take_back(words[at.SERVICE_TIME])
            if count := words[at.UNKEPT]:
                assert service.compiled is not None
                self._keep(service.compiled.answers, count)
        for remote in self._lent:
            remote.take_back()

    def _keep(self, answers: MessageColumns, count: int) -> None:
        """Keep what a turn had no room for; what it has kept is not kept twice."""
        answers.count = count
        self._answers.keep(
            AnswerColumns(
                answers.session_ids,
                answers.timestamps,
                answers.offsets,
                answers.lengths,
                answers.numbers,
                self._answer_ids[:count],
                answers.buffer,
            )
        )
