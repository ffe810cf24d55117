"""FORMAT json: each type takes what it promises, exactly, and refuses the rest by its kind."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats import RefusalKind, decoder


def of(data_type: pa.DataType, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", data_type, nullable)])


def struct(data_type: pa.DataType, nullable: bool = True) -> pa.StructType:
    return pa.struct(list(of(data_type, nullable)))


def read(schema: pa.Schema, *payloads: bytes | str | None) -> tuple[list[dict[str, Any]], list[Any]]:
    raw = [payload.encode() if isinstance(payload, str) else payload for payload in payloads]
    decoded = decoder("json", schema, {}).decode(raw)
    return decoded.batch.to_pylist(), decoded.bad


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type]


GOOD: list[tuple[pa.DataType, str, Any]] = [
    (types.BOOLEAN, "true", True),
    (types.BOOLEAN, "false", False),
    (types.TINYINT, "-128", -128),
    (types.TINYINT, "127", 127),
    (types.SMALLINT, "-32768", -32768),
    (types.SMALLINT, "32767", 32767),
    (types.INT, "-2147483648", -(2**31)),
    (types.INT, "2147483647", 2**31 - 1),
    (types.BIGINT, "-9223372036854775808", -(2**63)),
    (types.BIGINT, "9223372036854775807", 2**63 - 1),
    (types.BIGINT, "-0", 0),
    (types.FLOAT, "1.5", 1.5),
    (types.FLOAT, "3.4028234663852886e38", 3.4028234663852886e38),
    (types.FLOAT, "7", 7.0),
    (types.DOUBLE, "0.1", 0.1),
    (types.DOUBLE, "10", 10.0),
    (types.DOUBLE, "9007199254740993", 9007199254740992.0),
    (types.DOUBLE, "1" + "0" * 30, 1e30),
    (types.DOUBLE, "1.7976931348623157e308", 1.7976931348623157e308),
    (types.DOUBLE, "1e-400", 0.0),
    (pa.decimal128(5, 2), "123.45", Decimal("123.45")),
    (pa.decimal128(5, 2), '"123.45"', Decimal("123.45")),
    (pa.decimal128(5, 2), "-999.99", Decimal("-999.99")),
    (pa.decimal128(5, 2), "1.500", Decimal("1.50")),
    (pa.decimal128(5, 2), "7", Decimal("7.00")),
    (pa.decimal128(5, 2), "12e1", Decimal("120.00")),
    (pa.decimal128(2, 2), "0.25", Decimal("0.25")),
    (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
    (pa.decimal128(38, 18), "0." + "1" * 18, Decimal("0." + "1" * 18)),
    (types.STRING, '"é\\u00e9\\ud83d\\ude00\\u0000"', "éé😀\0"),
    (types.STRING, '""', ""),
    (types.BINARY, '""', b""),
    (types.BINARY, '"AP8="', b"\x00\xff"),
    (types.DATE, '"2024-02-29"', date(2024, 2, 29)),
    (types.DATE, '"0001-01-01"', date(1, 1, 1)),
    (types.DATE, '"9999-12-31"', date(9999, 12, 31)),
    (types.TIMESTAMP, "1768471200000", utc(2026, 1, 15, 10)),
    (types.TIMESTAMP, "-1", utc(1969, 12, 31, 23, 59, 59, 999000)),
    (types.TIMESTAMP, '"2026-01-15T10:00:00Z"', utc(2026, 1, 15, 10)),
    (types.TIMESTAMP, '"2026-01-15 10:00"', utc(2026, 1, 15, 10)),
    (types.TIMESTAMP, '"2026-01-15T10:00:00.1"', utc(2026, 1, 15, 10, 0, 0, 100000)),
    (types.TIMESTAMP, '"2026-01-15T10:00:00.123456789Z"', utc(2026, 1, 15, 10, 0, 0, 123456)),
    (types.TIMESTAMP, '"1969-12-31T23:59:59.9999999Z"', utc(1969, 12, 31, 23, 59, 59, 999999)),
    (types.TIMESTAMP, '"2026-01-15T10:00+02"', utc(2026, 1, 15, 8)),
    (types.TIMESTAMP, '"2026-01-15T10:00:00-0530"', utc(2026, 1, 15, 15, 30)),
    (types.TIMESTAMP, '"2026-01-15T10:00:00+05:30"', utc(2026, 1, 15, 4, 30)),
    (types.TIMESTAMP, '"0001-01-01T18:00:00+18:00"', utc(1, 1, 1)),
    (types.TIMESTAMP, '"9999-12-31T23:59:59.999999Z"', utc(9999, 12, 31, 23, 59, 59, 999999)),
    (types.TIMESTAMP_NTZ, '"2026-01-15T10:00:00.5"', datetime(2026, 1, 15, 10, 0, 0, 500000)),
    (types.TIMESTAMP_NTZ, "0", datetime(1970, 1, 1)),
    (types.array_of(types.INT), "[1, null, 3]", [1, None, 3]),
    (types.array_of(types.array_of(types.STRING)), '[[], ["a"], null]', [[], ["a"], None]),
    (types.map_of(types.STRING, types.BIGINT), '{"a": 1, "": null}', [("a", 1), ("", None)]),
    (types.map_of(types.INT, types.STRING), '{"-5": "a", "0": "b"}', [(-5, "a"), (0, "b")]),
    (struct(types.DATE), '{"x": "2024-01-01", "extra": {}}', {"x": date(2024, 1, 1)}),
    (struct(types.DATE), "{}", {"x": None}),
    (struct(types.DATE), "null", None),
]


@pytest.mark.parametrize(("data_type", "text", "expected"), GOOD, ids=lambda v: str(v)[:40])
def test_a_value_of_the_column_s_type_is_read_exactly(
    data_type: pa.DataType, text: str, expected: Any
) -> None:
    rows, bad = read(of(data_type), f'{{"x": {text}}}')
    assert bad == []
    assert rows == [{"x": expected}]


@pytest.mark.parametrize("data_type", [types.FLOAT, types.DOUBLE], ids=str)
def test_minus_zero_keeps_its_sign_however_it_is_written(data_type: pa.DataType) -> None:
    texts = ["-0", "-0.0", "-0e5", "-1e-999", "0", "0.0"]
    schema = pa.schema([*of(data_type), pa.field("y", types.STRING)])
    rows, bad = read(schema, *(f'{{"y": "a-0", "x":{text}}}' for text in texts))
    assert bad == []
    assert [math.copysign(1, row["x"]) for row in rows] == [-1, -1, -1, -1, 1, 1]
    nested, bad = read(of(types.array_of(data_type)), '{"x": [-0, -0, 0]}', '{"x": [1,-0]}')
    assert bad == []
    assert [[math.copysign(1, item) for item in row["x"]] for row in nested] == [[-1, -1, 1], [1, -1]]


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (types.TINYINT, 0),
        (types.INT, 0),
        (types.BIGINT, 0),
        (pa.decimal128(5, 2), Decimal(0)),
        (types.TIMESTAMP, utc(1970, 1, 1)),
        (types.TIMESTAMP_NTZ, datetime(1970, 1, 1)),
    ],
    ids=str,
)
def test_minus_zero_is_zero_where_zero_has_no_sign(data_type: pa.DataType, expected: Any) -> None:
    rows, bad = read(of(data_type), '{"x": -0}')
    assert (rows, bad) == ([{"x": expected}], [])


BAD: list[tuple[pa.DataType, list[str]]] = [
    (types.BOOLEAN, ["0", "1", '"true"', "1.0", "[]"]),
    (types.TINYINT, ["128", "-129", "1.0", "1e1", '"1"', "true", "{}"]),
    (types.SMALLINT, ["32768", "-32769", "1.5"]),
    (types.INT, ["2147483648", "-2147483649", "3.0", '"3"', "false"]),
    (types.BIGINT, ["9223372036854775808", "-9223372036854775809", str(2**70), "3.7", '"3"', "true", "[1]"]),
    (types.FLOAT, ["3.4028236e38", "-1e39", '"1.5"', "true", "1" + "0" * 50]),
    (types.DOUBLE, ["1e400", "-1e400", "1" + "0" * 400, "1" + "0" * 350, '"2.5"', "true", '"NaN"', "{}"]),
    (
        pa.decimal128(5, 2),
        ["1.005", "1000", "999.995", '"1.005"', '"abc"', '"+1"', '"01"', '"1_0"', '" 1"', '"NaN"', "true", "1e400"],
    ),
    (pa.decimal128(38, 0), ["1" + "0" * 38, "0.5", "1e-999999999", "1e999999999"]),
    (types.STRING, ["1", "true", "[]", "{}", "1.5"]),
    (types.BINARY, ['"A"', '"AA"', '"AA="', '"AB=="', '"A-_="', '"AA==\\n"', '"é"', "1", '"AA==AA=="']),
    (types.DATE, ['"2023-02-29"', '"20240101"', '"2024-1-1"', '"2024-W01-1"', '"0000-01-01"', "0", '"٢٠٢٤-01-01"']),
    (
        types.TIMESTAMP,
        [
            '"2026-01-15"',
            '"2026-01-15T24:00:00Z"',
            '"2026-01-15T10:60:00Z"',
            '"2026-01-15T10:00:60Z"',
            '"2026-02-30T10:00:00Z"',
            '"2026-01-15T10:00:00.Z"',
            '"2026-01-15T10:00:00.1234567890Z"',
            '"2026-01-15T10:00:00,5Z"',
            '"2026-01-15T10:00:00z"',
            '"2026-01-15_10:00:00"',
            '"2026-01-15T10:00:00+19:00"',
            '"2026-01-15T10:00:00+18:01"',
            '"2026-01-15T10:00:00+05:60"',
            '"2026-01-15T10:00:00 Z"',
            '"2026-01-15T10:00:00Z\\n"',
            '"0001-01-01T00:00:00+00:01"',
            '"9999-12-31T23:59:59-00:01"',
            "1.5",
            "true",
            '"0"',
            "253402300800000",
            "-62135596800001",
            str(2**70),
        ],
    ),
    (types.TIMESTAMP_NTZ, ['"2026-01-15T10:00:00Z"', '"2026-01-15T10:00:00+01:00"', "253402300800000"]),
    (types.array_of(types.INT), ["{}", "1", '"[]"', '["1"]']),
    (types.map_of(types.STRING, types.BIGINT), ["[]", "1", '{"a": "1"}']),
    (types.map_of(types.TINYINT, types.BIGINT), ['{"a": 1}', '{"01": 1}', '{"-0": 1}', '{"128": 1}', '{"": 1}', '{"1.0": 1}', '{"²": 1}']),
    (struct(types.BIGINT), ["[]", "1", '"{}"', '{"x": "1"}']),
]  # fmt: skip
BAD_CASES = [(data_type, text) for data_type, texts in BAD for text in texts]


@pytest.mark.parametrize(("data_type", "text"), BAD_CASES, ids=lambda v: str(v)[:40])
def test_a_value_that_the_type_cannot_hold_exactly_is_a_type_conversion(
    data_type: pa.DataType, text: str
) -> None:
    rows, bad = read(of(data_type), f'{{"x": {text}}}')
    assert rows == []
    assert [record.kind for record in bad] == [RefusalKind.TYPE_CONVERSION]
    assert bad[0].message.startswith("x")


@pytest.mark.parametrize("text", ["{}", '{"x": null}', '{"X": 1}'])
def test_a_missing_or_null_field_is_refused_only_where_the_column_is_not_null(text: str) -> None:
    assert read(of(types.BIGINT), text) == ([{"x": None}], [])
    rows, bad = read(of(types.BIGINT, nullable=False), text)
    assert rows == []
    assert bad[0].kind is RefusalKind.SCHEMA_MISMATCH
    assert "NOT NULL" in bad[0].message


@pytest.mark.parametrize(
    ("data_type", "text", "path"),
    [
        (struct(types.BIGINT, nullable=False), "{}", "x.x"),
        (types.array_of(types.BIGINT, nullable=False), "[1, null]", "x[1]"),
        (types.map_of(types.STRING, types.BIGINT, nullable=False), '{"k": null}', "x['k']"),
        (
            types.array_of(struct(struct(types.BIGINT, nullable=False))),
            '[{}, {"x": {"x": null}}]',
            "x[1].x.x",
        ),
    ],
)
def test_not_null_holds_inside_structs_arrays_and_maps(data_type: pa.DataType, text: str, path: str) -> None:
    _, bad = read(of(data_type), f'{{"x": {text}}}')
    assert bad[0].kind is RefusalKind.SCHEMA_MISMATCH
    assert bad[0].message.startswith(f"{path}: NOT NULL")


def test_a_message_names_the_path_what_was_expected_and_what_was_found() -> None:
    inner = pa.struct([pa.field("b", types.array_of(struct(types.INT)))])
    payload = json.dumps({"a": {"b": [{"x": 1}, {"x": "three"}]}})
    _, bad = read(pa.schema([pa.field("a", inner)]), payload)
    assert bad[0].message == (
        "a.b[1].x: expected INT (an integer from -2147483648 to 2147483647), found string 'three'"
    )


@pytest.mark.parametrize("value", ["s" * 5000, ["s" * 5000], {"s" * 5000: 1}, 10**399])
def test_a_message_never_holds_the_whole_value(value: Any) -> None:
    for data_type in (types.BIGINT, struct(types.BIGINT), types.map_of(types.STRING, types.STRING)):
        _, bad = read(of(data_type), json.dumps({"x": value}))
        assert all(len(record.message) < 250 for record in bad)


@pytest.mark.parametrize("text", ["[]", "1", '"x"', "null", "[{}]", "true"])
def test_a_top_level_value_that_is_no_object_is_a_schema_mismatch(text: str) -> None:
    _, bad = read(of(types.BIGINT), text)
    assert bad[0].kind is RefusalKind.SCHEMA_MISMATCH


MALFORMED: list[tuple[bytes | None, str]] = [
    (None, "null (a tombstone)"),
    (b"", "empty"),
    (b"  ", "char 2"),
    (b"{", "char 1"),
    (b'{"x": 1', "char 7"),
    (b'{"x": 1} {"x": 2}', "char 9"),
    (b'{"x": 01}', "char 7"),
    (b'{"x": NaN}', "char 6"),
    (b'{"NaN": "NaN", "x": -Infinity}', "char 20"),
    (b'{"x": 1,}', "char"),
    (b"{'x': 1}", "char 1"),
    (b'\xef\xbb\xbf{"x": 1}', "char 0"),
    (b'{"x": 1, "y": "\xff"}', "invalid UTF-8 at byte 15"),
    (b'{"y": "\x01"}', "char 7"),
    (b'{"y": "\\ud800"}', "surrogate"),
    (b'{"\\udc00": 1}', "surrogate"),
    (b'{"x": 1, "x": 1}', "'x' occurs more than once"),
    (b'{"x" : 1, "\\u0078":2}', "'x' occurs more than once"),
    (b'{"y": ' + b"[" * 100_000, "deeper than 256"),
    (b'{"y": ' + b"[" * 300 + b"]" * 300 + b"}", "deeper than 256"),
    (b'{"y":' * 100_000, "deeper than 256"),
]


@pytest.mark.parametrize("data_type", [types.BIGINT, pa.decimal128(20, 0)], ids=["orjson", "exact"])
@pytest.mark.parametrize(("payload", "said"), MALFORMED, ids=lambda v: str(v)[:30])
def test_what_is_not_json_is_malformed_and_says_where(
    payload: bytes | None, said: str, data_type: pa.DataType
) -> None:
    rows, bad = read(of(data_type), payload)
    assert rows == []
    assert bad[0].kind is RefusalKind.MALFORMED_PAYLOAD
    assert said in bad[0].message


def test_a_repeated_name_costs_the_record_only_where_it_is_read() -> None:
    inner = pa.schema(
        [pa.field("s", struct(types.BIGINT)), pa.field("m", types.map_of(types.STRING, types.BIGINT))]
    )
    rows, bad = read(
        inner,
        '{"s": {"x": 1, "y": 1, "y": 2}}',
        '{"other": {"x": 1, "x": 2}, "s": {"x": 2}}',
        '{"s": {"x": 1, "x": 2}}',
        '{"m": {"k": 1, "k": 2}}',
        '{"note": "a: \\":\\" :", "s": {"x": 3}}',
    )
    assert [row["s"] for row in rows] == [{"x": 1}, {"x": 2}, {"x": 3}]
    assert [(record.index, record.kind) for record in bad] == [
        (2, RefusalKind.MALFORMED_PAYLOAD),
        (3, RefusalKind.MALFORMED_PAYLOAD),
    ]
    assert bad[0].message.startswith("s: ")


def test_nesting_up_to_the_limit_and_brackets_in_strings_do_no_harm() -> None:
    deep = '{"x": 1, "y": ' + "[" * 255 + "]" * 255 + "}"
    text = json.dumps({"x": 2, "y": '\\"[{' * 5000})
    wide = '{"x": 3, "y": [' + "[]," * 5000 + "0]}"
    assert read(of(types.BIGINT), deep, text, wide) == ([{"x": 1}, {"x": 2}, {"x": 3}], [])


@pytest.mark.parametrize("data_type", [types.BIGINT, types.DOUBLE, pa.decimal128(38, 10), types.TIMESTAMP])
@pytest.mark.parametrize("number", ["1" * 2_000_000, "1." + "1" * 2_000_000 + "e9", "1e" + "9" * 2_000_000])
def test_numbers_of_absurd_length_neither_crash_nor_hang(data_type: pa.DataType, number: str) -> None:
    rows, bad = read(of(data_type), f'{{"x": {number}}}')
    if data_type == types.DOUBLE and number.startswith("1."):
        assert rows == [{"x": float(number)}]
    else:
        assert [record.kind for record in bad] == [RefusalKind.TYPE_CONVERSION]


def test_numbers_of_absurd_size_in_fields_that_nobody_reads_are_ignored() -> None:
    payload = f'{{"x": 1, "y": 1e400, "z": {"1" * 10_000}}}'
    assert read(of(types.BIGINT), payload) == ([{"x": 1}], [])
    assert read(of(pa.decimal128(3, 0)), payload) == ([{"x": Decimal(1)}], [])


def test_one_bad_record_costs_one_record_and_the_good_keep_their_order() -> None:
    decoded = decoder("json", of(types.BIGINT), {}).decode(
        [b'{"x": 0}', b"", b'{"x": 2}', None, b'{"x": "4"}', b'{"x": 5}', b"[]"]
    )
    assert decoded.batch.to_pylist() == [{"x": 0}, {"x": 2}, {"x": 5}]
    assert decoded.good == [0, 2, 5]
    assert [record.index for record in decoded.bad] == [1, 3, 4, 6]


def test_good_is_none_when_all_are_good() -> None:
    assert decoder("json", of(types.BIGINT), {}).decode([b'{"x": 0}']).good is None
    assert decoder("json", of(types.BIGINT), {}).decode([]).batch.num_rows == 0


@pytest.mark.parametrize(
    "data_type",
    [pa.large_string(), pa.month_day_nano_interval(), pa.time64("us"), types.map_of(types.DOUBLE, types.BIGINT), types.array_of(pa.time64("us"))],
    ids=str,
)  # fmt: skip
def test_a_column_that_cannot_be_read_is_said_when_the_decoder_is_built(data_type: pa.DataType) -> None:
    with pytest.raises(UnsupportedSqlError):
        decoder("json", of(data_type), {})
