"""How a message becomes the declared columns: a tree that both decoders follow.

A message is a list of fields, each a dict that JSON can hold: its `number` and `name`, the `column` it fills,
the `wire` type of its bytes (`type` is the schema's word for it), and `as`, what the column makes of it; `expected` says, for messages, what the
column takes where a value may not fit. `repeated` fields make an array, or a map if they have a `key`. Of a
field that is not in the bytes, `default` is the value, `missing` the reason to refuse the record; with neither
of them it is NULL. Messages have `fields` of their own.

A field without a column is read over like one that the schema does not have. One exception: members of a
`oneof` with a column, since each of them unsets the others.
"""

from __future__ import annotations

import base64
import difflib
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.protobuf_reading import TYPES, YEARS, columns_for, reading, wire

ProtobufPlan = list[dict[str, Any]]

_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_JSON = {f"google.protobuf.{name}": name for name in ("Struct", "Value", "ListValue")}
_TIMESTAMP, _DURATION, _ANY = "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Any"
_WELL_KNOWN = {
    _TIMESTAMP: "TIMESTAMP or STRUCT<seconds: BIGINT, nanos: INT>",
    _DURATION: "BIGINT (microseconds) or STRUCT<seconds: BIGINT, nanos: INT>",
    _ANY: "STRUCT<type_url: STRING, value: BINARY>, or BINARY for the value alone",
    **dict.fromkeys(_JSON, "STRING (JSON)"),
}
_NOT_NULL = "NOT NULL, but the field is missing"
_REQUIRED = "required, but the field is missing"


def compile_plan(message: Descriptor, columns: pa.Schema, *, complete: bool) -> ProtobufPlan:
    """UnsupportedSqlError if a column cannot be read from the message.

    `complete`: the schema is all that the records can have, so a column that is not in it is a mistake.
    Otherwise such a column is NULL: other records of the topic may have it.
    """
    return _ProtobufCompiler(complete).message(message, columns, "")


class _ProtobufCompiler:
    def __init__(self, complete: bool) -> None:
        self._complete = complete

    def message(self, message: Descriptor, columns: pa.Schema | pa.StructType, path: str) -> ProtobufPlan:
        fields = message.fields_by_name
        plan: ProtobufPlan = []
        shared: dict[int, int] = {}
        for at, column in enumerate(columns):
            where = _join(path, column.name)
            if columns.names.count(column.name) > 1:
                raise UnsupportedSqlError(f"column {where} is declared twice", remedy="rename one of them")
            field = fields.get(column.name)
            if field is None:
                self._absent(message, column, where)
                continue
            node = {
                "number": field.number,
                "name": field.name,
                "column": at,
                **self._field(field, column, where),
            }
            if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
                node["oneof"] = shared.setdefault(field.containing_oneof.index, len(shared))
            plan.append(node)
        declared = {node["number"] for node in plan}
        for index, oneof in shared.items():
            for field in message.oneofs[index].fields:
                if field.number not in declared:
                    plan.append(_unsetting(field, oneof))
        return plan

    def _absent(self, message: Descriptor, column: pa.Field, where: str) -> None:
        if not self._complete and column.nullable:
            return
        near = difflib.get_close_matches(column.name, [field.name for field in message.fields], 1, 0.6)
        names = ", ".join(field.name for field in message.fields[:10])
        raise UnsupportedSqlError(
            f"column {where}: the message {message.full_name} has no field of this name",
            remedy=f"did you mean '{near[0]}'?" if near else f"it has: {names or 'no field at all'}",
        )

    def _field(self, field: FieldDescriptor, column: pa.Field, path: str) -> dict[str, Any]:
        if _is_map(field):
            return self._map(field, column.type, path)
        if field.is_repeated:
            if not isinstance(column.type, pa.ListType):
                raise self._unfit(field, column.type, path)
            return {"repeated": True, **self._value(field, column.type.value_type, f"{path}[]")}
        return self._value(field, column.type, path) | _when_absent(field, column.nullable)

    def _value(self, field: FieldDescriptor, column: pa.DataType, path: str) -> dict[str, Any]:
        """One value of the field, whether it is repeated or not."""
        found = reading(field, column) if field.message_type is None else self._part(field, column, path)
        if found is None:
            raise self._unfit(field, column, path)
        return {"wire": wire(field), "type": TYPES[field.type], **found}

    def _part(self, field: FieldDescriptor, column: pa.DataType, path: str) -> dict[str, Any] | None:
        message = field.message_type
        match message.full_name, column:
            case (_, pa.StructType()):
                return {
                    "as": "struct",
                    "columns": column.names,
                    "fields": self.message(message, column, path),
                }
            case (name, _) if name in _WRAPPERS:
                return self._only(message.fields_by_name["value"], column, path)
            case (name, types.BINARY) if name == _ANY:
                return self._only(message.fields_by_name["value"], column, path)
            case (name, types.TIMESTAMP) if name == _TIMESTAMP:
                return {"as": "timestamp", "expected": f"TIMESTAMP {YEARS}"}
            case (name, types.BIGINT) if name == _DURATION:
                return {
                    "as": "duration",
                    "expected": "BIGINT (microseconds of a duration within 10,000 years)",
                }
            case (name, types.STRING) if name in _JSON:
                return {"as": "json", "json": _JSON[name], "expected": "STRING (JSON)"}
        return None

    def _only(self, field: FieldDescriptor, column: pa.DataType, path: str) -> dict[str, Any]:
        """A message that stands for its one field."""
        inner = self._value(field, column, path)
        return {
            "as": "only",
            "fields": [
                {
                    "number": field.number,
                    "name": field.name,
                    "column": 0,
                    **inner,
                    **_when_absent(field, True),
                }
            ],
        }

    def _map(self, field: FieldDescriptor, column: pa.DataType, path: str) -> dict[str, Any]:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        if not isinstance(column, pa.MapType):
            raise self._unfit(field, column, path)
        if column.key_type not in (types.STRING, types.BOOLEAN, *types.BITS):
            raise self._unfit(key, column.key_type, f"{path}[] (the key)")
        to_key = self._value(key, column.key_type, f"{path}[] (the key)")
        to_value = self._value(value, column.item_type, f"{path}[]")
        # An entry has both, whatever its bytes leave out.
        absent = {"default": {}} if value.message_type is not None else {"default": _zero(value)}
        return {
            "wire": "message",
            "type": "map",
            "repeated": True,
            "key": {"number": 1, "name": "key", "column": 0, **to_key, "default": _zero(key)},
            "value": {"number": 2, "name": "value", "column": 1, **to_value, **absent},
        }

    def _unfit(self, field: FieldDescriptor, column: pa.DataType, path: str) -> UnsupportedSqlError:
        declared = "STRUCT" if isinstance(column, pa.StructType) else types.type_name(column)
        return UnsupportedSqlError(
            f"column {path} is declared {declared}, which cannot be read from what the schema has: {_named(field)}",
            remedy=f"declare it as {_columns_for(field, '[]' in path)}",
        )


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _unsetting(field: FieldDescriptor, oneof: int) -> dict[str, Any]:
    """A member of a oneof without a column. What is in it is not looked at."""
    kind = "bytes" if field.type == FieldDescriptor.TYPE_MESSAGE else wire(field)
    node = {"number": field.number, "name": field.name, "column": None, "wire": kind, "oneof": oneof}
    return node | ({"fields": []} if kind == "group" else {})


def _when_absent(field: FieldDescriptor, nullable: bool) -> dict[str, Any]:
    if field.is_required:
        return {"missing": _REQUIRED}
    if not field.has_presence or field.has_default_value:
        return {"default": _zero(field)}
    return {} if nullable else {"missing": _NOT_NULL}


def _zero(field: FieldDescriptor) -> Any:
    """The value of a field that is not there, as its wire type has it: bytes in base64, numbers as they are."""
    if field.message_type is not None:
        return {}
    default = field.default_value
    if isinstance(default, float):
        return repr(default)  # infinity has no number in JSON
    if isinstance(default, str | bytes):
        return base64.b64encode(default.encode() if isinstance(default, str) else default).decode()
    return int(default)


def _named(field: FieldDescriptor) -> str:
    """A field's type as a `.proto` file has it."""
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"map<{_named(key)}, {_named(value)}>"
    named = field.message_type or field.enum_type
    text = f"{TYPES[field.type]} {named.full_name}" if named is not None else TYPES[field.type]
    return f"repeated {text}" if field.is_repeated else text


def _columns_for(field: FieldDescriptor, item: bool) -> str:
    if _is_map(field):
        return "MAP<…, …>"
    if field.message_type is not None:
        name = field.message_type.full_name
        if name in _WRAPPERS:
            columns = columns_for(field.message_type.fields_by_name["value"])
        else:
            columns = _WELL_KNOWN.get(name, "STRUCT<…>")
    else:
        columns = columns_for(field)
    return f"ARRAY<…> of {columns}" if field.is_repeated and not item else columns


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
