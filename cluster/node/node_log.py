"""What a member writes down for people: ``node.log`` in its directory, a JSON object a line (structlog).

What strangers can cause (``often``) is written when it first comes and then counted every ten seconds.
An error that comes again and again is written when it first comes and then at every doubling of its count;
how often each came stands in the distinct error logs (mark files), which Aeron's tools print too.
"""

import json
import re
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from cluster.archive.files import make_directories
from cluster.archive.mark_files import ClusterMarkFile
from cluster.errors import ServiceError
from cluster.security.audit import AuditLog
from cluster.security.line_file import LineFile
from cluster.transport.clock import epoch_ms

BYTES_MAX = 64 * 1024 * 1024
DISTINCT_ERRORS_MAX = 1_000
REPEATED_KINDS_MAX = 100
REPEATED_INTERVAL_NS = 10_000_000_000
OTHER_KINDS = "other kinds"


_NUMBERS = re.compile(r"0x[0-9a-f]+|[0-9a-f]{16,}|\d+")


@dataclass(slots=True)
class _Repeated:
    """How often a kind of event came since it was last written, and the newest reason."""

    since_ns: int
    why: str
    is_warning: bool = False
    count: int = 0


class _Lines(LineFile):
    """What structlog writes to. What the disk refuses is counted: to complain must not fail."""

    _lost = 0
    _why = ""

    def write(self, text: str) -> None:
        if self._lost:
            text = f"{self._note()}\n{text}"
        try:
            self.append(text.encode())
            self._lost = 0
        except OSError as error:
            self._lost += 1
            self._why = error.strerror or str(error)

    def _note(self) -> str:
        event = f"{self._lost} lines were lost: {self._path}: {self._why}"
        timestamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return json.dumps({"event": event, "level": "error", "timestamp": timestamp})

    def flush(self) -> None:
        pass


class NodeLog:
    """The log of one member; lines are written as they come."""

    def __init__(self, path: Path, level: str, bytes_max: int = BYTES_MAX, **context: Any) -> None:
        """``context`` stands in every line. At ``bytes_max`` the file becomes ``PATH.1``."""
        make_directories(path.parent)
        self._file = _Lines(str(path), bytes_max)
        self._counts: Counter[str] = Counter()
        self._repeated: dict[tuple[str, str], _Repeated] = {}
        self._repeated_lock = threading.Lock()
        self._configured_level = level
        self._context = context
        self._unfiltered = self._logger_of("debug")
        self._set_level(level)

    def _set_level(self, level: str) -> None:
        self._level = level
        self._logger = self._logger_of(level)

    def _logger_of(self, level: str) -> structlog.typing.FilteringBoundLogger:
        logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
            structlog.WriteLogger(self._file),  # type: ignore[arg-type]
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.JSONRenderer(default=str),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            **self._context,
        )
        return logger

    def configure(self, level: str, bytes_max: int) -> None:
        """Go by another level, unless it is the one that was configured, and another bound."""
        self._file.bytes_max = bytes_max
        if level != self._configured_level:
            self._configured_level = level
            self._set_level(level)

    @property
    def is_debugging(self) -> bool:
        """Whether messages are written, too (``message_trace.py``)."""
        return self._level == "debug"

    def toggle_debug(self) -> None:
        """To level debug, or back to the configured one, which is info where that was debug."""
        usual = "info" if self._configured_level == "debug" else self._configured_level
        self._set_level(usual if self.is_debugging else "debug")
        self.asked(f"log level {self._level}")

    def debug(self, event: str, **fields: Any) -> None:
        """A message: what only helps to find a fault."""
        self._logger.debug(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """What an operator wants to know has happened."""
        self._logger.info(event, **fields)

    def on_certificates_read(self, valid_to: str) -> None:
        """From any thread."""
        self.info("certificates were read again", valid_to=valid_to)

    def warning(self, event: str, **fields: Any) -> None:
        """What should not happen, and ends nothing."""
        self._logger.warning(event, **fields)

    def asked(self, event: str, *, is_refused: bool = False, **fields: Any) -> None:
        """The answer to a signal, whatever the level; that nothing was done is a warning."""
        (self._unfiltered.warning if is_refused else self._unfiltered.info)(event, **fields)

    def often(self, event: str, why: str, now_ns: int, *, is_warning: bool = False) -> None:
        """From any thread: the first of a kind (but for numbers) that strangers cause, then how many more."""
        kind = event, _NUMBERS.sub("#", why)
        with self._repeated_lock:
            repeated = self._repeated.get(kind)
            if repeated is not None:
                repeated.count += 1
                repeated.why = why
                return
            if len(self._repeated) >= REPEATED_KINDS_MAX:
                kind = event, OTHER_KINDS
                self._repeated.setdefault(kind, _Repeated(now_ns, why)).count += 1
                return
            self._repeated[kind] = _Repeated(now_ns, why, is_warning)
        self._often(is_warning)(event, why=why)

    def _often(self, is_warning: bool) -> Callable[..., Any]:
        return self._logger.warning if is_warning else self._logger.info

    def report_repeated(self, now_ns: int) -> None:
        """Write the counts of ``often`` whose interval is over; a kind that came no more is new again."""
        with self._repeated_lock:
            for kind, repeated in list(self._repeated.items()):
                if now_ns - repeated.since_ns < REPEATED_INTERVAL_NS:
                    continue
                if repeated.count:
                    say = self._often(repeated.is_warning)
                    say(kind[0], why=repeated.why, more=repeated.count, kind=kind[1])
                    self._repeated[kind] = _Repeated(now_ns, repeated.why, repeated.is_warning)
                else:
                    del self._repeated[kind]

    def error(self, where: str, error: BaseException, **fields: Any) -> str:
        """Note an exception; returns its whole text, as distinct error logs have it."""
        text = "".join(traceback.format_exception(error))
        if len(self._counts) >= DISTINCT_ERRORS_MAX:
            self._counts.clear()
        self._counts[text] += 1
        count = self._counts[text]
        if count & (count - 1) == 0:
            kind = type(error).__name__
            self._logger.error(str(error), where=where, kind=kind, count=count, trace=text, **fields)
        return text

    def record(self, mark_file: ClusterMarkFile, where: str, error: BaseException) -> None:
        """Note an exception, of a service with its entry, here and in the error log of ``mark_file``."""
        fields = {"position": error.log_position} if isinstance(error, ServiceError) else {}
        text = self.error(where, error, **fields)
        try:
            mark_file.record_error(text, epoch_ms())
        except OSError as failure:
            self.error("error log", failure)

    def reopen_with(self, *audits: AuditLog) -> None:
        """Go on in the files that have the names now, this log and others; what fails is said here."""
        for reopen in (self._file.reopen, *(audit.reopen for audit in audits)):
            try:
                reopen()
            except OSError as error:
                self.error("logs, of which the old ones stay in use", error)
        self.asked("logs were opened again")

    def close(self) -> None:
        self._file.close()
