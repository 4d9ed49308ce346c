"""Of schema 1111, in a file: what a life of a member notes of itself."""

from cluster.protocol.link import LINK_SCHEMA
from cluster.protocol.sbe import Ascii, Bool32, Message, i32, i64


class LifeNote(Message, template_id=42, schema=LINK_SCHEMA):
    """In life.dat: under which boot of its machine a member lives, and whether that life has ended in order.

    ``committed_position`` is known to be committed: it rises once a term, and at an end in order. ``boot_id``
    is empty where the machine does not tell it.
    """

    committed_position: i64
    file_sync_level: i32
    has_ended: Bool32
    boot_id: Ascii = ""
