"""The tables of docs/formats.md, made from the declarations.

python -m tests.protocol.format_tables < docs/formats.md > new.md && mv new.md docs/formats.md
"""

import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from cluster.protocol import counter_types, enums, link
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


def enum_table() -> Iterator[str]:
    """Lines of a Markdown table of the enumerations: the cluster's, then those of our own messages."""
    yield "| enumeration | numbers |"
    yield "|---|---|"
    for module in (enums, link):
        for name, declared in sorted(vars(module).items()):
            if not isinstance(declared, type) or not issubclass(declared, IntEnum):
                continue
            if declared.__module__ == module.__name__ and declared.__name__ == name:
                members = declared.__members__.items()
                yield f"| {name} | {', '.join(f'{int(number)} {member}' for member, number in members)} |"


def counter_table() -> Iterator[str]:
    """Lines of a Markdown table of the counters whose label follows from their type."""
    keys = {
        counter_types.Scope.CLUSTER: "cluster id",
        counter_types.Scope.SERVICE: "cluster id, service id",
        counter_types.Scope.ARCHIVE: "archive id",
    }
    yield "| type | counter | key | label, for id 0 |"
    yield "|---|---|---|---|"
    for type_id, known in sorted(counter_types.TEXTS.items()):
        given: dict[str, Any] = {"version": "V", "commit": "SHA"}
        if known.scope is counter_types.Scope.SERVICE:
            given["service_id"] = 0
        if known.has_threshold:
            given["threshold_ns"] = 100_000_000
        label = counter_types.counter_label(type_id, 0, **given)
        yield f"| {int(type_id)} | {type_id.name} | {keys[known.scope]} | `{label}` |"


def tables() -> dict[str, list[str]]:
    """Every table by the name under which docs/formats.md has it."""
    return {
        "messages of schema 111": list(message_table(CLUSTER)),
        "messages of schema 1111": list(message_table(link.LINK_SCHEMA)),
        "enumerations": list(enum_table()),
        "counters": list(counter_table()),
    }


def with_tables(document: str) -> str:
    """``document`` with each table between its comments made again."""
    for name, lines in tables().items():
        begin, end = f"<!-- table: {name} -->\n", f"<!-- end: {name} -->"
        head, found, rest = document.partition(begin)
        _, closed, tail = rest.partition(end)
        assert found and closed, f"the document has no table named {name!r}"
        document = head + begin + "\n".join(lines) + "\n" + end + tail
    return document


if __name__ == "__main__":
    sys.stdout.write(with_tables(sys.stdin.read()))
