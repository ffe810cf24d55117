"""How a datum of the writer's schema becomes the declared columns: a tree that both decoders follow.

A node is a dict that JSON can hold. `avro` is the type of the bytes; `as` is what the column makes of it
and is absent where the value is only checked and not kept; `expected` says, for messages, what the column
takes where a value may not fit. Containers have `fields` (each a node with its `name` and `column`),
`items` or `branches`. A record's `defaults` are fields that the writer does not have: each a node with the
`datum` (base64) that stands for it in every record. Where a record contains itself, the node `recursive` names
the `record`, and the plan itself has those in `named`: no column is made of them, they are only read over.

Where a reader's schema is given, the writer's is resolved to it here (`avro_resolve.py`), so that decoding
stays a walk. It says which field feeds a column, with which default, and as what its values are to be
taken; whether NULL is taken is for the column to say.
"""

from __future__ import annotations

import difflib
from base64 import b64encode
from typing import Any

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.avro_default import encode_default
from forebay.formats.avro_reading import AvroPlan, endless, reading, remedy
from forebay.formats.avro_resolve import Source, UnresolvedError, meaning, pair, sources, symbols
from forebay.formats.avro_schema import RECURSIVE, Avro, parse

__all__ = ["MAX_NODES", "AvroPlan", "compile_plan", "compile_resolved"]

MAX_NODES = 10_000
"""A schema may name one type in many places, and each place has a node: a short text, a plan without end."""


def compile_plan(schema: str, columns: pa.Schema) -> AvroPlan:
    """The plan for a schema's JSON text. UnsupportedSqlError if a column cannot be read from it."""
    return compile_resolved(parse(schema), None, columns)


def compile_resolved(
    writer: Avro, reader: Avro | None, columns: pa.Schema, *, closed: bool = False
) -> AvroPlan:
    """The plan for records of one schema, resolved to another. UnsupportedSqlError as above.

    A column that the reader's schema does not have is the writer's field of that name; unless the reader
    is `closed`: then it is an error.
    """
    for schema in (writer, reader):
        if schema is not None and schema.type != "record":
            raise UnsupportedSqlError(
                f"the columns are the fields of a record, but the schema is {schema}",
                remedy="'avro.schema' is the schema of a record",
            )
    try:
        return _AvroCompiler(closed).plan(writer, reader, columns)
    except UnresolvedError as error:
        raise UnsupportedSqlError(
            f"{error.path}: {error.reason}",
            remedy="register a compatible schema, or declare the columns by themselves",
        ) from None


class _AvroCompiler:
    def __init__(self, closed: bool) -> None:
        self._closed = closed
        self._nodes = 0
        self._again: list[str] = []

    def plan(self, writer: Avro, reader: Avro | None, columns: pa.Schema) -> AvroPlan:
        """The whole: the record, and those that it reads over again and again."""
        made = self.record(writer, reader, columns, "")
        if self._again:
            records, named = _records(writer), {}
            for name in self._again:  # which may grow by those that they contain
                named[name] = self.record(records[name], None, None, name)
            made["named"] = named
        return made

    def node(
        self, writer: Avro, reader: Avro | None, column: pa.DataType | None, nullable: bool, path: str
    ) -> AvroPlan:
        """One value. Without a column it is read over; `reader` and `nullable` then mean nothing."""
        if writer.type == "union":
            return self._union(writer, reader, column, nullable, path)
        if writer.type == "null":
            return self._null(column, nullable, path)
        if writer.type == RECURSIVE:
            return self._recursive(writer, column, path)
        if reader is not None and column is not None:
            reader = pair(writer, reader, path)
        match writer.type:
            case "record":
                return self.record(writer, reader, self._expect(pa.StructType, writer, column, path), path)
            case "array":
                return self._array(writer, reader, self._expect(pa.ListType, writer, column, path), path)
            case "map":
                return self._map(writer, reader, self._expect(pa.MapType, writer, column, path), path)
        plan = self._made(writer.type)
        if writer.type == "enum":
            plan["symbols"] = list(writer.symbols)
        if writer.type == "fixed":
            plan["size"] = writer.size
        if column is not None:
            plan |= self._leaf(writer, reader, column, path)
        return plan

    def _leaf(self, writer: Avro, reader: Avro | None, column: pa.DataType, path: str) -> AvroPlan:
        if reader is None:
            return reading(writer, column) or self._refuse(writer, column, path)
        taken = meaning(writer, reader, column, path)
        part = reading(taken, column) or self._refuse(taken, column, path)
        if writer.type == "enum" and (becomes := symbols(writer, reader)):
            part["becomes"] = becomes
        if writer.type in ("int", "long") and taken.type == "float" and part["as"] == "double":
            part["via"] = "float"  # rounded as the reader's type has it, before the column widens it
        return part

    def record(
        self, writer: Avro, reader: Avro | None, columns: pa.Schema | pa.StructType | None, path: str
    ) -> AvroPlan:
        plan = self._made("record", "struct" if columns is not None else None)
        found: dict[int, tuple[int, Source]] = {}
        defaults = []
        if columns is not None:
            self._check_names(columns, path)
            for at, (field, source) in enumerate(
                zip(columns, sources(writer, reader, columns.names, path), strict=True)
            ):
                where = _join(path, field.name)
                if self._closed and reader is not None and source.field is None:
                    raise _not_there(where, field.name, [known.name for known in reader.fields])
                if source.at is not None:
                    found[source.at] = at, source
                elif source.reader is not None and source.field is not None and source.field.default:
                    (value,) = source.field.default
                    defaults.append(self._default(source.reader, value, field, at, where))
                elif not field.nullable:
                    raise UnsupportedSqlError(
                        f"column {where} is NOT NULL, but the writer's record {writer.name} has no such field",
                        remedy="declare it without NOT NULL; names match exactly, case included",
                    )
        plan["fields"] = []
        for index, (given, part) in enumerate(zip(writer.fields, writer.parts, strict=True)):
            if columns is not None and index in found:
                at, source = found[index]
                wanted = columns[at]
                where = _join(path, wanted.name)
                made = self.node(part, source.reader, wanted.type, wanted.nullable, where)
                plan["fields"].append({"name": wanted.name, "column": at, **made})
            else:
                made = self.node(part, None, None, True, _join(path, given.name))
                plan["fields"].append({"name": given.name, "column": None, **made})
        if defaults:
            plan["defaults"] = defaults
        return plan

    def _default(self, reader: Avro, value: Any, field: pa.Field, at: int, path: str) -> AvroPlan:
        node = self.node(reader, None, field.type, field.nullable, path)
        datum = encode_default(reader, value, node, path)
        return {"name": field.name, "column": at, "datum": b64encode(datum).decode(), **node}

    def _check_names(self, columns: pa.Schema | pa.StructType, path: str) -> None:
        names = columns.names
        for name in names:
            if names.count(name) > 1:
                raise UnsupportedSqlError(
                    f"column {_join(path, name)} is declared twice", remedy="rename one of them"
                )

    def _array(self, writer: Avro, reader: Avro | None, column: pa.ListType | None, path: str) -> AvroPlan:
        plan = self._made("array", "array" if column is not None else None)
        element, nullable = (
            (column.value_type, column.value_field.nullable) if column is not None else (None, True)
        )
        inner = reader.parts[0] if reader else None
        plan["items"] = self.node(writer.parts[0], inner, element, nullable, f"{path}[]")
        plan["empty"] = writer.parts[0].empty
        return plan

    def _map(self, writer: Avro, reader: Avro | None, column: pa.MapType | None, path: str) -> AvroPlan:
        if column is not None and column.key_type != types.STRING:
            self._refuse(writer, column, path)
        plan = self._made("map", "map" if column is not None else None)
        value, nullable = (
            (column.item_type, column.item_field.nullable) if column is not None else (None, True)
        )
        inner = reader.parts[0] if reader else None
        plan["items"] = self.node(writer.parts[0], inner, value, nullable, f"{path}[]")
        return plan

    def _null(self, column: pa.DataType | None, nullable: bool, path: str) -> AvroPlan:
        if column is not None and not nullable:
            raise UnsupportedSqlError(
                f"column {path} is NOT NULL, but the writer has only null",
                remedy="declare the column without NOT NULL",
            )
        return self._made("null", "null" if column is not None else None)

    def _recursive(self, writer: Avro, column: pa.DataType | None, path: str) -> AvroPlan:
        if column is not None:
            raise endless(writer, path)
        if writer.name not in self._again:
            self._again.append(writer.name)
        return {**self._made(RECURSIVE), "record": writer.name}

    def _union(
        self, writer: Avro, reader: Avro | None, column: pa.DataType | None, nullable: bool, path: str
    ) -> AvroPlan:
        plan = self._made("union")
        only_null = all(branch.type == "null" for branch in writer.parts)
        refused: list[UnresolvedError] = []
        plan["branches"] = []
        for branch in writer.parts:
            if branch.type == "null" and column is not None and not nullable and not only_null:
                plan["branches"].append(self._made("null", "never"))
                continue
            try:
                plan["branches"].append(self.node(branch, reader, column, nullable, path))
            except UnresolvedError as error:
                # Its values are refused where they occur; the others are read.
                refused.append(error)
                node = self.node(branch, None, None, True, path)
                plan["branches"].append({**node, "as": "refused", "expected": error.reason})
        if refused and len(refused) == sum(branch.type != "null" for branch in writer.parts):
            raise refused[0]
        return plan

    def _made(self, avro: str, to: str | None = None) -> AvroPlan:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise UnsupportedSqlError(
                f"the writer's schema has more than {MAX_NODES:,} parts, named types counted at each use",
                remedy="let the writer send a smaller record",
            )
        return {"avro": avro} if to is None else {"avro": avro, "as": to}

    def _expect(self, kind: type[pa.DataType], writer: Avro, column: pa.DataType | None, path: str) -> Any:
        if column is not None and not isinstance(column, kind):
            self._refuse(writer, column, path)
        return column

    def _refuse(self, writer: Avro, column: pa.DataType, path: str) -> AvroPlan:
        declared = types.type_name(column) if not isinstance(column, pa.StructType) else "STRUCT"
        raise UnsupportedSqlError(
            f"column {path} is declared {declared}, which cannot be read from what the writer has: {writer}",
            remedy=remedy(writer),
        )


def _records(schema: Avro) -> dict[str, Avro]:
    """All records of a schema by their names. A type that occurs often is looked into once."""
    found: dict[str, Avro] = {}
    left = [schema]
    while left:
        kind = left.pop()
        if kind.type == "record" and kind.name in found:
            continue
        if kind.type == "record":
            found[kind.name] = kind
        left += kind.parts
    return found


def _not_there(where: str, name: str, known: list[str]) -> UnsupportedSqlError:
    near = difflib.get_close_matches(name, known, 1) or [
        other for other in known if other.lower() == name.lower()
    ]
    remedy = f"did you mean {near[0]}?" if near else "its fields are " + ", ".join(known[:20])
    return UnsupportedSqlError(
        f"column {where} is not a field of the reader's schema in 'avro.schema'",
        remedy=f"{remedy} Names match exactly, case included",
    )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
