"""Arrow's types: as which of them Spark reads and returns a column, how SQL writes them, what can be done with them."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from forebay.answers.question import NeedsSpark

TIMESTAMP = pa.timestamp("us", "UTC")
_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
}


def as_spark_returns(kind: pa.DataType) -> pa.DataType:
    """The type of a column when Spark has read it and returned it: a field in it may be NULL, every time is UTC."""
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, as_spark_returns(each.type)) for each in kind])
    if types.is_list(kind):
        return pa.list_(pa.field("element", as_spark_returns(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(as_spark_returns(kind.key_type), as_spark_returns(kind.item_type))
    return TIMESTAMP if types.is_timestamp(kind) and kind.unit == "us" else kind


def schema_as_spark_returns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(as_spark_returns(field.type)).remove_metadata() for field in schema])


def check_known(kind: pa.DataType) -> None:
    """NeedsSpark for a type that no column of a view has."""
    if types.is_nested(kind):
        for place in range(kind.num_fields):
            check_known(kind.field(place).type)
    elif kind not in _NAMES and not types.is_decimal128(kind):
        raise NeedsSpark(f"columns of type {kind}")


def sql_name(kind: pa.DataType) -> str:
    """The type as SQL writes it: `ARRAY<STRING>`, `STRUCT<a: BIGINT NOT NULL>`."""
    from forebay.sql.text import identifier

    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if types.is_list(kind):
        return f"ARRAY<{sql_name(kind.value_type)}>"
    if types.is_map(kind):
        return f"MAP<{sql_name(kind.key_type)}, {sql_name(kind.item_type)}>"
    if types.is_struct(kind):
        fields = (
            f"{identifier(each.name)}: {sql_name(each.type)}{'' if each.nullable else ' NOT NULL'}"
            for each in kind
        )
        return f"STRUCT<{', '.join(fields)}>"
    return _NAMES.get(TIMESTAMP if types.is_timestamp(kind) else kind) or str(kind).upper()


def is_scalar(kind: pa.DataType) -> bool:
    """Whether its values can be compared, sorted and grouped here: no field in a field."""
    return not types.is_nested(kind)
