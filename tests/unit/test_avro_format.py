"""FORMAT avro: one bare datum a message; every byte has its meaning or the record is refused."""

from __future__ import annotations

import json
import math
import pickle
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from forebay import column_types as types
from forebay.formats import BadRecord, RefusalKind, decoder
from forebay.formats.avro_format import AvroDecoder

MALFORMED, MISMATCH, CONVERSION = (
    RefusalKind.MALFORMED_PAYLOAD,
    RefusalKind.SCHEMA_MISMATCH,
    RefusalKind.TYPE_CONVERSION,
)
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
ARRAY, MAP = {"type": "array", "items": "int"}, {"type": "map", "values": "int"}
NULLS = {"type": "array", "items": "null"}
EMPTY = {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}
FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
INTS, COUNTS = types.array_of(types.INT), types.map_of(types.STRING, types.INT)


def zigzag(number: int) -> bytes:
    value = number * 2 if number >= 0 else -number * 2 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decimal(scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=38, scale=scale)


def sized(raw: bytes) -> bytes:
    return zigzag(len(raw)) + raw


def made(columns: list[pa.Field], *fields: tuple[str, Any]) -> AvroDecoder:
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields]}
    return AvroDecoder(pa.schema(columns), {"avro.schema": json.dumps(schema)})


def read(schema: Any, column: pa.DataType, payload: bytes | None, nullable: bool = True) -> Any:
    """The value of the only column, or the refusal."""
    decoded = made([pa.field("x", column, nullable)], ("x", schema)).decode([payload])
    decoded.batch.validate(full=True)
    return decoded.bad[0] if decoded.bad else decoded.batch.to_pylist()[0]["x"]


@pytest.mark.parametrize(
    ("schema", "column", "payload", "expected"),
    [
        ("boolean", types.BOOLEAN, b"\x00", False),
        ("boolean", types.BOOLEAN, b"\x01", True),
        ("int", types.INT, b"\x01", -1),
        ("int", types.INT, b"\xff\xff\xff\xff\x0f", -(2**31)),
        ("int", types.BIGINT, b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        ("int", types.BIGINT, b"\x82\x00", 1),  # longer than it need be, but a number
        ("int", types.TINYINT, zigzag(-128), -128),
        ("long", types.BIGINT, b"\xff" * 9 + b"\x01", -(2**63)),
        ("long", types.INT, zigzag(2**31 - 1), 2**31 - 1),
        ("long", types.DOUBLE, zigzag(2**53 + 1), 2.0**53),
        ("float", types.DOUBLE, struct.pack("<f", 0.1), struct.unpack("f", struct.pack("f", 0.1))[0]),
        ("float", types.FLOAT, struct.pack("<f", -math.inf), -math.inf),
        ("double", types.DOUBLE, struct.pack("<d", 1e300), 1e300),
        ("string", types.STRING, sized("é".encode()), "é"),
        ("string", types.BINARY, sized(b"ab"), b"ab"),
        ("string", types.STRING, b"\x00", ""),
        ("bytes", types.BINARY, sized(b"\xff\x00"), b"\xff\x00"),
        ("bytes", types.STRING, sized(b"ab"), "ab"),
        (ENUM, types.STRING, b"\x02", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, types.BINARY, b"\x01\x02", b"\x01\x02"),
        (logical("int", "date"), types.DATE, zigzag(-719_162), date(1, 1, 1)),
        (logical("int", "date"), types.DATE, zigzag(2_932_896), date(9999, 12, 31)),
        (logical("int", "date"), types.INT, zigzag(-1), -1),
        ("long", types.TIMESTAMP, zigzag(FIRST), datetime(1, 1, 1, tzinfo=UTC)),
        ("long", types.TIMESTAMP_NTZ, zigzag(LAST), datetime(9999, 12, 31, 23, 59, 59, 999000)),
        (
            logical("long", "timestamp-millis"),
            types.TIMESTAMP,
            b"\x02",
            datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
        ),
        (
            logical("long", "timestamp-micros"),
            types.TIMESTAMP,
            b"\x02",
            datetime(1970, 1, 1, 0, 0, 0, 1, UTC),
        ),
        (
            logical("long", "local-timestamp-micros"),
            types.TIMESTAMP_NTZ,
            b"\x02",
            datetime(1970, 1, 1, 0, 0, 0, 1),
        ),
        (logical("long", "timestamp-millis"), types.BIGINT, zigzag(2**62), 2**62),
        (logical("int", "time-millis"), types.INT, zigzag(86_399_999), 86_399_999),
        (decimal(2), pa.decimal128(10, 2), sized(b"\xff\x85"), Decimal("-1.23")),
        (decimal(2), pa.decimal128(10, 4), sized(b"\x7b"), Decimal("1.2300")),
        (decimal(4), pa.decimal128(3, 2), sized((12300).to_bytes(2, "big")), Decimal("1.23")),
        (decimal(0), pa.decimal128(38, 0), sized((10**38 - 1).to_bytes(16, "big")), Decimal(10**38 - 1)),
        (decimal(0), pa.decimal128(2, 0), sized(b"\xff" * 40), Decimal(-1)),
        (["null", "int"], types.INT, b"\x00", None),
        (["null", "int"], types.INT, b"\x02\x06", 3),
        (["int", "null"], types.INT, b"\x00\x06", 3),
        (["int", "null", "long"], types.BIGINT, b"\x04" + zigzag(2**40), 2**40),
        (ARRAY, INTS, b"\x00", []),
        (ARRAY, INTS, b"\x04\x02\x04\x02\x06\x00", [1, 2, 3]),
        (ARRAY, INTS, b"\x03\x04\x02\x04\x00", [1, 2]),  # a block with its size
        (NULLS, INTS, zigzag(10_000) + b"\x00", [None] * 10_000),
        (MAP, COUNTS, b"\x02\x02a\x02\x02\x02b\x04\x00", [("a", 1), ("b", 2)]),
    ],
)
def test_a_datum_is_read_as_it_was_written(
    schema: Any, column: pa.DataType, payload: bytes, expected: Any
) -> None:
    assert read(schema, column, payload) == expected


def test_nan_is_a_number_here() -> None:
    assert math.isnan(read("double", types.DOUBLE, struct.pack("<d", math.nan)))


@pytest.mark.parametrize(
    ("schema", "column", "payload"),
    [
        ("int", types.INT, None),
        ("null", types.INT, b""),  # it would be a datum, but no format takes an empty payload
        ("boolean", types.BOOLEAN, b"\x02"),
        ("int", types.INT, b"\x80"),
        ("int", types.INT, b"\x02\x00"),
        ("int", types.BIGINT, b"\xff\xff\xff\xff\x1f"),  # 33 bits
        ("int", types.BIGINT, b"\x80\x80\x80\x80\x80\x00"),  # six bytes
        ("long", types.BIGINT, b"\xff" * 9 + b"\x02"),  # 65 bits
        ("long", types.BIGINT, b"\x80" * 10 + b"\x00"),
        ("float", types.FLOAT, b"\x00" * 3),
        ("double", types.DOUBLE, b"\x00" * 9),
        ("string", types.STRING, b"\x04a"),
        ("string", types.STRING, b"\x01"),  # a length of -1
        ("string", types.STRING, zigzag(2**62)),
        ("string", types.STRING, sized(b"\xff")),
        ("string", types.BINARY, sized(b"\xed\xa0\x80")),  # half a surrogate pair
        ("bytes", types.BINARY, b"\x01"),
        ({"type": "fixed", "name": "F", "size": 2}, types.BINARY, b"\x01"),
        (ENUM, types.STRING, b"\x04"),
        (ENUM, types.STRING, b"\x01"),  # an index of -1
        (["null", "int"], types.INT, b"\x04"),
        (["null", "int"], types.INT, b"\x01\x02"),
        (ARRAY, INTS, b"\x02\x02"),  # no end
        (ARRAY, INTS, zigzag(2**62) + b"\x00"),
        (ARRAY, INTS, zigzag(-(2**63)) + b"\x00\x00"),
        (ARRAY, INTS, b"\x03\x02\x02\x04\x00"),  # a block longer than it says
        (ARRAY, INTS, b"\x03\x06\x02\x04\x00"),  # and one shorter
        (ARRAY, INTS, b"\x03\x01\x02\x04\x00"),  # a size of -1
        (ARRAY, INTS, b"\x03\x7e\x02\x04\x00"),
        (NULLS, INTS, zigzag(10_001) + b"\x00"),
        (NULLS, INTS, zigzag(2**62) + b"\x00"),
        (NULLS, INTS, zigzag(6000) + zigzag(6000) + b"\x00"),
        (EMPTY, types.array_of(pa.struct([pa.field("y", types.BIGINT)])), zigzag(2**40) + b"\x00"),
        (MAP, COUNTS, b"\x02\x02a\x02\x02\x02a\x04\x00"),  # a key twice
        (MAP, COUNTS, b"\x02\x02\xff\x02\x00"),
    ],
)
def test_bytes_that_are_no_datum_are_malformed_with_and_without_a_column(
    schema: Any, column: pa.DataType, payload: bytes | None
) -> None:
    refused = read(schema, column, payload)
    assert isinstance(refused, BadRecord)
    assert refused.kind is MALFORMED
    skipped = made([pa.field("y", types.BIGINT)], ("x", schema)).decode([payload])
    assert [record.kind for record in skipped.bad] == [MALFORMED]


@pytest.mark.parametrize(
    ("schema", "column", "payload", "message"),
    [
        (
            "int",
            types.TINYINT,
            zigzag(128),
            "x: expected TINYINT (an integer from -128 to 127), found number 128",
        ),
        ("long", types.INT, zigzag(-(2**31) - 1), "found number -2147483649"),
        ("long", types.TIMESTAMP, zigzag(LAST + 1), "x: expected TIMESTAMP (years 0001 to 9999)"),
        ("long", types.TIMESTAMP_NTZ, zigzag(-(2**63)), "found number -9223372036854775808"),
        (
            logical("long", "timestamp-micros"),
            types.TIMESTAMP,
            zigzag(FIRST * 1000 - 1),
            "found number -62135",
        ),
        (logical("int", "date"), types.DATE, zigzag(2_932_897), "x: expected DATE (years 0001 to 9999)"),
        ("bytes", types.STRING, sized(b"\xff"), "x: expected STRING (UTF-8), found bytes that are not UTF-8"),
        (decimal(2), pa.decimal128(10, 1), sized(b"\x7b"), "found number 1.23"),
        (decimal(2), pa.decimal128(2, 2), sized(b"\x9c"), "found number -1.00"),
        (decimal(2), pa.decimal128(38, 3), sized((10**38 - 1).to_bytes(16, "big")), "exact, no rounding"),
        (decimal(0), pa.decimal128(38, 0), sized(b"\x7f" * 5000), "more than 38 digits"),
        (decimal(0), pa.decimal128(38, 0), b"\x00", "found no bytes"),
        (ARRAY, types.array_of(types.TINYINT), b"\x04\x02" + zigzag(300) + b"\x00", "x[1]: expected TINYINT"),
        (
            MAP,
            types.map_of(types.STRING, types.TINYINT),
            b"\x02\x02k" + zigzag(300) + b"\x00",
            "x['k']: expected TINYINT",
        ),
    ],
)
def test_a_value_that_the_column_cannot_hold_is_refused(
    schema: Any, column: pa.DataType, payload: bytes, message: str
) -> None:
    refused = read(schema, column, payload)
    assert refused.kind is CONVERSION
    assert message in refused.message


def test_null_where_the_column_is_not_null_names_the_path() -> None:
    inner = pa.struct([pa.field("y", types.array_of(types.BIGINT, nullable=False))])
    items = {"type": "array", "items": ["null", "long"]}
    schema = {"type": "record", "name": "S", "fields": [{"name": "y", "type": items}]}
    refused = read(schema, inner, b"\x04\x02\x02\x00\x00")
    assert (refused.kind, refused.message) == (MISMATCH, "x.y[1]: NOT NULL, but the value is null")
    assert read(["null", "long"], types.BIGINT, b"\x00", nullable=False).kind is MISMATCH


@pytest.mark.parametrize(
    ("payload", "kind", "message"),
    [
        # b is written first, a is declared first; c comes last and is not declared.
        (b"\x00" + zigzag(300) + b"\x01", CONVERSION, "a: "),
        (b"\x00" + zigzag(3) + b"\x01", MISMATCH, "b: "),
        (b"\x00" + zigzag(300) + b"\x07", MALFORMED, "boolean"),
        (b"\x00" + zigzag(300) + b"\x01\x00", MALFORMED, "1 bytes are left"),
    ],
)
def test_of_several_faults_the_bytes_come_first_and_then_the_columns_as_declared(
    payload: bytes, kind: RefusalKind, message: str
) -> None:
    columns = [pa.field("a", types.TINYINT), pa.field("b", types.BIGINT, nullable=False)]
    decoded = made(columns, ("b", ["null", "long"]), ("a", "int"), ("c", "boolean")).decode([payload])
    assert decoded.bad[0].kind is kind
    assert message in decoded.bad[0].message


def test_a_column_that_the_writer_lacks_is_null_and_a_bad_record_costs_itself() -> None:
    columns = [pa.field("new", types.STRING), pa.field("a", types.BIGINT)]
    decoded = made(columns, ("a", "long")).decode([b"\x02", b"\x80", b"\x04"])
    assert decoded.batch.to_pylist() == [{"new": None, "a": 1}, {"new": None, "a": 2}]
    assert decoded.good == [0, 2]


def test_the_decoder_is_in_the_registry_and_travels() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    found = decoder("avro", pa.schema([pa.field("a", types.BIGINT)]), {"avro.schema": json.dumps(schema)})
    assert isinstance(found, AvroDecoder)
    assert json.loads(found.native_options["avro.plan"])["fields"][0]["avro"] == "long"
    assert pickle.loads(pickle.dumps(found)).decode([b"\x02"]).batch.to_pylist() == [{"a": 1}]
