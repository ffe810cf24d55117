"""Random pairs of a writer's and a reader's Avro schema, with columns for the reader's and datums of the writer's."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from hypothesis import strategies as st
from tests.property.avro_cases import BYTES, FLOATS, INTS, LONGS, TEXT, to_float

from forebay import column_types as types

COLUMNS: dict[str, pa.DataType] = {
    "boolean": types.BOOLEAN,
    "int": types.INT,
    "long": types.BIGINT,
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BINARY,
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INTS,
    "long": LONGS,
    "float": FLOATS,
    "double": st.floats(),
    "string": TEXT,
    "bytes": BYTES,
}
PROMOTED = {
    "int": ["int", "long", "float", "double"],
    "long": ["long", "float", "double"],
    "float": ["float", "double"],
    "string": ["string", "bytes"],
    "bytes": ["bytes", "string"],
}
DEFAULTS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [0, -(2**31), 2**31 - 1],
    "long": [7, -(2**63), 2**63 - 1],
    "float": [0.5, -2],
    "double": [1e300, 3],
    "string": ["", "ä"],
    "bytes": ["", "\u00ff\u0000"],
}


@dataclass(frozen=True)
class Pair:
    """What was written, what is wanted, the column for it, and values of the writer's type."""

    writer: Any
    reader: Any
    column: pa.DataType
    values: st.SearchStrategy[Any]
    nullable: bool = False

    @property
    def branch(self) -> str:
        """How a value of the writer's type is tagged in a union."""
        if isinstance(self.writer, str):
            return self.writer
        return str(self.writer.get("name", self.writer["type"]))


@st.composite
def leaves(draw: st.DrawFn) -> Pair:
    kind = draw(st.sampled_from(sorted(COLUMNS)))
    to = draw(st.sampled_from(PROMOTED.get(kind, [kind])))
    return Pair(kind, to, COLUMNS[to], VALUES[kind])


@st.composite
def enums(draw: st.DrawFn, names: Iterator[int]) -> Pair:
    every = [f"S{index}" for index in range(draw(st.integers(2, 5)))]
    written = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    known = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    name = f"E{next(names)}"
    reader: dict[str, Any] = {"type": "enum", "name": name, "symbols": known}
    if draw(st.booleans()):
        reader["default"] = draw(st.sampled_from(known))
    writer = {"type": "enum", "name": name, "symbols": written}
    return Pair(writer, reader, types.STRING, st.sampled_from(written))


@st.composite
def fixeds(draw: st.DrawFn, names: Iterator[int]) -> Pair:
    size = draw(st.integers(0, 4))
    schema = {"type": "fixed", "name": f"F{next(names)}", "size": size}
    return Pair(schema, schema, types.BINARY, st.binary(min_size=size, max_size=size))


@st.composite
def pairs(draw: st.DrawFn, names: Iterator[int], depth: int) -> Pair:
    """Any type; some in a union with null on either side."""
    kinds: list[st.SearchStrategy[Pair]] = [leaves(), leaves(), enums(names), fixeds(names)]
    if depth:
        inner = pairs(names, depth - 1)
        kinds += [arrays(inner), maps(inner), records(names, depth - 1)]
    found = draw(st.one_of(kinds))
    writer, reader, values, nullable = found.writer, found.reader, found.values, False
    other = [] if found.writer == "boolean" else ["boolean"]  # it becomes nothing else, and nothing else it
    if draw(st.integers(0, 2)) == 0:
        more = draw(st.sampled_from([[], other]))
        writer = draw(st.permutations(["null", writer, *more]))
        tagged = values.map(lambda value: (found.branch, value))
        rest = [st.booleans().map(lambda value: ("boolean", value)) for _ in more]
        values = st.one_of(tagged, st.just(("null", None)), *rest)
    if draw(st.integers(0, 2)) == 0:
        more = other if writer == found.writer and draw(st.booleans()) else []
        reader, nullable = draw(st.permutations(["null", reader, *more])), True
    return Pair(writer, reader, found.column, values, nullable)


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    item = draw(inner)
    return Pair(
        {"type": "array", "items": item.writer},
        {"type": "array", "items": item.reader},
        types.array_of(item.column, item.nullable),
        st.lists(item.values, max_size=3),
    )


@st.composite
def maps(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    item = draw(inner)
    return Pair(
        {"type": "map", "values": item.writer},
        {"type": "map", "values": item.reader},
        types.map_of(types.STRING, item.column, item.nullable),
        st.dictionaries(TEXT, item.values, max_size=3),
    )


@st.composite
def defaults(draw: st.DrawFn) -> tuple[Any, pa.DataType, Any, bool]:
    """A type of the reader's, its column, and a default for it."""
    kind = draw(st.sampled_from(sorted(COLUMNS)))
    value = draw(st.sampled_from(DEFAULTS[kind]))
    column = COLUMNS[kind]
    match draw(st.integers(0, 3)):
        case 0:
            return {"type": "array", "items": kind}, types.array_of(column, False), [value, value], False
        case 1:
            return (
                {"type": "map", "values": kind},
                types.map_of(types.STRING, column, False),
                {"k": value},
                False,
            )
        case 2:
            return ["null", kind], column, None, True
        case _:
            return kind, column, value, False


@st.composite
def records(draw: st.DrawFn, names: Iterator[int], depth: int) -> Pair:
    """Fields kept, renamed with an alias, left out, added with a default; in any order on either side."""
    found = draw(st.lists(pairs(names, depth), min_size=1, max_size=4))
    written = [(f"w{at}", pair) for at, pair in enumerate(found)]
    reader: list[dict[str, Any]] = []
    columns: list[pa.Field] = []
    for name, pair in written:
        match draw(st.integers(0, 3)):
            case 0:
                continue
            case 1:
                reader.append({"name": f"r{name}", "aliases": ["no", name], "type": pair.reader})
                columns.append(pa.field(f"r{name}", pair.column, pair.nullable))
            case _:
                reader.append({"name": name, "type": pair.reader})
                columns.append(pa.field(name, pair.column, pair.nullable))
    for at in range(draw(st.integers(0 if reader else 1, 2))):
        kind, column, value, nullable = draw(defaults())
        reader.append({"name": f"d{at}", "type": kind, "default": value})
        columns.append(pa.field(f"d{at}", column, nullable))
    name = f"R{next(names)}"
    fields = [{"name": field, "type": pair.writer} for field, pair in draw(st.permutations(written))]
    return Pair(
        {"type": "record", "name": name, "fields": fields},
        {"type": "record", "name": name, "fields": draw(st.permutations(reader))},
        pa.struct(draw(st.permutations(columns))),
        st.fixed_dictionaries({field: pair.values for field, pair in written}),
    )


@st.composite
def tables(draw: st.DrawFn) -> Pair:
    return draw(records(count(), draw(st.integers(0, 2))))


def write(pair: Pair, value: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(pair.writer), value)
    return out.getvalue()


def resolved(pair: Pair, payload: bytes) -> Any:
    """What fastavro makes of it, in the shape of `to_pylist()`; None if it does not resolve."""
    schemas = parse_schema(pair.writer), parse_schema(pair.reader)
    try:
        value = schemaless_reader(io.BytesIO(payload), *schemas)
    except (SchemaResolutionError, UnicodeDecodeError):  # the second: bytes that are to be a string
        return None
    return shaped(pair.column, value)


def shaped(column: pa.DataType, value: Any) -> Any:
    match column:
        case _ if value is None:
            return None
        case pa.StructType():
            return {field.name: shaped(field.type, value[field.name]) for field in column}
        case pa.ListType():
            return [shaped(column.value_type, item) for item in value]
        case pa.MapType():
            return [(key, shaped(column.item_type, item)) for key, item in value.items()]
        case types.FLOAT:
            return to_float(value)  # fastavro keeps the double
        case types.DOUBLE:
            return float(value)
        case types.BINARY if isinstance(value, str):
            return value.encode("latin-1")  # a default inside of a container, as JSON has it
        case _:
            return value
