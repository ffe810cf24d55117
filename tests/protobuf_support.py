"""What the tests of Protobuf share: columns from SQL, messages from a schema, and their own wire encoding."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.message import Message

from forebay import sql
from forebay.formats import BadRecord, Decoded
from forebay.formats.protobuf_format import ProtobufDecoder
from forebay.formats.protobuf_schema import find_message, given_files

MIB = 1 << 20
WELL_KNOWN = "".join(
    f'import "google/protobuf/{name}.proto"; '
    for name in ("any", "duration", "empty", "struct", "timestamp", "wrappers")
)


def columns(ddl: str) -> pa.Schema:
    """The columns as CREATE SOURCE has them."""
    statement = sql.parse_one(f"CREATE SOURCE t ({ddl}) FROM KAFKA (topic = 't') FORMAT PROTOBUF")
    assert isinstance(statement, sql.CreateSource)
    return pa.schema([pa.field(column.name, column.type, column.nullable) for column in statement.columns])


def options(body: str, syntax: str = "proto3", message: str = "M") -> dict[str, str]:
    return {"protobuf.schema": f'syntax = "{syntax}"; {WELL_KNOWN} {body}', "protobuf.message": message}


def made(body: str, ddl: str, syntax: str = "proto3") -> ProtobufDecoder:
    return ProtobufDecoder(columns(ddl), options(body, syntax))


def message_type(body: str, syntax: str = "proto3") -> type[Message]:
    given = options(body, syntax)
    found: type[Message] = message_factory.GetMessageClass(find_message(given_files(given), given))
    return found


def row(decoded: Decoded) -> Any:
    """The only row, or the refusal of the only record."""
    decoded.batch.validate(full=True)
    return decoded.bad[0] if decoded.bad else decoded.batch.to_pylist()[0]


def refused(decoded: Decoded) -> BadRecord:
    assert decoded.batch.num_rows == 0
    return decoded.bad[0]


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def sized(number: int, content: bytes) -> bytes:
    return tag(number, 2) + varint(len(content)) + content


def nested(levels: int) -> bytes:
    parts = [b""]
    size = 0
    for _ in range(levels):
        parts.append(tag(2, 2) + varint(size))
        size += len(parts[-1])
    return b"".join(reversed(parts))


RECURSIVE = "message M { int32 x = 1; M m = 2; repeated M ms = 3; google.protobuf.Value v = 4; repeated int32 n = 5; map<int32, M> mm = 6; }"
RECURSIVE_COLUMNS = "x INT, m STRUCT<x: INT, m: STRUCT<x: INT>>, ms ARRAY<STRUCT<x: INT>>, v STRING, n ARRAY<INT>, mm MAP<INT, STRUCT<x: INT>>"
BOMBS = {
    "groups, 100,000 deep": tag(2, 3) * 100_000,
    "groups, 100,000 deep and closed": tag(7, 3) * 100_000 + tag(7, 4) * 100_000,
    "values, 100,000 deep": sized(4, (sized(6, b"")[:1] + b"\xff\xff\xff\x07") * 25_000),
    "a varint without end": tag(1, 0) + b"\xff" * (4 * MIB),
    "a string of exabytes": tag(3, 2) + b"\xff" * 9 + b"\x01",
    "packed numbers and then trash": sized(5, b"\x01" * MIB + b"\xff"),
    "numbers without a good one": sized(5, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f" * 100_000),
    "empty messages and then trash": (tag(3, 2) + b"\x00") * 200_000 + b"\x00",
    "one key again and again, then trash": sized(6, tag(1, 0) + b"\x01") * 100_000 + b"\x00",
    "tags alone": b"\x7a\x00" * MIB + b"\x07",
}
