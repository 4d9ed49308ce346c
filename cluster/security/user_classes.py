"""A user's Authenticator and AuthorisationService, by ``module:ClassName``: what they raise is a refusal."""

import importlib
import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from cluster.consensus.authentication import Authenticator, AuthorisationService, SessionProxy
from cluster.errors import ConfigurationError

FAILED_MAX = 4096
OnException = Callable[[Exception], None]
RAISED = (Exception, SystemExit)


def is_class_name(text: str) -> bool:
    """Whether a text is ``module:ClassName``, and no path."""
    return ":" in text and os.sep not in text


def make(key: str, name: str, methods: tuple[str, ...]) -> Any:
    """An instance of the class, found from the working directory too. Raises ConfigurationError."""
    module_name, _, class_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module_name), class_name)()
    except RAISED as error:
        raise ConfigurationError(f'{key} = "{name}": {type(error).__name__}: {error}') from error
    missing = [method for method in methods if not callable(getattr(made, method, None))]
    if missing:
        raise ConfigurationError(f'{key} = "{name}": {class_name} has no {", ".join(missing)}')
    return made


class GuardedAuthenticator:
    """A user's authenticator; a session of which it raises is rejected, and the member goes on."""

    METHODS = (
        "on_connect_request",
        "on_challenge_response",
        "on_connected_session",
        "on_challenged_session",
    )

    def __init__(self, inner: Authenticator, on_exception: OnException) -> None:
        self._inner = inner
        self._on_exception = on_exception
        self._failed: deque[int] = deque(maxlen=FAILED_MAX)  # sessions to be rejected at the next question

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        try:
            self._inner.on_connect_request(session_id, encoded_credentials, now_ms)
        except RAISED as error:
            self._fail(session_id, error)

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        try:
            self._inner.on_challenge_response(session_id, encoded_credentials, now_ms)
        except RAISED as error:
            self._fail(session_id, error)

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        self._decide(self._inner.on_connected_session, session, now_ms)

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        self._decide(self._inner.on_challenged_session, session, now_ms)

    def _decide(self, hook: Callable[[SessionProxy, int], None], session: SessionProxy, now_ms: int) -> None:
        if session.session_id not in self._failed:
            try:
                hook(session, now_ms)
                return
            except RAISED as error:
                self._fail(session.session_id, error)
        self._failed.remove(session.session_id)
        session.reject("the authenticator failed")

    def may_resume(
        self,
        encoded_principal: bytes,
        encoded_credentials: bytes,
        now_ms: int,
        certificate_name: str | None,
    ) -> bool | None:
        """Without the hook, which Aeron's authenticators do not have, the resume token alone decides."""
        hook = getattr(self._inner, "may_resume", None)
        if hook is None:
            return True
        try:
            may = hook(encoded_principal, encoded_credentials, now_ms, certificate_name)
        except RAISED as error:
            self._on_exception(_described(error))
            return False
        return None if may is None else bool(may)

    def _fail(self, session_id: int, error: BaseException) -> None:
        self._failed.append(session_id)
        self._on_exception(_described(error))


class GuardedAuthorisation:
    """A user's authorisation service; what it raises is a no."""

    METHODS = ("is_authorised",)

    def __init__(self, inner: AuthorisationService, on_exception: OnException) -> None:
        self._inner = inner
        self._on_exception = on_exception

    def is_authorised(
        self, schema_id: int, action_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        try:
            return bool(self._inner.is_authorised(schema_id, action_id, request_type, encoded_principal))
        except RAISED as error:
            self._on_exception(_described(error))
            return False


def _described(error: BaseException) -> Exception:
    """What is written down: kind and place, not the text, which may hold a client's credentials."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
    return ConfigurationError(f"the authenticator or authorisation raised {type(error).__name__}{where}")
