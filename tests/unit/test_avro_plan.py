"""The writer's schema against the declared columns: what can be read, and what is refused at CREATE."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from forebay import column_types as types
from forebay.errors import MissingOptionError, OptionValueError, UnsupportedSqlError
from forebay.formats import decoder
from forebay.formats.avro_plan import compile_plan
from forebay.formats.avro_schema import MAX_DEPTH, parse

EVERY = [
    *(types.BOOLEAN, *types.BITS, types.FLOAT, types.DOUBLE),
    *(types.STRING, types.BINARY, types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ),
    pa.decimal128(10, 2),
    types.array_of(types.BIGINT),
    types.map_of(types.STRING, types.BIGINT),
    pa.struct([pa.field("x", types.BIGINT)]),
]


def name(kind: pa.DataType) -> str:
    return types.type_name(kind).lower().replace(" ", "")


INTEGERS = ["tinyint", "smallint", "int", "bigint"]
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 4}


def record(*fields: tuple[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields], **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def plan(schema: Any, *fields: pa.Field) -> dict[str, Any]:
    return compile_plan(json.dumps(schema), pa.schema(list(fields)))


def field(schema: Any, column: pa.DataType, nullable: bool = True) -> dict[str, Any]:
    """The plan of the only field of a record."""
    made = plan(record(("x", schema)), pa.field("x", column, nullable))["fields"][0]
    assert (made.pop("name"), made.pop("column")) == ("x", 0)
    return made


def refusal(schema: Any, column: pa.DataType) -> UnsupportedSqlError | None:
    try:
        field(schema, column)
    except UnsupportedSqlError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("schema", "readable"),
    [
        ("boolean", ["boolean"]),
        ("int", [*INTEGERS, "float", "double"]),
        ("long", [*INTEGERS, "float", "double", "timestamp", "timestamp_ntz"]),
        ("float", ["float", "double"]),
        ("double", ["double"]),
        ("string", ["string", "binary"]),
        ("bytes", ["string", "binary"]),
        (ENUM, ["string"]),
        (FIXED, ["binary"]),
        (logical("string", "uuid"), ["string", "binary"]),
        (logical("int", "date"), ["int", "bigint", "date"]),
        (logical("int", "time-millis"), ["int", "bigint"]),
        (logical("long", "time-micros"), ["bigint"]),
        (logical("long", "timestamp-millis"), ["bigint", "timestamp"]),
        (logical("long", "timestamp-micros"), ["bigint", "timestamp"]),
        (logical("long", "timestamp-nanos"), ["bigint"]),
        (logical("long", "local-timestamp-millis"), ["bigint", "timestamp_ntz"]),
        (logical("long", "local-timestamp-micros"), ["bigint", "timestamp_ntz"]),
        (logical("long", "made-up"), [*INTEGERS, "float", "double"]),
        (logical("bytes", "decimal", precision=10, scale=2), ["binary", "decimal(10,2)"]),
        (logical("bytes", "decimal", precision=39, scale=2), ["binary"]),
        (logical("bytes", "decimal", precision=2, scale=3), ["string", "binary"]),  # invalid, so ignored
        (FIXED | logical("fixed", "decimal", precision=4), ["binary", "decimal(10,2)"]),
        ({"type": "array", "items": "long"}, ["array<bigint>"]),
        ({"type": "map", "values": "long"}, ["map<string,bigint>"]),
        (record(("x", "long"), name="S"), ["struct<x:bigint>"]),
        ({"type": "null"}, [name(kind) for kind in EVERY]),
        (["null", "int", "long"], [*INTEGERS, "float", "double"]),
        (["bytes", "null", "string"], ["string", "binary"]),
        (["int", "string"], []),
        ({"type": {"type": "long"}}, [*INTEGERS, "float", "double", "timestamp", "timestamp_ntz"]),
    ],
)
def test_each_avro_type_is_read_as_these_columns_and_no_other(schema: Any, readable: list[str]) -> None:
    found = []
    for column in EVERY:
        refused = refusal(schema, column)
        if refused is None:
            found.append(name(column))
            continue
        assert "column x" in refused.message
        assert types.type_name(column).split("<")[0] in refused.message
        assert refused.remedy.startswith("declare it as")
    assert found == readable


@pytest.mark.parametrize(
    ("schema", "column", "made"),
    [
        ("boolean", types.BOOLEAN, {"avro": "boolean", "as": "boolean"}),
        ("double", types.DOUBLE, {"avro": "double", "as": "double"}),
        ("int", types.FLOAT, {"avro": "int", "as": "float"}),
        (FIXED, types.BINARY, {"avro": "fixed", "size": 4, "as": "binary"}),
        (ENUM, types.STRING, {"avro": "enum", "symbols": ["A", "B"], "as": "string"}),
        (
            "long",
            types.TIMESTAMP,
            {"avro": "long", "as": "millis", "expected": "TIMESTAMP (years 0001 to 9999)"},
        ),
        (
            {"type": "array", "items": "null"},
            types.array_of(types.STRING),
            {"avro": "array", "as": "array", "items": {"avro": "null", "as": "null"}, "empty": True},
        ),
        (
            ["null", "double"],
            types.DOUBLE,
            {
                "avro": "union",
                "branches": [{"avro": "null", "as": "null"}, {"avro": "double", "as": "double"}],
            },
        ),
    ],
)
def test_a_node_says_what_the_bytes_are_and_what_the_column_makes_of_them(
    schema: Any, column: pa.DataType, made: dict[str, Any]
) -> None:
    assert field(schema, column) == made


def test_null_in_a_not_null_column_is_left_to_run_time_only_if_there_is_anything_else() -> None:
    assert field(["null", "double"], types.DOUBLE, False)["branches"][0] == {"avro": "null", "as": "never"}
    for schema in ("null", ["null"]):
        with pytest.raises(UnsupportedSqlError, match="x is NOT NULL, but the writer has only null"):
            field(schema, types.DOUBLE, False)


def test_fields_go_to_columns_by_exact_name_and_the_rest_is_read_over() -> None:
    made = plan(
        record(("b", "string"), ("A", "long"), ("a", "double")),
        pa.field("a", types.DOUBLE),
        pa.field("new", types.BIGINT),
        pa.field("b", types.STRING),
    )
    assert [(f["name"], f["column"], f.get("as")) for f in made["fields"]] == [
        ("b", 2, "string"),
        ("A", None, None),
        ("a", 0, "double"),
    ]


def test_a_column_that_the_writer_lacks_must_take_null() -> None:
    inner = pa.struct([pa.field("y", types.BIGINT, nullable=False)])
    with pytest.raises(UnsupportedSqlError, match=r"column x\.y is NOT NULL, but the writer's record n\.S"):
        field(record(("Y", "long"), name="S", namespace="n"), inner)


def test_an_error_names_the_way_to_the_column() -> None:
    schema = {
        "type": "array",
        "items": {"type": "map", "values": record(("y", ["null", "double"]), name="S")},
    }
    inner = types.map_of(types.STRING, pa.struct([pa.field("y", types.FLOAT)]))
    with pytest.raises(UnsupportedSqlError, match=r"column x\[\]\[\]\.y is declared FLOAT.*double") as caught:
        field(schema, types.array_of(inner))
    assert caught.value.remedy == "declare it as DOUBLE"


def test_a_map_has_text_for_keys() -> None:
    with pytest.raises(UnsupportedSqlError, match="map of long"):
        field({"type": "map", "values": "long"}, types.map_of(types.BIGINT, types.BIGINT))


def test_names_are_looked_up_in_the_namespace_around_them() -> None:
    schema = parse(
        json.dumps(
            record(
                ("a", ENUM),
                ("b", "E"),
                ("c", "n.E"),
                ("d", {"type": "E"}),
                ("e", record(("f", {"type": "fixed", "name": "E", "size": 3}), ("g", "E"), name="m.S")),
                ("h", "m.E"),
                namespace="n",
            )
        )
    )
    kinds = [(part.type, part.name) for part in schema.parts]
    assert kinds[:4] == [("enum", "n.E")] * 4
    assert kinds[4:] == [("record", "m.S"), ("fixed", "m.E")]
    assert {part.name for part in schema.parts[4].parts} == {"m.E"}


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{",
        "[" * 100_000,
        "3",
        "null",
        "{}",
        '"nothing"',
        "[]",
        json.dumps(["int", "int"]),
        json.dumps(["int", ["null"]]),
        json.dumps({"type": "array"}),
        json.dumps({"type": "map", "items": "int"}),
        json.dumps({"type": "record", "fields": []}),
        json.dumps({"type": "record", "name": "R"}),
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "x"}]}),
        json.dumps(record(("x", "int"), ("x", "int"))),
        json.dumps(record(("x", "Later"), ("y", record(name="Later")))),
        json.dumps(record(("x", FIXED), ("y", FIXED))),
        *(json.dumps({"type": "fixed", "name": "F", "size": size}) for size in (-1, "4", True, 2**31, None)),
        *(json.dumps({"type": "enum", "name": "E", "symbols": found}) for found in ("A", [1], ["A", "A"])),
    ],
)
def test_what_is_not_an_avro_schema_is_a_wrong_option(schema: str) -> None:
    with pytest.raises(OptionValueError, match=r"'avro\.schema' is not") as caught:
        compile_plan(schema, pa.schema([pa.field("x", types.BIGINT)]))
    assert caught.value.option == "avro.schema"


def test_the_schema_is_that_of_a_record() -> None:
    for schema in ("long", ["null", record(("x", "long"))]):
        with pytest.raises(UnsupportedSqlError, match="the columns are the fields of a record"):
            plan(schema, pa.field("x", types.BIGINT))


def test_a_schema_must_be_given() -> None:
    with pytest.raises(MissingOptionError, match=r"avro\.schema"):
        decoder("avro", pa.schema([pa.field("x", types.BIGINT)]), {})


def test_a_recursive_field_is_read_over_and_refused_as_a_column() -> None:
    schema = record(("x", "long"), ("next", ["null", "R"]))
    made = plan(schema, pa.field("x", types.BIGINT))
    assert made["fields"][1]["branches"][1] == {"avro": "recursive", "record": "R"}
    assert [field["avro"] for field in made["named"]["R"]["fields"]] == ["long", "union"]
    inner = pa.struct([pa.field("x", types.BIGINT)])
    with pytest.raises(UnsupportedSqlError, match="column next: the record R contains itself") as refused:
        plan(schema, pa.field("next", inner))
    assert "read over" in refused.value.remedy


def nested(levels: int) -> Any:
    schema: Any = "long"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return record(("x", schema))


def test_the_depth_of_a_schema_is_bounded() -> None:
    plan(nested(MAX_DEPTH - 2), pa.field("y", types.BIGINT))
    for levels in (MAX_DEPTH - 1, 300):
        with pytest.raises(UnsupportedSqlError, match="deeper than 64"):
            plan(nested(levels), pa.field("y", types.BIGINT))


def test_a_schema_that_doubles_at_each_level_is_refused_in_time() -> None:
    schema: Any = record(name="R0")
    for level in range(1, 40):
        schema = record(("a", schema), ("b", f"R{level - 1}"), name=f"R{level}")
    with pytest.raises(UnsupportedSqlError, match="10,000 parts"):
        plan(schema, pa.field("y", types.BIGINT))


def test_a_column_twice_is_refused() -> None:
    with pytest.raises(UnsupportedSqlError, match="x is declared twice"):
        plan(record(("x", "long")), pa.field("x", types.BIGINT), pa.field("x", types.BIGINT))
