"""A member's services as compiled turns have them: a compiled one, one in a process of its own, or Python's.

Compiled turns serve a single service themselves. Of several each is given its part of the log by Python, once
the turns end for it.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from cluster.consensus.kept_answers import AnswerColumns, KeptAnswers
from cluster.counters import Counter
from cluster.log.message_columns import MessageColumns
from cluster.member.busy import words as at
from cluster.member.services.remote_service import RemoteService
from cluster.protocol.enums import Role
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.compiled_callback import ANSWER_ROWS

SERVICE_ROWS = 4096
LIVE = 1 << 62  # a log without an end that is known


class LentCounters(Protocol):
    """Of one service."""

    @property
    def position(self) -> Counter: ...

    @property
    def max_cycle_time_ns(self) -> Counter: ...

    @property
    def cycle_time_exceeded(self) -> Counter: ...


class LentServices:
    """``lend`` says in ``words`` who serves, ``take_back`` what came of it."""

    def __init__(
        self,
        services: Sequence[object],
        counters: LentCounters | None,
        words: memoryview,
        answers: KeptAnswers,
    ) -> None:
        """``services`` are agents; the counters are those of a single one."""
        if counters is not None:
            words[at.SERVICE_COUNTER] = counters.position.index
            words[at.MAX_CYCLE_COUNTER] = counters.max_cycle_time_ns.index
            words[at.CYCLES_EXCEEDED_COUNTER] = counters.cycle_time_exceeded.index
        self._inline = [service for service in services if isinstance(service, ClusteredServiceAgent)]
        self._service = services[0] if len(services) == 1 else None
        self._words = words
        self._answers = answers
        self._answer_ids = np.zeros(max(SERVICE_ROWS, ANSWER_ROWS), np.int64)

    @property
    def _compiled_service(self) -> ClusteredServiceAgent | None:
        service = self._service
        return service if isinstance(service, ClusteredServiceAgent) and service.is_compiled else None

    def arrays(self) -> dict[str, np.ndarray]:
        """What is of the service, by the names of ``Tables``."""
        if isinstance(self._service, RemoteService):
            return {"limits": self._service.words}
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
        words, compiled, service = self._words, self._compiled_service, self._service
        words[at.SERVICE], words[at.LIMIT_DUE_NS] = at.PYTHON_SERVICE, at.NEVER
        if compiled is not None and compiled.adapter.max_log_position > LIVE:
            self._lend_compiled(compiled)
        elif isinstance(service, RemoteService) and (descriptor := service.lend()) is not None:
            words[at.SERVICE], words[at.SERVICE_LINK] = at.REMOTE_SERVICE, descriptor

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
        words, service = self._words, self._service
        for inline in self._inline:
            inline.on_busy_turns(words[at.LAST_NS], words[at.LONGEST_GAP_NS])
        if words[at.SERVICE] == at.COMPILED_SERVICE:
            assert isinstance(service, ClusteredServiceAgent)
            service.take_back(words[at.SERVICE_TIME])
            if count := words[at.UNKEPT]:
                assert service.compiled is not None
                self._keep(service.compiled.answers, count)
        elif words[at.SERVICE] == at.REMOTE_SERVICE:
            assert isinstance(service, RemoteService)
            service.take_back()

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
