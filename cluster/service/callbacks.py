"""Calls of the user's service: what it raises comes out as a ServiceError that says where and when."""

import sysconfig
import traceback
from collections.abc import Callable
from typing import Any

from cluster.errors import AgentTermination, LocalProtocolError, LogDamaged, ServiceError, StorageError
from cluster.service.clustered_service import overrides
from cluster.service.compiled_callback import NAME, CompiledCallback
from cluster.service.echo import EchoService

# What a callback may meet that is no fault of its service: the container's end, and the disk.
PASSED_ON = (AgentTermination, LogDamaged, StorageError)
# What is its own. SystemExit too: on an entry that every member replays it would end all of them for ever.
RAISED = (Exception, SystemExit)
# Where code is that an author of services did not write: Python's, installed packages, this one.
_LIBRARIES = (
    *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    __file__.removesuffix("service/callbacks.py"),
)


class Callbacks:
    """A service and its callbacks by name; one that it does not have is passed over."""

    def __init__(self, service: Any, service_id: int, log_position: Callable[[], int]) -> None:
        self._service = service
        self._service_id = service_id
        self._log_position = log_position
        self._forbidding: str | None = None  # the callback that runs, when nothing may be sent in it
        self.last = ""  # the one that was called last
        self.on_message = getattr(service, "on_session_message", None)
        self.is_vectorised = overrides(service, "on_session_messages")
        self.compares_snapshots: bool = getattr(service, "compares_snapshots", True)
        self.is_echo = type(service) is EchoService
        self.has_background_work = overrides(service, "do_background_work")

    def compiled(self) -> CompiledCallback | None:
        """The compiled callback of a service that has one. Raises ConfigurationError."""
        return CompiledCallback(self._service) if overrides(self._service, NAME) else None

    def call(self, name: str, *arguments: Any, cluster_session_id: int | None = None) -> Any:
        """Call one, for an entry of that session if any."""
        callback = getattr(self._service, name, None)
        if callback is None:
            return None
        self.last = name
        try:
            return callback(*arguments)
        except PASSED_ON:
            raise
        except RAISED as error:
            raise self.error(name, error, cluster_session_id) from error

    def call_guarded(self, name: str, *arguments: Any) -> Any:
        """Call one in which sending is forbidden; it may run within another that idles."""
        forbidding, self._forbidding = self._forbidding, name
        try:
            return self.call(name, *arguments)
        finally:
            self._forbidding = forbidding

    def check_may_send(self) -> None:
        """Raise LocalProtocolError in a callback that is not of a log entry."""
        if self._forbidding is not None:
            raise LocalProtocolError(
                "sending messages, scheduling timers and closing sessions "
                f"is not allowed from {self._forbidding}"
            )

    def error(self, name: str, cause: BaseException, cluster_session_id: int | None = None) -> ServiceError:
        """What is said of an exception of a callback."""
        place = raised_at(cause)
        return ServiceError(self._service_id, name, self._log_position(), cause, place, cluster_session_id)

    def reported(self, cause: Exception) -> ServiceError:
        """What is said of an error that the callback which runs has met, and does not raise."""
        place = raised_at(cause)
        error = ServiceError(
            self._service_id, self.last, self._log_position(), cause, place, is_reported=True
        )
        error.__cause__ = cause
        return error


def raised_at(error: BaseException) -> str:
    """``file:line`` of the author's innermost code, or where an error that nobody raised is reported."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__) or traceback.extract_stack()
    own = [frame for frame in frames if not frame.filename.startswith(("<frozen", *_LIBRARIES))]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"
