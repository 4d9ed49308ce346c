"""The part of an SBE message schema that payloads are decoded by: messages of fixed-length fields.

Taken are fields of primitive types, fixed-length char arrays as text, enums and sets as their encoding,
optional fields, fields that a later version added, and either byte order. Refused, each by name: composites,
arrays of other types, constants, groups, and data of variable length.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pyarrow as pa

from cluster.errors import ConfigurationError
from spark_connector.decoding.decoded import Decoded, check_field_names
from spark_connector.decoding.fixed_fields import FixedField, FixedFields, byte_ranges, gathered

_INTEGERS = {
    f"{sign}int{8 * size}": f"{code}{size}" for sign, code in (("", "i"), ("u", "u")) for size in (1, 2, 4, 8)
}
_PRIMITIVES = {"char": "S1", "float": "f4", "double": "f8", **_INTEGERS}
_HEADER_FIELDS = ("blockLength", "templateId", "schemaId", "version")


@dataclass(frozen=True, slots=True)
class SbeMessage:
    name: str
    template_id: int
    block: FixedFields


@dataclass(frozen=True, slots=True)
class SbeSchema:
    """The messages of one schema. A payload has a header, then the block that belongs to its template id."""

    schema_id: int
    header: FixedFields
    messages: tuple[SbeMessage, ...]

    @property
    def sql_type(self) -> str:
        """A struct with a struct for each message, of which a payload has one."""
        return f"STRUCT<{','.join(f'{message.name}:{message.block.sql_type}' for message in self.messages)}>"

    def decode(self, payloads: pa.Array) -> Decoded:
        starts, lengths, data = byte_ranges(payloads)
        headers = gathered(data, starts, self.header.length)
        block_length, template_id, schema_id, _ = self._headers(headers)
        has_header = lengths >= self.header.length
        is_whole = has_header & (lengths >= self.header.length + block_length)
        is_ours = is_whole & (schema_id == self.schema_id)
        is_known = np.zeros(len(starts), bool)
        columns = []
        for message in self.messages:
            is_this = is_ours & (template_id == message.template_id)
            is_known |= is_this
            at = np.where(is_this, starts + self.header.length, 0)
            block = gathered(data, at, message.block.length)
            columns.append(message.block.struct(block, block_length, is_this))
        failures = {}
        failed = np.flatnonzero(~is_known)
        columns_of_failed = (lengths, has_header, is_whole, block_length, template_id, schema_id)
        for i, length, headed, whole, block_bytes, template, schema in zip(
            failed.tolist(), *(column[failed].tolist() for column in columns_of_failed), strict=True
        ):
            if not headed:
                failures[i] = f"{length} bytes, a header has {self.header.length}"
            elif not whole:
                failures[i] = f"{length} bytes, expected {self.header.length + block_bytes}"
            else:
                failures[i] = f"template {template} of schema {schema} is not in schema {self.schema_id}"
        types = [pa.field(message.name, message.block.arrow_type) for message in self.messages]
        return Decoded(pa.StructArray.from_arrays(columns, fields=types, mask=pa.array(~is_known)), failures)

    def _headers(self, headers: np.ndarray) -> Iterator[np.ndarray]:
        for field in self.header.fields:
            raw = np.ascontiguousarray(headers[:, field.offset : field.offset + field.dtype.itemsize])
            yield raw.reshape(-1).view(field.dtype).astype(np.int64)


def read_sbe_schema(path: str) -> SbeSchema:
    """The schema in a file of the driver. Raises ConfigurationError, with the path, for what is not taken."""
    try:
        root = ElementTree.fromstring(Path(path).read_bytes())
        return _Parser(root).schema()
    except OSError as error:
        raise ConfigurationError(f"option decode names {path}: {error.strerror}") from None
    except (ElementTree.ParseError, ValueError) as error:
        raise ConfigurationError(f"option decode names {path}, which is no SBE schema: {error}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"option decode names {path}: {error}") from None


class _Parser:
    def __init__(self, root: Element) -> None:
        if _tag(root) != "messageSchema":
            raise ValueError(f"its root is {_tag(root)}, expected messageSchema")
        self._root = root
        order = root.get("byteOrder", "littleEndian")
        if order not in ("littleEndian", "bigEndian"):
            raise ValueError(f"byteOrder is {order}, expected littleEndian or bigEndian")
        self._order = "<" if order == "littleEndian" else ">"
        types = [element for group in root if _tag(group) == "types" for element in group]
        self._types = {_name(element): element for element in types}

    def schema(self) -> SbeSchema:
        header = self._header(self._root.get("headerType", "messageHeader"))
        messages = tuple(self._message(element) for element in self._root if _tag(element) == "message")
        if not messages:
            raise ValueError("it has no message")
        check_field_names("its messages", (message.name for message in messages))
        if len({message.template_id for message in messages}) < len(messages):
            raise ValueError("two of its messages have one id")
        return SbeSchema(_number(self._root, "id"), header, messages)

    def _header(self, name: str) -> FixedFields:
        """The four fields of the message header, wherever its composite has them."""
        composite = self._types.get(name)
        if composite is None or _tag(composite) != "composite":
            raise ValueError(f"composite {name}, the message header, is not in it")
        found = self._placed(list(composite), name)
        by_name = {field.name: field for field in found.fields}
        for wanted in _HEADER_FIELDS:
            if wanted not in by_name or by_name[wanted].dtype.kind not in "iu":
                raise ValueError(f"integer {wanted} is not in composite {name}, the message header")
        return FixedFields(tuple(by_name[wanted] for wanted in _HEADER_FIELDS), found.length)

    def _message(self, element: Element) -> SbeMessage:
        name = _name(element)
        block = self._placed(list(element), name)
        if not block.fields:
            raise ConfigurationError(f"message {name} has no fields")
        length = max(block.length, int(element.get("blockLength", "0")))
        return SbeMessage(name, _number(element, "id"), FixedFields(block.fields, length))

    def _placed(self, elements: list[Element], where: str) -> FixedFields:
        """Fields one after another, or at the offsets that they give."""
        fields: list[FixedField] = []
        end = 0
        for element in elements:
            if _tag(element) not in ("field", "type"):
                raise ConfigurationError(f"{where}.{_name(element)} is a {_tag(element)}; {_TAKEN}")
            offset = int(element.get("offset", end))
            if offset < end:
                raise ValueError(f"the offset of {where}.{_name(element)} is {offset}, before {end}")
            fields.append(self._field(element, offset, f"{where}.{_name(element)}"))
            end = offset + fields[-1].dtype.itemsize
        check_field_names(where, (field.name for field in fields))
        return FixedFields(tuple(fields), end)

    def _field(self, element: Element, offset: int, where: str) -> FixedField:
        definition = element
        if _tag(element) == "field":
            type_name = element.get("type", "")
            definition = self._types.get(type_name, Element("type", primitiveType=type_name))
        kind = _tag(definition)
        if kind in ("enum", "set"):
            encoding = definition.get("encodingType", "")
            definition = self._types.get(encoding, Element("type", primitiveType=encoding))
        elif kind != "type":
            raise ConfigurationError(f"{where} is a {kind}; {_TAKEN}")
        primitive = definition.get("primitiveType", "")
        if primitive not in _PRIMITIVES:
            raise ConfigurationError(f"{where} has type {primitive or element.get('type')!r}; {_TAKEN}")
        presence = element.get("presence", definition.get("presence", "required"))
        length = int(definition.get("length", "1"))
        if presence == "constant" or length < 1 or (length > 1 and primitive != "char"):
            what = "a constant" if presence == "constant" else f"an array of {length} {primitive}"
            raise ConfigurationError(f"{where} is {what}; {_TAKEN}")
        code = f"S{length}" if primitive == "char" else _PRIMITIVES[primitive]
        dtype = np.dtype(code if primitive == "char" else self._order + code)
        null = None
        if presence == "optional":
            null = _null(primitive, dtype, element.get("nullValue", definition.get("nullValue")))
        return FixedField(_name(element), offset, dtype, null, is_text=primitive == "char")


_TAKEN = (
    "taken are fields of primitive types, char arrays of fixed length, enums and sets; "
    "no composites, other arrays, constants, groups or data"
)


def _null(primitive: str, dtype: np.dtype[Any], given: str | None) -> float | int | bytes:
    """The value that stands for none: as given, else SBE's."""
    if primitive == "char":
        return b"" if given is None or given == "0" else given.encode()
    if dtype.kind == "f":
        return float("nan") if given is None else float(given)
    if given is not None:
        return int(given)
    return int(np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max)


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _name(element: Element) -> str:
    name = element.get("name")
    if not name:
        raise ValueError(f"a {_tag(element)} in it has no name")
    return name


def _number(element: Element, name: str) -> int:
    text = element.get(name, "")
    if not text.isdecimal():
        raise ValueError(
            f"{name} of {_tag(element)} {element.get('name', '')} is {text!r}, expected a number"
        )
    return int(text)
