"""Which values of a column a query can want at all, where its WHERE says so plainly."""

from __future__ import annotations

from typing import Any

from sqlglot import exp


def wanted(query: Any, table: str, column: str) -> set[str] | None:
    """The texts that `table.column` is compared with by = or IN, in an AND of the WHERE; None if it may be any.

    A row with another value would be dropped by that WHERE, whatever is joined with what, so that it need not
    be read.
    """
    found = [each for each in query.find_all(exp.Table) if _full(each) == table.lower()]
    if len(found) != 1:
        return None
    select = found[0].find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    if where is None or not _read_by(found[0], select):
        return None
    alone = not select.args.get("joins") and not select.args.get("laterals")
    names = {found[0].alias_or_name.lower()} | ({""} if alone else set())
    for part in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        values = _values(part.unnest(), column, names)
        if values is not None:
            return values
    return None


def _full(table: Any) -> str:
    return ".".join(part.name for part in table.parts).lower()


def _read_by(table: Any, select: Any) -> bool:
    """Whether the table stands in this select's own FROM or JOIN."""
    parent = table.parent
    return isinstance(parent, exp.From | exp.Join) and parent.parent is select


def _values(node: Any, column: str, names: set[str]) -> set[str] | None:
    def named(side: Any) -> bool:
        return isinstance(side, exp.Column) and side.name.lower() == column and side.table.lower() in names

    def text(side: Any) -> bool:
        return isinstance(side, exp.Literal) and bool(side.is_string)

    if isinstance(node, exp.EQ):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if named(one) and text(other):
                return {str(other.name)}
    if isinstance(node, exp.In) and not node.args.get("negate") and named(node.this):
        listed = node.expressions
        if listed and all(text(item) for item in listed):
            return {str(item.name) for item in listed}
    return None
