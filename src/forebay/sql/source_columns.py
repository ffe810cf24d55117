"""The columns that an expression is over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay.expression import Expression

Named = Callable[[Any], Expression | None]
"""What a node stands for that is no expression of its own: a column, or in a grouped query a key or an aggregate."""


def is_column(node: Any, own: Collection[str]) -> bool:
    """Of a table that goes by these names, and not a field of one of its columns."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return False
    return node.table.lower() in own and not node.db


def columns_named(columns: Mapping[str, pa.Field], own: Collection[str]) -> Named:
    """Columns of a table and fields of them. `columns` are by names in lower case; `own` are the table's, "" among them."""

    def named(node: Any) -> Expression | None:
        if not isinstance(node, exp.Column | exp.Dot):
            return None
        parts = node.parts
        if not all(isinstance(part, exp.Identifier) for part in parts):
            return None
        names = [part.name.lower() for part in parts]
        qualified = len(names) > 1 and names[0] in own and names[1] in columns
        if qualified and names[0] in columns:
            return None  # a column of the table's name: Spark knows which is meant
        path = names[1:] if qualified else names
        field = columns.get(path[0])
        if field is None or (not qualified and path[0] in own and len(path) > 1):
            return None
        return _inside(Expression.column(field.name, field.type, nullable=field.nullable), path[1:])

    return named


def _inside(found: Expression, path: list[str]) -> Expression | None:
    for name in path:
        if not isinstance(found.type, pa.StructType):
            return None
        fields = [each for each in found.type if each.name.lower() == name]
        if len(fields) != 1:
            return None
        nullable = found.nullable or fields[0].nullable
        found = Expression("field", fields[0].type, (found,), fields[0].name, nullable=nullable)
    return found
