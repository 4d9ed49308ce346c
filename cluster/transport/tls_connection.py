"""A ``Connection`` whose bytes go through TLS: the same for its owner, from the first frame to the last.

The handshake is taken on by ``receive``, so that an owner that bounds whom it serves in a turn bounds the
handshakes of a turn, too. Until it is done the connection is not connected, and offers nothing.
"""

import socket
from collections.abc import Sequence
from typing import Any

from cluster.errors import TlsFailed
from cluster.log.connection_table import IS_WRAPPED, TLS
from cluster.transport.handed_over import HandedOver
from cluster.transport.poller import Poller
from cluster.transport.sockets import RECEIVE_BUFFER_LENGTH, Buffer, Connection, ReceiveBuffer
from cluster.transport.tls import TLS_HANDSHAKE, TlsSession, broken_off

SEALED_BYTES_MAX = 64 * 1024  # of frames that are encrypted before the socket has taken those before them
PULLED_BYTES_MAX = 128 * 1024  # of what has come, at a time
RECORD_BYTES_MAX = 17 * 1024  # of TLS, sealed: less cannot be opened


class TlsConnection(Connection):
    """A failed handshake leaves it closed, with an ``incompatibility``; ``why_closed`` says what is wrong."""

    __slots__ = ("_failure", "_is_dialling", "_is_spoken_to", "_plain_refusal", "_sealed", "_tls")

    def __init__(
        self,
        sock: socket.socket,
        poller: Poller,
        receive_buffer: ReceiveBuffer,
        tls: TlsSession,
        *,
        plain_refusal: bytes = b"",
        **options: Any,
    ) -> None:
        """``plain_refusal`` is said in the clear to a peer without TLS. ``options`` are Connection's."""
        self._tls = tls
        self._plain_refusal = plain_refusal
        self._sealed = memoryview(b"")  # encrypted, and not taken by the socket yet
        self._failure: TlsFailed | None = None
        self._is_spoken_to = False  # the peer has said something
        self._is_dialling = not tls.is_accepting
        super().__init__(sock, poller, receive_buffer, **{**options, "is_connecting": self._is_dialling})
        self._is_connecting = True
        self._mark(IS_WRAPPED, True)

    # -- the handshake --

    def _finish_connect(self) -> None:
        if self._is_dialling:
            self._is_dialling = False
            super()._finish_connect()
            if self.is_closed:
                return
            self._is_connecting = True
            self._shake_hands()
        else:
            self._flush_sealed()
            self._mark_readable()

    def _shake_hands(self) -> None:
        try:
            is_done = self._tls.shake_hands()
        except TlsFailed as error:
            self._refuse(error)
            return
        self._flush_sealed()
        if is_done and not self.is_closed:
            self._is_connecting = False
            self.certificate_name = self._tls.certificate_name
            self._table.set(self.descriptor, TLS, self._tls.address)
            self._mark(IS_WRAPPED, not self._tls.address)
            self._watch()

    def _refuse(self, error: TlsFailed) -> None:
        self._failure = error
        self.incompatibility = TlsFailed
        self._flush_sealed()  # the alert
        self.close(str(error))
        self.why_closed = str(error)  # whether the alert went out or not

    # -- receiving --

    def receive(self, bytes_max: int = RECEIVE_BUFFER_LENGTH) -> bool:
        has_frames = super().receive(bytes_max)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if not self.is_closed and not self.is_paused and self._tls.has_unread:
            self._mark_readable()  # the poller does not know of it
        return has_frames

    def resume(self) -> None:
        super().resume()
        if not self.is_closed and self._tls.has_unread:
            self._mark_readable()

    def _receive_into(self, view: memoryview) -> int:
        count = 0
        while count < len(view) and not self.is_closed:
            if self._is_connecting:
                self._shake_hands()
            if not self._is_connecting and (received := self._read(view[count:], has_some=count > 0)):
                count += received
                continue
            if self.is_closed or not self._pull(len(view) - count, has_some=count > 0):
                break
        return count

    def _read(self, view: memoryview, *, has_some: bool) -> int:
        """Bytes that the session has; ``has_some``: an end can wait until those before it are taken."""
        try:
            received = self._tls.read_into(view)
        except TlsFailed as error:
            self._refuse(error)
            return 0
        if received is None and not has_some:
            self.close("the peer closed the connection")
        return received or 0

    def _pull(self, wanted_bytes: int, *, has_some: bool) -> bool:
        """Feed the session a record more than is wanted at most; whether the socket had something."""
        try:
            data = self._sock.recv(max(min(wanted_bytes, PULLED_BYTES_MAX), RECORD_BYTES_MAX))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._break_off(error)
            return False
        if not data:
            if not has_some:
                self._break_off(None)
            return False
        if not self._is_spoken_to:
            self._is_spoken_to = True
            if self._plain_refusal and data[0] != TLS_HANDSHAKE:
                self._sealed = memoryview(self._plain_refusal)
                self._refuse(TlsFailed(f"{self._tls.peer} does not speak TLS"))
                return False
        self._tls.feed(data)
        return True

    def _break_off(self, error: OSError | None) -> None:
        """The peer ended the connection: in a handshake that we began it is an answer to that."""
        if self._is_connecting and not self._tls.is_accepting:
            self._refuse(TlsFailed(broken_off(self._tls.peer)))
        elif error is not None:
            self.fail(error)
        else:
            self.close("the peer closed the connection")

    # -- sending --

    @property
    def _has_unsent(self) -> bool:
        return bool(self._sealed) or super()._has_unsent

    def _send(self, buffers: Sequence[Buffer]) -> int:
        data = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers)).cast("B")  # type: ignore
        taken = 0
        while taken < len(data) and self._flush_sealed():
            part = data[taken : taken + SEALED_BYTES_MAX]
            try:
                self._tls.seal(part)
            except TlsFailed as error:  # a compiled turn has read what is no record
                self._refuse(error)
                break
            taken += len(part)
        self._flush_sealed()
        return 0 if self.is_closed else taken

    def _flush_sealed(self) -> bool:
        """Send what is encrypted as far as the socket takes it; whether it took all."""
        if fresh := self._tls.take():
            self._sealed = memoryview(bytes(self._sealed) + fresh)
        while self._sealed:
            try:
                self._sealed = self._sealed[self._sock.send(self._sealed) :]
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._sealed = memoryview(b"")
                self.fail(error)
                return False
        self._watch()
        return not self._sealed

    def flush(self) -> None:
        if self._flush_sealed():
            super().flush()

    def _end_stream(self) -> None:
        if not self._sealed:  # else when it is out
            self._tls.end()
            self._flush_sealed()
            super()._end_stream()

    def detach(self) -> HandedOver:
        handed = super().detach()
        return HandedOver(handed.sock, handed.received, self.certificate_name, self._tls)
