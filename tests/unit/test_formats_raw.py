"""FORMAT raw: the payload itself."""

from __future__ import annotations

import pyarrow as pa
import pytest

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats import RefusalKind, decoder


def of(data_type: pa.DataType, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("value", data_type, nullable)])


def test_binary_is_the_bytes_as_they_are() -> None:
    payloads = [b"\x00\xff", b"", None, b"abc"]
    decoded = decoder("raw", of(types.BINARY), {}).decode(payloads)
    assert decoded.batch.column(0).to_pylist() == payloads
    assert (decoded.good, decoded.bad) == (None, [])


def test_string_is_strict_utf_8() -> None:
    decoded = decoder("raw", of(types.STRING), {}).decode(
        ["é".encode(), b"ok\xff", b"\xed\xa0\x80", None, b""]
    )
    assert decoded.batch.column(0).to_pylist() == ["é", None, ""]
    assert decoded.good == [0, 3, 4]
    assert [(record.index, record.kind) for record in decoded.bad] == [
        (1, RefusalKind.MALFORMED_PAYLOAD),
        (2, RefusalKind.MALFORMED_PAYLOAD),
    ]
    assert decoded.bad[0].message == "value: invalid UTF-8 at byte 2"


@pytest.mark.parametrize("data_type", [types.BINARY, types.STRING])
def test_a_tombstone_is_refused_where_the_column_is_not_null(data_type: pa.DataType) -> None:
    decoded = decoder("raw", of(data_type, nullable=False), {}).decode([None, b""])
    assert decoded.good == [1]
    assert decoded.bad[0].kind is RefusalKind.SCHEMA_MISMATCH
    assert "tombstone" in decoded.bad[0].message


@pytest.mark.parametrize(
    "schema", [of(types.BIGINT), pa.schema([*of(types.BINARY), pa.field("b", types.BINARY)])]
)
def test_exactly_one_binary_or_string_column_is_allowed(schema: pa.Schema) -> None:
    with pytest.raises(UnsupportedSqlError):
        decoder("raw", schema, {})
