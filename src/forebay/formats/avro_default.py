"""The default of a reader's field as a datum, so that it is read like any value of its type."""

from __future__ import annotations

import struct
from typing import Any

from forebay.errors import UnsupportedSqlError
from forebay.formats.avro_datum import read_value
from forebay.formats.avro_reading import AvroPlan
from forebay.formats.avro_schema import Avro
from forebay.formats.avro_values import convert
from forebay.formats.refusal import RefusedError, describe

_BITS = {"int": 32, "long": 64}


def encode_default(reader: Avro, value: Any, node: AvroPlan, path: str) -> bytes:
    """The datum. UnsupportedSqlError if the default is not of its type, or its column cannot hold it."""
    datum = _encoded(reader, value)
    if datum is None:
        raise UnsupportedSqlError(
            f"the default of {path} in the reader's schema is {describe(value)}, which is not {reader}",
            remedy="register the schema with a default of the field's own type",
        )
    try:
        convert(node, read_value(node, datum))
    except RefusedError as refused:
        raise UnsupportedSqlError(
            f"the default of {path} in the reader's schema does not fit its column: {refused.message}",
            remedy="declare the column so that it holds the default",
        ) from None
    return datum


def _encoded(kind: Avro, value: Any) -> bytes | None:
    """None if the value is not of the type."""
    match kind.type, value:
        case "null", None:
            return b""
        case "boolean", bool():
            return bytes([value])
        case (("int" | "long"), int()) if not isinstance(value, bool) and _fits(value, _BITS[kind.type]):
            return zigzag(value)
        case (("float" | "double"), int() | float()) if not isinstance(value, bool):
            return _real("<f" if kind.type == "float" else "<d", value)
        case "string", str():
            return _sized(value.encode("utf-8", "surrogatepass"))
        case "bytes", str() if _is_latin(value):
            return _sized(value.encode("latin-1"))
        case "fixed", str() if _is_latin(value) and len(value) == kind.size:
            return value.encode("latin-1")
        case "enum", str() if value in kind.symbols:
            return zigzag(kind.symbols.index(value))
        case "union", _:
            return _union(kind, value)
        case "array", list():
            return _blocks([_encoded(kind.parts[0], item) for item in value])
        case "map", dict():
            pairs = [(_sized(key.encode()), _encoded(kind.parts[0], item)) for key, item in value.items()]
            return _blocks([None if item is None else key + item for key, item in pairs])
        case "record", dict():
            return _record(kind, value)
    return None


def _union(kind: Avro, value: Any) -> bytes | None:
    """The first branch by the old specification, whichever takes it by the new one."""
    for index, branch in enumerate(kind.parts):
        if (datum := _encoded(branch, value)) is not None:
            return zigzag(index) + datum
    return None


def _record(kind: Avro, value: dict[str, Any]) -> bytes | None:
    parts = []
    for field, part in zip(kind.fields, kind.parts, strict=True):
        given = (value[field.name],) if field.name in value else field.default
        parts.append(_encoded(part, given[0]) if given else None)
    return _joined(parts)


def _blocks(items: list[bytes | None]) -> bytes | None:
    joined = _joined(items)
    if joined is None or not items:
        return joined if joined is None else b"\x00"
    return zigzag(len(items)) + joined + b"\x00"


def _joined(parts: list[bytes | None]) -> bytes | None:
    return None if None in parts else b"".join(part for part in parts if part is not None)


def _fits(value: int, bits: int) -> bool:
    return bool(-(2 ** (bits - 1)) <= value < 2 ** (bits - 1))


def _is_latin(text: str) -> bool:
    return all(ord(char) < 256 for char in text)


def _real(kind: str, value: float) -> bytes | None:
    try:
        return struct.pack(kind, value)
    except OverflowError:
        return None


def _sized(raw: bytes) -> bytes:
    return zigzag(len(raw)) + raw


def zigzag(number: int) -> bytes:
    value = number * 2 if number >= 0 else -number * 2 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
