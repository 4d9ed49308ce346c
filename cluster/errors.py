"""Every error the cluster raises. Bugs assert; the world raises one of these.

ClusterError                       one line for people; ``exit_status`` is what a command ends with
├── ConfigurationError             the operator: change the option it names (exit status 2)
├── NotAClusterDirectory           the operator: point at a member's directory
├── DirectoryInUse                 the operator: another process owns the directory
├── PortInUse                      the operator: another process owns the port
├── LogDamaged                     the operator: restore this member, the readable part is still read
├── DataLoss                       the operator: a reader asked for what is gone, or is of another log
│   └── LogPurged                  whoever reads: go on at ``start_position``, or take another copy of the log
├── StorageError                   the disk said no: this member stops acknowledging
├── NotLeader                      the caller: try again with ``leader_member_id``
├── ClientClosed                   the caller: connect again
├── AuthenticationRejected         the caller: the cluster did not accept the credentials
├── BatchRegistered                the caller: the batch is in the log as a whole, there is nothing to send
├── ApplicationUnknown             the caller: the lane's application is to be known, and no lane of it is
├── TimedOut                       the caller: the named deadline passed
├── MediaDriverError               the operator: a media driver of Aeron's is not there, or refused
├── MembersApart                   the operator: members that applied one log have different states
├── ServiceError                   the service's author: a callback raised, its log entry is skipped
├── AgentTermination               whoever runs the agent: it ends, and its process with it
│   ├── MemberRestart              whoever runs the member: start it again, from what is on its disk now
│   ├── OtherMembers               the operator: configure those of the directory's cluster (exit status 2)
│   └── UnexpectedError            us: an exception that is meant for nothing ended a life of a member
└── ProtocolError
    ├── LocalProtocolError         our own caller broke the rules of the protocol
    └── RemoteProtocolError        the peer did: drop its connection, keep running
        └── TlsFailed              its certificate, ours, or the lack of one: give others, then connect again
"""

import errno
import json
import os
from typing import ClassVar

PathOrNone = str | os.PathLike[str] | None

# What a disk says that has no room left, for anybody or for this user.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def printable(text: str) -> str:
    r"""The text; what is not printable (C0, DEL, C1, bidirectional controls) as JSON escapes, ``\u009b``.

    Errors, payloads and names hold what strangers have sent; nothing of it moves a terminal's cursor.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


class ClusterError(Exception):
    """The base of all errors. ``str(error)`` is one line: the thing, its value, and what was expected.

    The text is ``printable``, because Python and Spark print errors by themselves. ``code`` is the same in
    every release, and ``fix`` says what to do. A traceback has both below the line, so Spark's report of a
    failed query has them, too. docs/errors.md lists them.
    """

    exit_status: ClassVar[int] = 1
    code: ClassVar[str] = "CLUSTER_ERROR"
    fix: ClassVar[str] = "Do as the line above says."

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(printable(each) if isinstance(each, str) else each for each in arguments))
        self.add_note(f"[{self.code}] {self.fix}")


class ConfigurationError(ClusterError):
    """An option, key or argument has a value that is not allowed."""

    exit_status: ClassVar[int] = 2
    code: ClassVar[str] = "CLUSTER_CONFIGURATION"
    fix: ClassVar[str] = "Change the option, key or argument that is named."


class NotAClusterDirectory(ClusterError):
    """The directory has no member, or lacks a file that was asked for.

    For the directory of a whole cluster, ``directory`` is its path, and ``member`` that of a member in it.
    """

    code: ClassVar[str] = "CLUSTER_NO_DIRECTORY"
    fix: ClassVar[str] = "Name the directory of a member, a backup or an archive."

    def __init__(self, what: str, *, directory: str | None = None, member: str | None = None) -> None:
        self.directory = directory
        self.member = member
        super().__init__(what)


class DirectoryInUse(ClusterError):
    """A running process uses the directory: its mark file is fresh, or it has the lock."""

    code: ClassVar[str] = "CLUSTER_DIRECTORY_IN_USE"
    fix: ClassVar[str] = "Stop the process that is named, or take another directory."


class PortInUse(ClusterError):
    """Another process listens at this address already."""

    code: ClassVar[str] = "CLUSTER_PORT_IN_USE"
    fix: ClassVar[str] = "Stop the process that listens there, or configure another address."


class LogDamaged(ClusterError):
    """Bytes on disk do not have the format that they should have.

    ``offset`` is in bytes from the start of the file, or None if there is no single place. Decoders do not
    know the file and leave ``path`` None; whoever reads the file raises ``error.at(path)`` instead.
    """

    code: ClassVar[str] = "CLUSTER_LOG_DAMAGED"
    fix: ClassVar[str] = "See what is damaged with `cluster archive verify`; another member can be read."

    def __init__(self, path: PathOrNone, offset: int | None, what: str) -> None:
        self.path = None if path is None else os.fspath(path)
        self.offset = offset
        self.what = what
        where = self.path or ""
        if offset is not None:
            where = f"{where} at offset {offset}" if where else f"offset {offset}"
        super().__init__(f"{where}: {what}" if where else what)

    def at(self, path: PathOrNone, offset_of_region: int = 0) -> "LogDamaged":
        """The same damage with its file; ``offset_of_region`` is where the decoded bytes began."""
        offset = None if self.offset is None else self.offset + offset_of_region
        return LogDamaged(path, offset, self.what)


class DataLoss(ClusterError):
    """A position that was acknowledged cannot be read any more, or is in another cluster's log."""

    code: ClassVar[str] = "CLUSTER_DATA_LOSS"
    fix: ClassVar[str] = "Read the log that the position belongs to, or start again where this one begins."


class LogPurged(DataLoss):
    """The requested part of the log is before ``start_position``, where the log now begins."""

    code: ClassVar[str] = "CLUSTER_LOG_PURGED"
    fix: ClassVar[str] = "Read a copy that has it, or go on where the log begins: failOnDataLoss = false."

    def __init__(self, what: str, start_position: int) -> None:
        self.start_position = start_position
        super().__init__(what)


class StorageError(ClusterError):
    """The file system refused: no space, a failed write, a failed sync."""

    code: ClassVar[str] = "CLUSTER_STORAGE"
    fix: ClassVar[str] = "Look at the disk: its room, its permissions, its health."

    def __init__(self, path: PathOrNone, errno: int | None, what: str = "") -> None:
        self.path = None if path is None else os.fspath(path)
        self.errno = errno
        reason = os.strerror(errno) if errno is not None else ""
        super().__init__(": ".join(part for part in (self.path, what, reason) if part))


class StorageErrors:
    """``with StorageErrors(path, "writing failed"):`` makes an OSError inside a StorageError of ``path``.

    ``within``: of the file that the error names, where it names one.
    """

    def __init__(self, path: str | os.PathLike[str], what: str, *, within: bool = False) -> None:
        self._path = path
        self._what = what
        self._within = within

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            path = (error.filename if self._within else None) or self._path
            raise StorageError(path, error.errno, self._what) from error


class NotLeader(ClusterError):
    """The member does not lead. ``leader_member_id`` is the member that does, or None if unknown."""

    code: ClassVar[str] = "CLUSTER_NOT_LEADER"
    fix: ClassVar[str] = "Ask the member that leads."

    def __init__(self, what: str, leader_member_id: int | None = None) -> None:
        self.leader_member_id = leader_member_id
        super().__init__(what)


class ClientClosed(ClusterError):
    """The session is closed, by the client or by the cluster."""

    code: ClassVar[str] = "CLUSTER_SESSION_CLOSED"
    fix: ClassVar[str] = "Connect again. Unacknowledged messages may or may not be in the log."


class AuthenticationRejected(ClusterError):
    """The cluster's authenticator refused the client's credentials."""

    code: ClassVar[str] = "CLUSTER_REJECTED"
    fix: ClassVar[str] = "Present the credentials of a principal that has the right."


class BatchRegistered(ClusterError):
    """The lane's batch, or a later one, is registered: all of its rows are in the log."""

    code: ClassVar[str] = "CLUSTER_BATCH_REGISTERED"
    fix: ClassVar[str] = "Send nothing: the whole batch is in the log."


class ApplicationUnknown(ClusterError):
    """The lane is for a known application only, and the cluster has no lane of it."""

    code: ClassVar[str] = "CLUSTER_APPLICATION_UNKNOWN"
    fix: ClassVar[str] = "See what of its last batch is in the log; then open the lane without `is_known`."


class TimedOut(ClusterError):
    """Something did not happen within its time limit."""

    code: ClassVar[str] = "CLUSTER_TIMED_OUT"
    fix: ClassVar[str] = "See with `cluster top` who leads and who is missing, and try again."


class MediaDriverError(ClusterError):
    """A media driver of Aeron does not run, refused a request, or gave the client up."""

    code: ClassVar[str] = "CLUSTER_MEDIA_DRIVER"
    fix: ClassVar[str] = "Run `cluster aeron driver` here as this user, and name its directory (aeronDir)."


class MembersApart(ClusterError):
    """Two members took different snapshots at the same position, so a service is not deterministic."""

    code: ClassVar[str] = "CLUSTER_MEMBERS_APART"
    fix: ClassVar[str] = "Find the service that is not deterministic: replay the log, and compare snapshots."


class ServiceError(ClusterError):
    """A callback of a service raised ``__cause__``; the log goes on after the entry.

    For a service in a process of its own there is no ``__cause__``; ``trace`` has its traceback as text.
    ``log_position`` is the position after the entry. ``cluster_session_id`` is the client whose entry it was,
    or None. ``kind`` is equal for errors with the same callback, type and place in the code. If
    ``is_reported``, the error was not raised but reported, and the service finished the entry.
    """

    code: ClassVar[str] = "CLUSTER_SERVICE"
    fix: ClassVar[str] = "Repair the service. The log goes on after the entry."

    def __init__(
        self,
        service_id: int,
        callback: str,
        log_position: int,
        cause: BaseException,
        place: str,
        cluster_session_id: int | None = None,
        *,
        is_reported: bool = False,
    ) -> None:
        self.trace = ""
        self.is_reported = is_reported
        self.service_id = service_id
        self.callback = callback
        self.log_position = log_position
        self.cluster_session_id = cluster_session_id
        self.cause_name = type(cause).__name__
        verb = "reported" if is_reported else "raised"
        self.kind = f"service {service_id} {verb} {self.cause_name} in {callback} ({place})"
        # Without the position: equal errors are counted by their text.
        super().__init__(f"{self.kind}: {cause}")


class AgentTermination(ClusterError):
    """An agent cannot go on, so its process has to end (Aeron: AgentTerminationException)."""

    code: ClassVar[str] = "CLUSTER_AGENT_ENDED"
    fix: ClassVar[str] = "Correct what the line names, then start the process again."


class MemberRestart(AgentTermination):
    """The member's disk holds another state than its memory, a newer one: it is to be started again."""

    code: ClassVar[str] = "CLUSTER_MEMBER_RESTART"
    fix: ClassVar[str] = "Start the member again."


class OtherMembers(AgentTermination):
    """A directory is of another cluster than the one that it was to be started as a member of."""

    exit_status: ClassVar[int] = 2
    code: ClassVar[str] = "CLUSTER_OTHER_MEMBERS"
    fix: ClassVar[str] = "Configure the members that the line names, or give the member its own directory."


class UnexpectedError(AgentTermination):
    """An exception that is meant for nothing came out of a member's turn, whose state proves nothing now."""

    code: ClassVar[str] = "CLUSTER_UNEXPECTED"
    fix: ClassVar[str] = "The member starts again from its disk. Report it, with the traceback in node.log."


class ProtocolError(ClusterError):
    """A rule of the protocol was broken; the subclass says by which side."""

    code: ClassVar[str] = "CLUSTER_PROTOCOL"
    fix: ClassVar[str] = "Compare the releases of both sides."


class LocalProtocolError(ProtocolError):
    """The caller asked for something that the protocol does not allow."""

    code: ClassVar[str] = "CLUSTER_WRONG_CALL"
    fix: ClassVar[str] = "Change the call or the row: the line says what is allowed."


class RemoteProtocolError(ProtocolError):
    """A peer sent bytes that break the protocol. Its connection is closed; all else goes on."""

    code: ClassVar[str] = "CLUSTER_PEER"
    fix: ClassVar[str] = "Check which program is at the other end, and its release."


class TlsFailed(RemoteProtocolError):
    """TLS failed: a certificate is not accepted, or one side does not use TLS."""

    code: ClassVar[str] = "CLUSTER_TLS"
    fix: ClassVar[str] = "Check the certificates of both sides: authority, names, days."
    refused: int = 0  # RefusedCertificate, of the side that has the error


# What a member's turn is meant to raise: it ends a life of the member. All else is an UnexpectedError.
FATAL = (StorageError, DataLoss, LogDamaged, AgentTermination)


class ExtraNeeded(ModuleNotFoundError):
    """A part of the package needs an extra that is not installed; the text says how to install it."""


# One module of each package that the extra has.
_MODULES_OF_EXTRAS = {
    "reader": ("numba", "numpy", "pyarrow"),
    "node": (
        *("numba", "numpy", "pyarrow", "cryptography", "grpc_health", "grpc_reflection", "hdrh"),
        *("prometheus_client", "google", "pydantic", "rich", "structlog", "typer"),
    ),
    "otel": ("opentelemetry",),
}


def need(extra: str) -> None:
    """Raise ExtraNeeded unless all that the extra has is there."""
    from importlib.util import find_spec  # which takes 20 ms of an import

    for name in _MODULES_OF_EXTRAS[extra]:
        if find_spec(name) is None:
            raise ExtraNeeded(
                f"{name} is not installed; expected pip install 'pyspark-cluster[{extra}]'", name=name
            ) from None  # the reader needs no trace of the import that has failed
