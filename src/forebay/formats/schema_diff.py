"""What changed between two schemas, field by field, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from forebay import column_types as types

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


def column_changes(old: pa.Schema, new: pa.Schema) -> list[Change]:
    """In the order of the new columns, what was removed at the end."""
    before, after = type_words(old), type_words(new)
    found = [
        Change(path, before.get(path, ""), kind, OTHER_TYPE if path in before else "added")
        for path, kind in after.items()
        if before.get(path) != kind
    ]
    return found + [Change(path, kind, "", "removed") for path, kind in before.items() if path not in after]


def type_words(columns: pa.Schema) -> dict[str, str]:
    """Every field in the columns, by its path, with its type in words."""
    return dict(_paths(columns, ""))


def _paths(kind: pa.Schema | pa.DataType, path: str) -> Iterator[tuple[str, str]]:
    match kind:
        case pa.StructType() | pa.Schema():
            for field in kind:
                where = f"{path}.{field.name}" if path else field.name
                yield where, _words(field.type)
                yield from _paths(field.type, where)
        case pa.ListType():
            yield from _paths(kind.value_type, f"{path}[]")
        case pa.MapType():
            yield from _paths(kind.item_type, f"{path}[]")


def _words(kind: pa.DataType) -> str:
    """A type without what is inside of it, which has lines of its own."""
    match kind:
        case types.NULL:
            return "no one type"
        case pa.StructType():
            return "STRUCT"
        case pa.ListType():
            return f"ARRAY<{_words(kind.value_type)}>"
        case pa.MapType():
            return f"MAP<{_words(kind.key_type)}, {_words(kind.item_type)}>"
        case _:
            return types.type_name(kind)
