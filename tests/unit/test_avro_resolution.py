"""A writer's schema resolved to a reader's: what becomes of a value, and what is said where nothing can."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from forebay import column_types as types
from forebay.errors import OptionValueError, UnsupportedSqlError
from forebay.formats.arrow_batches import decode_each
from forebay.formats.avro_datum import read_datum
from forebay.formats.avro_default import zigzag
from forebay.formats.avro_plan import compile_resolved
from forebay.formats.avro_schema import parse
from forebay.formats.avro_values import convert_record
from forebay.formats.framed import Lesson
from forebay.native import native

FIXED = {"type": "fixed", "name": "F", "size": 4}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DAYS = {"type": "int", "logicalType": "date"}
DURATION = pa.struct([pa.field(name, types.BIGINT) for name in ("months", "days", "millis")])


def record(*fields: dict[str, Any] | tuple[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    listed = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": listed, **more}


def decimal(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": scale}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def resolve(
    writer: Any, reader: Any, columns: list[pa.Field], payload: bytes, *, closed: bool = False
) -> Any:
    """The row, or the refusal as (kind, message); by both decoders, where the native one is there."""
    declared = pa.schema(columns)
    given = None if reader is None else parse(json.dumps(reader))
    plan = compile_resolved(parse(json.dumps(writer)), given, declared, closed=closed)
    schema = declared

    def row(datum: bytes | None) -> list[Any]:
        assert datum is not None
        found = convert_record(plan, read_datum(plan, datum))
        return [found.get(name) for name in declared.names]

    decoded = decode_each([payload], schema, row)
    decoded.batch.validate(full=True)
    module = native()
    if module is not None:
        made = module.Decoder("avro", schema, {"avro.plan": Lesson(plan).native.plan})
        found = made.decode([payload])
        assert pa.record_batch(found.batch).to_pylist() == decoded.batch.to_pylist()
        assert [(bad.index, bad.kind) for bad in found.bad] == [(bad.index, bad.kind) for bad in decoded.bad]
        if decoded.bad and decoded.bad[0].kind != "MalformedPayload":
            assert found.bad[0].message == decoded.bad[0].message
    if decoded.bad:
        return str(decoded.bad[0].kind), decoded.bad[0].message
    return decoded.batch.to_pylist()[0]


def value(writer: Any, reader: Any, column: pa.DataType, payload: bytes, nullable: bool = True) -> Any:
    found = resolve(record(("x", writer)), record(("x", reader)), [pa.field("x", column, nullable)], payload)
    return found["x"] if isinstance(found, dict) else found


@pytest.mark.parametrize(
    ("writer", "reader", "column", "payload", "expected"),
    [
        ("int", "long", types.BIGINT, zigzag(-5), -5),
        ("int", "double", types.DOUBLE, zigzag(-5), -5.0),
        ("long", "float", types.FLOAT, zigzag(16_777_217), 16_777_216.0),
        ("long", "float", types.DOUBLE, zigzag(16_777_217), 16_777_216.0),
        ("long", "double", types.DOUBLE, zigzag(16_777_217), 16_777_217.0),
        ("float", "double", types.DOUBLE, struct.pack("<f", 0.5), 0.5),
        ("string", "bytes", types.BINARY, b"\x04\xc3\xa4", b"\xc3\xa4"),
        ("bytes", "string", types.STRING, b"\x04\xc3\xa4", "ä"),
        ("bytes", "string", types.STRING, b"\x02\xff", ("TypeConversion", "x: expected STRING (UTF-8), found bytes that are not UTF-8")),
        ("int", ["null", "string", "long"], types.BIGINT, zigzag(3), 3),
        # The writer says what its numbers mean; the reader's word counts where the writer has none.
        (MILLIS, MICROS, types.TIMESTAMP, zigzag(1), datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
        (MICROS, MILLIS, types.TIMESTAMP, zigzag(1), datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (MICROS, "long", types.TIMESTAMP, zigzag(1), datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        ("long", MICROS, types.TIMESTAMP, zigzag(1), datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (MILLIS, "long", types.BIGINT, zigzag(7), 7),
        ("int", DAYS, types.DATE, zigzag(1), date(1970, 1, 2)),
        (DAYS, "long", types.BIGINT, zigzag(1), 1),
        (decimal(2), decimal(4), pa.decimal128(20, 4), b"\x02\x7b", Decimal("1.2300")),
        ("bytes", decimal(2), pa.decimal128(20, 2), b"\x02\x7b", Decimal("1.23")),
        (enum("A", "B"), enum("B", "C", default="C"), types.STRING, b"\x00", "C"),
        (enum("A", "B"), enum("B", "C", default="C"), types.STRING, b"\x02", "B"),
        (enum("A", "B"), enum("B"), types.STRING, b"\x00", ("SchemaMismatch", "x: the symbol 'A' is not one of the reader's, which has no default")),
        (enum("A", name="old.E"), enum("A", name="new.E"), types.STRING, b"\x00", "A"),
        (enum("A", name="Was"), enum("A", name="Is", aliases=["Was"]), types.STRING, b"\x00", "A"),
        (FIXED | {"name": "a.F"}, FIXED | {"name": "b.F"}, types.BINARY, b"abcd", b"abcd"),
        (["null", "string"], "string", types.STRING, b"\x00", None),
        (["string", "int"], ["null", "long"], types.BIGINT, b"\x02\x04", 2),
        (["string", "int"], ["null", "long"], types.BIGINT, b"\x00\x00", ("SchemaMismatch", "x: the writer has string, which the reader's a union of null, long cannot be")),
    ],
)  # fmt: skip
def test_a_value_becomes_what_the_reader_says(
    writer: Any, reader: Any, column: pa.DataType, payload: bytes, expected: Any
) -> None:
    assert value(writer, reader, column, payload) == expected


@pytest.mark.parametrize(
    ("writer", "reader", "column"),
    [
        ("string", "int", types.INT),
        ("long", "int", types.INT),
        ("double", "float", types.FLOAT),
        (enum("A", name="E"), enum("A", name="Other"), types.STRING),
        (FIXED, FIXED | {"size": 5}, types.BINARY),
        (MILLIS, MICROS, types.BIGINT),
        (DAYS, MILLIS, types.BIGINT),
        (decimal(2), decimal(4), types.BINARY),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}, types.array_of(types.INT)),
        (["string", "boolean"], ["null", "int"], types.INT),
    ],
)
def test_what_cannot_become_the_readers_type_is_refused_and_says_where(
    writer: Any, reader: Any, column: pa.DataType
) -> None:
    with pytest.raises(UnsupportedSqlError, match=r"FB1002: x.*the writer has .*reader") as caught:
        value(writer, reader, column, b"")
    assert "compatible schema" in caught.value.remedy


def test_a_field_is_found_by_its_alias_and_a_new_one_has_its_default() -> None:
    writer = record(("price", "int"), ("gone", "string"), ("id", "long"))
    inner = record(("a", "long"), {"name": "b", "type": "string", "default": "deep"}, name="S")
    reader = record(
        ("id", "long"),
        {"name": "amount", "type": "double", "aliases": ["price"]},
        {"name": "tag", "type": ["null", "string"], "default": None},
        {"name": "s", "type": inner, "default": {"a": 1}},
    )
    columns = [
        pa.field("amount", types.DOUBLE, False),
        pa.field("id", types.BIGINT, False),
        pa.field("s", pa.struct([pa.field("b", types.STRING), pa.field("a", types.BIGINT)])),
        pa.field("tag", types.STRING),
    ]
    payload = zigzag(7) + b"\x02g" + zigzag(9)
    row = {"amount": 7.0, "id": 9, "s": {"b": "deep", "a": 1}, "tag": None}
    assert resolve(writer, reader, columns, payload, closed=True) == row


def test_a_column_that_the_reader_no_longer_has_is_still_read_from_those_who_write_it() -> None:
    columns = [pa.field("id", types.BIGINT), pa.field("price", types.INT)]
    old, new = record(("id", "long"), ("price", "int")), record(("id", "long"))
    assert resolve(old, new, columns, zigzag(1) + zigzag(2)) == {"id": 1, "price": 2}
    assert resolve(new, new, columns, zigzag(1)) == {"id": 1, "price": None}


def test_a_reader_that_was_given_has_every_column_or_says_which_it_has() -> None:
    reader = record(("id", "long"), ("Price", "int"))
    columns = [pa.field("price", types.INT)]
    with pytest.raises(UnsupportedSqlError, match="column price is not a field of the reader's") as caught:
        resolve(reader, reader, columns, b"", closed=True)
    assert "did you mean Price?" in caught.value.remedy


def test_whether_null_is_taken_is_for_the_column_to_say() -> None:
    """Avro's specification refuses both; a column without NOT NULL says that NULL is welcome."""
    reader = record(("x", "string"), ("y", "long"))
    takes = [pa.field("x", types.STRING), pa.field("y", types.BIGINT)]
    assert resolve(record(("x", ["null", "string"])), reader, takes, b"\x00") == {"x": None, "y": None}
    strict = [pa.field("x", types.STRING, False)]
    assert resolve(record(("x", ["null", "string"])), reader, strict, b"\x00") == (
        "SchemaMismatch",
        "x: NOT NULL, but the value is null",
    )
    with pytest.raises(UnsupportedSqlError, match="column y is NOT NULL, but the writer's record R has no"):
        resolve(record(("x", "string")), reader, [pa.field("y", types.BIGINT, False)], b"\x00")


@pytest.mark.parametrize(
    ("kind", "default", "column", "nullable", "message"),
    [
        ("int", "1", types.INT, True, "which is not int"),
        ("int", 2**31, types.BIGINT, True, "which is not int"),
        ("long", True, types.BIGINT, True, "which is not long"),
        ("float", 1e39, types.FLOAT, True, "which is not float"),
        ("bytes", "\u0100", types.BINARY, True, "which is not bytes"),
        (enum("A"), "B", types.STRING, True, "which is not enum E"),
        (
            record(("a", "long"), name="S"),
            {},
            pa.struct([pa.field("a", types.BIGINT)]),
            True,
            "not record S",
        ),
        ("long", 300, types.BIGINT, True, None),
        ("long", 2**40, types.INT, True, "does not fit its column: expected INT"),
        (["null", "long"], None, types.BIGINT, False, "does not fit its column: NOT NULL"),
    ],
)
def test_a_default_is_checked_before_the_first_record(
    kind: Any, default: Any, column: pa.DataType, nullable: bool, message: str | None
) -> None:
    reader = record(("id", "long"), {"name": "x", "type": kind, "default": default})
    columns = [pa.field("x", column, nullable)]
    if message is None:
        assert resolve(record(("id", "long")), reader, columns, zigzag(1)) == {"x": default}
        return
    with pytest.raises(UnsupportedSqlError, match=f"the default of x .*{message}"):
        resolve(record(("id", "long")), reader, columns, b"\x00")


def test_a_record_of_another_name_is_read_but_in_a_union_the_name_chooses() -> None:
    columns = [pa.field("x", types.BIGINT)]
    assert resolve(record(("x", "long"), name="A"), record(("x", "long"), name="B"), columns, b"\x02") == {
        "x": 1
    }
    first, second = record(("x", "int"), name="n.A"), record(("x", "long"), name="n.B")
    inner = pa.struct([pa.field("x", types.BIGINT)])
    assert value(second, [first, second], inner, b"\x02") == {"x": 1}
    with pytest.raises(UnsupportedSqlError, match="record Other"):
        value(record(("x", "int"), name="Other"), [first, second], inner, b"")


def test_one_field_of_the_writer_does_not_feed_two_columns() -> None:
    reader = record({"name": "new", "type": "long", "aliases": ["old"]})
    columns = [pa.field("new", types.BIGINT), pa.field("old", types.BIGINT)]
    with pytest.raises(UnsupportedSqlError, match="field old would be both new and old"):
        resolve(record(("old", "long")), reader, columns, b"\x00")


def test_a_uuid_in_sixteen_bytes_is_text_and_a_duration_three_numbers() -> None:
    uuid = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    raw = bytes(range(16))
    assert value(uuid, uuid, types.STRING, raw) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert value(uuid, uuid, types.BINARY, raw) == raw
    duration = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
    raw = struct.pack("<III", 1, 2**32 - 1, 3)
    assert value(duration, duration, DURATION, raw) == {"months": 1, "days": 2**32 - 1, "millis": 3}
    with pytest.raises(UnsupportedSqlError) as caught:
        value(duration, duration, types.STRING, raw)
    assert "STRUCT<months: BIGINT" in caught.value.remedy


def test_a_schema_may_use_names_of_others_in_the_order_of_their_use() -> None:
    address = json.dumps(record(("zip", "string"), name="n.Address"))
    person = json.dumps(record(("at", "n.Address"), name="n.Person"))
    order = json.dumps(record(("by", "n.Person"), ("to", "n.Address")))
    found = parse(order, [address, person])
    assert [part.name for part in found.parts] == ["n.Person", "n.Address"]
    with pytest.raises(OptionValueError, match=r"schema id 5 is not an Avro schema: .*'n\.Person'"):
        parse(order, [address], "schema id 5")


@pytest.mark.parametrize("payload", [zigzag(2**62), b"\xff" * 10, zigzag(-(2**62)) + zigzag(2**62)])
def test_absurd_counts_cost_nothing(payload: bytes) -> None:
    items = {"type": "array", "items": "int"}
    kind, message = value(items, {"type": "array", "items": "double"}, types.array_of(types.DOUBLE), payload)
    assert kind == "MalformedPayload"
    assert "at byte" in message
