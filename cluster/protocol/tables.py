"""The message tables of docs/formats.md, out of the declarations: ``python -m cluster.protocol.tables``."""

import sys
from collections.abc import Iterable, Iterator

from cluster.protocol import link
from cluster.protocol.sbe import CLUSTER, HEADER_LENGTH, Composite, Field, Message, Schema, Tail

WIRE_TYPES = {"b": "i8", "B": "u8", "H": "u16", "i": "i32", "q": "i64"}


def camel(name: str) -> str:
    """A field's name as the protocol spells it."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def empty_length(message: type[Message]) -> int:
    """Bytes of the message with every group and var data empty."""
    return message.ENCODED_LENGTH + 4 * len(message.layout().tail)


def field_text(field: Field, base: int) -> str:
    """``offset type name (annotations)``; the offset counts from ``base`` before the block."""
    notes = [f"v{field.since}"] if field.since else []
    if field.optional:
        notes.append("may be null")
    type_text = WIRE_TYPES[field.primitive.code]
    if field.values is not None:
        type_text += f" {type(next(iter(field.values.values()))).__name__}"
    return f"{base + field.offset} {type_text} **{camel(field.name)}**" + (
        f" ({', '.join(notes)})" if notes else ""
    )


def tail_text(part: Tail) -> str:
    """A group with its element, or var data."""
    since = f" (v{part.since})" if part.since else ""
    if part.element is None:
        return f"{'ascii' if part.text else 'blob'} **{camel(part.name)}**{since}"
    inside = "; ".join(composite_texts(part.element, 0))
    return f"group **{camel(part.name)}**{since} of {part.element.BLOCK_LENGTH} [{inside}]"


def composite_texts(composite: type[Composite], base: int) -> Iterator[str]:
    """Every part of a declaration, in the order of the bytes."""
    layout = composite.layout()
    yield from (field_text(field, base) for field in layout.fields)
    yield from (tail_text(part) for part in layout.tail)


def message_table(schema: Schema) -> Iterator[str]:
    """Lines of a Markdown table of all messages of ``schema``, by template id."""
    yield "| id | message | block | empty | offset in the message, type, field; then groups and var data |"
    yield "|---|---|---|---|---|"
    for template_id, message in sorted(schema.templates.items()):
        parts = "; ".join(composite_texts(message, HEADER_LENGTH))
        lengths = f"{message.BLOCK_LENGTH} | {empty_length(message)}"
        yield f"| {template_id} | {message.__name__} | {lengths} | {parts} |"


def tables() -> Iterable[str]:
    """Both tables, each under the comment by which docs/formats.md is checked."""
    for schema in (CLUSTER, link.LINK_SCHEMA):
        yield f"<!-- schema {schema.id}, version {schema.version}: python -m cluster.protocol.tables -->"
        yield from message_table(schema)


if __name__ == "__main__":
    sys.stdout.write("\n".join(tables()) + "\n")
