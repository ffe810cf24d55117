"""One text field (of a CSV record) to one column: the same strictness as JSON values."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.refusal import Number, unfit
from forebay.formats.scalars import NUMBER, Convert, scalar

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,19})")
_BOOLEANS = {"true": True, "false": False}


def text_converter(column: pa.Field) -> Convert:
    """The converter for a column; UnsupportedSqlError if its type has no notation in one field."""
    data_type = column.type
    match data_type:
        case pa.ListType() | pa.MapType() | pa.StructType():
            kind = types.type_name(data_type).partition("<")[0]
            raise UnsupportedSqlError(
                f"column {column.name}: {kind} cannot be written in one CSV field",
                remedy="read it as STRING, or use FORMAT json",
            )
        case types.BOOLEAN:
            return _boolean
        case types.FLOAT | types.DOUBLE:
            return _real(scalar(data_type))
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return _integer_first(scalar(data_type))
        case _ if data_type in types.BITS:
            return _integer_first(scalar(data_type))
        case _:
            return scalar(data_type)


def _boolean(text: str) -> bool:
    found = _BOOLEANS.get(text.lower())
    if found is None:
        raise unfit("BOOLEAN (true or false)", text)
    return found


def _real(convert: Convert) -> Convert:
    def from_text(text: str) -> Any:
        return convert(Number(text) if NUMBER.fullmatch(text) else text)

    return from_text


def _integer_first(convert: Convert) -> Convert:
    def from_text(text: str) -> Any:
        return convert(int(text) if _INTEGER.fullmatch(text) else text)

    return from_text
