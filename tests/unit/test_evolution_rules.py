"""Schemas compared as columns: what is new, what has changed, and what cannot be a column."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from tests.protobuf_support import columns

from forebay import column_types as types
from forebay.errors import NewFieldsError, OptionConflictError, UnsupportedSqlError, from_text
from forebay.formats.json_schema import json_schema_columns
from forebay.formats.registered_columns import columns_of, differences, renamed
from forebay.formats.schema_diff import column_changes, in_a_line
from forebay.formats.schema_evolution import merged
from forebay.kafka.options import KAFKA
from forebay.registry import RegisteredSchema

NOTHING = pa.schema([])


def avro(*fields: Any, number: int = 1) -> RegisteredSchema:
    text = json.dumps({"type": "record", "name": "R", "fields": list(fields)})
    return RegisteredSchema(number, "AVRO", text)


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def test_new_fields_come_last_and_may_be_null_and_what_was_left_out_stays_out() -> None:
    known = columns("id BIGINT NOT NULL, left_out STRING")
    new = columns("added STRING NOT NULL, id BIGINT NOT NULL, left_out STRING, more INT")
    found = merged(columns("id BIGINT NOT NULL"), [known], new)
    assert found == columns("id BIGINT NOT NULL, added STRING, more INT")
    assert merged(found, [known, new], known) == found  # an older record takes nothing away
    assert merged(found, [known], new) == found


def test_new_fields_within_columns_are_found_too() -> None:
    known = columns("s STRUCT<a: INT>, l ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<a: INT>>")
    new = columns(
        "s STRUCT<z: INT, a: INT>, l ARRAY<STRUCT<a: INT, b: INT, c: INT>>, m MAP<STRING, STRUCT<a: INT, y: INT>>"
    )
    mine = columns("s STRUCT<a: INT>, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>")
    assert merged(mine, [known], new) == columns(
        "s STRUCT<a: INT, z: INT>, l ARRAY<STRUCT<a: INT, c: INT>>, m MAP<STRING, STRUCT<a: INT, y: INT>>"
    )


def test_a_field_that_cannot_be_a_column_is_refused_unless_it_was_always_there() -> None:
    odd = pa.schema([pa.field("x", types.NULL)])
    assert merged(NOTHING, [odd], odd) == NOTHING
    with pytest.raises(UnsupportedSqlError, match="the new field x cannot be a column"):
        merged(NOTHING, [NOTHING], odd)
    with pytest.raises(UnsupportedSqlError, match="two columns 'ID'"):
        merged(columns("id INT"), [columns("id INT")], pa.schema([*columns("id INT"), *columns("ID INT")]))


def test_avro_fields_as_columns_with_and_without_their_other_names() -> None:
    schema = avro(
        field("id", "long"),
        field("amount", "double", aliases=["price"]),
        field("odd", ["int", {"type": "array", "items": "int"}]),
    )
    assert columns_of(schema).names == ["id", "amount", "odd"]
    assert columns_of(schema).field("odd").type == types.NULL
    assert columns_of(schema, aliases=True).names == ["id", "amount", "price", "odd"]
    assert list(renamed(schema, columns("id BIGINT, price DOUBLE"))) == [("price", "amount")]
    assert list(renamed(schema, columns("price DOUBLE, amount DOUBLE"))) == []


def test_differences_are_told_in_one_line() -> None:
    old = avro(field("id", "long"), field("gone", "int"), field("x", "int"))
    new = avro(field("id", "long"), field("x", "string"), field("note", ["null", "string"], default=None))
    assert in_a_line(differences(old, new)) == (
        "x (string, was int): another type; note (null | string): added, with a default; gone (int): removed"
    )
    assert differences(old, old) == []
    old, new = (
        RegisteredSchema(n, "PROTOBUF", f'syntax = "proto3"; message M {{ int64 id = 1; {more} }}')
        for n, more in ((1, "M again = 2;"), (2, "string note = 3;"))
    )
    assert in_a_line(differences(old, new)) == "note (STRING): added; again (no one type): removed"


def test_a_json_schema_as_columns() -> None:
    schema = {
        "type": "object",
        "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": ["null", "string"], "format": "date"},
            "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "place": {"$ref": "#/definitions/place"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }
    assert json_schema_columns(schema) == columns(
        "id BIGINT, at TIMESTAMP, day DATE, price DOUBLE, place STRUCT<city: STRING>, tags ARRAY<STRING>, "
        "counts MAP<STRING, BIGINT>"
    )
    odd = {
        "properties": {
            "both": {"type": ["string", "integer"]},
            "any": {},
            "away": {"$ref": "http://example.com/x"},
            "again": {"$ref": "#"},
            "and_again": {"$ref": "#"},
        }
    }
    found = json_schema_columns(odd)
    assert [name for name in found.names if found.field(name).type == types.NULL] == list(found.names)
    assert json_schema_columns(True) == NOTHING
    assert [str(change) for change in column_changes(columns("a INT"), columns("a BIGINT"))] == [
        "a (BIGINT, was INT): another type"
    ]


def test_the_source_and_the_schema_survive_as_text() -> None:
    error = NewFieldsError(
        "source 'orders': schema id 17 has fields that become columns: note (STRING): added"
    )
    passed_on = from_text(
        f"org.apache.spark.SparkException: … forebay.errors.NewFieldsError: {error}\n at x.y"
    )
    assert isinstance(passed_on, NewFieldsError)
    assert (passed_on.source, passed_on.schema_id) == ("orders", 17)


def test_evolution_needs_a_registry_and_no_schema_of_the_statement() -> None:
    given = {"bootstrap.servers": "b:1", "topic": "t", "group.id": "g", "format": "avro"}
    assert KAFKA.bind(given)["schema.evolution"] == "ignore"
    with pytest.raises(Exception, match="needs a registry"):
        KAFKA.bind(given | {"schema.evolution": "reject"})
    evolving = given | {"schema.evolution": "evolve", "schema.registry.url": "http://r"}
    assert KAFKA.bind(evolving | {"schema.evolution.from": "17, 21"})["schema.evolution.from"] == (17, 21)
    with pytest.raises(OptionConflictError, match=r"'avro\.schema' says what records are read as"):
        KAFKA.bind(evolving | {"avro.schema": "{}"})
