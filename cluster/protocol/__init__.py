"""The bytes: every frame, message and file layout, each declared once. Data, no logic, no I/O.

Read first ``sbe.py`` (how a message is declared, and what a reader does with other versions), then
``frame.py`` (frames and positions). Messages of schema 111 are in ``session``, ``log``, ``service``,
``consensus``, ``backup`` and ``snapshot``; ours (schema 1111) in ``link``, ``link_histories``,
``life_note`` and ``last_words``, and (1112) in ``service_link``. What Aeron's media driver and archive are
sent is in ``media`` and ``archive_control``. Files are in ``catalog``, ``recording_log``, ``node_state``,
``mark_file``, ``cnc``, ``error_log``; strings in ``members``. ``arrays`` is numpy, or what stands in
for it in a client.

This package never opens, reads or writes a file, and imports nothing of ours but ``cluster.errors``.
"""

from cluster.protocol import (
    backup,
    consensus,
    last_words,
    life_note,
    link,
    link_histories,
    log,
    service,
    session,
    snapshot,
)
from cluster.protocol.sbe import CLUSTER, NULL_POSITION, NULL_VALUE, Buffer, Message, decode_with

_SCHEMAS = {CLUSTER.id: CLUSTER, link.LINK_SCHEMA.id: link.LINK_SCHEMA}


def decode(buffer: Buffer, offset: int = 0, length: int | None = None) -> Message | None:
    """The message of schema 111 or 1111; None of an unknown template. Raises RemoteProtocolError."""
    return decode_with(_SCHEMAS, buffer, offset, length)


__all__ = [
    "CLUSTER",
    "NULL_POSITION",
    "NULL_VALUE",
    "Buffer",
    "Message",
    "backup",
    "consensus",
    "decode",
    "last_words",
    "life_note",
    "link",
    "link_histories",
    "log",
    "service",
    "session",
    "snapshot",
]
