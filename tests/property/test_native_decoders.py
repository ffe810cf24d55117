"""The plain and the native decoders on the same input: same rows, same kinds, same records refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property.bits import kinds, rows_in_bits
from tests.property.test_formats_properties import (
    FLAT,
    GARBAGE,
    SCHEMA_AND_ROWS,
    TOKENS,
    dumps,
    rows,
)

from forebay import column_types as types
from forebay.formats import decoder

native = pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
LOOSE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-300, 300),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.sampled_from(
            ["2024-02-29", "2024-02-29T12:00Z", "2024-02-30", "AAEC", "AAE=", "AA=", "1.50", "-0"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "1", "01"]), inner, max_size=3),
    ),
    max_leaves=5,
)


def check_agreement(
    format: str, schema: pa.Schema, values: Sequence[bytes | None], options: Mapping[str, str] | None = None
) -> None:
    if "\0" in str(schema):
        return  # a NUL ends a name in Arrow's C interface; such sources are read plainly
    plain = decoder(format, schema, options or {})
    expected = plain.decode(values)
    made = native.Decoder(format, plain.schema, dict(options or {}))
    good = list(range(len(values))) if expected.good is None else expected.good
    for _ in range(2):  # a decoder holds nothing back from one call to the next
        found = made.decode(list(values))
        assert (found.good, found.skipped) == (good, expected.skipped)
        assert found.case_mismatches == expected.case_mismatches
        batch, bad = pa.record_batch(found.batch), found.bad
        batch.validate(full=True)
        refused = [(values[item.index], item.kind) for item in bad]
        assert refused == [(values[record.index], record.kind) for record in expected.bad]
        assert batch.schema.equals(expected.batch.schema)
        assert rows_in_bits(batch) == rows_in_bits(expected.batch)
        assert not any("refused at first sight" in item.message for item in bad)
    made.brief = True
    assert kinds(made.decode(list(values)).bad) == kinds(bad)


def damage(payload: bytes) -> st.SearchStrategy[bytes]:
    """The payload with something cut out, put in or put twice."""
    places = st.integers(0, len(payload))
    return st.one_of(
        st.tuples(places, places).map(lambda cut: payload[: min(cut)] + payload[max(cut) :]),
        st.tuples(places, st.sampled_from(TOKENS)).map(lambda d: payload[: d[0]] + d[1] + payload[d[0] :]),
        st.tuples(places, places).map(lambda cut: payload[: max(cut)] + payload[min(cut) :]),
    )


@given(SCHEMA_AND_ROWS, st.data())
def test_both_read_the_same_json(drawn: tuple[pa.Schema, list[Any]], data: st.DataObject) -> None:
    schema, written = drawn
    good = [dumps(pair[0]).encode() for pair in written]
    damaged = [data.draw(damage(payload)) for payload in good for _ in range(3)]
    check_agreement("json", schema, [*good, *GARBAGE, *damaged, *good])


@given(SCHEMA_AND_ROWS, st.data())
def test_both_refuse_the_same_values_of_other_types(
    drawn: tuple[pa.Schema, list[Any]], data: st.DataObject
) -> None:
    schema, _ = drawn
    names = schema.names
    records = st.dictionaries(st.one_of(st.sampled_from(names), st.text(max_size=2)), LOOSE, max_size=5)
    check_agreement("json", schema, [dumps(data.draw(records)).encode() for _ in range(5)])


NAMES = ["a", "A", "aB", "Ab", "AB", "é", "É", "a_"]
NESTED = st.recursive(
    st.just(types.BIGINT),
    lambda inner: st.one_of(
        st.builds(types.array_of, inner),
        st.builds(types.map_of, st.just(types.STRING), inner),
        st.lists(
            st.builds(pa.field, st.sampled_from(NAMES), inner, st.booleans()),
            min_size=1,
            max_size=3,
            unique_by=lambda field: field.name,
        ).map(pa.struct),
    ),
    max_leaves=6,
)
NEAR = st.recursive(
    st.sampled_from([None, 1, 1, 1, "x"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=8,
)


def shaped(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, but that a struct's fields may have each other's names and may be absent."""
    match kind:
        case pa.StructType():
            fields = dict.fromkeys(NAMES, NEAR) | {f.name: shaped(f.type) for f in kind}
            return st.fixed_dictionaries({}, optional=fields)
        case pa.ListType():
            return st.lists(shaped(kind.value_type), max_size=2)
        case pa.MapType():
            return st.dictionaries(st.sampled_from(NAMES), shaped(kind.item_type), max_size=2)
    return st.one_of(st.just(1), st.just(1), st.none())


@given(NESTED.filter(lambda kind: isinstance(kind, pa.StructType)), st.data())
def test_both_see_the_same_fields_that_differ_from_a_column_only_in_case(
    kind: pa.StructType, data: st.DataObject
) -> None:
    schema = pa.schema(list(kind))
    records = [data.draw(shaped(kind)) for _ in range(5)]
    payloads = [dumps(record).encode() for record in records]
    escaped = [json.dumps(record).replace("a", "\\u0061").encode() for record in records]
    check_agreement("json", schema, [*payloads, *escaped])
    events = [{"op": "u", "before": one, "after": other} for one in records[:2] for other in records[:2]]
    check_agreement("debezium-json", schema, [dumps(each).encode() for each in events])


TYPES: list[pa.DataType] = [
    types.INT,
    types.BIGINT,
    types.FLOAT,
    types.DOUBLE,
    pa.decimal128(5, 2),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
    types.STRING,
    types.BINARY,
    types.DATE,
    types.TIMESTAMP,
    types.TIMESTAMP_NTZ,
    types.array_of(types.INT, False),
    types.map_of(types.INT, types.STRING, False),
    pa.struct([pa.field("b", types.INT, False)]),
]
TRICKY = [
    "0", "-0", "00", "01", "-", "+1", ".5", "1.", "1.0", "1e2", "1E+2", "1e-2", "1e400", "-1e400", "1e-400", "0e999999",
    "0e99999999999999999999", "1e99999999999999999999", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "2147483647", "2147483648", "123.45", "123.456", "999.995",
    "1000.00", "0.1", "0.10", "3.4028235e38", "3.4028235677973366e38", "3.40282357e38", "1e-45",
    "0.30000000000000004", "9007199254740993", "9007199254740992.5", "123456789012345678901234567890",
    "99999999999999999999999999999999999999", "100000000000000000000000000000000000000", "1" + "0" * 500,
    "true", "null", '""', '"1.5"', '" 1"', '"1e2"', '"NaN"', "NaN", "Infinity", '"2024-02-29"', '"2023-02-29"',
    '"0000-01-01"', '"0001-01-01"', '"9999-12-31"', '"2024-1-1"', '"２０２４-01-01"', '"2024-01-01T00:00"',
    '"2024-01-01 23:59:59.999999999Z"', '"2024-01-01T24:00Z"', '"2024-01-01T00:00:60Z"', '"0001-01-01T00:00+18:00"',
    '"9999-12-31T23:59:59-00:01"', '"2024-01-01T00:00+18:01"', '"2024-01-01T00:00-1800"', '"2024-01-01T00:00+05"',
    '"2024-01-01T00:00:00."', '"2024-01-01T00:00:00.1234567890"', '"2024-01-01T00:00z"', "-62135596800000",
    "-62135596800001", "253402300799999", "253402300800000", '"AA=="', '"AB=="', '"AA="', '"A"', '"A A="', '"_-8="',
    '"\\u0041A=="', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00"', '"\\ud83dx"', '"\\x"', '"\t"', '"\x7f"', "[1,2]",
    "[1,null]", '[1,"x"]', '{"1": "a", "2": "b"}', '{"1": "a", "1": "b"}', '{"01": "a"}', '{"-0": "a"}', '{"1": null}',
    '{"b": 1}', '{"b": 1, "b": 2}', '{"b": null}', "{}", '{"\\u0062": 1}', '{"b": 1, "c": {"d": 1, "d": 2}}', "[]",
]  # fmt: skip


@pytest.mark.parametrize("data_type", TYPES, ids=types.type_name)
def test_both_agree_on_every_tricky_json_value(data_type: pa.DataType) -> None:
    schema = pa.schema([pa.field("a", data_type), pa.field("z", types.BIGINT)])
    payloads = [f'{{"a": {text}, "z": 1}}'.encode() for text in TRICKY]
    payloads += [f'{{"z": "x", "a": {text}'.encode() for text in TRICKY]
    payloads += [f'{{"z": "x", "a": {text}}}'.encode() for text in TRICKY]
    check_agreement("json", schema, payloads)


@pytest.mark.parametrize("depth", [255, 256, 257, 100_000])
def test_both_draw_the_same_line_at_deep_nesting(depth: int) -> None:
    schema = pa.schema([pa.field("a", types.BIGINT)])
    inner = depth - 1
    check_agreement("json", schema, [b'{"x": ' + b"[" * inner + b"]" * inner + b"}", b"[" * depth])


CSV_TEXT = st.text(
    st.one_of(st.sampled_from(",;\"'\\\r\n -0"), st.characters(exclude_categories=["Cs"])), max_size=12
)


@given(
    st.lists(CSV_TEXT, min_size=1, max_size=6),
    st.sampled_from([",", ";", "\\t"]),
    st.sampled_from(['"', "'", ""]),
    st.sampled_from(["", "\\", '"']),
)
@example(['"a"b', '"a', 'a"b', '"a""b"', "a\\", '"a\\', "\x00", "a\n\n", "\n", "a\rb"], ",", '"', "\\")
def test_both_split_the_same_csv(texts: list[str], delimiter: str, quote: str, escape: str) -> None:
    options = {"csv.delimiter": delimiter, "csv.quote": quote, "csv.escape": escape, "csv.null": "0"}
    for width in (1, 2):
        schema = pa.schema([pa.field(f"c{place}", types.STRING, place > 0) for place in range(width)])
        check_agreement("csv", schema, [text.encode() for text in texts], options)


@given(
    st.lists(
        st.one_of(
            CSV_TEXT, st.sampled_from(["c0,c1", "C1,c0", "c0", "é,C0", "#a", "#\\n", "#\\nc0", '"#"', "\ta"])
        ),
        max_size=6,
    ),
    st.sampled_from(["", "#", "'", "\\t"]),
    st.sampled_from(["true", "True", "false"]),
)
def test_both_skip_the_same_csv(texts: list[str], comment: str, header: str) -> None:
    options = {"csv.header": header, "csv.comment": comment}
    for names in (["c0"], ["c0", "c1"], ["É", "c0"]):
        schema = pa.schema([pa.field(name, types.STRING) for name in names])
        check_agreement("csv", schema, [text.encode() for text in texts], options)


@pytest.mark.parametrize("data_type", [kind for kind in TYPES if "<" not in types.type_name(kind)])
def test_both_agree_on_every_tricky_csv_value(data_type: pa.DataType) -> None:
    schema = pa.schema([pa.field("a", data_type, False)])
    texts = [text.strip('"') for text in TRICKY] + ["TRUE", "False", "tRuE", "１"]
    check_agreement("csv", schema, [text.encode() for text in texts])
    check_agreement("csv", pa.schema([*schema, pa.field("b", types.STRING)]), [b"1,x", b"1", b"1,2,3"])


@given(FLAT.flatmap(lambda schema: st.tuples(st.just(schema), st.lists(rows(schema), max_size=4))))
def test_both_read_the_same_csv_values(drawn: tuple[pa.Schema, list[Any]]) -> None:
    schema, written = drawn
    lines = [
        ",".join('"' + str(value).replace('"', '""') + '"' for value in pair[0].values()).encode()
        for pair in written
    ]
    check_agreement("csv", schema, lines, {"csv.null": "None"})


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9), st.text(max_size=5).map(str.encode))))
def test_both_read_the_same_raw_payloads(values: list[bytes | None]) -> None:
    for kind in (types.STRING, types.BINARY):
        for nullable in (True, False):
            check_agreement("raw", pa.schema([pa.field("value", kind, nullable)]), values)
