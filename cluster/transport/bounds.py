"""What strangers may take of a member: whoever has no session yet, only reads, or is no member that we know.

At a bound the newest is refused, or takes the place of the oldest that has no session; sessions that are
open go on. Each bound is a key of the configuration under the same name, and its errors name it.
"""

from dataclasses import dataclass

SECOND_NS = 1_000_000_000
MIB = 1024 * 1024


@dataclass(slots=True)
class Bounds:
    """Times in nanoseconds, sizes in bytes. A reload may change those that ``config_keys.py`` says."""

    connections_max: int = 1_024  # of clients, over all media
    address_connections_max: int = 512  # of one host over TCP or gRPC
    session_open_timeout_ns: int = 10 * SECOND_NS  # for a connection to open or resume a session
    frame_timeout_ns: int = 10 * SECOND_NS  # for the rest of a frame
    received_bytes_max: int = 64 * MIB  # buffered of frames that are not whole, or not taken yet
    # That wait for one client to read them: the answers to all that may be uncommitted, and more.
    egress_bytes_max: int = 48 * MIB
    egress_bytes_total_max: int = 64 * MIB  # that wait for all of them
    readers_max: int = 64
    reader_bytes_max: int = 64 * MIB  # that all readers together have not taken
    reader_timeout_ns: int = 30 * SECOND_NS  # for a reader to take what it is sent, or to ask
    greetings_max: int = 64  # connections on the members' port that have not said Hello
    greeting_timeout_ns: int = 10 * SECOND_NS  # for them to say it
    greeting_length_max: int = 4_096  # of it, in its envelope

    @property
    def reader_block_bytes(self) -> int:
        """The most that is read for one reader at a time: gRPC copies what it sends."""
        return self.reader_bytes_max // (2 * self.readers_max)


DEFAULT_BOUNDS = Bounds()
