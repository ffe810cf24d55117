"""Columns that nobody declared: from an Avro schema, from a Protobuf message, from a sample of JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.protobuf_support import columns, message_type

from forebay import sql
from forebay.connectors.contract import SourceConfig
from forebay.errors import UnsupportedSqlError
from forebay.formats.avro_columns import avro_columns
from forebay.formats.avro_schema import parse
from forebay.formats.json_sample import guess
from forebay.formats.protobuf_columns import protobuf_columns
from forebay.kafka.connector import KafkaSource


def shown(found: pa.Schema) -> dict[str, str]:
    return {
        field.name: sql.type_name(field.type) + ("" if field.nullable else " NOT NULL") for field in found
    }


def avro(kind: object) -> pa.Schema:
    fields = [{"name": "x", "type": kind}]
    return avro_columns(parse(json.dumps({"type": "record", "name": "R", "fields": fields})))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("int", "INT NOT NULL"),
        (["null", "long"], "BIGINT"),
        ({"type": "int", "logicalType": "date"}, "DATE NOT NULL"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP NOT NULL"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP_NTZ NOT NULL"),
        ({"type": "long", "logicalType": "time-micros"}, "BIGINT NOT NULL"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "DECIMAL(9,2) NOT NULL"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}, "BINARY NOT NULL"),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "STRING NOT NULL"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING NOT NULL"),
        ({"type": "array", "items": ["null", "string"]}, "ARRAY<STRING> NOT NULL"),
        ({"type": "map", "values": "double"}, "MAP<STRING, DOUBLE> NOT NULL"),
    ],
)
def test_an_avro_type_is_its_own_column(kind: object, expected: str) -> None:
    assert shown(avro(kind))["x"].replace(" NOT NULL>", ">") == expected


def test_an_avro_union_of_two_types_is_no_column() -> None:
    with pytest.raises(UnsupportedSqlError, match="x is a union of string, long"):
        avro(["string", "long"])
    with pytest.raises(UnsupportedSqlError, match="only a record"):
        avro_columns(parse('"string"'))


def test_a_message_is_its_fields() -> None:
    body = """
        enum E { A = 0; }
        message Inner { repeated sint32 n = 1; }
        message M { int64 id = 1; uint64 big = 2; E e = 3; repeated Inner inner = 4; map<string, bytes> m = 5;
            google.protobuf.Timestamp at = 6; google.protobuf.Int64Value w = 7; google.protobuf.Struct s = 8; }
    """
    found = protobuf_columns(message_type(body).DESCRIPTOR)
    assert shown(found) == shown(
        columns(
            "id BIGINT, big DECIMAL(20, 0), e STRING, inner ARRAY<STRUCT<n: ARRAY<INT>>>, m MAP<STRING, BINARY>, "
            "at TIMESTAMP, w BIGINT, s STRING"
        )
    )


def test_a_message_that_contains_itself_has_no_columns() -> None:
    with pytest.raises(UnsupportedSqlError, match=r"next: the message M contains itself"):
        protobuf_columns(message_type("message M { int64 id = 1; M next = 2; }").DESCRIPTOR)


def test_a_sample_gives_the_types_that_all_of_it_fits() -> None:
    found = guess(
        [
            b'{"id": 1, "price": 1, "ok": true, "at": "2026-01-01T00:00:00Z", "day": "x", "none": null}',
            b'{"id": 2, "price": 1.5, "tags": ["a", null], "in": {"a": 1}, "day": "2026-01-01T00:00:00Z"}',
            b'{"in": {"b": "x"}, "list": []}',
            b"not JSON",
            b"[1]",
            None,
        ]
    )
    assert found.records == 3
    assert found.left_out == ()
    assert shown(found.columns) == {
        "id": "BIGINT",
        "price": "DOUBLE",
        "ok": "BOOLEAN",
        "at": "TIMESTAMP",
        "day": "STRING",
        "none": "STRING",
        "tags": "ARRAY<STRING>",
        "in": "STRUCT<a: BIGINT, b: STRING>",
        "list": "ARRAY<STRING>",
    }


def test_what_has_no_one_type_is_left_out_and_named() -> None:
    found = guess([b'{"a": 1, "A": 2, "x": 1, "e": {}}', b'{"x": "text", "in": {"y": [1, "2"]}}'])
    assert shown(found.columns) == {"a": "BIGINT"}
    assert found.left_out == (
        "A (another field differs from it only in case)",
        "x (integer and text)",
        "e (an object without fields)",
        "in.y[] (integer and text)",
        "in (an object without fields)",
    )


def test_the_schema_file_of_a_key_goes_along_and_leaves_the_value_alone(tmp_path: Path) -> None:
    file = tmp_path / "key.avsc"
    file.write_text('{"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]}')
    given = {"format": "csv", "csv.delimiter": ";", "key.format": "avro", "key.columns": "k", "topic": "t"}
    options = given | {"key.avro.schema.file": str(file), "bootstrap.servers": "b", "group.id": "g"}
    source = KafkaSource(SourceConfig("t", "kafka", options, columns("k BIGINT, v STRING")))
    shipped = source.for_workers()
    assert shipped.items() >= given.items()
    assert shipped["key.avro.schema"] == file.read_text()
    assert "key.avro.schema.file" not in shipped
