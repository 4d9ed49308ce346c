"""TLS records in a busy turn: the session that ``transport/tls.py`` has established, called without Python.

    socket -> sealed -> BIO_write, SSL_read -> received
    frames -> SSL_write -> its BIO -> socket

All that a session keeps is in OpenSSL, so that Python can go on with it after any turn. It does where a
record is damaged, where the peer has ended the session, and where the socket does not take all.
"""

from cluster.log.calls import (
    BIO_CONTROL,
    BIO_READ,
    BIO_WRITE,
    TLS_CLEAR_ERRORS,
    TLS_ERROR,
    TLS_INCOMING,
    TLS_OUTGOING,
    TLS_READ,
    TLS_WRITE,
    address_of,
    call_at,
)
from cluster.log.frames import wrap_i32
from cluster.log.kernel import routine
from cluster.log.memory import get_i64
from cluster.member.busy import words as at

WANT_READ = 2  # SSL_ERROR_WANT_READ: a whole record has not come yet
CONTENT = 3  # BIO_CTRL_INFO: length and address of what a BIO in memory has


@routine
def open_records(t, descriptor, tls, length, offset):  # type: ignore[no-untyped-def]
    """Open what came, ``sealed[:length]``, into ``received[offset:]``; returns the bytes there."""
    call_at(t.calls[BIO_WRITE], call_at(t.calls[TLS_INCOMING], tls), address_of(t.sealed, 0), length)
    end = offset
    count = 1
    while count > 0 and end < t.received.size:
        count = wrap_i32(
            call_at(t.calls[TLS_READ], tls, address_of(t.received, end), t.received.size - end),
        )
        end += max(count, 0)
    if wrap_i32(call_at(t.calls[TLS_ERROR], tls, count)) != WANT_READ:
        t.words[at.GIVEN], t.words[at.GIVEN_BEGIN], t.words[at.GIVEN_END] = descriptor, 0, 0
        t.words[at.REASON] |= at.FRAMES
        call_at(t.calls[TLS_CLEAR_ERRORS])  # else they are taken for another connection's
    return end - offset


@routine
def seal_records(t, tls, address, length):  # type: ignore[no-untyped-def]
    """Encrypt; returns of how many bytes, none where the session has failed."""
    count = wrap_i32(call_at(t.calls[TLS_WRITE], tls, address, length))
    if count <= 0:
        call_at(t.calls[TLS_CLEAR_ERRORS])
    return count


@routine
def sealed_records(t, tls):  # type: ignore[no-untyped-def]
    """Address and length of what is encrypted and was not sent."""
    bio = call_at(t.calls[TLS_OUTGOING], tls)
    length = call_at(t.calls[BIO_CONTROL], bio, CONTENT, 0, address_of(t.scratch, at.TLS_AT))
    return get_i64(t.scratch, at.TLS_AT), length


@routine
def drop_records(t, tls, length):  # type: ignore[no-untyped-def]
    """So much of it was sent."""
    bio = call_at(t.calls[TLS_OUTGOING], tls)
    while length > 0:
        length -= wrap_i32(
            call_at(t.calls[BIO_READ], bio, address_of(t.sealed, 0), min(length, at.SEALED_BYTES))
        )
