"""Which part of a WHERE or HAVING can be asked of rows without Spark.

Only what means the same to Arrow as to Spark: comparisons of a column with a literal of its own kind, and what
AND, OR, NOT, IN, BETWEEN and IS NULL make of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from sqlglot import exp

from forebay.condition import Condition, Value

_COMPARED = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

ColumnT = TypeVar("ColumnT")


class Columns(Protocol[ColumnT]):
    """What a condition may be about. `ColumnT` is a column's type: Spark's for a source, Arrow's for a table."""

    def named(self, node: Any) -> tuple[str, ColumnT] | None:
        """The column that this node stands for."""
        ...

    def value(self, node: Any, kind: ColumnT) -> Value | None:
        """A literal as a value of that kind, where Spark compares the two as such."""
        ...

    def alike(self, kind: ColumnT, other: ColumnT) -> bool:
        """Whether Arrow compares columns of these kinds as Spark does."""
        ...

    def askable(self, kind: ColumnT) -> bool:
        """Whether it may be asked for NULL."""
        ...


class Conditions(Generic[ColumnT]):
    """Of one clause of a SELECT: `where` or `having`."""

    def __init__(self, query: Any, columns: Columns[ColumnT], clause: str = "where") -> None:
        self._columns = columns
        found = query.args.get(clause)
        start, end = query.meta["span"]
        # Spark has its own way with what is behind a backslash in a text.
        self._asked = None if found is None or "\\" in query.meta["script"][start:end] else found.this

    def all(self) -> Condition | None:
        """The whole clause, or None."""
        return None if self._asked is None else self._made(self._asked)

    def some(self) -> Condition | None:
        """As much of the clause as can be had, of what must all be true."""
        parts = _conjuncts(self._asked) if self._asked is not None else ()
        found = [made for part in parts if (made := self._made(part)) is not None]
        if not found:
            return None
        return found[0] if len(found) == 1 else Condition("and", parts=tuple(found))

    def obstacle(self) -> Any:
        """The smallest part for whose sake there is no `all()`; None where it is the text as a whole."""
        node = self._asked
        while node is not None:
            node = node.unnest()
            parts = [node.this, node.expression] if isinstance(node, exp.And | exp.Or) else []
            parts = [node.this] if isinstance(node, exp.Not) else parts
            refused = next((part for part in parts if self._made(part) is None), None)
            if refused is None:
                break
            node = refused
        return node

    def _made(self, node: Any) -> Condition | None:
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            parts = [self._made(node.this), self._made(node.expression)]
            known = tuple(part for part in parts if part is not None)
            operator = "and" if isinstance(node, exp.And) else "or"
            return Condition(operator, parts=known) if len(known) == 2 else None
        if isinstance(node, exp.Not):
            inner = self._made(node.this)
            return Condition("not", parts=(inner,)) if inner else None
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            ends = (
                self._compared(node.this, ">=", node.args["low"]),
                self._compared(node.this, "<=", node.args["high"]),
            )
            return Condition("and", parts=(ends[0], ends[1])) if ends[0] and ends[1] else None
        if isinstance(node, exp.In):
            return self._in(node)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            asked = self._named(node.this)
            return Condition("null", asked[0]) if asked and self._columns.askable(asked[1]) else None
        operator = _COMPARED.get(type(node), "")
        if operator:
            return self._compared(node.this, operator, node.expression) or self._compared(
                node.expression, _TURNED[operator], node.this
            )
        asked = self._named(node)  # a BOOLEAN by itself
        is_true = asked is not None and self._columns.value(exp.true(), asked[1]) is not None
        return Condition("=", asked[0], (True,)) if asked and is_true else None

    def _in(self, node: Any) -> Condition | None:
        asked = self._named(node.this)
        if asked is None or node.args.get("query") or node.args.get("unnest") or not node.expressions:
            return None
        values = [self._columns.value(literal, asked[1]) for literal in node.expressions]
        known = tuple(value for value in values if value is not None)
        return Condition("in", asked[0], known) if len(known) == len(values) else None

    def _compared(self, column: Any, operator: str, other: Any) -> Condition | None:
        asked = self._named(column)
        if asked is None:
            return None
        name, kind = asked
        second = self._named(other)
        if second is not None:
            return (
                Condition(operator, name, other=second[0]) if self._columns.alike(kind, second[1]) else None
            )
        value = self._columns.value(other, kind)
        return None if value is None else Condition(operator, name, (value,))

    def _named(self, node: Any) -> tuple[str, ColumnT] | None:
        return self._columns.named(node.unnest())


def is_column(node: Any, own: set[str]) -> bool:
    """Of a table that goes by these names, and not a field of one of its columns."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return False
    return node.table.lower() in own and not node.db


def _conjuncts(where: Any) -> Iterator[Any]:
    node = where.unnest()
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node
