"""Values and bytes that several tests of this folder share."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from cluster.protocol import link
from cluster.protocol.declare import Field, Tail
from cluster.protocol.sbe import CLUSTER, Composite, Message

DATA = Path(__file__).resolve().parent.parent / "data"
WORKED_EXAMPLES = DATA / "worked_examples"

T0 = 1_700_000_000_000  # epoch ms that the worked examples start at
CHANNEL = "aeron:udp?endpoint=localhost:9020"

MESSAGES = [
    message for schema in (CLUSTER, link.LINK_SCHEMA) for _, message in sorted(schema.templates.items())
]


def dump(name: str) -> bytes:
    """Bytes of a hex dump: an offset, then two groups of eight bytes a line."""
    lines = (WORKED_EXAMPLES / f"{name}.hex").read_text().splitlines()
    return b"".join(bytes.fromhex(line.partition("  ")[2]) for line in lines)


def worked_messages() -> dict[str, bytes]:
    """Unframed messages by name."""
    lines = (WORKED_EXAMPLES / "messages.txt").read_text().splitlines()
    return {name: bytes.fromhex(text) for name, text in (line.split() for line in lines)}


def values_of(field: Field) -> st.SearchStrategy[Any]:
    """Any value that the field can hold; None only where it may be null."""
    code = field.primitive.code
    if field.values is not None:
        values: st.SearchStrategy[Any] = st.sampled_from(list(field.values.values()))
    elif code in "BH":
        values = st.integers(0, 2 ** (8 if code == "B" else 16) - 1)
    else:
        bits = {"b": 7, "i": 31, "q": 63}[code]
        values = st.integers(-(2**bits), 2**bits - 1)
    if field.optional:
        values = values.filter(lambda value: value != field.primitive.null) | st.none()
    return values


def parts_of(part: Tail) -> st.SearchStrategy[Any]:
    """Any group or var data."""
    if part.element is not None:
        return st.lists(composites(part.element), max_size=3).map(tuple)
    if part.text:
        return st.text(st.characters(max_codepoint=127), max_size=40)
    return st.binary(max_size=40)


def composites(composite: type[Composite]) -> st.SearchStrategy[Any]:
    """Any value of a declared class."""
    layout = composite.layout()
    arguments = {field.name: values_of(field) for field in layout.fields}
    arguments |= {part.name: parts_of(part) for part in layout.tail}
    return st.builds(composite, **arguments)


def sample(message: type[Message]) -> Message:
    """One value with every field filled in, the same each time."""
    layout = message.layout()
    arguments: dict[str, Any] = {}
    for number, field in enumerate(layout.fields):
        arguments[field.name] = list(field.values.values())[-1] if field.values else number + 1
    for part in layout.tail:
        if part.element is not None:
            arguments[part.name] = (sample(part.element),) * 2
        else:
            arguments[part.name] = part.name if part.text else part.name.encode()
    return message(**arguments)
