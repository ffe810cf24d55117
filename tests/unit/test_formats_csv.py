"""FORMAT csv: one record a message, columns by position, as strict as JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from forebay import column_types as types
from forebay.errors import OptionConflictError, OptionValueError, UnsupportedSqlError
from forebay.formats import RefusalKind, decoder


def of(*data_types: pa.DataType, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field(f"c{i}", kind, nullable) for i, kind in enumerate(data_types)])


TWO = of(types.BIGINT, types.STRING)


def read(schema: pa.Schema, payload: bytes | str | None, **options: str) -> tuple[list[list[Any]], list[Any]]:
    raw = payload.encode() if isinstance(payload, str) else payload
    settings = {f"csv.{name}": value for name, value in options.items()}
    decoded = decoder("csv", schema, settings).decode([raw])
    return [list(row.values()) for row in decoded.batch.to_pylist()], decoded.bad


@pytest.mark.parametrize(
    ("data_type", "text", "expected"),
    [
        (types.BOOLEAN, "true", True),
        (types.BOOLEAN, "FALSE", False),
        (types.TINYINT, "-128", -128),
        (types.BIGINT, "9223372036854775807", 2**63 - 1),
        (types.BIGINT, "-0", 0),
        (types.FLOAT, "1.5", 1.5),
        (types.DOUBLE, "-1e3", -1000.0),
        (types.DOUBLE, "7", 7.0),
        (pa.decimal128(5, 2), "123.45", Decimal("123.45")),
        (types.STRING, " as is ", " as is "),
        (types.BINARY, "AP8=", b"\x00\xff"),
        (types.DATE, "2024-02-29", date(2024, 2, 29)),
        (types.TIMESTAMP, "2026-01-15T10:00:00+01:00", datetime(2026, 1, 15, 9, tzinfo=UTC)),
        (types.TIMESTAMP, "1768471200000", datetime(2026, 1, 15, 10, tzinfo=UTC)),
        (types.TIMESTAMP_NTZ, "2026-01-15 10:00", datetime(2026, 1, 15, 10)),
        (types.BIGINT, "", None),
    ],
)
def test_a_field_of_the_column_s_type_is_read_exactly(
    data_type: pa.DataType, text: str, expected: Any
) -> None:
    assert read(of(data_type, types.STRING), f"{text},x") == ([[expected, "x"]], [])


@pytest.mark.parametrize(
    ("data_type", "texts"),
    [
        (types.BOOLEAN, ["1", "yes", " true", "t"]),
        (types.TINYINT, ["128", "1.0", " 1", "+1", "01", "1_0", "٣", "0x1", "true"]),
        (types.BIGINT, ["9223372036854775808", "1" * 5000, "1e3"]),
        (types.FLOAT, ["1e39", "NaN"]),
        (types.DOUBLE, ["1e400", "nan", "inf", "Infinity", "1_0.0", ".5", "5.", "0x1p3", "1 "]),
        (pa.decimal128(5, 2), ["1.005", "1000", "abc", "NaN"]),
        (types.BINARY, ["AP8", "AP 8="]),
        (types.DATE, ["2023-02-29", "2024-1-1"]),
        (types.TIMESTAMP, ["2026-01-15", "1.5", "9" * 19]),
        (types.TIMESTAMP_NTZ, ["2026-01-15T10:00Z"]),
    ],
)
def test_a_field_that_the_type_cannot_hold_exactly_is_a_type_conversion(
    data_type: pa.DataType, texts: list[str]
) -> None:
    for text in texts:
        rows, bad = read(of(types.STRING, data_type), f"x,{text}")
        assert rows == []
        assert bad[0].kind is RefusalKind.TYPE_CONVERSION
        assert bad[0].message.startswith("c1: expected")


@pytest.mark.parametrize("payload", ["1", "1,a,b", "1,a,"])
def test_too_few_or_too_many_fields_are_a_schema_mismatch(payload: str) -> None:
    rows, bad = read(TWO, payload)
    assert rows == []
    assert bad[0].kind is RefusalKind.SCHEMA_MISMATCH
    assert "expected 2 fields" in bad[0].message


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (None, "tombstone"),
        (b"", "empty"),
        (b"\n", "empty line"),
        (b"1,a\n2,b", "more than one line"),
        (b"1,a\r2,b", "more than one line"),
        (b"1,a\n\n", "more than one line"),
        (b"\n1,a", "more than one line"),
        (b'1,"a', "not CSV"),
        (b'1,"a"b', "not CSV"),
        (b"1,\xff", "invalid UTF-8 at byte 2"),
    ],
)
def test_what_is_not_one_csv_record_is_malformed(payload: bytes | None, said: str) -> None:
    rows, bad = read(TWO, payload)
    assert rows == []
    assert bad[0].kind is RefusalKind.MALFORMED_PAYLOAD
    assert said in bad[0].message


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_one_line_break_at_the_end_is_allowed(end: str) -> None:
    assert read(TWO, f"1,a{end}") == ([[1, "a"]], [])


def test_quoted_fields_may_hold_delimiters_quotes_and_line_breaks() -> None:
    assert read(TWO, '1,"a,""b""\r\nc\n"\n') == ([[1, 'a,"b"\r\nc\n']], [])


def test_fields_longer_than_the_csv_module_s_default_limit_are_read() -> None:
    assert read(TWO, "1," + "a" * 500_000) == ([[1, "a" * 500_000]], [])


def test_a_field_equal_to_the_null_text_is_null_even_when_quoted() -> None:
    assert read(TWO, '1,""') == ([[1, None]], [])
    assert read(TWO, r"\N,", null=r"\N") == ([[None, ""]], [])
    _, bad = read(TWO, ",a", null=r"\N")
    assert bad[0].kind is RefusalKind.TYPE_CONVERSION
    _, bad = read(of(types.BIGINT, types.STRING, nullable=False), "1,")
    assert (bad[0].kind, bad[0].message) == (
        RefusalKind.SCHEMA_MISMATCH,
        "c1: NOT NULL, but the field is null",
    )


@pytest.mark.parametrize(
    ("payload", "options"),
    [
        ("1;'a''b'", {"delimiter": ";", "quote": "'"}),
        ("1\ta'b", {"delimiter": r"\t"}),
        (r"1,a\'b", {"escape": "\\"}),
        ("1,a'b", {"quote": ""}),
    ],
)
def test_options_set_the_characters(payload: str, options: dict[str, str]) -> None:
    assert read(TWO, payload, **options) == ([[1, "a'b"]], [])


def test_an_escape_takes_the_next_character_as_it_is() -> None:
    assert read(TWO, r'1,"a\"b\\"', escape="\\") == ([[1, 'a"b\\']], [])
    assert read(TWO, r"1,a\,b", escape="\\") == ([[1, "a,b"]], [])
    assert read(TWO, '1,"a""b"', escape='"') == ([[1, 'a"b']], [])


@pytest.mark.parametrize(
    "options", [{"delimiter": ""}, {"delimiter": "||"}, {"quote": "''"}, {"escape": "\n"}]
)
def test_an_option_that_is_not_one_character_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(OptionValueError):
        read(TWO, "1,a", **options)


def test_characters_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(OptionConflictError):
        read(TWO, "1,a", delimiter='"')


@pytest.mark.parametrize(
    "data_type",
    [types.array_of(types.BIGINT), types.map_of(types.STRING, types.BIGINT), pa.struct(list(TWO))],
)
def test_nested_columns_are_refused_when_the_decoder_is_built(data_type: pa.DataType) -> None:
    with pytest.raises(UnsupportedSqlError, match="c0"):
        decoder("csv", of(data_type), {})


@pytest.mark.parametrize("line", ["c0,c1", "C0,c1\n", '"c0",c1\r\n'])
def test_a_header_line_is_skipped_wherever_it_comes(line: str) -> None:
    made = decoder("csv", TWO, {"csv.header": "true"})
    decoded = made.decode([line.encode(), b"1,a", line.encode(), b"x,a"])
    assert decoded.skipped == [0, 2]
    assert decoded.good == [1]
    assert [record.index for record in decoded.bad] == [3]


def test_without_the_option_a_header_line_is_a_record() -> None:
    decoded = decoder("csv", of(types.STRING, types.STRING), {}).decode([b"c0,c1"])
    assert decoded.batch.to_pylist() == [{"c0": "c0", "c1": "c1"}]


def test_a_header_line_in_another_order_is_refused_and_never_a_row_of_names() -> None:
    decoded = decoder("csv", of(types.STRING, types.STRING), {"csv.header": "true"}).decode([b"c1,c0"])
    assert (decoded.bad[0].kind, decoded.skipped) == (RefusalKind.SCHEMA_MISMATCH, [])
    assert "another order" in decoded.bad[0].message


def test_comments_are_skipped_but_not_what_follows_them_in_a_message() -> None:
    made = decoder("csv", TWO, {"csv.comment": "#"})
    decoded = made.decode([b"# 1,a", b"#\n", b"# x\n1,a", b'1,"#"', b" #,a"])
    assert decoded.skipped == [0, 1]
    assert decoded.good == [3]
    assert [(record.index, record.kind) for record in decoded.bad] == [
        (2, RefusalKind.MALFORMED_PAYLOAD),
        (4, RefusalKind.TYPE_CONVERSION),
    ]
    assert "more than one line" in decoded.bad[0].message


def test_a_quoted_first_character_begins_no_comment() -> None:
    assert read(of(types.STRING), '"# a"', comment="#") == ([["# a"]], [])


@pytest.mark.parametrize("other", ["delimiter", "quote", "escape"])
def test_a_comment_cannot_begin_with_a_character_that_means_something_else(other: str) -> None:
    with pytest.raises(OptionConflictError, match="comment"):
        read(TWO, "1,a", **{other: "#", "comment": "#"})
