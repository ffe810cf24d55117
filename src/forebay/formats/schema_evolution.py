"""`schema.evolution`: what becomes of a record whose schema is not one of those that the columns are from.

Schemas are compared as columns, whatever their format: what a field cannot be read as, it cannot become. A
field that the source was created without is left out for good, since somebody chose that; a new one is a
field that no schema had before.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import (
    NewFieldsError,
    RecordError,
    SchemaChangedError,
    StatementError,
    UnreachableError,
    UnsupportedSqlError,
)
from forebay.formats.registered_columns import columns_of, differences, renamed
from forebay.formats.schema_diff import OTHER_TYPE, column_changes, in_a_line, type_words
from forebay.registry import Origin, RegisteredSchema, registry


class Watch:
    """Compares each schema that is met with those that are known. Asks for these when it is made.

    `message` is the name of the Protobuf message that records are, where the source says it.
    """

    def __init__(self, origin: Origin, columns: pa.Schema, message: str | None = None) -> None:
        self._policy = origin.evolution.policy
        self._columns = columns
        self._message = message
        known = [_known(origin, number) for number in origin.evolution.since]
        self._known = [columns_of(schema, message, aliases=True) for schema in known]
        self.newest = known[-1]

    @staticmethod
    def of(origin: Origin, columns: pa.Schema, message: str | None = None) -> Watch | None:
        """None where nothing is compared."""
        evolution = origin.evolution
        if evolution.policy == "ignore" or not evolution.since:
            return None
        return Watch(origin, columns, message)

    def check(self, schema: RegisteredSchema, message: str | None = None) -> None:
        """SchemaChangedError or NewFieldsError if the records of this schema are not to be read as they are."""
        message = message or self._message
        if schema.type != self.newest.type:
            raise self.changed(schema)
        if self._policy == "reject":
            if differences(self.newest, schema, message):
                raise self.changed(schema)
            return
        evolved = self.evolved(schema, message)
        if evolved != self._columns:
            new = in_a_line(column_changes(self._columns, evolved))
            raise NewFieldsError(f"schema id {schema.id} has fields that become columns: {new}")

    def evolved(self, schema: RegisteredSchema, message: str | None = None) -> pa.Schema:
        """The columns with the new fields of a schema behind them. SchemaChangedError if that cannot be."""
        for old, new in renamed(schema, self._columns):
            raise self.changed(schema, f"column {old} would be NULL, since the field is now {new}")
        try:
            new_columns = columns_of(schema, message or self._message)
            if schema.type == "JSON":
                self._check_types(new_columns)
            return merged(self._columns, self._known, new_columns)
        except UnsupportedSqlError as error:
            raise self.changed(schema, error.message) from None

    def _check_types(self, new: pa.Schema) -> None:
        """Of JSON, whose records are read without their schema: a field that is now of another type."""
        declared = type_words(self._columns)
        for change in column_changes(self._known[-1], new):
            column = declared.get(change.field)
            if change.note != OTHER_TYPE or column is None or column == change.after:
                continue
            if not (change.after == "BIGINT" and column.startswith(("DOUBLE", "FLOAT", "DECIMAL"))):
                raise UnsupportedSqlError(
                    f"column {change.field} is {column}, and the field is now {change.after}"
                )

    def changed(self, schema: RegisteredSchema, reason: str = "") -> SchemaChangedError:
        """Why the source stops: what is wrong, and how the schemas differ."""
        problem = f"{reason}; it " if reason else ""
        return SchemaChangedError(
            f"schema id {schema.id}: {problem}differs from schema id {self.newest.id}, which the source is from: "
            + self._difference(schema)
        )

    def _difference(self, schema: RegisteredSchema) -> str:
        if schema.type != self.newest.type:
            return f"it is of type {schema.type}, and not {self.newest.type}"
        try:
            return in_a_line(differences(self.newest, schema, self._message))
        except StatementError as error:
            return error.message


def merged(columns: pa.Schema, known: Sequence[pa.Schema], new: pa.Schema) -> pa.Schema:
    """The columns with the fields of new ones that are not known, at the end and nullable; in a STRUCT, too.

    UnsupportedSqlError if one of them cannot be a column.
    """
    found = _merged_struct(
        pa.struct(list(columns)), [pa.struct(list(each)) for each in known], pa.struct(list(new))
    )
    return pa.schema(list(found))


def _merged(column: pa.DataType, known: Sequence[pa.DataType], new: pa.DataType) -> pa.DataType:
    match column, new:
        case pa.StructType(), pa.StructType():
            return _merged_struct(column, [kind for kind in known if isinstance(kind, pa.StructType)], new)
        case pa.ListType(), pa.ListType():
            inside = [kind.value_type for kind in known if isinstance(kind, pa.ListType)]
            return types.array_of(
                _merged(column.value_type, inside, new.value_type), column.value_field.nullable
            )
        case pa.MapType(), pa.MapType():
            inside = [kind.item_type for kind in known if isinstance(kind, pa.MapType)]
            value = _merged(column.item_type, inside, new.item_type)
            return types.map_of(column.key_type, value, column.item_field.nullable)
    return column


def _merged_struct(
    column: pa.StructType, known: Sequence[pa.StructType], new: pa.StructType
) -> pa.StructType:
    def part(field: pa.Field) -> pa.Field:
        if field.name not in new.names:
            return field
        inside = [kind[field.name].type for kind in known if field.name in kind.names]
        return pa.field(field.name, _merged(field.type, inside, new[field.name].type), field.nullable)

    fields = [part(field) for field in column]
    taken = {field.name.lower() for field in fields}
    for field in new:
        if field.name in column.names or any(field.name in kind.names for kind in known):
            continue
        if field.name.lower() in taken:
            raise UnsupportedSqlError(f"there would be two columns '{field.name}', whatever their case")
        if _has_no_type(field.type):
            raise UnsupportedSqlError(f"the new field {field.name} cannot be a column")
        taken.add(field.name.lower())
        fields.append(pa.field(field.name, field.type, nullable=True))
    return pa.struct(fields)


def _has_no_type(kind: pa.DataType) -> bool:
    match kind:
        case pa.StructType():
            return any(_has_no_type(field.type) for field in kind)
        case pa.ListType():
            return _has_no_type(kind.value_type)
        case pa.MapType():
            return _has_no_type(kind.item_type)
    return bool(kind == types.NULL)


def _known(origin: Origin, number: int) -> RegisteredSchema:
    try:
        return registry(origin.settings).schema(number)
    except RecordError as error:
        # The schema that a source is from was there once: this is about the registry and not about records.
        raise UnreachableError(f"the source's own schema cannot be had: {error.message}") from None
