"""Messages in Simple Binary Encoding, declared as classes.

    class CanvassPosition(Message, template_id=50):
        log_leadership_term_id: i64
        ...
        protocol_version: Annotated[Version, since(9)] = 0

A message on the wire, little-endian and nowhere aligned:

    u16 block length | u16 template id | u16 schema id | u16 version      of the writer
    root block                                                            fields in order
    per group:    u16 element block length | u16 count | elements         each a block, groups, var data
    per var data: u32 length | bytes

The class is the table: its annotations say width, null and since-version, and out of them come one
``struct.Struct`` for header and block, a packed numpy dtype of the block (``DTYPE``), and a constructor.
Instances are immutable tuples with names, so that a fixed message is encoded or decoded by one call.

How null is encoded: a field declared ``X | None`` reads as None when it holds the type's null, or when the
writer's version is older than the field. A plain field keeps the number (a ``Version`` 0, an i64 -2**63).
Aeron itself mostly says -1 for "no value" in plain fields; that is not SBE's null and passes through.

Reading follows SBE's evolution rules: fields since a version later than the writer's are null, var data
empty with nothing consumed; groups and var data begin after the block length that the *header* has;
unknown templates are None to `decode`. Anything that does not fit the bytes raises RemoteProtocolError.
"""

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

from cluster.errors import LocalProtocolError, LogDamaged, RemoteProtocolError
from cluster.protocol.arrays import np
from cluster.protocol.declare import (
    NULL_I32,
    NULL_I64,
    Ascii,
    Blob,
    Bool32,
    Declaration,
    Field,
    Layout,
    Tail,
    Time,
    Version,
    at,
    i8,
    i32,
    i64,
    null,
    since,
    u8,
    u16,
)

Buffer: TypeAlias = Any  # bytes, bytearray, memoryview or a uint8 array: numpy's stubs do not say

NULL_VALUE: Final = -1  # Aeron's own "none" for ids and timestamps
NULL_POSITION: Final = -1
VAR_DATA_LENGTH_MAX: Final = 2**30
GROUP_COUNT_MAX: Final = 65_534
VERSION_LATEST: Final = 65_534  # of a writer that gives none: it knows all that we know

HEADER_DTYPE = np.dtype(
    [("block_length", "<u2"), ("template_id", "<u2"), ("schema_id", "<u2"), ("version", "<u2")]
)
HEADER_LENGTH: Final = 8
TEMPLATE_ID_AT, SCHEMA_ID_AT, SCHEMA_VERSION_AT = 2, 4, 6  # for kernels
_HEADER = struct.Struct("<HHHH")
_GROUP = struct.Struct("<HH")
_LENGTH = struct.Struct("<I")
assert HEADER_DTYPE.itemsize == _HEADER.size == HEADER_LENGTH


class Schema:
    """An SBE schema: its identity, and the messages declared for it by template id."""

    def __init__(self, name: str, schema_id: int, version: int) -> None:
        self.name = name
        self.id = schema_id
        self.version = version
        self.templates: dict[int, type[Message]] = {}


CLUSTER = Schema("cluster", 111, 17)

if TYPE_CHECKING:

    class _Tuple:
        """A tuple without ``count`` and ``index``, which are names of fields here."""

        def __iter__(self) -> Iterator[Any]: ...
        def __getitem__(self, index: int) -> Any: ...
        def __len__(self) -> int: ...

else:
    _Tuple = tuple

_new: Any = tuple.__new__
_same: Any = tuple.__eq__
_hash: Any = tuple.__hash__


class Composite(_Tuple, metaclass=Declaration):
    """A block with what follows it, and no message header: a group's element, a record. Immutable."""

    _layout: ClassVar[Layout]
    _fields: ClassVar[tuple[str, ...]]
    BLOCK_LENGTH: ClassVar[int]
    DTYPE: ClassVar[Any]  # of numpy: the fields before groups and var data
    LATER_PARTS: ClassVar[int] = 0  # of the groups and var data, the last ones: older writers end before them

    @classmethod
    def layout(cls) -> Layout:
        """Fields, groups and var data as declared, with offsets and since-versions."""
        return cls._layout

    @classmethod
    def offset_of(cls, name: str) -> int:
        """Offset of a field in the block, for those who update it in place."""
        return next(field.offset for field in cls._layout.fields if field.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Values by field name, in order."""
        return dict(zip(self._fields, self, strict=True))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**(self.as_dict() | changes))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _same(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = _hash

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"{type(self).__name__}({values})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    # -- bytes ------------------------------------------------------------------------------------

    def encode_body(self) -> bytes:
        """Block, groups and var data, without a message header."""
        return b"".join(self._parts(self._layout.block))

    def _parts(self, head: struct.Struct, *header: bytes) -> Iterator[bytes]:
        layout = self._layout
        values: Any = self
        if layout.encoders:
            values = list(self)
            for index, number in layout.encoders:
                if values[index] is None:
                    values[index] = number
        count = len(layout.fields)
        try:
            yield head.pack(*header, *values[:count])
        except struct.error as error:
            raise LocalProtocolError(f"{type(self).__name__}: {self._unfit(values)}: {error}") from None
        for part, value in zip(layout.tail, values[count:], strict=True):
            if part.element is not None:
                if len(value) > GROUP_COUNT_MAX:
                    raise LocalProtocolError(
                        f"{type(self).__name__}.{part.name}: {len(value)} elements, at most {GROUP_COUNT_MAX}"
                    )
                yield _GROUP.pack(part.element.BLOCK_LENGTH, len(value))
                for element in value:
                    yield from element._parts(element._layout.block)
            else:
                data = value.encode("latin-1", "replace") if part.text else value
                if len(data) > VAR_DATA_LENGTH_MAX:
                    raise LocalProtocolError(
                        f"{type(self).__name__}.{part.name}: {len(data)} bytes, at most {VAR_DATA_LENGTH_MAX}"
                    )
                yield _LENGTH.pack(len(data))
                yield bytes(data)

    def _unfit(self, values: Any) -> str:
        """Name the field whose value its width cannot hold."""
        for field, value in zip(self._layout.fields, values, strict=False):
            try:
                struct.pack("<" + field.primitive.code, value)
            except struct.error:
                return f"{field.name} = {value!r}"
        return "fields"

    @classmethod
    def decode_body(
        cls, buffer: Buffer, offset: int, limit: int, block_length: int, version: int
    ) -> tuple[Self, int]:
        """The value whose block begins at ``offset``, and the offset after all that belongs to it.

        ``limit`` is excluded; ``block_length`` and ``version`` are the writer's. Raises RemoteProtocolError.
        """
        layout = cls._layout
        end = offset + block_length
        if end > limit:
            raise RemoteProtocolError(
                f"{cls.__name__}: block of {block_length} bytes at offset {offset}, "
                f"{limit - offset} are there"
            )
        values: Any
        if version >= layout.since and block_length >= layout.length:
            values = layout.block.unpack_from(buffer, offset)
        else:
            values = cls._read_older(buffer, offset, block_length, version)
        if layout.decoders:
            values = list(values)
            for index, decoder in layout.decoders:
                try:
                    values[index] = decoder(values[index])
                except KeyError:
                    field = layout.fields[index]
                    known = ", ".join(str(int(value)) for value in field.values or ())
                    raise RemoteProtocolError(
                        f"{cls.__name__}.{field.name} at offset {offset + field.offset}: "
                        f"{values[index]}, expected one of {known}"
                    ) from None
        if layout.tail:
            values = list(values)
            first_later = len(layout.tail) - cls.LATER_PARTS
            for index, part in enumerate(layout.tail):
                value: Any
                if version < part.since or (end == limit and index >= first_later):
                    value = () if part.element is not None else "" if part.text else b""
                elif part.element is not None:
                    value, end = cls._read_group(part, buffer, end, limit, version)
                else:
                    value, end = cls._read_var_data(part, buffer, end, limit)
                values.append(value)
        return _new(cls, values), end

    @classmethod
    def decode_record(
        cls,
        buffer: Buffer,
        offset: int = 0,
        limit: int | None = None,
        block_length: int | None = None,
        version: int = VERSION_LATEST,
    ) -> Self:
        """As `decode_body`, for bytes of a file: what does not fit raises LogDamaged with ``offset``."""
        limit = len(buffer) if limit is None else limit
        block_length = cls.BLOCK_LENGTH if block_length is None else block_length
        try:
            return cls.decode_body(buffer, offset, limit, block_length, version)[0]
        except RemoteProtocolError as error:
            raise LogDamaged(None, offset, str(error)) from None

    @classmethod
    def _read_older(cls, buffer: Buffer, offset: int, block_length: int, version: int) -> tuple[int, ...]:
        block, nulls = next(
            (block, nulls) for known_since, block, nulls in cls._layout.prefixes if known_since <= version
        )
        if block.size > block_length:
            raise RemoteProtocolError(
                f"{cls.__name__}: block length {block_length} at offset {offset}, "
                f"version {version} has at least {block.size}"
            )
        values: tuple[int, ...] = block.unpack_from(buffer, offset)
        return values + nulls

    @classmethod
    def _read_group(
        cls, part: Tail, buffer: Buffer, offset: int, limit: int, version: int
    ) -> tuple[tuple["Composite", ...], int]:
        assert part.element is not None
        if offset + _GROUP.size > limit:
            raise RemoteProtocolError(f"{cls.__name__}.{part.name}: no group header at offset {offset}")
        block_length, count = _GROUP.unpack_from(buffer, offset)
        offset += _GROUP.size
        elements = []
        for _ in range(count):
            element, offset = part.element.decode_body(buffer, offset, limit, block_length, version)
            elements.append(element)
        return tuple(elements), offset

    @classmethod
    def _read_var_data(cls, part: Tail, buffer: Buffer, offset: int, limit: int) -> tuple[str | bytes, int]:
        begin = offset + _LENGTH.size
        if begin > limit:
            raise RemoteProtocolError(f"{cls.__name__}.{part.name}: no length at offset {offset}")
        (length,) = _LENGTH.unpack_from(buffer, offset)
        if length > VAR_DATA_LENGTH_MAX or begin + length > limit:
            raise RemoteProtocolError(
                f"{cls.__name__}.{part.name}: {length} bytes at offset {begin}, {limit - begin} are there"
            )
        data = bytes(buffer[begin : begin + length])
        return (data.decode("latin-1") if part.text else data), begin + length


class Message(Composite):
    """A composite that travels on its own: with a template id and the 8-byte message header in front."""

    TEMPLATE_ID: ClassVar[int]
    SCHEMA: ClassVar[Schema] = CLUSTER
    KIND: ClassVar[tuple[int, int]]  # template id and schema id, as `kind_at` finds them
    ENCODED_LENGTH: ClassVar[int]  # header and block: all of a message without groups and var data

    @classmethod
    def _identify(cls, *, template_id: int, schema: Schema | None = None) -> None:
        if schema is not None:
            cls.SCHEMA = schema
        cls.TEMPLATE_ID = template_id
        cls.KIND = template_id, cls.SCHEMA.id
        cls.ENCODED_LENGTH = HEADER_LENGTH + cls.BLOCK_LENGTH
        cls._layout.set_header(_HEADER.pack(cls.BLOCK_LENGTH, template_id, cls.SCHEMA.id, cls.SCHEMA.version))
        assert template_id not in cls.SCHEMA.templates
        cls.SCHEMA.templates[template_id] = cls

    def encode(self) -> bytes:
        """The whole message, header included. Raises LocalProtocolError for a value that does not fit."""
        layout = self._layout
        if not layout.tail and not layout.encoders:
            try:
                return layout.message.pack(layout.header, *self)
            except struct.error as error:
                raise LocalProtocolError(f"{type(self).__name__}: {self._unfit(self)}: {error}") from None
        return b"".join(self._parts(layout.message, layout.header))

    @classmethod
    def decode(cls, buffer: Buffer, offset: int = 0, length: int | None = None) -> Self:
        """The message that begins at ``offset`` and takes at most ``length`` bytes (None: to the end)."""
        limit = len(buffer) if length is None else offset + length
        block_length, template_id, schema_id, version = read_header(buffer, offset, limit)
        if template_id != cls.TEMPLATE_ID or schema_id != cls.SCHEMA.id:
            raise RemoteProtocolError(
                f"template {template_id} of schema {schema_id} at offset {offset}, "
                f"expected {cls.__name__} ({cls.TEMPLATE_ID} of schema {cls.SCHEMA.id})"
            )
        return cls.decode_body(buffer, offset + HEADER_LENGTH, limit, block_length, version)[0]


def read_header(buffer: Buffer, offset: int, limit: int) -> tuple[int, int, int, int]:
    """Block length, template id, schema id and version of the message at ``offset``."""
    assert offset >= 0 and limit <= len(buffer)
    if offset + HEADER_LENGTH > limit:
        raise RemoteProtocolError(
            f"message header at offset {offset}: {HEADER_LENGTH} bytes expected, {limit - offset} are there"
        )
    header: tuple[int, int, int, int] = _HEADER.unpack_from(buffer, offset)
    return header


def kind_at(buffer: Buffer, offset: int = 0) -> tuple[int, int]:
    """Template id and schema id of the message at ``offset``, whose header is known to be whole."""
    _, template_id, schema_id, _ = _HEADER.unpack_from(buffer, offset)
    return template_id, schema_id


def decode_with(
    schemas: dict[int, Schema], buffer: Buffer, offset: int, length: int | None
) -> Message | None:
    """The message at ``offset``; None of an unknown template. Raises RemoteProtocolError."""
    limit = len(buffer) if length is None else offset + length
    block_length, template_id, schema_id, version = read_header(buffer, offset, limit)
    schema = schemas.get(schema_id)
    if schema is None:
        raise RemoteProtocolError(f"schema {schema_id} at offset {offset}, expected one of {sorted(schemas)}")
    message = schema.templates.get(template_id)
    if message is None:
        return None
    return message.decode_body(buffer, offset + HEADER_LENGTH, limit, block_length, version)[0]


__all__ = [
    "CLUSTER",
    "NULL_I32",
    "NULL_I64",
    "NULL_VALUE",
    "Ascii",
    "Blob",
    "Bool32",
    "Buffer",
    "Composite",
    "Field",
    "Layout",
    "Message",
    "Schema",
    "Tail",
    "Time",
    "Version",
    "at",
    "decode_with",
    "i8",
    "i32",
    "i64",
    "kind_at",
    "null",
    "read_header",
    "since",
    "u8",
    "u16",
]
