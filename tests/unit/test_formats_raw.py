"""FORMAT raw: the payload itself."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from forebay.errors import UnsupportedSqlError
from forebay.formats import Kind, decoder


def of(data_type: DataType, nullable: bool = True) -> StructType:
    return StructType([StructField("value", data_type, nullable)])


def test_binary_is_the_bytes_as_they_are() -> None:
    payloads = [b"\x00\xff", b"", None, b"abc"]
    decoded = decoder("raw", of(BinaryType()), {}).decode(payloads)
    assert decoded.batch.column(0).to_pylist() == payloads
    assert (decoded.good, decoded.bad) == (None, [])


def test_string_is_strict_utf_8() -> None:
    decoded = decoder("raw", of(StringType()), {}).decode(
        ["é".encode(), b"ok\xff", b"\xed\xa0\x80", None, b""]
    )
    assert decoded.batch.column(0).to_pylist() == ["é", None, ""]
    assert decoded.good == [0, 3, 4]
    assert [(record.index, record.kind) for record in decoded.bad] == [
        (1, Kind.MalformedPayload),
        (2, Kind.MalformedPayload),
    ]
    assert decoded.bad[0].message == "value: invalid UTF-8 at byte 2"


@pytest.mark.parametrize("data_type", [BinaryType(), StringType()])
def test_a_tombstone_is_refused_where_the_column_is_not_null(data_type: DataType) -> None:
    decoded = decoder("raw", of(data_type, nullable=False), {}).decode([None, b""])
    assert decoded.good == [1]
    assert decoded.bad[0].kind is Kind.SchemaMismatch
    assert "tombstone" in decoded.bad[0].message


@pytest.mark.parametrize(
    "schema", [of(LongType()), StructType([*of(BinaryType()), StructField("b", BinaryType())])]
)
def test_exactly_one_binary_or_string_column_is_allowed(schema: StructType) -> None:
    with pytest.raises(UnsupportedSqlError):
        decoder("raw", schema, {})
