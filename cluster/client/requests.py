"""Messages whose answers are waited for, each by its number in the session.

A service's answer has the number of the message that the service was handling. The first answer to a message
that is waited for goes to who waits; all else goes to the listener, as without requests.
"""

from collections.abc import Callable

from cluster.client.egress_dispatch import Answer, EgressBatch
from cluster.errors import TimedOut

TIMEOUT_S = 5.0


class Request:
    """One message that waits for its answer."""

    __slots__ = ("_on_over", "answer", "error", "number", "reported")

    def __init__(self, on_over: Callable[[], None] | None = None) -> None:
        """``on_over`` is called once it is over, by whatever thread hears of that."""
        self.number = 0  # of its message, once that was taken
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.reported = ""  # the last error that the cluster reported to the session meanwhile
        self._on_over = on_over

    def result(self) -> Answer | None:
        """The answer; None while it is waited for. Raises what ended the wait."""
        if self.error is not None:
            raise self.error
        return self.answer

    def end(self, answer: Answer | None, error: BaseException | None = None) -> None:
        self.answer, self.error = answer, error
        if self._on_over is not None:
            self._on_over()


class Requests:
    """Of one session, and of those that take its place. One thread at a time uses it."""

    def __init__(self) -> None:
        self._waiting: dict[int, Request] = {}
        self._answered = 0  # number of the last message that was answered, as far as somebody waited
        self.ended = 0  # requests, ever

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, request: Request, number: int) -> None:
        """Wait for the answer to the message of that number."""
        request.number = number
        self._waiting[number] = request

    def drop(self, request: Request) -> None:
        """Nobody waits for it any more: what still comes goes to the listener."""
        if self._waiting.get(request.number) is request:  # each session counts from 1
            del self._waiting[request.number]

    def take(self, batch: EgressBatch, numbers: list[int]) -> EgressBatch:
        """Give the answers in it that are waited for to who waits; returns the others."""
        others = []
        for row, number in enumerate(numbers):
            self._answered = max(self._answered, number)
            request = self._waiting.pop(number, None)
            if request is None:
                others.append(row)
            else:
                self.ended += 1
                request.end(batch.answer(row))
        return batch if len(others) == len(batch) else batch.chosen(others)

    def report(self, detail: str) -> None:
        """The cluster reports an error to the session, as of a service that raised; not on which message."""
        for request in self._waiting.values():
            request.reported = detail

    def fail(self, error: BaseException) -> None:
        """No answer will come any more."""
        waiting, self._waiting = self._waiting, {}
        self._answered = 0
        self.ended += len(waiting)
        for request in waiting.values():
            request.end(None, error)

    def timed_out(self, request: Request, timeout_s: float, acknowledged: int) -> TimedOut:
        """The error of a request without an answer; so many messages are known to be committed."""
        what = f"no answer to message {request.number} of the session in {timeout_s:g} s"
        if request.number > acknowledged:
            return TimedOut(f"{what}: it is not known to be committed")
        if request.reported:
            return TimedOut(f"{what}: it is committed, and the cluster reported: {request.reported}")
        if request.number < self._answered:
            return TimedOut(f"{what}: it is committed, and so is a later one that was answered")
        return TimedOut(f"{what}: it is committed, and the service gave none, or a leader died with it")
