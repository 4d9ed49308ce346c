"""What a member reports to people: events as lines, errors as exceptions that end nothing."""

from collections.abc import Callable

from cluster.counters import Counter


class Reporter:
    """``event`` gets a line for each rare thing that happens, ``warning`` for what should not happen."""

    __slots__ = ("_errors", "_on_error", "event", "warning")

    def __init__(
        self,
        errors: Counter,
        on_event: Callable[[str], None],
        on_error: Callable[[Exception], None],
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self._errors = errors
        self._on_error = on_error
        self.event = on_event
        self.warning = on_warning or on_event

    def error(self, error: Exception) -> None:
        """Something went wrong that does not end the member; it is counted."""
        self._errors.get_and_add(1)
        self._on_error(error)
