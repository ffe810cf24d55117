"""What changed between two schemas, field by field, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType

OTHER_TYPE = "another type"


@dataclass(frozen=True)
class Change:
    """One field that differs: the old and the new type as text, empty where there is none."""

    field: str
    before: str
    after: str
    note: str

    def __str__(self) -> str:
        types = (
            f"{self.after}, was {self.before}" if self.before and self.after else self.before or self.after
        )
        return f"{self.field} ({types}): {self.note}"


def in_a_line(changes: Sequence[Change]) -> str:
    """All of them as an error's message has them, which is one line."""
    return "; ".join(map(str, changes)) or "they have the same fields"


def column_changes(old: StructType, new: StructType) -> list[Change]:
    """In the order of the new columns, what was removed at the end."""
    before, after = type_words(old), type_words(new)
    found = [
        Change(path, before.get(path, ""), kind, OTHER_TYPE if path in before else "added")
        for path, kind in after.items()
        if before.get(path) != kind
    ]
    return found + [Change(path, kind, "", "removed") for path, kind in before.items() if path not in after]


def type_words(columns: StructType) -> dict[str, str]:
    """Every field in the columns, by its path, with its type in words."""
    return dict(_paths(columns, ""))


def _paths(kind: DataType, path: str) -> Iterator[tuple[str, str]]:
    match kind:
        case StructType():
            for field in kind.fields:
                where = f"{path}.{field.name}" if path else field.name
                yield where, _words(field.dataType)
                yield from _paths(field.dataType, where)
        case ArrayType():
            yield from _paths(kind.elementType, f"{path}[]")
        case MapType():
            yield from _paths(kind.valueType, f"{path}[]")


def _words(kind: DataType) -> str:
    """A type without what is inside of it, which has lines of its own."""
    match kind:
        case NullType():
            return "no one type"
        case StructType():
            return "STRUCT"
        case ArrayType():
            return f"ARRAY<{_words(kind.elementType)}>"
        case MapType():
            return f"MAP<{_words(kind.keyType)}, {_words(kind.valueType)}>"
        case _:
            return str(kind.simpleString()).upper()
