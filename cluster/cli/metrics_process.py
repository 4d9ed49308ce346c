"""The process that serves a member's metrics and status over HTTP, started by the member beside itself.

    member ── binds, forks ──▶ this process ── reads ──▶ cnc.dat, cluster-mark.dat, archive
                                     └── /status alone asks the other members

It takes no turn of the member, and ends with it. What one request found serves all within a second.
"""

import asyncio
import base64
import binascii
import json
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from cluster.cli.http_port import HttpPort, HttpRequest, Response
from cluster.cli.members import Shown
from cluster.cli.metrics import metrics_text
from cluster.cli.running_member import mark_or_none
from cluster.cli.status_document import look_at, status_document
from cluster.cli.verdict import Member, why_not_ready
from cluster.errors import ClusterError, ConfigurationError
from cluster.node.config import NodeConfig
from cluster.node.machine import member_tls_of
from cluster.node.supervisor import die_with
from cluster.protocol.link import StatusRequest
from cluster.protocol.versions import PACKAGE_VERSION
from cluster.security.audit import AuditLog
from cluster.security.loading import load_security
from cluster.security.reader_admission import TOO_MANY_ASK, ReaderAdmission
from cluster.transport.clock import epoch_ms
from cluster.transport.log_server import ReaderIdentity

FRESH_S = 1.0  # what was found serves for so long
KEPT_MAX = 16  # of what was found, for different askers
ADMISSION_POLL_S = 0.01
CERTIFICATES_INTERVAL_S = 1.0
NICENESS = 5  # the member's turns come first

Page = tuple[bytes, str]  # and its content type


class MetricsPages:
    """What each path answers. ``member_directory`` is that of the member beside."""

    def __init__(self, config: NodeConfig, admission: ReaderAdmission) -> None:
        self._config = config
        self._directory = config.path
        self._admission = admission
        self._looking = ThreadPoolExecutor(1)
        self._found: dict[object, tuple[float, asyncio.Future[Page]]] = {}

    async def answer(self, request: HttpRequest) -> Response:
        """The page, or why there is none."""
        if request.path == "/livez":
            return Response(HTTPStatus.OK, b"ok\n")  # the process ends with its member
        if request.path == "/readyz":
            return await self._ready(request)
        pages: dict[str, Callable[[], Page]] = {
            "/metrics": lambda: self._metrics(request.headers.get("accept", ""), request.query == "all"),
            "/status": lambda: self._status(_credentials(request)),
        }
        if request.path not in pages:
            text = b"/metrics, /metrics?all, /livez, /readyz, /status\n"
            return Response(HTTPStatus.OK if request.path == "/" else HTTPStatus.NOT_FOUND, text)
        if refusal := await self._refusal(request):
            return refusal
        of = _credentials(request) if request.path == "/status" else request.headers.get("accept")
        try:
            page = await self._fresh((request.path, request.query == "all", of), pages[request.path])
            return Response(HTTPStatus.OK, *page)
        except ClusterError as error:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())

    async def _ready(self, request: HttpRequest) -> Response:
        """To everybody whether; to whom may read, why not, too."""
        reasons, _ = await self._fresh("/readyz", self._why_not_ready)
        if not reasons:
            return Response(HTTPStatus.OK, b"ok\n")
        may_read = await self._refusal(request) is None
        text = b"not ready\n" + (reasons if may_read else b"")
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, text)

    async def _fresh(self, key: object, make: Callable[[], Page]) -> Page:
        """What ``make`` gives, made once a second, one after the other in a thread."""
        now = time.monotonic()
        self._found = {key: found for key, found in self._found.items() if now - found[0] < FRESH_S}
        if key in self._found:
            return await asyncio.shield(self._found[key][1])
        made = asyncio.get_running_loop().run_in_executor(self._looking, make)
        if len(self._found) < KEPT_MAX:
            self._found[key] = now, made
        return await asyncio.shield(made)

    # -- who asks --

    async def _refusal(self, request: HttpRequest) -> Response | None:
        """As a reader of the log is asked: by the member's authenticator and rights."""
        if self._config.is_open:
            return None
        identity = ReaderIdentity(request.peer, request.certificate_name, _credentials(request))
        asked = self._admission.ask(identity, StatusRequest.TEMPLATE_ID)
        while not asked.done():
            self._admission.do_work(epoch_ms())
            await asyncio.sleep(ADMISSION_POLL_S)
        why = asked.result().why
        if not why:
            return None
        if why == TOO_MANY_ASK:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}\n".encode())
        scheme = "Basic" if self._config.authenticator == "password" else "Bearer"
        if "right" in why:
            return Response(HTTPStatus.FORBIDDEN, f"{why}\n".encode())
        headers = {"WWW-Authenticate": f'{scheme} realm="cluster"'}
        return Response(HTTPStatus.UNAUTHORIZED, f"{why}\n".encode(), headers=headers)

    # -- in the thread --

    def _look(self) -> Member:
        try:
            return look_at(str(self._directory))
        except ClusterError as error:  # the member has just begun
            return {"memberId": self._config.member_id, "isAlive": False, "error": str(error)}

    def _why_not_ready(self) -> Page:
        return "".join(f"{reason}\n" for reason in why_not_ready(self._look())).encode(), "text/plain"

    def _metrics(self, accept: str, has_all: bool) -> Page:
        mark, config = mark_or_none(str(self._directory)), self._config
        facts = {
            "version": PACKAGE_VERSION,
            "member_id": str(config.member_id),
            "cluster_id": str(config.cluster_id),
        }
        limits = {"cluster_sessions": config.max_sessions, "cluster_connections": config.connections_max}
        pid = None if mark is None else mark.pid
        return metrics_text(self._look(), facts, limits, pid, accept, has_all=has_all)

    def _status(self, credentials: bytes) -> Page:
        shown = Shown(credentials, self._config.tls_files)
        known = self._config.tcp_ingress_endpoints or self._config.ingress_endpoints
        document = status_document(self._directory, known, shown)
        return json.dumps(document, indent=1).encode() + b"\n", "application/json"


def _credentials(request: HttpRequest) -> bytes:
    """What a token's or a user's header has, as clients show it; empty without one."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True)
        except binascii.Error:
            return b""
    return b""


async def serve(config: NodeConfig, sock: socket.socket) -> None:
    """Serve until cancelled. Raises ConfigurationError."""
    on_refused = _unheard if config.is_open else AuditLog(str(config.path / "audit-metrics.log")).refused
    security = load_security(config, _say, on_refused)
    tls = member_tls_of(config)
    pages = MetricsPages(config, ReaderAdmission(security, lambda: None))
    port = asyncio.create_task(HttpPort(sock, pages.answer, tls).run())
    while not port.done():
        await asyncio.wait([port], timeout=CERTIFICATES_INTERVAL_S)
        try:
            if tls is not None:
                tls.refresh()
        except ConfigurationError as error:
            _say(error)
    port.result()


def _unheard(peer: str, encoded_principal: bytes, what: str, why: str) -> None:
    """Nobody is refused where everybody may read."""


def _say(error: Exception) -> None:
    sys.stderr.write(f"metrics: {error}\n")


def serve_beside() -> int:
    """Serve on the socket whose descriptor is the first argument; standard input has the configuration."""
    die_with(os.getppid(), signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.nice(NICENESS)
    config = pickle.loads(sys.stdin.buffer.read())
    try:
        asyncio.run(serve(config, socket.socket(fileno=int(sys.argv[1]))))
    except ClusterError as error:
        _say(error)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(serve_beside())
