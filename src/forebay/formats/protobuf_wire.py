"""A plan as a message class of protobuf's own runtime, which then parses the bytes.

Not the user's message but one made for the plan: the same numbers, only the fields that are needed, types
that keep all that the bytes say (an int32 as an int64, an enum as its number, a map as its entries in the
order in which they came), and every field knows whether it was there. The name of a field is its number.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from forebay.formats.protobuf_plan import ProtobufPlan

F = FieldDescriptorProto
_TYPES = {
    "int64": F.TYPE_INT64, "uint64": F.TYPE_UINT64, "sint64": F.TYPE_SINT64, "bytes": F.TYPE_BYTES,
    "fixed32": F.TYPE_FIXED32, "sfixed32": F.TYPE_SFIXED32, "fixed64": F.TYPE_FIXED64,
    "sfixed64": F.TYPE_SFIXED64, "float": F.TYPE_FLOAT, "double": F.TYPE_DOUBLE,
    "message": F.TYPE_MESSAGE, "group": F.TYPE_GROUP,
}  # fmt: skip
_PACKAGE = "forebay"

PARTS: dict[str, ProtobufPlan] = {
    "Moment": [
        {"number": 1, "name": "seconds", "wire": "int64"},
        {"number": 2, "name": "nanos", "wire": "int64"},
    ],
    "Struct": [{"number": 1, "name": "fields", "wire": "message", "of": "Entry", "repeated": True}],
    "Entry": [
        {"number": 1, "name": "key", "wire": "bytes"},
        {"number": 2, "name": "value", "wire": "message", "of": "Value"},
    ],
    "ListValue": [{"number": 1, "name": "values", "wire": "message", "of": "Value", "repeated": True}],
    "Value": [
        {"number": 1, "name": "null_value", "wire": "int64", "oneof": 0},
        {"number": 2, "name": "number_value", "wire": "double", "oneof": 0},
        {"number": 3, "name": "string_value", "wire": "bytes", "oneof": 0},
        {"number": 4, "name": "bool_value", "wire": "uint64", "oneof": 0},
        {"number": 5, "name": "struct_value", "wire": "message", "of": "Struct", "oneof": 0},
        {"number": 6, "name": "list_value", "wire": "message", "of": "ListValue", "oneof": 0},
    ],
}
"""The well-known types that are read as one value: these refer to each other by name."""


def attribute(node: dict[str, Any]) -> str:
    return f"f{node['number']}"


def message_class(plan: ProtobufPlan) -> type[Message]:
    """The class whose `FromString` parses what the plan is for."""
    file = FileDescriptorProto(name="plan.proto", package=_PACKAGE)
    for name, part in PARTS.items():
        _fill(file, file.message_type.add(name=name), part, count())
    _fill(file, file.message_type.add(name="Record"), plan, count())
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Record"))
    return made


def part_of(node: dict[str, Any]) -> str | None:
    """The one of PARTS that a node's value is, if it is one."""
    if "of" in node:
        return str(node["of"])
    match node.get("as"):
        case "timestamp" | "duration":
            return "Moment"
        case "json":
            return str(node["json"])
    return None


def inner_fields(node: dict[str, Any]) -> ProtobufPlan:
    """The fields of the message that a node's value is; a map's are those of its entries."""
    if "key" in node:
        return [node["key"], node["value"]]
    part = part_of(node)
    fields: ProtobufPlan = PARTS[part] if part is not None else node.get("fields", [])
    return fields


def _fill(file: FileDescriptorProto, message: DescriptorProto, plan: ProtobufPlan, names: count[int]) -> None:
    oneofs = sorted({node["oneof"] for node in plan if "oneof" in node})
    for oneof in oneofs:
        message.oneof_decl.add(name=f"o{oneof}")
    for node in plan:
        label = F.LABEL_REPEATED if node.get("repeated") else F.LABEL_OPTIONAL
        field = message.field.add(
            name=attribute(node), number=node["number"], type=_TYPES[node["wire"]], label=label
        )
        if "oneof" in node:
            field.oneof_index = oneofs.index(node["oneof"])
        if node["wire"] in ("message", "group"):
            part = part_of(node)
            if part is None:
                part = f"M{next(names)}"
                _fill(file, file.message_type.add(name=part), inner_fields(node), names)
            field.type_name = f".{_PACKAGE}.{part}"
