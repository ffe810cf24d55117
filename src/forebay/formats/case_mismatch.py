"""Fields that differ from a column only in case. Names match exactly, so such a column is NULL; nobody meant that.

Case counts as it does in ASCII, here and in the native decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

Mismatch = tuple[str, str]
"""The path of a column that is absent, and the field that is there instead."""


class CaseCheck:
    """Looks for them in a record, as values of JSON. Compiled once from the columns."""

    def __init__(self, schema: pa.Schema | pa.StructType) -> None:
        self._names = frozenset(schema.names)
        self._alike: dict[bytes, list[str]] = {}
        for name in schema.names:
            self._alike.setdefault(_folded(name), []).append(name)
        parts = [(field.name, _inside(field.type)) for field in schema]
        self._parts = [(name, part) for name, part in parts if part is not None]

    def __call__(self, value: Any) -> list[Mismatch]:
        if not isinstance(value, dict):
            return []
        found: list[Mismatch] = []
        absent = self._names - value.keys()
        if absent:
            for name in value.keys() - self._names:
                found += [(column, name) for column in self._alike.get(_folded(name), ()) if column in absent]
        for name, part in self._parts:
            found += [(f"{name}{path}", field) for path, field in part(value.get(name))]
        return found

    def in_row(self, value: Any, row: Sequence[Any]) -> bool:
        """Whether there is one in a record; `row` is what its columns are. Where none is NULL, none is absent."""
        return (bool(self._parts) or None in row) and bool(self(value))


def _inside(data_type: pa.DataType) -> Callable[[Any], list[Mismatch]] | None:
    """Of what a column holds, paths as they go on from it; None where there are no names in it."""
    match data_type:
        case pa.StructType():
            check = CaseCheck(data_type)
            return lambda value: [(f".{path}", field) for path, field in check(value)]
        case pa.ListType():
            return _each(data_type.value_type, lambda value: value if isinstance(value, list) else ())
        case pa.MapType():
            return _each(data_type.item_type, lambda value: value.values() if isinstance(value, dict) else ())
    return None


def _each(data_type: pa.DataType, items: Callable[[Any], Any]) -> Callable[[Any], list[Mismatch]] | None:
    part = _inside(data_type)
    if part is None:
        return None
    return lambda value: [(f"[]{path}", field) for item in items(value) for path, field in part(item)]


def _folded(name: str) -> bytes:
    return name.encode(errors="surrogatepass").lower()
