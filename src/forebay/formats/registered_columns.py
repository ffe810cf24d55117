"""A registered schema as columns, whatever its format: to be compared with another one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.avro_columns import avro_columns
from forebay.formats.avro_diff import changes
from forebay.formats.avro_schema import Avro, parse
from forebay.formats.json_schema import json_schema_columns
from forebay.formats.protobuf_columns import protobuf_columns
from forebay.formats.protobuf_files import add_files
from forebay.formats.protobuf_schema import MESSAGE, find_message, message_at, registered_files
from forebay.formats.schema_diff import Change, column_changes
from forebay.registry import RegisteredSchema


def columns_of(schema: RegisteredSchema, message: str | None = None, *, aliases: bool = False) -> pa.Schema:
    """What cannot be a column is of type NULL. `aliases`: the other names of Avro's fields are there as well."""
    if schema.type == "AVRO":
        return _avro(parsed(schema), aliases)
    if schema.type == "PROTOBUF":
        return protobuf_columns(registered_message(schema, message), lenient=True)
    return json_schema_columns(json.loads(schema.text))


def differences(old: RegisteredSchema, new: RegisteredSchema, message: str | None = None) -> list[Change]:
    """Field by field. Both are of one type."""
    if old.type == "AVRO":
        return changes(parsed(old), parsed(new))
    return column_changes(columns_of(old, message), columns_of(new, message))


def renamed(schema: RegisteredSchema, columns: pa.Schema) -> Iterator[tuple[str, str]]:
    """Columns that the schema has under a name that is not a column: the old name and the new one."""
    if schema.type != "AVRO":
        return
    record = parsed(schema)
    names = {field.name for field in record.fields}
    for field in record.fields:
        if field.name not in columns.names:
            yield from ((a, field.name) for a in field.aliases if a in columns.names and a not in names)


def parsed(schema: RegisteredSchema) -> Avro:
    """An Avro schema with what it refers to."""
    return parse(schema.text, [text for _, text in schema.references], f"schema id {schema.id}")


def registered_message(schema: RegisteredSchema, name: str | None) -> Descriptor:
    """A message of a Protobuf schema by its name; without one, the first, as serializers take it."""
    try:
        files = registered_files(schema.text, dict(schema.references))
    except ValueError as error:
        raise UnsupportedSqlError(f"schema id {schema.id} cannot be loaded: {error}") from None
    first = message_at(add_files(files), [0])
    return find_message(files, {MESSAGE: name or ""}) if name or first is None else first


def _avro(record: Avro, aliases: bool) -> pa.Schema:
    found = []
    for field, part in zip(record.fields, record.parts, strict=True):
        alone = Avro("record", fields=(field,), parts=(part,))
        try:
            column = avro_columns(alone)[0]
        except UnsupportedSqlError:
            column = pa.field(field.name, types.NULL)
        names = (field.name, *field.aliases) if aliases else (field.name,)
        found += [pa.field(name, column.type, column.nullable) for name in names]
    return pa.schema(found)
