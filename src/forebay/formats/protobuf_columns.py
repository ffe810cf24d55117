"""The columns that a Protobuf message is read as where nobody declares any."""

from __future__ import annotations

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError

_SCALARS: dict[int, pa.DataType] = {
    FieldDescriptor.TYPE_BOOL: types.BOOLEAN,
    FieldDescriptor.TYPE_INT32: types.INT,
    FieldDescriptor.TYPE_SINT32: types.INT,
    FieldDescriptor.TYPE_SFIXED32: types.INT,
    FieldDescriptor.TYPE_UINT32: types.BIGINT,
    FieldDescriptor.TYPE_FIXED32: types.BIGINT,
    FieldDescriptor.TYPE_INT64: types.BIGINT,
    FieldDescriptor.TYPE_SINT64: types.BIGINT,
    FieldDescriptor.TYPE_SFIXED64: types.BIGINT,
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FIXED64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FLOAT: types.FLOAT,
    FieldDescriptor.TYPE_DOUBLE: types.DOUBLE,
    FieldDescriptor.TYPE_STRING: types.STRING,
    FieldDescriptor.TYPE_BYTES: types.BINARY,
    FieldDescriptor.TYPE_ENUM: types.STRING,
}
_WELL_KNOWN: dict[str, pa.DataType] = {
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "google.protobuf.Duration": types.BIGINT,
    "google.protobuf.Struct": types.STRING,
    "google.protobuf.Value": types.STRING,
    "google.protobuf.ListValue": types.STRING,
    "google.protobuf.Any": pa.struct([pa.field("type_url", types.STRING), pa.field("value", types.BINARY)]),
}
_WRAPPERS = (
    "DoubleValue FloatValue Int64Value UInt64Value Int32Value UInt32Value BoolValue StringValue BytesValue"
)


def protobuf_columns(message: Descriptor, *, lenient: bool = False) -> pa.Schema:
    """UnsupportedSqlError if the message contains itself, or nothing. If `lenient`, that is of type NULL instead."""
    if lenient:
        inside = (message.full_name,)
        return pa.schema([pa.field(f.name, _any_type(f, inside)) for f in message.fields])
    columns = _struct(message, (), "")
    if not len(columns):
        raise UnsupportedSqlError(f"the message {message.full_name} has no fields to be columns")
    return pa.schema(list(columns))


def _any_type(field: FieldDescriptor, above: tuple[str, ...]) -> pa.DataType:
    try:
        return _type(field, above, "")
    except UnsupportedSqlError:
        return types.NULL


def _struct(message: Descriptor, above: tuple[str, ...], path: str) -> pa.StructType:
    if message.full_name in above:
        raise UnsupportedSqlError(
            f"{path.rstrip('.')}: the message {message.full_name} contains itself, and a column's type has an end",
            remedy="declare the columns, and leave this one out",
        )
    inside = (*above, message.full_name)
    return pa.struct([pa.field(f.name, _type(f, inside, f"{path}{f.name}.")) for f in message.fields])


def _type(field: FieldDescriptor, above: tuple[str, ...], path: str) -> pa.DataType:
    inner: Descriptor | None = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
        return types.map_of(_item(key, above, path), _item(value, above, path))
    item = _item(field, above, path)
    return types.array_of(item) if field.is_repeated else item


def _item(field: FieldDescriptor, above: tuple[str, ...], path: str) -> pa.DataType:
    inner: Descriptor | None = field.message_type
    if inner is None:
        return _SCALARS[field.type]
    name = inner.full_name
    if name in _WELL_KNOWN:
        return _WELL_KNOWN[name]
    if name.removeprefix("google.protobuf.") in _WRAPPERS.split():
        return _SCALARS[inner.fields_by_name["value"].type]
    return _struct(inner, above, path)
