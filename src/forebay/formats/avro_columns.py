"""The columns that an Avro schema is read as where nobody declares any: its own types, nothing lost."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from forebay.errors import UnsupportedSqlError
from forebay.formats.avro_reading import DURATION, MAX_PRECISION, endless
from forebay.formats.avro_schema import Avro

_PLAIN: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_LOGICAL: dict[tuple[str, str], DataType] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
    ("fixed", "uuid"): StringType(),
    ("fixed", "duration"): StructType([StructField(name, LongType(), False) for name in DURATION]),
}


def avro_columns(record: Avro) -> StructType:
    """UnsupportedSqlError if it is no record, or holds what no one column can be."""
    if record.type != "record":
        raise UnsupportedSqlError(f"the schema is {record}, and only a record has columns")
    return StructType(
        [
            _field(field.name, part, field.name)
            for field, part in zip(record.fields, record.parts, strict=True)
        ]
    )


def _field(name: str, kind: Avro, path: str) -> StructField:
    column, nullable = _type(kind, path)
    return StructField(name, column, nullable)


def _type(kind: Avro, path: str) -> tuple[DataType, bool]:
    """The column's type, and whether it may be NULL."""
    if kind.type == "union":
        branches = [part for part in kind.parts if part.type != "null"]
        if len(branches) != 1:
            raise UnsupportedSqlError(
                f"{path} is {kind}, which is no one type",
                remedy="declare the columns, and leave this one out or give it a type that takes each of these",
            )
        return _type(branches[0], path)[0], len(kind.parts) > 1
    match kind.type:
        case "null":
            return StringType(), True
        case "recursive":
            raise endless(kind, path)
        case "record":
            fields = zip(kind.fields, kind.parts, strict=True)
            return StructType([_field(f.name, part, f"{path}.{f.name}") for f, part in fields]), False
        case "array":
            return ArrayType(*_type(kind.parts[0], f"{path}[]")), False
        case "map":
            return MapType(StringType(), *_type(kind.parts[0], f"{path}[]")), False
    if kind.decimal and kind.decimal[0] <= MAX_PRECISION:
        return DecimalType(*kind.decimal), False
    return _LOGICAL.get((kind.type, kind.logical or ""), _PLAIN[kind.type]), False
