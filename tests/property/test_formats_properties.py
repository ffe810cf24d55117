"""Decoders against random schemas, values and damage: what was written is read, and nothing else is."""

from __future__ import annotations

import base64
import csv
import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

import inside
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forebay import column_types as types
from forebay.formats import Decoded, RefusalKind, decoder
from forebay.formats.debezium_format import CHANGE
from forebay.formats.json_format import JsonDecoder

Pair = tuple[Any, Any]
"""A value as it is written, and as `to_pylist()` gives it back."""

NULL = "<no value>"  # longer than any text drawn below
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.builds(pa.decimal128, st.just(p), st.integers(0, p)))
SCALARS = st.one_of(
    st.sampled_from(
        [
            *types.BITS,
            types.BOOLEAN,
            types.FLOAT,
            types.DOUBLE,
            types.STRING,
            types.BINARY,
            types.DATE,
            types.TIMESTAMP,
            types.TIMESTAMP_NTZ,
        ]
    ),
    DECIMALS,
)


def structs(of: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.StructType]:
    field = st.builds(pa.field, TEXT, of, st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda f: f.name).map(pa.struct)


KEYS = st.sampled_from([types.STRING, *types.BITS])
TYPES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(types.array_of, inner, st.booleans()),
        st.builds(types.map_of, KEYS, inner, st.booleans()),
        structs(inner),
    ),
    max_leaves=6,
)


def scalar(data_type: pa.DataType) -> st.SearchStrategy[Pair]:
    match data_type:
        case types.BOOLEAN:
            plain: st.SearchStrategy[Any] = st.booleans()
        case types.FLOAT:
            plain = st.floats(width=32, allow_nan=False, allow_infinity=False)
        case types.DOUBLE:
            plain = st.floats(allow_nan=False, allow_infinity=False)
        case types.STRING:
            plain = TEXT
        case types.BINARY:
            return st.binary(max_size=8).map(lambda raw: (base64.b64encode(raw).decode(), raw))
        case types.DATE:
            return st.dates().map(lambda day: (day.isoformat(), day))
        case pa.Decimal128Type():
            end = 10**data_type.precision - 1
            return st.tuples(st.integers(-end, end), st.sampled_from([str, Decimal])).map(
                lambda drawn: as_decimal(drawn[0], data_type.scale, drawn[1])
            )
        case types.TIMESTAMP_NTZ:
            return st.datetimes().map(lambda moment: (moment.isoformat(), moment))
        case types.TIMESTAMP:
            # A day from either end, so that any zone's wall clock still has a four-digit year.
            moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
            zones = st.integers(-18 * 60, 18 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
            return st.tuples(moments, zones).map(
                lambda drawn: (drawn[0].astimezone(drawn[1]).isoformat(), drawn[0])
            )
        case _:
            end = 2 ** (types.BITS[data_type] - 1)
            plain = st.integers(-end, end - 1)
    return plain.map(lambda value: (value, value))


def as_decimal(unscaled: int, scale: int, write: Any) -> Pair:
    number = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    return (f"{number:f}" if write is str else number), number


def values(data_type: pa.DataType, nullable: bool) -> st.SearchStrategy[Pair]:
    match data_type:
        case pa.StructType():
            known = rows(data_type)
        case pa.ListType():
            known = st.lists(values(data_type.value_type, data_type.value_field.nullable), max_size=3).map(
                lambda pairs: ([pair[0] for pair in pairs], [pair[1] for pair in pairs])
            )
        case pa.MapType():
            keys = scalar(data_type.key_type).map(lambda pair: pair[1])
            entries = st.dictionaries(
                keys, values(data_type.item_type, data_type.item_field.nullable), max_size=3
            )
            known = entries.map(
                lambda found: (
                    {str(key): pair[0] for key, pair in found.items()},
                    [(key, pair[1]) for key, pair in found.items()],
                )
            )
        case _:
            known = scalar(data_type)
    return st.one_of(known, st.just((None, None))) if nullable else known


def rows(schema: pa.Schema) -> st.SearchStrategy[Pair]:
    drawn = st.tuples(*(values(field.type, field.nullable) for field in schema))
    names = schema.names
    return drawn.map(
        lambda pairs: (
            dict(zip(names, (pair[0] for pair in pairs), strict=True)),
            dict(zip(names, (pair[1] for pair in pairs), strict=True)),
        )
    )


def dumps(value: Any) -> str:
    """`json.dumps` that writes a Decimal as a number."""
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {dumps(entry)}" for key, entry in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(dumps, value)) + "]"
        case Decimal():
            return f"{value:f}"
        case _:
            return json.dumps(value, ensure_ascii=False)


FLAT = structs(SCALARS).map(lambda kind: pa.schema(list(kind)))
SCHEMAS = structs(TYPES).map(lambda kind: pa.schema(list(kind)))
SCHEMA_AND_ROWS = SCHEMAS.flatmap(
    lambda schema: st.tuples(st.just(schema), st.lists(rows(schema), max_size=4))
)
GARBAGE = [None, b"", b"[]", b"{", b'{"a": NaN}', b"\xff", b'"x"', b"{} {}", b"[" * 2000]
TOKENS = [
    b'"',
    b":",
    b" :",
    b"{",
    b"}",
    b"[",
    b",",
    b"\\",
    b"\\ud800",
    b"\xff",
    b"\x00",
    b"NaN",
    b"1e400",
    b"null",
]
TOKENS += [b"0", b"-", b".5", b"true", b'"":1,', b"9" * 25, b"\n", b"\r", b"'"]


def check_complete(decoded: Decoded, total: int) -> None:
    """Each payload is in the batch, among the bad or among the skipped; the batch is sound."""
    good = list(range(total)) if decoded.good is None else decoded.good
    ends = [*set(good), *(record.index for record in decoded.bad), *decoded.skipped]
    assert sorted(ends) == list(range(total))
    assert good == sorted(good)
    assert decoded.batch.num_rows == len(good)
    assert all(type(record.kind) is RefusalKind and record.message for record in decoded.bad)
    assert all(record.kind is not RefusalKind.OTHER for record in decoded.bad)
    decoded.batch.validate(full=True)
    for field, column in zip(decoded.batch.schema, decoded.batch.columns, strict=True):
        assert field.nullable or not column.null_count


def damage(payload: bytes) -> st.SearchStrategy[bytes]:
    place = st.integers(0, len(payload))
    splice = st.one_of(st.sampled_from(TOKENS), st.binary(max_size=3))
    return st.builds(
        lambda start, length, new: payload[:start] + new + payload[start + length :],
        place,
        st.integers(0, 4),
        splice,
    )


@given(SCHEMA_AND_ROWS)
def test_what_json_wrote_is_what_is_read(drawn: tuple[pa.Schema, list[Pair]]) -> None:
    schema, pairs = drawn
    decoded = decoder("json", schema, {}).decode([dumps(written).encode() for written, _ in pairs])
    assert decoded.bad == []
    assert decoded.good is None
    assert decoded.batch.to_pylist() == [expected for _, expected in pairs]
    decoded.batch.validate(full=True)


@given(SCHEMA_AND_ROWS, st.lists(st.one_of(st.none(), st.sampled_from(GARBAGE)), max_size=4), st.randoms())
def test_the_good_are_all_delivered_in_order_and_the_bad_named_exactly(
    drawn: tuple[pa.Schema, list[Pair]], garbage: list[bytes | None], random: Any
) -> None:
    schema, pairs = drawn
    mixed: list[tuple[bytes | None, Any]] = [(dumps(written).encode(), row) for written, row in pairs]
    for payload in garbage:
        mixed.insert(random.randint(0, len(mixed)), (payload, None))
    decoded = decoder("json", schema, {}).decode([payload for payload, _ in mixed])
    check_complete(decoded, len(mixed))
    assert [record.index for record in decoded.bad] == [i for i, (_, row) in enumerate(mixed) if row is None]
    assert decoded.batch.to_pylist() == [row for _, row in mixed if row is not None]


@given(SCHEMA_AND_ROWS, st.data())
def test_damaged_json_never_raises_and_both_parsers_agree(
    drawn: tuple[pa.Schema, list[Pair]], data: st.DataObject
) -> None:
    schema, pairs = drawn
    payloads = [data.draw(damage(dumps(written).encode())) for written, _ in pairs]
    made = JsonDecoder(schema, {})
    decoded = made.decode(payloads)
    check_complete(decoded, len(payloads))
    inside.parse_exactly(made)
    exact = made.decode(payloads)
    assert exact.batch.equals(decoded.batch)
    assert [(r.index, r.kind) for r in exact.bad] == [(r.index, r.kind) for r in decoded.bad]


@given(
    FLAT,
    st.lists(st.one_of(st.none(), st.binary(max_size=40), st.lists(st.sampled_from(TOKENS)).map(b"".join))),
)
def test_random_bytes_never_raise_in_any_format(schema: pa.Schema, payloads: list[bytes | None]) -> None:
    for name in ("json", "csv", "debezium-json"):
        if name == "debezium-json" and {field.name.lower() for field in schema} & set(CHANGE.names):
            continue  # columns that the format adds itself are refused, and Hypothesis finds their names in the code
        check_complete(decoder(name, schema, {}).decode(payloads), len(payloads))
    for kind in (types.STRING, types.BINARY):
        raw = decoder("raw", pa.schema([pa.field("value", kind)]), {}).decode(payloads)
        check_complete(raw, len(payloads))
        kept = payloads if raw.good is None else [payloads[i] for i in raw.good]
        column = raw.batch.column(0).to_pylist()
        assert [text.encode() if isinstance(text, str) else text for text in column] == kept


def to_field(value: Any) -> Any:
    match value:
        case None:
            return NULL
        case bool():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case _:
            return value


def write_csv(row: list[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(map(to_field, row))
    return line.getvalue().encode()


@given(
    FLAT.flatmap(lambda schema: st.tuples(st.just(schema), st.lists(rows(schema), max_size=4))),
    st.data(),
)
def test_what_csv_wrote_is_what_is_read_and_damage_never_raises(
    drawn: tuple[pa.Schema, list[Pair]], data: st.DataObject
) -> None:
    schema, pairs = drawn
    made = decoder("csv", schema, {"csv.null": NULL})
    payloads = [write_csv(list(written.values())) for written, _ in pairs]
    decoded = made.decode(payloads)
    # A number that Python writes as 1e+16 is a number in CSV too; so nothing is refused.
    assert decoded.bad == []
    assert decoded.batch.to_pylist() == [expected for _, expected in pairs]
    damaged = [data.draw(damage(payload)) for payload in payloads]
    check_complete(made.decode(damaged), len(damaged))


@given(st.integers(-(2**80), 2**80), st.sampled_from(list(types.BITS)))
def test_an_integer_is_read_exactly_or_not_at_all(number: int, data_type: pa.DataType) -> None:
    end = 2 ** (types.BITS[data_type] - 1)
    decoded = decoder("json", pa.schema([pa.field("x", data_type)]), {}).decode([b'{"x":%d}' % number])
    if -end <= number < end:
        assert decoded.batch.to_pylist() == [{"x": number}]
    else:
        assert [record.kind for record in decoded.bad] == [RefusalKind.TYPE_CONVERSION]


@given(st.decimals(allow_nan=False, allow_infinity=False), DECIMALS)
def test_a_decimal_is_read_exactly_or_not_at_all(number: Decimal, data_type: pa.Decimal128Type) -> None:
    decoded = decoder("json", pa.schema([pa.field("x", data_type)]), {}).decode(
        [f'{{"x":{number}}}'.encode()]
    )
    unscaled = Context(2000, Emin=MIN_EMIN, Emax=MAX_EMAX).normalize(number).as_tuple()
    fits = number == 0 or (
        -int(unscaled.exponent) <= data_type.scale
        and number.adjusted() < data_type.precision - data_type.scale
    )
    if fits:
        assert decoded.batch.to_pylist() == [{"x": number}]
    else:
        assert [record.kind for record in decoded.bad] == [RefusalKind.TYPE_CONVERSION]


@given(st.dates())
def test_every_day_of_the_calendar_is_read(day: date) -> None:
    decoded = decoder("json", pa.schema([pa.field("x", types.DATE)]), {}).decode(
        [b'{"x":"0"}', f'{{"x":"{day}"}}'.encode()]
    )
    assert decoded.batch.to_pylist() == [{"x": day}]
    assert decoded.good == [1]
