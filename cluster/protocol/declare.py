"""How the declaration of a message becomes a layout: annotations, fields, and the metaclass that reads them.

``sbe.py`` says what a declaration means; this is how it is read. Everything here runs once, when a module
of messages is imported.
"""

import enum
import inspect
import struct
import types
import typing
from collections import namedtuple
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeAlias, dataclass_transform

from cluster.protocol.arrays import np

NULL_I32: Final = -(2**31)
NULL_I64: Final = -(2**63)


class Primitive(NamedTuple):
    """A number: its struct code and the number that says null."""

    code: str
    null: int


class VarData(NamedTuple):
    """Bytes after a u32 length; text is ASCII (bytes above 127 survive a round trip as Latin-1)."""

    text: bool


class since(NamedTuple):
    """The schema version that added the field."""

    version: int


class at(NamedTuple):
    """The field's offset in its block, where it does not simply follow the field before."""

    offset: int


class null(NamedTuple):
    """The field's null, where it is not its type's."""

    value: int


i8: TypeAlias = Annotated[int, Primitive("b", -128)]
u8: TypeAlias = Annotated[int, Primitive("B", 255)]
u16: TypeAlias = Annotated[int, Primitive("H", 65_535)]
i32: TypeAlias = Annotated[int, Primitive("i", NULL_I32)]
i64: TypeAlias = Annotated[int, Primitive("q", NULL_I64)]
Time: TypeAlias = i64  # in the cluster's time unit, unless the field's name says another
Version: TypeAlias = Annotated[int, Primitive("i", 0)]  # semantic: major << 16 | minor << 8 | patch
Bool32: TypeAlias = Annotated[bool, Primitive("i", NULL_I32)]
Ascii: TypeAlias = Annotated[str, VarData(text=True)]
Blob: TypeAlias = Annotated[bytes, VarData(text=False)]


class Field(NamedTuple):
    """One field of a block, as declared."""

    name: str
    primitive: Primitive
    offset: int
    since: int
    optional: bool
    values: dict[int, Any] | None  # number to enum member or bool; None for plain numbers

    @property
    def end(self) -> int:
        return self.offset + struct.calcsize("<" + self.primitive.code)

    @property
    def dtype(self) -> str:
        return {"b": "i1", "B": "u1", "H": "<u2", "i": "<i4", "q": "<i8"}[self.primitive.code]


class Tail(NamedTuple):
    """A group (``element`` is its class) or var data (``element`` is None) after the block."""

    name: str
    since: int
    text: bool
    element: Any  # a Composite class


class Layout:
    """What the declaration of one class comes to, computed once."""

    def __init__(self, fields: list[Field], tail: list[Tail], block_length: int | None) -> None:
        self.fields = tuple(fields)
        self.tail = tuple(tail)
        end = fields[-1].end if fields else 0
        self.length = end if block_length is None else block_length
        assert end <= self.length
        self.codes = self._codes(len(fields)) + f"{self.length - end}x"
        self.block = struct.Struct("<" + self.codes)
        self.header = b""
        self.message = self.block  # with the message header in front, once there is one
        # Fields are only ever appended, so an older writer's block is a prefix of ours. Latest first.
        assert all(a.since <= b.since for a, b in pairwise(fields))
        self.since = fields[-1].since if fields else 0
        versions = sorted({0, *(field.since for field in fields)}, reverse=True)
        self.prefixes = tuple((version, *self._prefix(version)) for version in versions)
        decoders = ((index, _decoder(field)) for index, field in enumerate(fields))
        self.decoders = tuple((index, decoder) for index, decoder in decoders if decoder is not None)
        self.encoders = tuple((i, field.primitive.null) for i, field in enumerate(fields) if field.optional)

    def set_header(self, header: bytes) -> None:
        """Let ``message`` pack ``header`` and block in one call."""
        self.header = header
        self.message = struct.Struct(f"<{len(header)}s{self.codes}")

    def _codes(self, count: int) -> str:
        codes, end = [], 0
        for field in self.fields[:count]:
            assert field.offset >= end
            codes.append(f"{field.offset - end}x{field.primitive.code}")
            end = field.end
        return "".join(codes)

    def _prefix(self, version: int) -> tuple[struct.Struct, tuple[int, ...]]:
        """The part of the block that ``version`` knows, and the nulls of what came later."""
        count = sum(field.since <= version for field in self.fields)
        nulls = tuple(field.primitive.null for field in self.fields[count:])
        return struct.Struct("<" + self._codes(count)), nulls


def _decoder(field: Field) -> Callable[[int], Any] | None:
    """From the number on the wire to the value in the message; None when they are the same."""
    if field.values is not None:
        return (field.values | {field.primitive.null: None} if field.optional else field.values).__getitem__
    if field.optional:
        number = field.primitive.null
        return lambda value: None if value == number else value
    return None


def _declared(name: str, annotation: Any, end: int) -> Field | Tail:
    """What one annotation declares; a field without `at` begins at ``end``."""
    notes: list[Any] = []
    optional = False
    while True:
        if hasattr(annotation, "__metadata__"):
            notes.extend(annotation.__metadata__)
            annotation = annotation.__origin__
        elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
            optional = True
            (annotation,) = (a for a in typing.get_args(annotation) if a is not types.NoneType)
        else:
            break
    noted = {type(note): note for note in reversed(notes)}
    version = noted[since].version if since in noted else 0
    if VarData in noted:
        return Tail(name, version, noted[VarData].text, None)
    if getattr(annotation, "__origin__", None) is tuple:
        element = typing.get_args(annotation)[0]
        assert isinstance(element, Declaration)
        return Tail(name, version, False, element)
    values: dict[int, Any] | None = None
    primitive = noted.get(Primitive, Primitive("i", NULL_I32))
    if isinstance(annotation, type) and issubclass(annotation, enum.IntFlag):
        raise AssertionError(f"{name}: declare flags as a number")
    if isinstance(annotation, type) and issubclass(annotation, enum.IntEnum):
        values = {member.value: member for member in annotation}
    elif annotation is bool:
        values = {0: False, 1: True}
    else:
        assert annotation is int and Primitive in noted, f"{name}: {annotation} has no width"
    if null in noted:
        primitive = primitive._replace(null=noted[null].value)
    offset = noted[at].offset if at in noted else end
    return Field(name, primitive, offset, version, optional, values)


@dataclass_transform(frozen_default=True, eq_default=False)
class Declaration(type):
    """Turns annotations into a layout, a constructor and one getter a field."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        namespace.setdefault("__slots__", ())
        return super().__new__(mcls, name, bases, namespace)

    def __init__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        block_length: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, bases, namespace)
        annotations = {
            field: annotation
            for field, annotation in inspect.get_annotations(cls, eval_str=True).items()
            if getattr(annotation, "__origin__", None) is not ClassVar
        }
        if not annotations:
            return
        fields: list[Field] = []
        tail: list[Tail] = []
        for field, annotation in annotations.items():
            declared = _declared(field, annotation, fields[-1].end if fields else 0)
            if isinstance(declared, Tail):
                # SBE puts groups before var data; a reader relies on it.
                assert declared.element is None or not tail or tail[-1].element is not None
                tail.append(declared)
            else:
                assert not tail, f"{name}.{field}: fields come before groups and var data"
                fields.append(declared)
        defaults = [namespace[field] for field in annotations if field in namespace]
        # A named tuple of the same fields lends its constructor and its getters, which run in C.
        named = namedtuple(name, list(annotations), defaults=defaults)  # type: ignore[misc]
        for attribute in ("__new__", "__match_args__", "_fields", "_field_defaults", *annotations):
            setattr(cls, attribute, named.__dict__[attribute])
        layout = Layout(fields, tail, block_length)
        cls._layout = layout
        cls.BLOCK_LENGTH = layout.length
        cls.DTYPE = np.dtype(
            {
                "names": [field.name for field in fields],
                "formats": [field.dtype for field in fields],
                "offsets": [field.offset for field in fields],
                "itemsize": layout.length,
            }
        )
        if options:
            cls._identify(**options)  # type: ignore[attr-defined]
