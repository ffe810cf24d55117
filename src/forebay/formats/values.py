"""JSON-like values to the columns of a schema: one closure a column, compiled once.

Missing and null are the same: NULL where the column may be NULL, else SchemaMismatch; inside structs,
arrays and maps too. Names match exactly, case included. Fields that the schema does not have are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.refusal import RefusedError, describe, malformed, mismatch, shorten, unfit
from forebay.formats.scalars import Convert, scalar


class Ambiguous(dict[str, Any]):
    """A JSON object in which some names occur more than once, each time with a value of its own."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}


def row_converter(schema: pa.Schema) -> Convert:
    """From one top-level value to the list of the columns' values."""
    columns = fields_converter(schema)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, dict):
            raise mismatch(f"expected an object at the top level, found {describe(value)}")
        found: list[Any] = columns(value)
        return found

    return convert


class DescribedType(Protocol):
    """What is known of a type beyond its JSON: see `debezium_types.py`."""

    def field(self, name: str) -> DescribedType: ...
    @property
    def items(self) -> DescribedType: ...
    @property
    def values(self) -> DescribedType: ...
    def scalar(self, column: pa.DataType) -> Convert | None: ...


def converter(data_type: pa.DataType, known: DescribedType | None = None) -> Convert:
    """From one value that is not null to what Arrow holds for it."""
    match data_type:
        case pa.StructType():
            return _struct(data_type, known)
        case pa.ListType():
            return _array(data_type, known and known.items)
        case pa.MapType():
            return _map(data_type, known and known.values)
        case _:
            return (known and known.scalar(data_type)) or scalar(data_type)


def needs_digits(data_type: pa.Schema | pa.DataType) -> bool:
    """Whether a number must be known as it was written: a DECIMAL is exact, and a FLOAT is rounded once."""
    return any(part == types.FLOAT or isinstance(part, pa.Decimal128Type) for part in _parts(data_type))


def _parts(data_type: pa.Schema | pa.DataType) -> Iterator[pa.DataType]:
    yield data_type
    match data_type:
        case pa.StructType() | pa.Schema():
            for field in data_type:
                yield from _parts(field.type)
        case pa.ListType():
            yield from _parts(data_type.value_type)
        case pa.MapType():
            yield from _parts(data_type.item_type)


def fields_converter(schema: pa.Schema | pa.StructType, known: DescribedType | None = None) -> Convert:
    fields = [
        (field.name, converter(field.type, known and known.field(field.name)), not field.nullable)
        for field in schema
    ]
    names = {field.name for field in schema}

    def convert(value: dict[str, Any]) -> list[Any]:
        if type(value) is Ambiguous and (repeated := value.repeated & names):
            raise malformed(f"the field {shorten(min(repeated))!r} occurs more than once")
        get = value.get
        row: list[Any] = []
        name = ""
        try:
            for name, to_column, required in fields:
                found = get(name)
                if found is not None:
                    row.append(to_column(found))
                elif required:
                    raise mismatch(f"NOT NULL, but the field is {'null' if name in value else 'missing'}")
                else:
                    row.append(None)
        except RefusedError as refused:
            refused.enter(f".{name}")
            raise
        return row

    return convert


def _struct(data_type: pa.StructType, known: DescribedType | None) -> Convert:
    columns = fields_converter(data_type, known)
    names = data_type.names

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise unfit("STRUCT (an object)", value)
        return dict(zip(names, columns(value), strict=True))

    return convert


def _array(data_type: pa.ListType, known: DescribedType | None) -> Convert:
    to_element = converter(data_type.value_type, known)
    required = not data_type.value_field.nullable

    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise unfit("ARRAY", value)
        elements: list[Any] = []
        try:
            for element in value:
                if element is not None:
                    elements.append(to_element(element))
                elif required:
                    raise mismatch("NOT NULL, but the element is null")
                else:
                    elements.append(None)
        except RefusedError as refused:
            refused.enter(f"[{len(elements)}]")
            raise
        return elements

    return convert


def _map(data_type: pa.MapType, known: DescribedType | None) -> Convert:
    to_key = _key(data_type.key_type)
    to_value = converter(data_type.item_type, known)
    required = not data_type.item_field.nullable

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise unfit("MAP (an object)", value)
        if type(value) is Ambiguous:
            raise malformed(f"the key {shorten(min(value.repeated))!r} occurs more than once")
        entries: list[tuple[Any, Any]] = []
        key = ""
        try:
            for key, entry in value.items():
                if entry is not None:
                    entries.append((to_key(key), to_value(entry)))
                elif required:
                    raise mismatch("NOT NULL, but the value is null")
                else:
                    entries.append((to_key(key), None))
        except RefusedError as refused:
            refused.enter(f"[{shorten(key)!r}]")
            raise
        return entries

    return convert


def _key(data_type: pa.DataType) -> Convert:
    """JSON writes every key as a string: integers are read from it, in their one usual spelling."""
    if data_type == types.STRING:
        return scalar(data_type)
    if data_type not in types.BITS:
        kind = types.type_name(data_type)
        raise UnsupportedSqlError(f"a MAP with keys of type {kind} cannot be read: STRING or an integer type")
    to_integer = scalar(data_type)

    def convert(key: str) -> Any:
        # One spelling only: '1' and '01' in one map would become the same key twice.
        if len(key) <= 20 and key.isascii() and key.removeprefix("-").isdigit() and str(int(key)) == key:
            return to_integer(int(key))
        return to_integer(key)

    return convert
