"""What holds for all formats: the schema is Spark's, decoders travel, unknown formats are refused."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats import FORMATS, RefusalKind, decoder
from forebay.formats.arrow_batches import decode_all, decode_each
from forebay.formats.debezium_format import CHANGE
from forebay.source.spark_types import from_spark, to_spark

FLAT = pa.schema(
    [
        pa.field("id", types.BIGINT, nullable=False),
        pa.field("at", types.TIMESTAMP),
        pa.field("local", types.TIMESTAMP_NTZ),
        pa.field("price", pa.decimal128(10, 2), metadata={"comment": "net"}),
    ]
)
NESTED = pa.schema(
    [
        *FLAT,
        pa.field("tags", types.array_of(types.STRING, nullable=False), nullable=False),
        pa.field("counts", types.map_of(types.STRING, pa.struct(list(FLAT)), nullable=False)),
    ]
)
TEXT = pa.schema([pa.field("value", types.STRING, nullable=False)])

AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "counts",
            "type": {
                "type": "map",
                "values": {"type": "record", "name": "C", "fields": [{"name": "id", "type": "int"}]},
            },
        },
    ],
}
PROTOBUF = """
    syntax = "proto3";
    message R { int64 id = 1; repeated string tags = 2; map<string, C> counts = 3; }
    message C { int32 id = 1; }
"""
OPTIONS = {
    "csv.null": "-",
    "avro.schema": json.dumps(AVRO),
    "protobuf.schema": PROTOBUF,
    "protobuf.message": "R",
}
COUNTS = pa.schema([pa.field("id", types.BIGINT, nullable=False)])
PARTS = pa.schema(
    [
        FLAT.field("id"),
        NESTED.field("tags"),
        pa.field("counts", types.map_of(types.STRING, pa.struct(list(COUNTS)), nullable=False)),
    ]
)
PAYLOADS = {
    "json": (NESTED, b'{"id": 1, "tags": ["a"], "counts": {"k": {"id": 2, "at": 0}}}'),
    "avro": (NESTED, b"\x02\x02\x02a\x00\x02\x02k\x04\x00"),
    "protobuf": (PARTS, b"\x08\x01\x12\x01a\x1a\x07\x0a\x01k\x12\x02\x08\x02"),
    "debezium-json": (NESTED, b'{"op": "c", "after": {"id": 1, "tags": ["a"]}, "ts_ms": 5}'),
    "csv": (FLAT, b"1,2026-01-15T10:00Z,2026-01-15T10:00,1.5"),
    "raw": (TEXT, b"as it is"),
}


def test_every_format_is_in_the_registry() -> None:
    assert FORMATS == ("json", "avro", "protobuf", "debezium-json", "csv", "raw")
    assert tuple(PAYLOADS) == FORMATS


def test_the_kinds_are_the_words_that_dead_letters_carry() -> None:
    assert [str(kind) for kind in RefusalKind] == [
        "MalformedPayload",
        "SchemaMismatch",
        "TypeConversion",
        "UnknownSchemaId",
        "PayloadTooLarge",
        "FutureTimestamp",
        "LateRecord",
        "Other",
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_batches_pass_spark_s_own_check_unchanged(name: str) -> None:
    schema, payload = PAYLOADS[name]
    decoded = decoder(name, schema, OPTIONS).decode([payload])
    assert decoded.bad == []
    if name == "debezium-json":
        schema = pa.schema([*schema, *CHANGE])
    passed = records_to_arrow_batches(iter([decoded.batch]), 1000, to_spark(schema), DataSource({}))
    assert next(iter(passed)) is decoded.batch
    decoded.batch.validate(full=True)


def test_columns_are_the_same_in_spark_and_back() -> None:
    assert from_spark(to_spark(NESTED)).equals(NESTED)


@pytest.mark.parametrize("name", FORMATS)
def test_a_batch_without_rows_has_the_same_schema(name: str) -> None:
    schema, _ = PAYLOADS[name]
    made = decoder(name, schema, OPTIONS)
    assert made.decode([]).batch.schema.equals(made.schema)


@pytest.mark.parametrize("name", FORMATS)
def test_a_decoder_travels_to_an_executor(name: str) -> None:
    schema, payload = PAYLOADS[name]
    made = decoder(name, schema, OPTIONS)
    sent = pickle.loads(pickle.dumps(made))
    assert sent.decode([payload]).batch.equals(made.decode([payload]).batch)


@pytest.mark.parametrize("name", FORMATS)
def test_no_column_or_a_field_twice_in_a_struct_cannot_be_read(name: str) -> None:
    twice = pa.struct([pa.field("a", types.BIGINT), pa.field("a", types.BIGINT)])
    nothing = [pa.schema([])] if name != "debezium-json" else []  # a change alone is something
    for schema in (*nothing, pa.schema([pa.field("s", twice)])):
        with pytest.raises(UnsupportedSqlError):
            decoder(name, schema, OPTIONS)


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(UnsupportedSqlError, match="json, avro, protobuf, debezium-json, csv, raw"):
        decoder("xml", TEXT, {})


def test_timestamps_are_utc_whatever_the_machine_s_zone() -> None:
    schema = decoder("json", FLAT, {}).schema
    assert schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert schema.field("local").type == pa.timestamp("us")


def test_a_failure_that_nobody_foresaw_costs_one_record() -> None:
    def row(payload: bytes | None) -> list[str]:
        return [{b"a": "good"}[payload]]  # type: ignore[index]

    decoded = decode_each([b"a", b"b", b"a"], decoder("raw", TEXT, {}).schema, row)
    assert decoded.good == [0, 2]
    assert [(record.index, record.kind, record.message) for record in decoded.bad] == [
        (1, RefusalKind.OTHER, "KeyError: b'b'")
    ]


def test_a_payload_ends_in_the_batch_among_the_bad_or_among_the_skipped() -> None:
    def rows(payload: bytes | None) -> list[list[str]]:
        return [[letter] for letter in {b"two": "xy", b"one": "z", b"none": ""}[payload]]  # type: ignore[index]

    decoded = decode_all([b"two", b"bad", b"none", b"one"], decoder("raw", TEXT, {}).schema, rows)
    assert decoded.batch.to_pylist() == [{"value": "x"}, {"value": "y"}, {"value": "z"}]
    assert decoded.good == [0, 0, 3]
    assert [record.index for record in decoded.bad] == [1]
    assert decoded.skipped == [2]


def test_a_refusal_says_where_in_the_record_it_is() -> None:
    bad = decoder("json", NESTED, {}).decode([b'{"id": 1, "tags": [1]}', b"{"]).bad
    assert [record.path for record in bad] == ["tags[0]", ""]
    assert bad[0].message.startswith("tags[0]: ")
