"""A parsed message to what Arrow holds for the columns: one closure a column, compiled once from the plan."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from forebay.formats.contract import RefusalKind
from forebay.formats.protobuf_json import to_json
from forebay.formats.protobuf_plan import ProtobufPlan
from forebay.formats.protobuf_wire import PARTS, attribute, inner_fields
from forebay.formats.refusal import RefusedError, malformed, mismatch, shorten, unfit
from forebay.formats.scalars import Convert, nearest_float

ReadField = Callable[[Message], Any]

WIRE_TYPES = ("a varint", "8 bytes", "length-delimited bytes", "a group", "the end of a group", "4 bytes")
_ZEROS = (0, "", "0.0")  # what the runtime itself gives for a field that is not there
_MICROSECOND = timedelta(microseconds=1)
_FIRST_MICROS = (datetime.min - datetime(1970, 1, 1)) // _MICROSECOND
_LAST_MICROS = (datetime.max - datetime(1970, 1, 1)) // _MICROSECOND
_LONGEST_S = 315_576_000_000  # of a Duration, by its definition


def row_reader(plan: ProtobufPlan, columns: int) -> Callable[[Message], list[Any]]:
    """From a message to the list of its columns' values. RefusedError if one of them cannot be had."""
    check = wire_check(plan)
    readers = [
        (node["name"], node["column"], _field(node)) for node in plan if node.get("column") is not None
    ]
    empty = [None] * columns

    def read(message: Message) -> list[Any]:
        check(message)
        row: list[Any] = empty.copy()
        name = ""
        try:
            for name, column, take in readers:  # noqa: B007
                row[column] = take(message)
        except RefusedError as refused:
            refused.enter(f".{name}")
            raise
        return row

    return read


def wire_check(plan: ProtobufPlan) -> Callable[[Message], None]:
    """Refuses a message that has a field of the plan in another wire type.

    By the book such a field is unknown and so left out; here that would be a default or a NULL in silence.
    """
    known = {node["number"]: node for node in plan if node.get("column", 0) is not None}

    def check(message: Message) -> None:
        for unknown in UnknownFieldSet(message):
            node = known.get(unknown.field_number)
            if node is not None:
                written = WIRE_TYPES[unknown.wire_type]
                expected = node.get("type", node["wire"])
                refused = mismatch(f"the schema has {expected} here, but the bytes have {written}")
                refused.enter(f".{node['name']}")
                raise refused

    return check


def _field(node: dict[str, Any]) -> ReadField:
    name = attribute(node)
    if "key" in node:
        return _map(node, name)
    convert = converter(node)
    if node.get("repeated"):
        return _array(name, convert)
    if node.get("default") in _ZEROS:

        def read(message: Any) -> Any:
            return convert(getattr(message, name))
    elif "default" in node:
        absent = absent_value(node)

        def read(message: Any) -> Any:
            return convert(getattr(message, name) if message.HasField(name) else absent)
    else:
        missing = node.get("missing")

        def read(message: Any) -> Any:
            if message.HasField(name):
                return convert(getattr(message, name))
            if missing is not None:
                raise mismatch(missing)
            return None

    return read


def absent_value(node: dict[str, Any]) -> Any:
    """The default of a node that has one, as the message would have it."""
    default = node["default"]
    match node["wire"]:
        case "bytes":
            return base64.b64decode(default)
        case "float" | "double":
            return float(default)
        case _:
            return default


def _array(name: str, convert: Convert) -> ReadField:
    def read(message: Any) -> list[Any]:
        found: list[Any] = []
        try:
            for value in getattr(message, name):
                found.append(convert(value))
        except RefusedError as refused:
            refused.enter(f"[{len(found)}]")
            raise
        return found

    return read


def _map(node: dict[str, Any], name: str) -> ReadField:
    """The last value of each key, where a key comes more than once: so has it the specification."""
    check = wire_check(inner_fields(node))
    to_key, to_value = _entry_part(node["key"]), _entry_part(node["value"])

    def read(message: Any) -> list[tuple[Any, Any]]:
        found: dict[Any, Any] = {}
        for entry in getattr(message, name):
            check(entry)
            key = to_key(entry)
            try:
                value = to_value(entry)
            except RefusedError as refused:
                refused.enter(f"[{shorten(str(key))!r}]")
                raise
            found.pop(key, None)
            found[key] = value
        return list(found.items())

    return read


def _entry_part(node: dict[str, Any]) -> ReadField:
    """A key or a value. A message that is not there is an empty one, and that is what the runtime gives."""
    if node["default"] != {}:
        return _field(node)
    name, convert = attribute(node), converter(node)
    return lambda message: convert(getattr(message, name))


def converter(node: dict[str, Any]) -> Convert:
    """From one value of the runtime to one of the column."""
    match node["as"]:
        case "struct":
            names = node["columns"]
            fields = row_reader(node["fields"], len(names))
            return lambda message: dict(zip(names, fields(message), strict=True))
        case "only":
            only = row_reader(node["fields"], 1)
            return lambda message: only(message)[0]
        case "timestamp":
            return _moment(node, _timestamp)
        case "duration":
            return _moment(node, _duration)
        case "json":
            return to_json(node)
        case "string" | "binary":
            return _bytes(node)
        case "float":
            return float
        case kind:
            return _number(node, kind)


def _number(node: dict[str, Any], kind: str) -> Convert:
    make = _MAKERS[kind](node)
    if "low" not in node:
        return make
    low, high, expected = node["low"], node["high"], node["expected"]

    def convert(value: int) -> Any:
        if low <= value <= high:
            return make(value)
        raise unfit(expected, value)

    return convert


def _enum(node: dict[str, Any]) -> Convert:
    names, expected = {int(number): name for number, name in node["names"].items()}, node["expected"]

    def convert(value: int) -> str:
        name = names.get(value)
        if name is None:
            raise unfit(expected, value)
        return str(name)

    return convert


def _millis(node: dict[str, Any]) -> Convert:
    expected = node["expected"]

    def convert(value: int) -> int:
        if _FIRST_MICROS <= value * 1000 <= _LAST_MICROS:
            return value * 1000
        raise unfit(expected, value)

    return convert


_MAKERS: dict[str, Callable[[dict[str, Any]], Convert]] = {
    "integer": lambda node: int,
    "boolean": lambda node: bool,
    "real": lambda node: nearest_float if node.get("bits") == 32 else float,
    "decimal": lambda node: Decimal,
    "enum": _enum,
    "millis": _millis,
}


def _bytes(node: dict[str, Any]) -> Convert:
    as_text, utf8, expected = node["as"] == "string", node.get("utf8"), node.get("expected", "")
    if utf8 is None:
        return bytes

    def convert(value: bytes) -> Any:
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            if utf8 == "malformed":
                raise malformed(f"a string that is not UTF-8, at its byte {error.start}") from None
            raise _no(expected, "bytes that are not UTF-8") from None
        return text if as_text else value

    return convert


def _moment(node: dict[str, Any], make: Callable[[int, int], int | None]) -> Convert:
    """Seconds and nanoseconds to microseconds. What is finer is cut off, as it is in text."""
    check, expected = wire_check(PARTS["Moment"]), node["expected"]

    def convert(message: Any) -> int:
        check(message)
        seconds, nanos = message.f1, message.f2
        micros = make(seconds, nanos)
        if micros is None:
            raise _no(expected, f"{seconds} seconds and {nanos} nanoseconds")
        return micros

    return convert


def _timestamp(seconds: int, nanos: int) -> int | None:
    micros = seconds * 1_000_000 + nanos // 1000
    return micros if 0 <= nanos < 10**9 and _FIRST_MICROS <= micros <= _LAST_MICROS else None


def _duration(seconds: int, nanos: int) -> int | None:
    """Both have the same sign, if they have one."""
    if abs(seconds) > _LONGEST_S or abs(nanos) >= 10**9 or seconds * nanos < 0:
        return None
    return seconds * 1_000_000 + (nanos // 1000 if nanos >= 0 else -(-nanos // 1000))


def _no(expected: str, found: str) -> RefusedError:
    return RefusedError(RefusalKind.TYPE_CONVERSION, f"expected {expected}, found {found}")
