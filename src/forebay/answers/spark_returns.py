"""Arrow's types: as which of them Spark reads and returns a column, how SQL writes them, what can be done with them."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from forebay.answers.question import NeedsSpark
from forebay.column_types import TIMESTAMP, TIMESTAMP_NTZ, array_of, is_column_type, map_of, type_name


def as_spark_returns(kind: pa.DataType) -> pa.DataType:
    """The type of a column when Spark has read it and returned it: a field in it may be NULL, every time is UTC."""
    return _in_utc(kind, keep_not_null=False)


def _in_utc(kind: pa.DataType, *, keep_not_null: bool) -> pa.DataType:
    def part(field: pa.Field) -> tuple[pa.DataType, bool]:
        return _in_utc(field.type, keep_not_null=keep_not_null), field.nullable or not keep_not_null

    match kind:
        case pa.StructType():
            return pa.struct([pa.field(each.name, *part(each)) for each in kind])
        case pa.ListType():
            return array_of(*part(kind.value_field))
        case pa.MapType():
            return map_of(part(kind.key_field)[0], *part(kind.item_field))
    return TIMESTAMP if types.is_timestamp(kind) and kind.unit == "us" else kind


def schema_as_spark_returns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(as_spark_returns(field.type)).remove_metadata() for field in schema])


def check_known(kind: pa.DataType) -> None:
    """NeedsSpark for a type that no column of a view has."""
    if types.is_nested(kind):
        for place in range(kind.num_fields):
            check_known(kind.field(place).type)
    elif kind == TIMESTAMP_NTZ or not is_column_type(kind):
        raise NeedsSpark(f"columns of type {kind}")


def sql_name(kind: pa.DataType) -> str:
    """The type as SQL writes it: `ARRAY<STRING>`, `STRUCT<a: BIGINT NOT NULL>`."""
    from forebay.sql.text import identifier

    return type_name(_in_utc(kind, keep_not_null=True), identifier)


def is_scalar(kind: pa.DataType) -> bool:
    """Whether its values can be compared, sorted and grouped here: no field in a field."""
    return not types.is_nested(kind)
