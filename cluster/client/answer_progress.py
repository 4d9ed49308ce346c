"""Which answers of a supervised session have come: each is stored once, and reported to the leader."""

from cluster.protocol.link import TakenNumber
from cluster.protocol.session import answer_id_of, split_answer_id

SAY_BYTES = 64 * 1024  # of answers, which the leader hears of at once
SAY_INTERVAL_NS = 50_000_000  # at most until it hears of fewer


class AnswerProgress:
    """``fault`` says why the session cannot go on, empty while it can."""

    def __init__(self) -> None:
        self.fault = ""
        self.is_asking = True  # the leader sends none before it knows what is there
        self._last: dict[int, int] = {}  # by service id, the id of the last answer that came
        self._unsaid_bytes = 0
        self._said_ns = 0

    @property
    def numbers(self) -> tuple[TakenNumber, ...]:
        """Of the last answer of each service."""
        return tuple(TakenNumber(split_answer_id(last)[1], service) for service, last in self._last.items())

    def take(self, answer_ids: list[int], lengths: list[int]) -> list[int]:
        """The rows of the answers that did not come before."""
        if answer_ids and not self.fault:
            first, end = self._expected(split_answer_id(answer_ids[0])[0]), len(answer_ids)
            if answer_ids == list(range(first, first + end)):  # as it mostly is: none came before
                self._last[split_answer_id(first)[0]] = answer_ids[-1]
                self._unsaid_bytes += sum(lengths) + end
                return list(range(end))
        fresh = []
        for row, answer_id in enumerate(answer_ids):
            service_id, number = split_answer_id(answer_id)
            expected = self._expected(service_id)
            if answer_id == expected and not self.fault:
                fresh.append(row)
                self._unsaid_bytes += lengths[row] + 1
            if answer_id == expected:
                self._last[service_id] = answer_id
            elif number == 0:
                self.fault = "the leader does not number its answers: it knows no supervised sessions"
            elif answer_id > expected:
                self.fault = (
                    f"answers {split_answer_id(expected)[1]} to {number - 1} of service {service_id} are lost"
                )
        return fresh

    def _expected(self, service_id: int) -> int:
        return self._last.get(service_id, answer_id_of(service_id, 0)) + 1

    def rest_ns(self, now_ns: int, *, is_paused: bool) -> int | None:
        """After how long to report to the leader, 0 for now; None when there is nothing to report."""
        if self.is_asking or self._unsaid_bytes >= SAY_BYTES or (is_paused and self._unsaid_bytes):
            return 0
        if not self._unsaid_bytes:
            return None
        return max(self._said_ns + SAY_INTERVAL_NS - now_ns, 0)

    def on_said(self, now_ns: int) -> None:
        """The leader knows all."""
        self.is_asking = False
        self._unsaid_bytes = 0
        self._said_ns = now_ns
