"""What a client does that waits: the other calls, and sleeps between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TypeVar

from cluster.client.commit_wait import CommitWait
from cluster.client.egress_dispatch import Answer, EgressBatch
from cluster.client.requests import TIMEOUT_S, Request
from cluster.client.session_conductor import WAIT_S
from cluster.errors import ClientClosed, TimedOut
from cluster.protocol.enums import Offer
from cluster.service.payload import Payload

ALL = 1 << 62  # messages of a poll without a limit
WAIT_MAX_S = 1.0  # for one answer, before the session is looked at again

Taken = TypeVar("Taken", Answer, EgressBatch)


class BlockingCalls(ABC):
    """Of ``ClusterClient``, which has the calls that they are made of."""

    @abstractmethod
    def now_ns(self) -> int: ...

    @abstractmethod
    def offer(self, *parts: Payload) -> int: ...

    @abstractmethod
    def begin_request(self, *parts: Payload) -> Request | int: ...

    @abstractmethod
    def end_request(self, request: Request, timeout_s: float) -> TimedOut: ...

    @abstractmethod
    def take_answer(self) -> Answer | None: ...

    @abstractmethod
    def take_answer_batch(self) -> EgressBatch | None: ...

    @abstractmethod
    def commit_wait(self, timeout_s: float | None) -> CommitWait: ...

    @abstractmethod
    def _poll(self, limit: int) -> int: ...

    @abstractmethod
    def poll_if_free(self) -> None: ...

    @abstractmethod
    def rest(self, timeout_s: float, *, is_due: bool = False) -> None: ...

    @abstractmethod
    def closed_error(self) -> ClientClosed: ...

    def send(self, *parts: Payload, timeout_s: float | None = None) -> int:
        """Send one message, gathered from its parts; returns its position once the client has taken it.

        Waits while too much is not committed yet, or a leader is sought: for ``timeout_s`` seconds at most,
        None: for as long as it takes. That it is committed, ``await_committed`` says.

        Raises TimedOut, ClientClosed when the session is over, LocalProtocolError for a message above
        ``max_payload_length``, TypeError for what is no bytes.
        """
        return self._until_taken(lambda: self.offer(*parts), self._deadline_ns(timeout_s), timeout_s)

    def request(self, *parts: Payload, timeout_s: float = TIMEOUT_S) -> Answer:
        """Send one message, and return the first answer that the service gives while it handles it.

        Threads may wait for many at a time. Further answers to the message, and one that comes too late, go
        to the listener, or to ``answers``. An answer that a leader had not delivered when it died is lost,
        unless the session is supervised.

        Raises TimedOut without an answer in ``timeout_s`` seconds, with what is known of the message, and
        else as ``send``.
        """
        deadline_ns = self._deadline_ns(timeout_s)
        begun: list[Request] = []

        def begin() -> int:
            request = self.begin_request(*parts)
            if isinstance(request, int):
                return request
            begun.append(request)
            return 1

        self._until_taken(begin, deadline_ns, timeout_s)
        request = begun[0]
        try:
            while (answer := request.result()) is None:
                self.poll_if_free()
                if (answer := request.result()) is not None:
                    break
                if self.now_ns() >= deadline_ns:
                    raise self.end_request(request, timeout_s)
                self.rest(min(WAIT_S, (deadline_ns - self.now_ns()) / 1e9), is_due=True)
        finally:
            self.end_request(request, timeout_s)
        return answer

    def _until_taken(self, attempt: Callable[[], int], deadline_ns: int, timeout_s: float | None) -> int:
        while (result := attempt()) < 0:
            if result == Offer.CLOSED:
                raise self.closed_error()
            if self.now_ns() >= deadline_ns:
                raise TimedOut(f"the message was not taken in {timeout_s:g} s: {Offer(result).name}")
            self.rest(min(WAIT_S, (deadline_ns - self.now_ns()) / 1e9))
        return result

    def _deadline_ns(self, timeout_s: float | None) -> int:
        return 1 << 62 if timeout_s is None else self.now_ns() + int(timeout_s * 1e9)

    def await_committed(self, timeout_s: float | None = None) -> int:
        """Poll until all that was offered before is committed; it waits for no later offers of other threads.

        Returns the log position after the last message that is known to be committed. Raises TimedOut with
        how many are not after ``timeout_s`` seconds (None: waits for as long as it takes), or ClientClosed
        when the session is lost, also if another one is opened in its place.
        """
        commit = self.commit_wait(timeout_s)
        while not commit.is_over():
            self._poll(ALL)
            if not commit.is_over():
                self.rest(WAIT_S, is_due=True)
        return commit.position

    def answers(self, timeout_s: float | None = None) -> Iterator[Answer]:
        """The service's answers, one after the other, for a client whose listener has no ``on_message``.

        Waits for the next one, and ends when none came for ``timeout_s`` seconds; None: waits for ever. An
        answer counts as taken when it is yielded: another call goes on after it. Everything else still comes
        to the listener.
        Raises ClientClosed when the session is over, ClusterError when so much waited that some was dropped
        (``held_egress.py``), and LocalProtocolError where a listener takes the messages.
        """
        return self._each(self.take_answer, timeout_s)

    def answer_batches(self, timeout_s: float | None = None) -> Iterator[EgressBatch]:
        """The same as columns, a batch for each run that came in one piece."""
        return self._each(self.take_answer_batch, timeout_s)

    def _each(self, take: Callable[[], Taken | None], timeout_s: float | None) -> Iterator[Taken]:
        while True:
            deadline_ns = self._deadline_ns(timeout_s)
            while (taken := take()) is None:
                rest_s = (deadline_ns - self.now_ns()) / 1e9
                if rest_s <= 0:
                    return
                self.rest(min(rest_s, WAIT_MAX_S))
            yield taken
