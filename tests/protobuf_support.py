"""What the tests of Protobuf share: columns from SQL, messages from a schema, and their own wire encoding."""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.message import Message
from pyspark.sql.types import StructField, StructType

from forebay import sql
from forebay.formats import BadRecord, Decoded
from forebay.formats.protobuf_format import ProtobufDecoder
from forebay.formats.protobuf_schema import find_message, given_files

WELL_KNOWN = "".join(
    f'import "google/protobuf/{name}.proto"; '
    for name in ("any", "duration", "empty", "struct", "timestamp", "wrappers")
)


def columns(ddl: str) -> StructType:
    """The columns as CREATE SOURCE has them."""
    statement = sql.parse_one(f"CREATE SOURCE t ({ddl}) FROM KAFKA (topic = 't') FORMAT PROTOBUF")
    assert isinstance(statement, sql.CreateSource)
    return StructType(
        [StructField(column.name, column.type, column.nullable) for column in statement.columns]
    )


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
