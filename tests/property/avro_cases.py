"""Random Avro schemas with columns that can read them, and datums that fastavro wrote."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_writer
from hypothesis import strategies as st

from forebay import column_types as types

Pairs = st.SearchStrategy[tuple[Any, Any]]
"""A value as fastavro is given it, and as `to_pylist()` gives it back."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BYTES = st.binary(max_size=8)
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32)
DAYS = st.dates().map(lambda day: ((day - date(1970, 1, 1)).days, day))
MICROS = st.datetimes()
MILLIS = MICROS.map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000))
UUIDS = st.uuids().map(str)


@dataclass(frozen=True)
class Case:
    """A writer's type and a column for it. `loose` are datums of the type that the column may refuse."""

    schema: Any
    column: pa.DataType
    good: Pairs
    loose: st.SearchStrategy[Any]
    nullable: bool = False

    @property
    def columns(self) -> pa.Schema:
        """Of a record: its fields."""
        return pa.schema(list(self.column))

    @property
    def name(self) -> str:
        kind = self.schema if isinstance(self.schema, str) else self.schema["type"]
        return self.schema["name"] if kind in ("record", "enum", "fixed") else kind


def same_pairs(values: st.SearchStrategy[Any]) -> Pairs:
    return values.map(lambda value: (value, value))


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def to_float(value: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", float(value)))[0]
    return found


def instants(moments: st.SearchStrategy[datetime], unit: timedelta, *, zoned: bool) -> Pairs:
    return moments.map(
        lambda moment: (
            (moment - datetime(1970, 1, 1)) // unit,
            moment.replace(tzinfo=UTC) if zoned else moment,
        )
    )


def integers(kind: str, column: pa.DataType, schema: Any = None) -> Case:
    every = INTS if kind == "int" else LONGS
    end = 2 ** (min(types.BITS[column], 32 if kind == "int" else 64) - 1)
    return Case(schema or kind, column, same_pairs(st.integers(-end, end - 1)), every)


def reals(kind: str) -> Iterator[Case]:
    every = {"int": INTS, "long": LONGS, "float": FLOATS}[kind]
    yield Case(kind, types.FLOAT, every.map(lambda value: (value, to_float(value))), every)
    yield Case(kind, types.DOUBLE, every.map(lambda value: (value, float(value))), every)


def timestamps() -> Iterator[Case]:
    for column, prefix in ((types.TIMESTAMP, "timestamp"), (types.TIMESTAMP_NTZ, "local-timestamp")):
        zoned = column == types.TIMESTAMP
        millis = instants(MILLIS, timedelta(milliseconds=1), zoned=zoned)
        micros = instants(MICROS, timedelta(microseconds=1), zoned=zoned)
        yield Case("long", column, millis, LONGS)
        yield Case(logical("long", f"{prefix}-millis"), column, millis, LONGS)
        yield Case(logical("long", f"{prefix}-micros"), column, micros, LONGS)
        yield integers("long", types.BIGINT, logical("long", f"{prefix}-nanos"))


LEAVES = [
    Case("boolean", types.BOOLEAN, same_pairs(st.booleans()), st.booleans()),
    *(integers(kind, column) for kind in ("int", "long") for column in types.BITS),
    *(case for kind in ("int", "long", "float") for case in reals(kind)),
    Case("double", types.DOUBLE, same_pairs(st.floats()), st.floats()),
    Case("string", types.STRING, same_pairs(TEXT), TEXT),
    Case("string", types.BINARY, TEXT.map(lambda text: (text, text.encode())), TEXT),
    Case("bytes", types.BINARY, same_pairs(BYTES), BYTES),
    Case("bytes", types.STRING, TEXT.map(lambda text: (text.encode(), text)), BYTES),
    Case(logical("string", "uuid"), types.STRING, same_pairs(UUIDS), UUIDS),
    Case(logical("int", "date"), types.DATE, DAYS, INTS),
    integers("int", types.INT, logical("int", "time-millis")),
    integers("long", types.BIGINT, logical("long", "time-micros")),
    *timestamps(),
]


@st.composite
def decimals(draw: st.DrawFn, names: Iterator[int]) -> Case:
    """The same number at two scales: the writer's digits are kept or zeros are added and cut."""
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    written = draw(st.integers(0, min(scale + 3, 38)))
    # Digits that both scales can hold.
    shared = min(scale, written)
    most = min(precision - (scale - shared), 38 - (written - shared))
    numbers = st.integers(-(10**most) + 1, 10**most - 1)
    size = 17
    fixed = draw(st.booleans())

    def pair(number: int) -> tuple[Any, Any]:
        raw = number * 10 ** (written - shared)
        length = size if fixed else raw.bit_length() // 8 + 1
        digits = tuple(map(int, str(abs(number) * 10 ** (scale - shared))))
        return raw.to_bytes(length, "big", signed=True), Decimal((int(number < 0), digits, -scale))

    schema = logical("bytes", "decimal", precision=38, scale=written)
    if fixed:
        schema |= {"type": "fixed", "name": f"F{next(names)}", "size": size}
    loose = st.binary(min_size=size, max_size=size) if fixed else st.binary(max_size=20)
    return Case(schema, pa.decimal128(precision, scale), numbers.map(pair), loose)


@st.composite
def named(draw: st.DrawFn, names: Iterator[int]) -> Case:
    if draw(st.booleans()):
        symbols = [f"S{index}" for index in range(draw(st.integers(1, 100)))]
        schema = {"type": "enum", "name": f"E{next(names)}", "symbols": symbols}
        return Case(schema, types.STRING, same_pairs(st.sampled_from(symbols)), st.sampled_from(symbols))
    size = draw(st.integers(0, 4))
    raw = st.binary(min_size=size, max_size=size)
    fixed = {"type": "fixed", "name": f"F{next(names)}", "size": size}
    return Case(fixed, types.BINARY, same_pairs(raw), raw)


def tagged(case: Case, nullable: bool) -> Pairs:
    found = case.good.map(lambda pair: ((case.name, pair[0]), pair[1]))
    return st.one_of(found, st.just((("null", None), None))) if nullable else found


@st.composite
def cases(draw: st.DrawFn, names: Iterator[int], depth: int = 3) -> Case:
    """Any type; half of them in a union with null, whether or not the column takes it."""
    kinds = [st.sampled_from(LEAVES), decimals(names), named(names)]
    if depth:
        inner = cases(names, depth - 1)
        kinds += [arrays(inner), maps(inner), records(names, depth - 1)]
    case = draw(st.one_of(kinds))
    if not draw(st.booleans()):
        return case
    nullable = draw(st.booleans())
    branches = ["null", case.schema] if draw(st.booleans()) else [case.schema, "null"]
    loose = st.one_of(case.loose.map(lambda value: (case.name, value)), st.just(("null", None)))
    return Case(branches, case.column, tagged(case, nullable), loose, nullable)


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    item = draw(inner)
    return Case(
        {"type": "array", "items": item.schema},
        types.array_of(item.column, item.nullable),
        st.lists(item.good, max_size=3).map(lambda pairs: ([p[0] for p in pairs], [p[1] for p in pairs])),
        st.lists(item.loose, max_size=3),
    )


@st.composite
def maps(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    item = draw(inner)
    return Case(
        {"type": "map", "values": item.schema},
        types.map_of(types.STRING, item.column, item.nullable),
        st.dictionaries(TEXT, item.good, max_size=3).map(
            lambda found: (
                {key: pair[0] for key, pair in found.items()},
                [(key, pair[1]) for key, pair in found.items()],
            )
        ),
        st.dictionaries(TEXT, item.loose, max_size=3),
    )


@st.composite
def records(draw: st.DrawFn, names: Iterator[int], depth: int) -> Case:
    """Fields in any order, some without a column; and columns that the writer does not have."""
    kept = [(f"c{at}", case) for at, case in enumerate(draw(st.lists(cases(names, depth), max_size=4)))]
    skipped = [(f"s{at}", case) for at, case in enumerate(draw(st.lists(cases(names, depth), max_size=2)))]
    absent = [pa.field(f"a{at}", types.DATE) for at in range(draw(st.integers(0 if kept else 1, 2)))]
    written = draw(st.permutations(kept + skipped))
    fields = [pa.field(name, case.column, case.nullable) for name, case in kept]
    columns = draw(st.permutations(fields + absent))

    def pair(pairs: tuple[tuple[Any, Any], ...]) -> tuple[Any, Any]:
        found = dict(zip([name for name, _ in written], pairs, strict=True))
        row = {field.name: found[field.name][1] if field.name in found else None for field in columns}
        return {name: value[0] for name, value in found.items()}, row

    return Case(
        {
            "type": "record",
            "name": f"R{next(names)}",
            "fields": [{"name": name, "type": case.schema} for name, case in written],
        },
        pa.struct(columns),
        st.tuples(*(case.good for _, case in written)).map(pair),
        st.fixed_dictionaries({name: case.loose for name, case in written}),
    )


@st.composite
def tables(draw: st.DrawFn) -> Case:
    return draw(records(count(), draw(st.integers(0, 2))))


def plain(schema: Any) -> Any:
    """The schema without logical types: fastavro writes what it is given."""
    match schema:
        case dict():
            return {key: plain(value) for key, value in schema.items() if key != "logicalType"}
        case list():
            return [plain(value) for value in schema]
        case _:
            return schema


def write(case: Case, values: list[Any]) -> list[bytes]:
    schema = parse_schema(plain(case.schema))
    payloads = []
    for value in values:
        out = io.BytesIO()
        schemaless_writer(out, schema, value)
        payloads.append(out.getvalue())
    return payloads


def options(case: Case) -> dict[str, str]:
    return {"avro.schema": json.dumps(case.schema)}


def damage(payload: bytes) -> st.SearchStrategy[bytes]:
    """Truncated, with other bytes, or with bytes that mean something: lengths, counts, negative ones."""
    telling = [b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\xff", b"\xff" * 9 + b"\x01", b"\xff" * 10]
    splice = st.one_of(st.just(b""), st.sampled_from(telling), st.binary(max_size=3))
    places = st.integers(0, len(payload))
    return st.one_of(
        st.builds(lambda end: payload[:end], places),
        st.builds(
            lambda at, cut, new: payload[:at] + new + payload[at + cut :], places, st.integers(0, 3), splice
        ),
    )


def alike(left: Any, right: Any) -> bool:
    """Equal; NaN is NaN, and -0.0 is not 0.0."""
    match left, right:
        case (dict(), dict()):
            return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
        case (list(), list()) | (tuple(), tuple()):
            return len(left) == len(right) and all(map(alike, left, right))
        case (float(), float()):
            if math.isnan(left) or math.isnan(right):
                return math.isnan(left) and math.isnan(right)
            return left == right and math.copysign(1, left) == math.copysign(1, right)
        case _:
            return type(left) is type(right) and bool(left == right)
