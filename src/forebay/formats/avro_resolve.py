"""Schema resolution: what the reader's schema makes of the writer's, type by type.

As in Avro's specification, with three differences, none of which gives another value than the writer
meant. Records outside of unions match whatever their names are, as in Avro for Java. A timestamp or a
decimal whose unit or scale changed is converted, where the specification would take the number as it is.
And a field that neither side can tell is NULL if its column takes that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from forebay.formats.avro_reading import is_known
from forebay.formats.avro_schema import Avro, Field

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class UnresolvedError(Exception):
    """The writer's type cannot become the reader's. Only the compiler sees it."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


@dataclass(frozen=True, slots=True)
class Source:
    """Where a column's values come from: the writer's field `at`, or else the default of the reader's `field`."""

    at: int | None
    field: Field | None
    reader: Avro | None
    """The type of the reader's field; None if the reader has none: then the column alone counts."""


def sources(writer: Avro, reader: Avro | None, columns: Sequence[str], path: str) -> list[Source]:
    """For each column of a record. No field of the writer feeds two."""
    places = {field.name: at for at, field in enumerate(writer.fields)}
    known = {field.name: at for at, field in enumerate(reader.fields)} if reader else {}
    found = []
    for name in columns:
        if reader is None or name not in known:
            found.append(Source(places.get(name), None, None))
            continue
        field = reader.fields[known[name]]
        written = next((places[other] for other in (name, *field.aliases) if other in places), None)
        found.append(Source(written, field, reader.parts[known[name]]))
    taken: dict[int, str] = {}
    for name, source in zip(columns, found, strict=True):
        if source.at is not None and taken.setdefault(source.at, name) != name:
            raise UnresolvedError(
                f"the writer's field {writer.fields[source.at].name} would be both {taken[source.at]} and "
                f"{name}, which has it as an alias",
                path or "the record",
            )
    return found


def pair(writer: Avro, reader: Avro, path: str) -> Avro:
    """The reader's type for values of the writer's, which is no union: itself, or one of its branches."""
    branches = reader.parts if reader.type == "union" else (reader,)
    for matches in (_same, _alike, _only_record, _promoted):
        for branch in branches:
            if matches(writer, branch, branches):
                return branch
    raise UnresolvedError(f"the writer has {writer}, which the reader's {reader} cannot be", path)


def _same(writer: Avro, reader: Avro, _: Sequence[Avro]) -> bool:
    if writer.type != reader.type or writer.size != reader.size:
        return False
    return writer.name == reader.name or writer.name in reader.aliases


def _alike(writer: Avro, reader: Avro, _: Sequence[Avro]) -> bool:
    """Of the same name in another namespace."""
    if writer.type != reader.type or writer.size != reader.size:
        return False
    return _simple(writer.name) in (_simple(reader.name), *map(_simple, reader.aliases))


def _only_record(writer: Avro, reader: Avro, branches: Sequence[Avro]) -> bool:
    records = [branch for branch in branches if branch.type == "record"]
    return writer.type == reader.type == "record" and len(records) == 1


def _promoted(writer: Avro, reader: Avro, _: Sequence[Avro]) -> bool:
    return reader.type in _PROMOTIONS.get(writer.type, ())


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def meaning(writer: Avro, reader: Avro, column: pa.DataType, path: str) -> Avro:
    """The type that the column is to take the writer's values as.

    What the writer says about its values is true whatever the reader expects: the reader's logical type
    counts where the writer has none. If they differ, only a column that has the unit itself can be right.
    """
    decimal = writer.decimal or (reader.decimal if writer.type == reader.type else None)
    logical = writer.logical if is_known(writer) else reader.logical
    differ = is_known(writer) and is_known(reader) and writer.logical != reader.logical
    differ |= bool(writer.decimal and reader.decimal and writer.decimal[1] != reader.decimal[1])
    if differ and not isinstance(column, pa.TimestampType | pa.Decimal128Type):
        raise UnresolvedError(f"the writer has {writer}, and the reader {reader}: not the same numbers", path)
    if writer.type in ("string", "bytes", "fixed", "enum"):
        return replace(writer, logical=logical, decimal=decimal)
    return replace(reader, logical=logical)


def symbols(writer: Avro, reader: Avro) -> dict[str, str | None]:
    """What becomes of the symbols that the reader does not have: its default, or None."""
    return {symbol: reader.symbol for symbol in writer.symbols if symbol not in reader.symbols}
