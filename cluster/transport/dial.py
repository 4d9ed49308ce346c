"""To connect to an endpoint, of which the name may be known or not: a try that never waits."""

import errno
import os
import socket
from collections.abc import Callable
from functools import partial

from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.poller import Poller
from cluster.transport.sockets import Connection, ReceiveBuffer

_IN_PROGRESS = frozenset({errno.EINPROGRESS, errno.EAGAIN})


def dial(
    endpoint: Endpoint,
    poller: Poller,
    receive_buffer: ReceiveBuffer,
    *,
    make: Callable[..., Connection] = Connection,
    **options: object,
) -> Connection:
    """Start to connect to ``endpoint`` and return at once; failures show as a closed connection.

    So does a name that is not known yet (``names.py``): the dials to come find it. Of several addresses each
    dial that does not connect leaves the next one to the dial after it. ``options`` are those of ``make``.
    """
    assert endpoint.medium is not Medium.GRPC
    names = poller.names
    places = names.places(endpoint)
    failure = None if places else OSError(errno.EHOSTUNREACH, names.why(endpoint))
    for place in places:
        try:
            sock, is_connecting = _begin(place, poller)
        except OSError as error:
            failure = error
            names.on_failed(endpoint, place)
            continue
        on_unconnected = partial(names.on_failed, endpoint, place)
        return make(
            sock,
            poller,
            receive_buffer,
            is_connecting=is_connecting,
            on_unconnected=on_unconnected,
            **options,
        )
    sock = poller.open_socket(socket.AF_UNIX if endpoint.medium is Medium.IPC else socket.AF_INET)
    connection = make(sock, poller, receive_buffer, **options)
    assert failure is not None
    connection.fail(failure)
    return connection


def _begin(place: Endpoint, poller: Poller) -> tuple[socket.socket, bool]:
    """A socket, and whether it is connecting still. Raises OSError."""
    sock = poller.open_socket(place.family)
    try:
        sock.setblocking(False)
        with place.address() as address:
            error = sock.connect_ex(address)
        # A Unix socket whose listener's backlog is full does not connect later by itself.
        is_connecting = error in _IN_PROGRESS and not (
            sock.family == socket.AF_UNIX and error == errno.EAGAIN
        )
        if error and not is_connecting:
            raise OSError(error, os.strerror(error))
    except OSError:
        sock.close()
        raise
    return sock, is_connecting
