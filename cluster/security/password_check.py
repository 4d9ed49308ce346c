"""Passwords checked beside the duty cycle: one thread, a turn for each user, and a memory of who was right.

scrypt takes some 50 ms on purpose. Attempts wait in a queue for each user, of which the thread takes one in
turn: who floods one name delays every other by one check at most. All names that nobody has share one queue,
and are checked like the others, so that time does not reveal which names there are. Who was right before is
right again without a check, until the file changes. The thread has a low priority: where the processors are
busy, all who guess take a tenth of one, and an idle one checks at once.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import threading
from collections import OrderedDict, deque

from cluster.security.principals import Digest, password_digest

WAITING_MAX = 8  # of one user; who comes then is asked again later
REMEMBERED_MAX = 4096
NICENESS = 10  # beside a busy thread, a tenth of a processor: sched(7)
NOBODY = ""


class PasswordCheck:
    """Answers of ``is_right`` come later; the thread lives as long as somebody waits."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)  # of the memory: no password is kept
        self._nobody = password_digest(secrets.token_bytes(16))
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[tuple[bytes, bytes, Digest]]] = OrderedDict()
        self._pending: set[bytes] = set()
        self._answers: OrderedDict[bytes, bool] = OrderedDict()
        self._is_running = False

    def is_right(self, user: str, password: bytes, digest: Digest | None) -> bool | None:
        """Whether the password fits the user's digest, None for no such user; None: ask again later."""
        known = digest or self._nobody
        attempt = self._attempt(user, password, known)
        with self._lock:
            answer = self._answers.get(attempt)
            if answer is False:
                del self._answers[attempt]  # the next attempt is checked again
            if answer is None and attempt not in self._pending:
                self._enqueue(user if digest else NOBODY, attempt, password, known)
            if self._waiting and not self._is_running:
                self._start()
        return answer and digest is not None

    def _attempt(self, user: str, password: bytes, digest: Digest) -> bytes:
        """What stands for user, password and digest, and reveals nothing of them."""
        message = b"\0".join((user.encode(), str(digest).encode(), password))
        return hmac.new(self._key, message, hashlib.sha256).digest()

    def _enqueue(self, name: str, attempt: bytes, password: bytes, digest: Digest) -> None:
        queue = self._waiting.setdefault(name, deque())
        if len(queue) < WAITING_MAX:
            queue.append((attempt, password, digest))
            self._pending.add(attempt)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="password-check", daemon=True)
        with contextlib.suppress(RuntimeError, MemoryError):  # no room for it: whoever asks next tries again
            thread.start()
            self._is_running = True

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # not allowed here: then it is as important as others
            os.nice(NICENESS)  # on Linux of this thread alone
        while (job := self._next()) is not None:
            attempt, password, digest = job
            is_right = None
            with contextlib.suppress(Exception):  # no memory for it: who asks again is checked again
                is_right = digest.fits(password)
            with self._lock:
                self._pending.discard(attempt)
                if is_right is not None:
                    self._answers[attempt] = is_right
                if len(self._answers) > REMEMBERED_MAX:
                    self._answers.popitem(last=False)

    def _next(self) -> tuple[bytes, bytes, Digest] | None:
        """The oldest attempt of the user whose turn it is; None when nobody waits."""
        with self._lock:
            if not self._waiting:
                self._is_running = False
                return None
            name, queue = self._waiting.popitem(last=False)
            job = queue.popleft()
            if queue:
                self._waiting[name] = queue  # at the end of the line
            return job
