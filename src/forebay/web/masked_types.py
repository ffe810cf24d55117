"""Whether a column has masked values inside, by its type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from forebay.hiding import Mask


def holds(schema: pa.Schema | None, path: Sequence[str], mask: Mask) -> bool:
    """Whether a column or field of a source has masked values inside. What nobody knows the type of may have."""
    if schema is None:
        return True
    for place, name in enumerate(path):
        if (field := _child(schema, name)) is None:
            continue
        for deeper in path[place + 1 :]:
            if (found := _child(field.type, deeper)) is None:
                break
            field = found
        return _hidden_inside(field.type, tuple(path[place:]), mask)
    return False


def _child(fields: Any, name: str) -> Any:
    named = (
        [each for each in fields if each.name.casefold() == name.casefold()] if _has_fields(fields) else []
    )
    return named[0] if named else None


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, pa.Schema | pa.StructType)


def _hidden_inside(kind: pa.DataType, path: tuple[str, ...], mask: Mask) -> bool:
    if isinstance(kind, pa.MapType):
        return True  # its keys may be any names
    if isinstance(kind, pa.ListType | pa.LargeListType):
        return _hidden_inside(kind.value_type, path, mask)
    return isinstance(kind, pa.StructType) and any(
        mask.hides((*path, each.name)) or _hidden_inside(each.type, (*path, each.name), mask) for each in kind
    )
