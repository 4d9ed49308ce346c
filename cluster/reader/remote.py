"""Reads the committed log from running members, over any medium; moves on to another when one fails.

Followers are asked first unless another preference is given, so that analytics do not load the leader. Every
member holds the same committed log, so a range may come from several: what breaks off at one goes on at the
next. A member that has not committed as far as another says so, and another is asked.
"""

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cluster.errors import (
    AuthenticationRejected,
    ClientClosed,
    ClusterError,
    ConfigurationError,
    LogDamaged,
    LogPurged,
    RemoteProtocolError,
    TimedOut,
    TlsFailed,
)
from cluster.log.entry_filter import EntryFilter
from cluster.protocol import link
from cluster.protocol.enums import ClusterTimeUnit, Role
from cluster.protocol.frame import compute_position, header_at, position_bits
from cluster.protocol.token import LogIdentity, identity_of, identity_text
from cluster.transport.clock import monotonic_ns, pause
from cluster.transport.committed_log import AS_READ, BlockOptions, LogOfOthers
from cluster.transport.credentials import CredentialsSupplier
from cluster.transport.endpoint import parse_endpoints
from cluster.transport.forks import leave_to_parent
from cluster.transport.log_client import Unreachable, statuses
from cluster.transport.member_status import TIMEOUT_S, OpenClient, adopt_reported, log_client_opener
from cluster.transport.preference import FOLLOWER, ReadPreference, in_order
from cluster.transport.tls import TlsFiles, client_context, tls_in
from cluster.transport.wanted import wanted_of

GIVE_UP_S = 20.0  # without any member that goes on
RETRY_INTERVAL_S = 0.1
SAY_AFTER_NS = 1_000_000_000  # that none answers, or too few, once
STALLED_NS = 500_000_000  # a commit position that stands still is asked of all members, this often
BLOCK_BYTES = 1024 * 1024  # in one message: more costs memory and is no faster
PASSED_OVER = (Unreachable, RemoteProtocolError, AuthenticationRejected)  # of one member: others may answer
SKIMMED = wanted_of(EntryFilter(("NEW_LEADERSHIP_TERM",)))  # next to nothing

logger = logging.getLogger(__name__)


class RemoteLog(LogOfOthers):
    """The log of a running cluster; ``endpoints`` of any members, which report the others over gRPC."""

    def __init__(
        self,
        endpoints: str,
        *,
        tls: TlsFiles | None = None,
        timeout_s: float = TIMEOUT_S,
        give_up_s: float = GIVE_UP_S,
        spread: int | None = None,
        read_preference: ReadPreference = FOLLOWER,
        entry_filter: EntryFilter | None = None,
        credentials: bytes | CredentialsSupplier | None = None,
        open_client: OpenClient | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
        wait: Callable[[float], object] = pause,
    ) -> None:
        """Find the members. Raises TimedOut when none answers within ``give_up_s``, naming each reason, and
        AuthenticationRejected when all refuse.

        TlsFailed when TLS, or the lack of ``tls``, keeps all of them from it, RemoteProtocolError when
        something else is spoken at every endpoint, and ConfigurationError for files that will not do.
        Without ``tls`` the environment is asked (CLUSTER_TLS_CA, CLUSTER_TLS_CERTIFICATE, CLUSTER_TLS_KEY).
        Without ``credentials`` the token is shown that the environment names (CLUSTER_TOKEN_FILE).
        Where all is not wanted by ``entry_filter``, padding may stand for the rest.
        Members are asked as ``in_order`` says. ``timeout_s`` is how long one of them may take to answer.
        """
        tls = tls_in(os.environ) if tls is None else tls
        if tls is not None:
            client_context(tls)  # says which of the files will not do
        self.warnings: list[str] = []
        self._endpoints = parse_endpoints(endpoints)
        self._are_all_given = all(member_id >= 0 for member_id in self._endpoints)
        self._open_client = open_client or log_client_opener(timeout_s, tls, credentials)
        self._clients = {
            member_id: self._open_client(endpoint) for member_id, endpoint in self._endpoints.items()
        }
        leave_to_parent(self)
        self._tls, self._credentials, self._timeout_s = tls, credentials, timeout_s
        self._give_up_ns = int(give_up_s * 1e9)
        self._spread = os.getpid() if spread is None else spread
        self._preference = read_preference
        self._wanted = wanted_of(entry_filter)
        self._now_ns = now_ns
        self._wait = wait
        self._commit_position = 0
        self._asked_all_ns = 0
        self._identity: LogIdentity | None = None
        self._starts: dict[int, int] = {}  # where the log of each member that answered begins
        self._missing: set[int] = set()  # members that were waited for in vain
        self._said_for_ns = 0  # the end of the last wait that was said
        self._status: link.LogStatus  # the last from the preferred member
        self._order: list[int] = []  # preferred first
        try:
            self._status = self._find()
        except ClusterError:
            self.close()
            raise

    # -- members --

    def _find(self) -> link.LogStatus:
        """Ask all until one answers, and order them, preferred first."""
        begin_ns = self._now_ns()
        deadline_ns, is_said = begin_ns + self._give_up_ns, False
        while True:
            found, failures = self._ask_all()
            if found and len(found) + len(failures) < len(self._clients):
                found, failures = self._ask_all()  # those too that the first ones named
            if found:
                return found[self._order[0]]
            for kind in (TlsFailed, RemoteProtocolError):
                if all(isinstance(error, kind) for error in failures.values()):
                    raise kind(f"no member answers: {_describe(failures)}")
            if all(isinstance(error, AuthenticationRejected) for error in failures.values()):
                raise AuthenticationRejected(_describe(failures))
            now_ns = self._now_ns()
            if now_ns > deadline_ns:
                raise TimedOut(f"no member answers: {_describe(failures)}")
            if not is_said and now_ns > begin_ns + SAY_AFTER_NS:
                is_said, left_s = True, (deadline_ns - now_ns) / 1e9
                logger.warning(
                    "no member answers yet: %s; asking for another %.0f s", _describe(failures), left_s
                )
            self._wait(RETRY_INTERVAL_S)

    def _ask_all(self) -> tuple[dict[int, link.LogStatus], dict[int, ClusterError]]:
        """(those that answered, those that did not); takes note of what they say."""
        self._asked_all_ns = self._now_ns()
        starts, self._starts = self._starts, {}
        found: dict[int, link.LogStatus] = {}
        failures: dict[int, ClusterError] = {}
        for member_id, answer in statuses(self._clients).items():
            if isinstance(answer, ClusterError):
                failures[member_id] = answer
            else:
                self._observe(answer)
                found[member_id if self._are_all_given else self._meet(member_id, answer)] = answer
        failures = {m: error for m, error in failures.items() if m in self._clients}
        met = [m for m in self._clients if m not in found and m not in failures]
        leads = {member_id: status.role == Role.LEADER for member_id, status in found.items()}
        self._order = [*in_order(leads, self._preference, self._spread), *met, *failures]
        self._starts = self._starts or starts
        self._missing -= found.keys()
        return found, failures

    def _meet(self, key: int, status: link.LogStatus) -> int:
        """Call a member that answered by its id (a backup has none), and add those it knows; the id."""
        if status.member_id < 0:
            return key
        if key < 0 and key in self._clients:
            member_id = status.member_id
            if (other := self._clients.pop(member_id, None)) is not None:
                other.close()
            self._clients[member_id] = self._clients.pop(key)
            self._endpoints[member_id] = self._endpoints.pop(key)
        for member_id in adopt_reported(self._endpoints, status):
            if member_id not in self._clients:
                self._clients[member_id] = self._open_client(self._endpoints[member_id])
        for unnamed in self._clients.keys() - self._endpoints.keys():
            self._clients.pop(unnamed).close()
        return status.member_id

    def _observe(self, status: link.LogStatus) -> None:
        """Take note of a member's status; ``ConfigurationError`` when it is of another cluster's log."""
        identity = identity_of(status)
        if identity is not None and identity.log_session_id is not None:
            if self._identity is None or self._identity.log_session_id is None:
                self._identity = identity
            elif identity != self._identity:
                theirs, read = identity_text(*identity), identity_text(*self._identity)
                raise ConfigurationError(
                    f"endpoints: member {status.member_id} holds the log of cluster {theirs}, but what was "
                    f"read before is cluster {read}; an identity is cluster id, timestamp and log session id "
                    "of the first leadership term. Name members of one cluster; one that was made anew takes "
                    "a new reader and a new checkpoint"
                )
        elif identity is not None and self._identity is None:
            self._identity = identity
        self._commit_position = max(self._commit_position, status.commit_position)
        self._starts[status.member_id] = status.start_position

    def _ask(self) -> link.LogStatus:
        """The status of the first member that answers, in order of preference."""
        failures: dict[int, ClusterError] = {}
        for member_id in list(self._order):
            try:
                status = self._clients[member_id].status()
            except PASSED_OVER as error:
                failures[member_id] = error
                continue
            if failures:
                self._order.sort(key=lambda m: m in failures)  # stable: those that failed go last
            self._observe(status)
            self._status = status
            return status
        self._status = self._find()
        return self._status

    # -- what a medium provides --

    @property
    def identity(self) -> LogIdentity | None:
        if self._identity is None:
            self._ask()
        return self._identity

    @property
    def start_position(self) -> int:
        """The first position that any member holds of those that answered."""
        return min(self._starts.values())

    def await_start(self) -> int:
        """``start_position`` once all have answered, or ``give_up_s`` passed, with a warning."""
        deadline_ns = self._now_ns() + self._give_up_ns
        while self.start_position > 0:
            found, failures = self._ask_all()
            if self._is_worth_waiting(failures, deadline_ns, f"the log begins at {self.start_position}"):
                continue
            if len(found) + len(failures) == len(self._clients) or self._now_ns() > deadline_ns:
                break  # else a member was met that is to be asked
        return self.start_position

    def term_before(self, position: int) -> str | None:
        """As the first member says that has committed so far; one of 0.1 says none."""
        for member_id in list(self._order):
            try:
                for answer in self._clients[member_id].read(position, position, BLOCK_BYTES):
                    if isinstance(answer, link.LogStatus):
                        self._observe(answer)
                        if answer.commit_position >= position:
                            return answer.term or None
            except PASSED_OVER:
                continue
        return None

    def _are_few(self, found: dict[int, link.LogStatus]) -> bool:
        """Whether some members are found, but no majority of those that are known by their ids."""
        members = sum(member_id >= 0 for member_id in found)
        return 0 < members <= sum(member_id >= 0 for member_id in self._clients) // 2

    def _is_worth_waiting(self, failures: dict[int, ClusterError], deadline_ns: int, what: str) -> bool:
        """Wait a moment for members that may answer yet; at the deadline they are missing, with a warning."""
        silent = {member_id for member_id, error in failures.items() if isinstance(error, Unreachable)}
        if silent <= self._missing:
            return False
        if self._now_ns() > deadline_ns:
            self._missing |= silent
            self.warnings.append(
                f"{what} at the members that answer; others may have more: {_describe(failures)}"
            )
            return False
        left_ns = deadline_ns - self._now_ns()
        if left_ns < self._give_up_ns - SAY_AFTER_NS and self._said_for_ns != deadline_ns:
            self._said_for_ns = deadline_ns
            logger.warning(
                "%s at the members that answer; asking the others for another %.0f s: %s",
                what,
                left_ns / 1e9,
                _describe(failures),
            )
        self._wait(RETRY_INTERVAL_S)
        return True

    @property
    def term_length(self) -> int:
        return self._status.term_length

    @property
    def time_unit(self) -> ClusterTimeUnit:
        return self._status.time_unit

    def commit_position(self) -> int:
        """Of one member, never less than before; of all when it stands still, or has purged."""
        before, starts = self._commit_position, dict(self._starts)
        self._ask()
        is_stalled = self._commit_position == before and self._now_ns() - self._asked_all_ns >= STALLED_NS
        if is_stalled or self._starts != starts:
            self._ask_all()
        return self._commit_position

    def end_position(self) -> int:
        """The highest commit position of all members that answer.

        Less than a majority may be far behind what is committed: others get ``give_up_s`` to answer, and are
        told of in ``warnings``, and not waited for again, when they do not.
        """
        deadline_ns = self._now_ns() + self._give_up_ns
        found, failures = self._ask_all()
        while self._are_few(found):
            if not self._is_worth_waiting(failures, deadline_ns, f"the log ends at {self._commit_position}"):
                break
            found, failures = self._ask_all()
        if found:
            self._status = found[self._order[0]]
        else:
            self._status = self._find()
        return self._commit_position

    def blocks(
        self, from_position: int | None = None, to_position: int | None = None, how: BlockOptions = AS_READ
    ) -> Iterator[tuple[int, np.ndarray]]:
        """As every reader. What one member lacks is read at another, and reported when none has it."""
        position = self.start_position if from_position is None else from_position
        end = to_position
        if end is None:
            end = self.end_position()
        elif not how.is_committed and end > self._commit_position:  # what is known to be committed stays so
            end = min(end, self.end_position())
        wanted = SKIMMED if how.is_skimmed else self._wanted
        failures: dict[int, ClusterError] = {}
        deadline_ns = self._now_ns() + self._give_up_ns
        while position < end:
            member_id = next((m for m in self._order if m not in failures), None)
            if member_id is None:
                if self._now_ns() > deadline_ns or not _is_passing(failures):
                    raise _worst(failures)
                self._wait(RETRY_INTERVAL_S)
                failures.clear()
                continue
            try:
                for block in self._read(member_id, position, end, min(how.max_bytes, BLOCK_BYTES), wanted):
                    yield position, block
                    position += len(block)
                    failures.clear()
                    deadline_ns = self._now_ns() + self._give_up_ns
            except (*PASSED_OVER, ConfigurationError, LogPurged, LogDamaged) as error:
                failures[member_id] = error

    def _read(
        self, member_id: int, position: int, end: int, max_bytes: int, wanted: tuple[link.Wanted, ...]
    ) -> Iterator[np.ndarray]:
        """The blocks from ``position`` on that one member has; raises why it has no more."""
        status: link.LogStatus | None = None
        for answer in self._clients[member_id].read(position, end, max_bytes, wanted):
            if isinstance(answer, link.LogStatus):
                status = answer
                self._observe(status)
            elif isinstance(answer, link.EndOfStream):
                self._check_end(member_id, answer, status)
                if position < end:
                    raise RemoteProtocolError(f"member {member_id} ended at {position}, asked for {end}")
                return
            else:
                if status is None or _position(answer, status) != position:
                    raise RemoteProtocolError(
                        f"member {member_id} sent frames that do not join on at {position}"
                    )
                yield answer
                position += len(answer)
        raise Unreachable(f"{self._endpoints[member_id]}: the stream ended without its end")

    def _check_end(self, member_id: int, end: link.EndOfStream, status: link.LogStatus | None) -> None:
        match end.code:
            case link.LinkErrorCode.OK:
                return
            case link.LinkErrorCode.NOT_AVAILABLE if status and end.position < status.start_position:
                start = status.start_position
                raise LogPurged(f"position {end.position} was purged, the log begins at {start} there", start)
            case link.LinkErrorCode.INVALID_ARGUMENT:
                raise ConfigurationError(f"member {member_id}: {end.text}")
            case link.LinkErrorCode.FAILED:
                raise LogDamaged(None, None, f"member {member_id}: {end.text}")
        raise Unreachable(f"member {member_id}: {end.text}")

    def module_snapshot(self) -> tuple[int, list[bytes]] | None:
        """Log position and records of the newest that any member has; None where the log has its beginning.

        Raises ClusterError: TimedOut where no member answers, LogDamaged where each one's is damaged.
        """
        if self.start_position == 0:
            return None
        from cluster.reader.member_snapshots import fetched_module_records  # few readers need it

        endpoints = ",".join(map(str, self._endpoints.values()))
        return fetched_module_records(endpoints, self._tls, self._credentials, self._timeout_s)

    def on_forked(self, why: str) -> None:
        """As ``cluster.transport.forks`` says. Its clients, closed, would dial again."""
        self._clients = self._starts = _OfAnotherProcess(why)

    def close(self) -> None:
        if not isinstance(self._clients, _OfAnotherProcess):
            for client in self._clients.values():
                client.close()


class _OfAnotherProcess(dict[int, Any]):
    """In the place of a reader's connections: whoever wants one hears why there is none."""

    def __init__(self, why: str) -> None:
        self._why = why

    def _refuse(self, *_: object) -> Any:
        raise ClientClosed(f"the reader is closed: {self._why}")

    __getitem__ = __iter__ = __len__ = __contains__ = keys = values = items = pop = _refuse


def _position(block: np.ndarray, status: link.LogStatus) -> int:
    """Where in the log the first frame of a run says that it is."""
    header = header_at(block)
    bits = position_bits(status.term_length)
    return compute_position(header.term_id, header.term_offset, bits, status.initial_term_id)


def _describe(failures: dict[int, ClusterError]) -> str:
    return "; ".join(
        f"member {member_id}: {error}" if member_id >= 0 else str(error)  # it names the endpoint
        for member_id, error in sorted(failures.items())
    )


def _is_passing(failures: dict[int, ClusterError]) -> bool:
    """Whether trying again may help: a member is down or late, and not every one lost what is asked for."""
    return any(isinstance(error, Unreachable) for error in failures.values())


def _worst(failures: dict[int, ClusterError]) -> ClusterError:
    """What to report when no member goes on: damage before loss before silence."""
    damage = next((error for error in failures.values() if isinstance(error, LogDamaged)), None)
    if damage is not None:
        return damage
    what = f"no member goes on: {_describe(failures)}"
    kinds: tuple[type[ClusterError], ...] = (AuthenticationRejected, ConfigurationError)
    kind = next((kind for kind in kinds if any(type(e) is kind for e in failures.values())), None)
    if kind is not None:
        return kind(what)
    starts = [error.start_position for error in failures.values() if isinstance(error, LogPurged)]
    return LogPurged(what, min(starts)) if starts else TimedOut(what)
