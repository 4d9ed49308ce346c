"""What ``cluster live`` answers: the page, and the newest frame for every page that asks."""

import asyncio
import json
import secrets
import socket
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from cluster.cli.http_port import CONNECTIONS_MAX, HttpPort, HttpRequest, Response
from cluster.cli.live_buttons import MemberButtons
from cluster.cli.live_story import EVENTS_MAX, MESSAGES_MAX, Looks
from cluster.errors import ClusterError

# However many pages are open, a look stands for so long; where looks and their answers take more processor
# time, for longer, so that this process takes no more than this share of a core.
FRESH_S, FRESH_MAX_S = 0.5, 5.0
CORE_SHARE = 0.02
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
OWN_NAMES = ("127.0.0.1", "localhost")


class LivePages:
    """``looks`` is None where the page has its frames within."""

    def __init__(self, text: str, looks: Looks | None, buttons: MemberButtons | None = None) -> None:
        self._text = text.encode()
        self._looks = looks
        self._buttons = buttons
        self._events: deque[str] = deque(maxlen=EVENTS_MAX)
        self._messages: deque[dict[str, Any]] = deque(maxlen=MESSAGES_MAX)
        self._looking = ThreadPoolExecutor(1)
        # A page asks again before, and sometimes after, the next one: messages have their number.
        self._look = 0
        self._fresh_until_s = float("-inf")
        self._used_s = time.process_time()  # up to the last look
        self._frame = b""

    def port(self, sock: socket.socket) -> HttpPort:
        """Serves them; whoever asks is on this host, so that one address may take all connections."""
        methods = "GET", "HEAD", "POST"
        return HttpPort(sock, self.answer, methods=methods, address_connections_max=CONNECTIONS_MAX)

    async def answer(self, request: HttpRequest) -> Response:
        """The page at /, a frame at /frame; nothing to a site whose name has come to stand for this host."""
        if request.headers.get("host", "").partition(":")[0] not in OWN_NAMES:
            return Response(HTTPStatus.FORBIDDEN, b"this page is for this host\n")
        if request.method == "POST":
            return self._pressed(request)
        if request.path == "/":
            headers = {"Content-Security-Policy": POLICY}
            return Response(HTTPStatus.OK, self._text, "text/html; charset=utf-8", headers)
        if request.path != "/frame" or self._looks is None:
            return Response(HTTPStatus.NOT_FOUND, b"/ is the page\n")
        try:
            if not self._is_fresh():
                await asyncio.get_running_loop().run_in_executor(self._looking, self._renew, self._looks)
        except ClusterError as error:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode())
        # A page that asks once a look asks when the next one is due.
        due_ms = max(0, round(1_000 * (self._fresh_until_s - time.monotonic())))
        return Response(HTTPStatus.OK, self._frame, "application/json", {"X-Due-Ms": str(due_ms)})

    def _pressed(self, request: HttpRequest) -> Response:
        _, _, rest = request.path.partition("/")
        member, _, verb = rest.partition("/")
        key = request.headers.get("x-key", "")
        if self._buttons is None or not secrets.compare_digest(key.encode(), self._buttons.key.encode()):
            return Response(HTTPStatus.FORBIDDEN, b"the key is not that of the page's address\n")
        return self._buttons.press(member, verb)

    def _is_fresh(self) -> bool:
        return time.monotonic() < self._fresh_until_s

    def _renew(self, looks: Looks) -> None:
        """Look, in the one thread that does, unless it has just done so. Raises ClusterError."""
        if self._is_fresh():
            return
        frame = looks.frame()
        self._look += 1
        self._events.extend(frame["events"])
        self._messages.extend({**message, "look": self._look} for message in frame["messages"])
        seen = {"look": self._look, "events": list(self._events), "messages": list(self._messages)}
        self._frame = json.dumps({**frame, **seen}).encode()
        used_s, self._used_s = self._used_s, time.process_time()
        stands_s = (self._used_s - used_s) / CORE_SHARE
        self._fresh_until_s = time.monotonic() + min(max(stands_s, FRESH_S), FRESH_MAX_S)
