"""Who has no session before a member's authenticator: readers of the log, and administrators.

Readers are served by another thread, and an authenticator is asked in the member's own: ``ask`` is called
there, ``do_work`` here. A reader is a session of a negative id that never opens. It is not challenged.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from cluster.consensus.authentication import Right, Security, right_to
from cluster.protocol.link import LINK_SCHEMA
from cluster.transport.log_server import Judged, ReaderIdentity

ASKED_MAX = 1024  # together; a further one is refused
TOO_MANY_ASK = "too many readers ask at once"
_VERBS = {Right.READ: "read", Right.ADMIN: "administer"}


@dataclass(slots=True, eq=False)
class _Asked:
    """One request of one reader; a ``SessionProxy`` for the authenticator."""

    session_id: int
    identity: ReaderIdentity
    template_id: int
    encoded_principal: bytes | None = None
    refusal: str = ""
    answer: Future[Judged] = field(default_factory=Future)

    @property
    def encoded_credentials(self) -> bytes:
        return self.identity.credentials

    @property
    def certificate_name(self) -> str | None:
        return self.identity.certificate_name

    @property
    def is_decided(self) -> bool:
        return self.encoded_principal is not None or bool(self.refusal)

    @property
    def right(self) -> Right:
        """The one that the request needs; what is none is asked for as by a reader."""
        return right_to(LINK_SCHEMA.id, self.template_id) or Right.READ

    def challenge(self, encoded_challenge: bytes) -> bool:
        self.reject("readers are not challenged")
        return True

    def authenticate(self, encoded_principal: bytes) -> bool:
        self.encoded_principal = bytes(encoded_principal)
        return True

    def reject(self, reason: str = "rejected by the authenticator") -> None:
        self.refusal = reason


@dataclass(slots=True)
class ReaderAdmission:
    """Asks for readers, unless ``is_open``; ``wake`` ends the wait of the member's thread."""

    security: Security
    wake: Callable[[], None]
    is_open: bool = False
    _asked: deque[_Asked] = field(default_factory=deque)  # by other threads, and not taken yet
    _undecided: list[_Asked] = field(default_factory=list)
    _session_id: int = -1

    def ask(self, identity: ReaderIdentity, template_id: int) -> Future[Judged]:
        """What is found of the reader and a request of this template, later. From any thread."""
        self._session_id -= 1
        asked = _Asked(self._session_id, identity, template_id)
        if self.is_open and asked.right is Right.READ:
            asked.answer.set_result(Judged(""))
        elif len(self._asked) + len(self._undecided) >= ASKED_MAX:
            asked.answer.set_result(Judged(TOO_MANY_ASK))
        else:
            self._asked.append(asked)
            self.wake()
        return asked.answer

    def do_work(self, now_ms: int) -> int:
        """Take each reader as far as it goes now; returns how many were answered."""
        if not self._asked and not self._undecided:
            return 0
        while self._asked:
            asked = self._asked.popleft()
            self.security.authenticator.on_connect_request(
                asked.session_id, asked.encoded_credentials, now_ms
            )
            self._undecided.append(asked)
        decided = [asked for asked in self._undecided if self._decide(asked, now_ms)]
        self._undecided = [asked for asked in self._undecided if not asked.answer.done()]
        return len(decided)

    def _decide(self, asked: _Asked, now_ms: int) -> bool:
        if asked.answer.cancelled():  # whoever asked waits no longer
            return True
        self.security.authenticator.on_connected_session(asked, now_ms)
        if not asked.is_decided:
            return False
        why, principal = asked.refusal, asked.encoded_principal or b""
        if not why and not self.security.authorisation.is_authorised(
            LINK_SCHEMA.id, asked.template_id, None, principal
        ):
            why = f"no right to {asked.right}"
        if why:
            what = f"to {_VERBS[asked.right]}"
            self.security.on_refused(asked.identity.peer, principal, what, why)
        if asked.answer.set_running_or_notify_cancel():
            asked.answer.set_result(Judged(_refusal_of(asked)) if why else Judged("", principal))
        return True


def _refusal_of(asked: _Asked) -> str:
    """What the reader hears: whether its identity or its right is missing, and no more."""
    return "reader failed authentication" if asked.refusal else f"no right to {asked.right}"
