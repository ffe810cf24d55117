"""What a view's SELECT reads: a source, or an inner SELECT that passes its rows on, as columns over the source.

Spark makes one of the two SELECTs as well: what the outer one names is what the inner one computes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.expression import COLUMN, Expression
from forebay.program import NamedExpressions
from forebay.sql.ast import WindowTable
from forebay.sql.expressions import compiled, connected
from forebay.sql.source_columns import Named, columns_named
from forebay.sql.table_names import resolve_cte

_CLAUSES = frozenset({"expressions", "from_", "where", "group", "having", "with_"})
_INNER_CLAUSES = frozenset({"expressions", "from_", "where"})
_TABLE = frozenset({"this", "db", "catalog", "alias"})
_WINDOW_TABLE = _TABLE | {"window", "partition_keys", "grouped"}
_SUBQUERY = frozenset({"this", "alias"})


@dataclass(frozen=True)
class ReadFrom:
    """The columns that a SELECT can name, the names that they may be qualified with, and which rows there are."""

    columns: NamedExpressions
    names: frozenset[str]
    where: Expression | None = None

    @property
    def fields(self) -> dict[str, pa.Field]:
        """By names in lower case."""
        return {name.lower(): pa.field(name, found.type, found.nullable) for name, found in self.columns}

    @property
    def named(self) -> Named:
        """What a node of the SELECT is, over the source's columns."""
        known = columns_named(self.fields, self.names)
        below = dict(self.columns)

        def named(node: Any) -> Expression | None:
            found = known(node)
            return None if found is None else _over(found, below)

        return named

    def star(self, node: Any) -> NamedExpressions | None:
        """The columns that a `*` stands for."""
        star = node.this if isinstance(node, exp.Column) else node
        table = node.table.lower() if isinstance(node, exp.Column) else ""
        if not isinstance(star, exp.Star) or any(star.args.values()) or table not in self.names:
            return None
        return self.columns

    def filtered(self, query: Any) -> ReadFrom | None:
        """The rows that the query's WHERE leaves; None where it cannot be said."""
        clause = query.args.get("where")
        if clause is None:
            return self
        found = compiled(clause.this, self.named)
        if found is None or found.type != types.BOOLEAN:
            return None
        both = found if self.where is None else connected("and", self.where, found)
        return None if both is None else replace(self, where=both)


def _over(found: Expression, below: dict[str, Expression]) -> Expression:
    """A column, or a field in one, as what it is below."""
    if found.operator == COLUMN:
        return below[str(found.value)]
    return replace(found, arguments=tuple(_over(each, below) for each in found.arguments))


def read_from(query: Any, schema: pa.Schema) -> ReadFrom | None:
    """What `query` reads; None where it is more than a SELECT over the one source, whose columns `schema` has."""
    if not isinstance(query, exp.Select) or not _has_only(query, _CLAUSES):
        return None
    with_ = query.args.get("with_")
    if with_ and (with_.args.get("recursive") or not all(map(_has_plain_alias, with_.expressions))):
        return None
    return _below(query, schema)


def _below(query: Any, schema: pa.Schema) -> ReadFrom | None:
    """What stands in its FROM. Nowhere else in it is a query."""
    for part, given in query.args.items():
        nodes = given if isinstance(given, list) else [given]
        if part not in ("from_", "with_") and any(node and node.find(exp.Query) for node in nodes):
            return None
    source = query.args["from_"].this if query.args.get("from_") else None
    if isinstance(source, exp.Subquery) and _has_only(source, _SUBQUERY) and _has_plain_alias(source):
        return _inner(source.this, schema, source.alias)
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        return None
    of_windows = isinstance(source, WindowTable)
    if of_windows and not source.args.get("grouped"):
        return None
    if not _has_only(source, _WINDOW_TABLE if of_windows else _TABLE) or not _has_plain_alias(source):
        return None
    cte = None if source.db else resolve_cte(source)
    if cte is not None:
        return None if of_windows else _inner(cte, schema, source.alias_or_name)
    columns = tuple(
        (field.name, Expression.column(field.name, field.type, nullable=field.nullable)) for field in schema
    )
    return _distinct(ReadFrom(columns, frozenset({source.alias_or_name.lower(), ""})))


def _inner(query: Any, schema: pa.Schema, name: str) -> ReadFrom | None:
    """A SELECT of columns, expressions and a filter. None of them fails: Spark leaves out what nobody asks for."""
    if not isinstance(query, exp.Select) or not _has_only(query, _INNER_CLAUSES):
        return None
    read = _below(query, schema)
    below = read and read.filtered(query)
    if below is None or (below.where is not None and below.where.may_fail):
        return None
    columns: list[tuple[str, Expression]] = []
    for node in query.expressions:
        found = below.star(node) or _output(node, below.named)
        if found is None:
            return None
        columns += found
    return _distinct(replace(below, columns=tuple(columns), names=frozenset({name.lower(), ""})))


def _output(node: Any, named: Named) -> NamedExpressions | None:
    if not isinstance(node, exp.Alias | exp.Column) or not node.alias_or_name:
        return None  # Spark has a name of its own for it
    found = compiled(node.this if isinstance(node, exp.Alias) else node, named)
    if found is None or found.may_fail or found.type == types.NULL:
        return None
    return ((node.alias_or_name, found),)


def _distinct(found: ReadFrom) -> ReadFrom | None:
    return found if len(found.fields) == len(found.columns) else None


def _has_only(node: Any, known: frozenset[str]) -> bool:
    return not any(given for part, given in node.args.items() if part not in known)


def _has_plain_alias(node: Any) -> bool:
    alias = node.args.get("alias")
    return not (alias and alias.args.get("columns"))
