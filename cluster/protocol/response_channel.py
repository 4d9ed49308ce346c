"""What a session's response channel says besides an address: parameters of ours, which the log keeps.

    aeron:udp?endpoint=10.0.0.1:9999|resume-hash=<hex>|supervised=true

Aeron's readers pass over parameters that they do not know. In the snapshot of a service the channel of each
session has ``messages``: how many of them the service has been given up to there. That of a supervised one
has ``answers`` as well, last: how many the service has given to it.
"""

_SUPERVISED = "supervised"
_ANSWERS = "answers"
_MESSAGES = "messages"


def fault_of(channel: str, length_max: int) -> str:
    """Why a session may not have this channel, which would stand in the log; empty when it may."""
    if len(channel) > length_max:
        return (
            f"a response channel of {len(channel)} characters, expected at most {length_max} "
            "(response_channel_length_max)"
        )
    if not channel:
        return "no response channel, expected one such as aeron:ipc"
    if not (channel.isascii() and channel.isprintable()):
        return f"response channel {channel[:64]!r}: expected printable ASCII, such as aeron:ipc"
    return ""


def with_parameter(channel: str, key: str, value: str) -> str:
    """The channel with one parameter more."""
    return f"{channel}{'|' if '?' in channel else '?'}{key}={value}"


def parameter(channel: str, key: str) -> str:
    """The value of a parameter, empty without one."""
    for pair in channel.partition("?")[2].split("|"):
        name, _, value = pair.partition("=")
        if name == key:
            return value
    return ""


def as_supervised(channel: str) -> str:
    """The channel of a session whose answers are kept until its client has them."""
    return with_parameter(channel, _SUPERVISED, "true")


def is_supervised(channel: str) -> bool:
    """Whether the session's answers are numbered, and kept until its client has them."""
    return parameter(channel, _SUPERVISED) == "true"


def with_answer_count(channel: str, count: int) -> str:
    """The channel as the snapshot of a service has it, which has given so many answers."""
    return with_parameter(channel, _ANSWERS, str(count))


def with_message_count(channel: str, count: int) -> str:
    """The channel as the snapshot of a service has it, which was given so many messages of the session."""
    return with_parameter(channel, _MESSAGES, str(count))


def split_answer_count(channel: str) -> tuple[str, int]:
    """The channel without the count of answers, and that; 0 where it has none."""
    head, count = _split_count(channel, _ANSWERS)
    return head, count or 0


def split_message_count(channel: str) -> tuple[str, int | None]:
    """The channel as the session was opened with it, and how many messages were given; None: not known."""
    return _split_count(channel, _MESSAGES)


def _split_count(channel: str, key: str) -> tuple[str, int | None]:
    head, separator, count = channel.rpartition(f"{key}=")
    if not separator or head[-1:] not in ("?", "|") or not count.isdecimal():
        return channel, None
    return head[:-1], int(count)
