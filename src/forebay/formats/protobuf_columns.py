"""The columns that a Protobuf message is read as where nobody declares any."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from forebay.errors import UnsupportedSqlError

_SCALARS: dict[int, DataType] = {
    FieldDescriptor.TYPE_BOOL: BooleanType(),
    FieldDescriptor.TYPE_INT32: IntegerType(),
    FieldDescriptor.TYPE_SINT32: IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: IntegerType(),
    FieldDescriptor.TYPE_UINT32: LongType(),
    FieldDescriptor.TYPE_FIXED32: LongType(),
    FieldDescriptor.TYPE_INT64: LongType(),
    FieldDescriptor.TYPE_SINT64: LongType(),
    FieldDescriptor.TYPE_SFIXED64: LongType(),
    FieldDescriptor.TYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FIXED64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FLOAT: FloatType(),
    FieldDescriptor.TYPE_DOUBLE: DoubleType(),
    FieldDescriptor.TYPE_STRING: StringType(),
    FieldDescriptor.TYPE_BYTES: BinaryType(),
    FieldDescriptor.TYPE_ENUM: StringType(),
}
_WELL_KNOWN: dict[str, DataType] = {
    "google.protobuf.Timestamp": TimestampType(),
    "google.protobuf.Duration": LongType(),
    "google.protobuf.Struct": StringType(),
    "google.protobuf.Value": StringType(),
    "google.protobuf.ListValue": StringType(),
    "google.protobuf.Any": StructType(
        [StructField("type_url", StringType()), StructField("value", BinaryType())]
    ),
}
_WRAPPERS = (
    "DoubleValue FloatValue Int64Value UInt64Value Int32Value UInt32Value BoolValue StringValue BytesValue"
)


def protobuf_columns(message: Descriptor, *, lenient: bool = False) -> StructType:
    """UnsupportedSqlError if the message contains itself, or nothing. If `lenient`, that is a NullType instead."""
    if lenient:
        inside = (message.full_name,)
        return StructType([StructField(f.name, _any_type(f, inside)) for f in message.fields])
    columns = _struct(message, (), "")
    if not len(columns):
        raise UnsupportedSqlError(f"the message {message.full_name} has no fields to be columns")
    return columns


def _any_type(field: FieldDescriptor, above: tuple[str, ...]) -> DataType:
    try:
        return _type(field, above, "")
    except UnsupportedSqlError:
        return NullType()


def _struct(message: Descriptor, above: tuple[str, ...], path: str) -> StructType:
    if message.full_name in above:
        raise UnsupportedSqlError(
            f"{path.rstrip('.')}: the message {message.full_name} contains itself, and a column's type has an end",
            remedy="declare the columns, and leave this one out",
        )
    inside = (*above, message.full_name)
    return StructType([StructField(f.name, _type(f, inside, f"{path}{f.name}.")) for f in message.fields])


def _type(field: FieldDescriptor, above: tuple[str, ...], path: str) -> DataType:
    inner: Descriptor | None = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
        return MapType(_item(key, above, path), _item(value, above, path))
    item = _item(field, above, path)
    return ArrayType(item) if field.is_repeated else item


def _item(field: FieldDescriptor, above: tuple[str, ...], path: str) -> DataType:
    inner: Descriptor | None = field.message_type
    if inner is None:
        return _SCALARS[field.type]
    name = inner.full_name
    if name in _WELL_KNOWN:
        return _WELL_KNOWN[name]
    if name.removeprefix("google.protobuf.") in _WRAPPERS.split():
        return _SCALARS[inner.fields_by_name["value"].type]
    return _struct(inner, above, path)
