"""google.protobuf.Struct, Value and ListValue as JSON text.

Numbers are doubles there, so 1 is written `1.0`. A JSON null is the text `null`; NULL is a field that is
not there at all. What JSON cannot say (NaN, infinity, a Value that is nothing) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import orjson
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from forebay.formats.contract import RefusalKind
from forebay.formats.protobuf_wire import PARTS
from forebay.formats.refusal import RefusedError, malformed, mismatch

_NAMES = {name: {node["number"]: node["name"] for node in part} for name, part in PARTS.items()}


def to_json(node: dict[str, Any]) -> Callable[[Message], str]:
    """The converter of a node that is read as JSON. Paths in refusals end at the column."""
    part, expected = _PARTS[node["json"]], node["expected"]

    def convert(message: Message) -> str:
        return orjson.dumps(part(message, expected)).decode()

    return convert


def _struct(message: Any, expected: str) -> dict[str, Any]:
    _check("Struct", message)
    found: dict[str, Any] = {}
    for entry in message.f1:
        _check("Entry", entry)
        key = _text(entry.f1)
        value = _value(entry.f2, expected)
        found.pop(key, None)
        found[key] = value
    return found


def _list(message: Any, expected: str) -> list[Any]:
    _check("ListValue", message)
    return [_value(value, expected) for value in message.f1]


def _value(message: Any, expected: str) -> Any:
    _check("Value", message)
    match message.WhichOneof("o0"):
        case "f1":
            return None
        case "f2" if math.isfinite(message.f2):
            return message.f2
        case "f2":
            raise _no(expected, f"the number {message.f2}, which JSON has not")
        case "f3":
            return _text(message.f3)
        case "f4":
            return bool(message.f4)
        case "f5":
            return _struct(message.f5, expected)
        case "f6":
            return _list(message.f6, expected)
    raise _no(expected, "a Value that is nothing, not even null")


_PARTS: dict[str, Callable[[Any, str], Any]] = {"Struct": _struct, "ListValue": _list, "Value": _value}


def _check(part: str, message: Message) -> None:
    for unknown in UnknownFieldSet(message):
        name = _NAMES[part].get(unknown.field_number)
        if name is not None:
            raise mismatch(f"in its {part}, {name} is written in another wire type")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"a string that is not UTF-8, at its byte {error.start}") from None


def _no(expected: str, found: str) -> RefusedError:
    return RefusedError(RefusalKind.TYPE_CONVERSION, f"expected {expected}, found {found}")
