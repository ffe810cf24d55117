"""How a datum of the writer's schema becomes the declared columns: a tree that both decoders follow.

A node is a dict that JSON can hold. `avro` is the type of the bytes; `as` is what the column makes of it
and is absent where the value is only checked and not kept; `expected` says, for messages, what the column
takes where a value may not fit. Containers have `fields` (each a node with its `name` and `column`),
`items` or `branches`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from forebay.errors import UnsupportedSqlError
from forebay.formats.avro_reading import reading, remedy
from forebay.formats.avro_schema import Avro, parse

Plan = dict[str, Any]

MAX_NODES = 10_000
"""A schema may name one type in many places, and each place has a node: a short text, a plan without end."""


def compile_plan(schema: str, columns: StructType) -> Plan:
    """The plan for a schema's JSON text. UnsupportedSqlError if a column cannot be read from it."""
    writer = parse(schema)
    if writer.type != "record":
        raise UnsupportedSqlError(
            f"the columns are the fields of a record, but the writer has {writer}",
            remedy="'avro.schema' is the schema of a record",
        )
    return _Compiler().record(writer, columns, "")


class _Compiler:
    def __init__(self) -> None:
        self._nodes = 0

    def node(self, writer: Avro, column: DataType | None, nullable: bool, path: str) -> Plan:
        """One value. Without a column it is read over; `nullable` then means nothing."""
        match writer.type:
            case "record":
                return self.record(writer, self._expect(StructType, writer, column, path), path)
            case "array":
                return self._array(writer, self._expect(ArrayType, writer, column, path), path)
            case "map":
                return self._map(writer, self._expect(MapType, writer, column, path), path)
            case "union":
                return self._union(writer, column, nullable, path)
            case "null":
                if column is not None and not nullable:
                    raise UnsupportedSqlError(
                        f"column {path} is NOT NULL, but the writer has only null",
                        remedy="declare the column without NOT NULL",
                    )
                return self._made("null", "null" if column is not None else None)
        plan = self._made(writer.type)
        if writer.type == "enum":
            plan["symbols"] = list(writer.symbols)
        if writer.type == "fixed":
            plan["size"] = writer.size
        if column is not None:
            plan |= reading(writer, column) or self._refuse(writer, column, path)
        return plan

    def record(self, writer: Avro, columns: StructType | None, path: str) -> Plan:
        plan = self._made("record", "struct" if columns is not None else None)
        declared = {} if columns is None else {field.name: at for at, field in enumerate(columns)}
        if columns is not None:
            self._check_columns(writer, columns, path)
        plan["fields"] = []
        for name, part in zip(writer.fields, writer.parts, strict=True):
            at = declared.get(name)
            if columns is None or at is None:
                field = self.node(part, None, True, _join(path, name))
            else:
                wanted = columns[at]
                field = self.node(part, wanted.dataType, wanted.nullable, _join(path, name))
            plan["fields"].append({"name": name, "column": at, **field})
        return plan

    def _check_columns(self, writer: Avro, columns: StructType, path: str) -> None:
        names = columns.fieldNames()
        for field in columns:
            where = _join(path, field.name)
            if names.count(field.name) > 1:
                raise UnsupportedSqlError(f"column {where} is declared twice", remedy="rename one of them")
            if field.name not in writer.fields and not field.nullable:
                raise UnsupportedSqlError(
                    f"column {where} is NOT NULL, but the writer's record {writer.name} has no such field",
                    remedy="declare it without NOT NULL; names match exactly, case included",
                )

    def _array(self, writer: Avro, column: ArrayType | None, path: str) -> Plan:
        plan = self._made("array", "array" if column else None)
        element, nullable = (column.elementType, column.containsNull) if column else (None, True)
        plan["items"] = self.node(writer.parts[0], element, nullable, f"{path}[]")
        plan["empty"] = writer.parts[0].empty
        return plan

    def _map(self, writer: Avro, column: MapType | None, path: str) -> Plan:
        if column and not isinstance(column.keyType, StringType):
            self._refuse(writer, column, path)
        plan = self._made("map", "map" if column else None)
        value, nullable = (column.valueType, column.valueContainsNull) if column else (None, True)
        plan["items"] = self.node(writer.parts[0], value, nullable, f"{path}[]")
        return plan

    def _union(self, writer: Avro, column: DataType | None, nullable: bool, path: str) -> Plan:
        plan = self._made("union")
        only_null = all(branch.type == "null" for branch in writer.parts)
        plan["branches"] = []
        for branch in writer.parts:
            if branch.type == "null" and column is not None and not nullable and not only_null:
                plan["branches"].append(self._made("null", "never"))
            else:
                plan["branches"].append(self.node(branch, column, nullable, path))
        return plan

    def _made(self, avro: str, to: str | None = None) -> Plan:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise UnsupportedSqlError(
                f"the writer's schema has more than {MAX_NODES:,} parts, named types counted at each use",
                remedy="let the writer send a smaller record",
            )
        return {"avro": avro} if to is None else {"avro": avro, "as": to}

    def _expect(self, kind: type[DataType], writer: Avro, column: DataType | None, path: str) -> Any:
        if column is not None and not isinstance(column, kind):
            self._refuse(writer, column, path)
        return column

    def _refuse(self, writer: Avro, column: DataType, path: str) -> Plan:
        declared = column.simpleString().upper() if not isinstance(column, StructType) else "STRUCT"
        raise UnsupportedSqlError(
            f"column {path} is declared {declared}, which cannot be read from what the writer has: {writer}",
            remedy=remedy(writer),
        )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
