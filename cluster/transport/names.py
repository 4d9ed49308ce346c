"""What host names stand for: asked in threads, so that no turn waits for a name server.

    dial ──▶ Names.places ──▶ the addresses of the last good answer, the one that is to be tried now first
                  └── none came yet, or it is old: a thread asks the system's resolver

The last good answer is dialled until there is another. An address that did not connect gives way to the next.
There is one question for a name at a time, the next a second after the answer, then up to ten, so that a name
server that is silent holds up nothing but the first dial of the names that it knows.
"""

import errno
import functools
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from cluster.transport.endpoint import Endpoint, Medium

SECOND_NS = 1_000_000_000
REST_MIN_NS = 1 * SECOND_NS
REST_MAX_NS = 10 * SECOND_NS
SLOW_NS = 5 * SECOND_NS  # without an answer: the operator is notified

# Takes addresses, empty where there are none, and why.
Answer: TypeAlias = Callable[[tuple[str, ...], str], None]
Ask: TypeAlias = Callable[[str, Answer], None]


def look_up(host: str) -> tuple[tuple[str, ...], str]:
    """The host's addresses by the system's resolver, IPv4 first, and why there are none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return (), getattr(error, "strerror", None) or str(error)
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return tuple(dict.fromkeys(_text(*info[4]) for info in found)), ""


def _text(address: str | int, port: int | bytes, flow: int = 0, scope: int = 0) -> str:
    return f"{address}%{scope}" if scope else str(address)


def ask_in_thread(host: str, answer: Answer) -> None:
    """``look_up`` in a thread of its own, which nobody waits for."""

    def ask() -> None:
        try:
            addresses, why = look_up(host)
        except Exception as error:  # no memory: without an answer nobody would ask again
            addresses, why = (), f"{type(error).__name__}: {error}"
        answer(addresses, why)

    try:
        threading.Thread(target=ask, name=f"name {host}", daemon=True).start()
    except RuntimeError as error:  # no more threads
        answer((), str(error))


@functools.lru_cache(maxsize=1024)
def is_numeric(host: str) -> bool:
    """Whether it is an address, which nobody has to be asked for."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def _is_address(endpoint: Endpoint) -> bool:
    return endpoint.medium is Medium.IPC or is_numeric(endpoint.host)


def _places(endpoint: Endpoint, addresses: tuple[str, ...]) -> list[Endpoint]:
    return [replace(endpoint, host=address) for address in addresses]


def places_within(endpoint: Endpoint, timeout_s: float) -> list[Endpoint]:
    """Wait for the addresses of an endpoint. Raises OSError where there are none, or not by then."""
    if _is_address(endpoint):
        return [endpoint]
    found: list[tuple[tuple[str, ...], str]] = []
    is_answered = threading.Event()

    def answer(addresses: tuple[str, ...], why: str) -> None:
        found.append((addresses, why))
        is_answered.set()

    ask_in_thread(endpoint.host, answer)
    if not is_answered.wait(timeout_s):
        raise OSError(errno.EHOSTUNREACH, f"{endpoint.host} does not resolve: no answer for {timeout_s:g} s")
    addresses, why = found[0]
    if not addresses:
        raise OSError(errno.EHOSTUNREACH, f"{endpoint.host} does not resolve: {why}")
    return _places(endpoint, addresses)


def connect_within(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    """Connected to one of the endpoint's addresses, blocking, all within ``timeout_s``. Raises OSError."""
    deadline = time.monotonic() + timeout_s
    places = places_within(endpoint, timeout_s)
    for index, place in enumerate(places):
        left_s = max(deadline - time.monotonic(), 0.001) / (len(places) - index)
        try:
            sock = socket.socket(place.family, socket.SOCK_STREAM)
            try:
                sock.settimeout(left_s)
                with place.address() as address:
                    sock.connect(address)
                sock.settimeout(timeout_s)
                return sock
            except OSError:
                sock.close()
                raise
        except OSError:
            if place is places[-1]:
                raise
    raise AssertionError("an endpoint has one address at least")


class _Name:
    """What is known of one host name."""

    __slots__ = ("addresses", "answered", "asked_ns", "due_ns", "is_asked", "is_reported", "rest_ns", "why")

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()  # of the last good answer
        self.why = "it was not answered yet"
        self.is_asked = False  # and not answered
        self.is_reported = False  # to the operator: that it does not resolve
        self.asked_ns = 0
        self.due_ns = 0  # the next question
        self.rest_ns = REST_MIN_NS
        self.answered = threading.Event()  # once, at least


class Names:
    """The names that one poller's connections are dialled by. Answers may come from any thread."""

    def __init__(
        self,
        ask: Ask = ask_in_thread,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        on_event: Callable[[str], None] = lambda _: None,
        patience_s: float = 0.0,
    ) -> None:
        """``on_event`` hears of names in any thread; a first dial waits for ``patience_s``."""
        self._ask = ask
        self._clock_ns = clock_ns
        self._on_event = on_event
        self._patience_s = patience_s
        self._names: dict[str, _Name] = {}
        self._first: dict[Endpoint, str] = {}  # where the next dial begins; else at the first
        self._own: dict[str, tuple[str, ...]] = {}

    def places(self, endpoint: Endpoint) -> list[Endpoint]:
        """Where it is reached now, by address, in the order to try; empty while its name is not known."""
        if _is_address(endpoint):
            return [endpoint]
        name = self._names.get(endpoint.host)
        if name is None:
            name = self._names[endpoint.host] = _Name()
            self._begin(endpoint.host, name)
            name.answered.wait(self._patience_s)
        else:
            self._look_after(endpoint.host, name)
        addresses = name.addresses
        first = self._first.get(endpoint)
        if first in addresses:
            at = addresses.index(first)
            addresses = addresses[at:] + addresses[:at]
        return _places(endpoint, addresses)

    def on_failed(self, endpoint: Endpoint, place: Endpoint) -> None:
        """A dial of the endpoint at one of its places did not connect: the next begins at another."""
        name = self._names.get(endpoint.host)
        if name is None or place.host not in name.addresses:
            return
        addresses = name.addresses
        first = self._first.get(endpoint)
        if place.host == (first if first in addresses else addresses[0]):
            self._first[endpoint] = addresses[(addresses.index(place.host) + 1) % len(addresses)]

    def count(self, endpoint: Endpoint) -> int:
        """How many addresses it has, 1 at least."""
        name = self._names.get(endpoint.host)
        return 1 if name is None else max(1, len(name.addresses))

    def why(self, endpoint: Endpoint) -> str:
        """Why it has no places."""
        return f"{endpoint.host} does not resolve: {self._names[endpoint.host].why}"

    def own(self, endpoint: Endpoint) -> list[Endpoint]:
        """Where to listen; waits for an answer, the first time. Raises OSError."""
        if _is_address(endpoint):
            return [endpoint]
        if endpoint.host not in self._own:
            addresses, why = look_up(endpoint.host)
            if not addresses:
                raise OSError(errno.EHOSTUNREACH, why)
            self._own[endpoint.host] = addresses
        return _places(endpoint, self._own[endpoint.host])

    # -- questions --

    def _begin(self, host: str, name: _Name) -> None:
        name.is_asked, name.asked_ns = True, self._clock_ns()
        self._ask(host, lambda addresses, why: self._on_answer(host, name, addresses, why))

    def _look_after(self, host: str, name: _Name) -> None:
        now_ns = self._clock_ns()
        if not name.is_asked and now_ns >= name.due_ns:
            self._begin(host, name)
        elif name.is_asked and now_ns - name.asked_ns >= SLOW_NS:
            self._say(host, name, f"no answer for {SLOW_NS / SECOND_NS:g} s")

    def _on_answer(self, host: str, name: _Name, addresses: tuple[str, ...], why: str) -> None:
        name.rest_ns = min(2 * name.rest_ns, REST_MAX_NS)
        if addresses and set(addresses) != set(name.addresses):
            name.addresses, name.rest_ns = addresses, REST_MIN_NS
        if not addresses:
            self._say(host, name, why)
        elif name.is_reported:
            name.is_reported = False
            self._on_event(f"{host} resolves again: {', '.join(addresses)}")
        name.due_ns = self._clock_ns() + name.rest_ns
        name.is_asked = False
        name.answered.set()

    def _say(self, host: str, name: _Name, why: str) -> None:
        name.why = why
        if not name.is_reported:
            name.is_reported = True
            meanwhile = f", {', '.join(name.addresses)} is dialled meanwhile" if name.addresses else ""
            self._on_event(f"{host} does not resolve: {why}{meanwhile}")
