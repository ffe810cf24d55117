"""A condition on letters, as WHERE and `--where` have it: checked once, then asked of each letter.

Comparisons, IN, LIKE, BETWEEN, IS NULL, AND, OR, NOT, over the columns of `forebay_catalog.dead_letters`. As in
SQL, what compares with NULL is neither true nor false, and is not selected. No Spark is started for it.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlglot import exp

from forebay.deadletter.entry import COLUMNS, TIME, Condition, Entry
from forebay.errors import UnknownObjectError, UnsupportedSqlError
from forebay.sql.positions import Script, span

_COMPARISONS: dict[type[Any], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_TURNED = {exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE}
_PARTS = {"this", "expression", "expressions", "low", "high", "negate", "table", "db"}
_HINT = "write column = 'value', <>, <, >, IN (…), LIKE, BETWEEN, IS NULL, joined by AND, OR, NOT"


def condition(node: Any) -> Condition:
    """The condition of a parsed WHERE; what it cannot be is said with its place."""
    return _WhereCompiler(node).made


class _WhereCompiler:
    def __init__(self, root: Any) -> None:
        self._script = Script(root.meta.get("written", ""))
        self.made = self._condition(root)

    def _condition(self, node: Any) -> Condition:
        # A flag on a node that is not looked at would turn a condition into another one.
        if {name for name, value in node.args.items() if value} - _PARTS:
            raise self._refuse("this condition is not supported on dead letters", node, _HINT)
        made = self._plain(node)
        return _negated(made) if node.args.get("negate") else made

    def _plain(self, node: Any) -> Condition:
        match node:
            case exp.Paren():
                return self._condition(node.this)
            case exp.And():
                return _both(self._condition(node.this), self._condition(node.expression))
            case exp.Or():
                return _either(self._condition(node.this), self._condition(node.expression))
            case exp.Not():
                return _negated(self._condition(node.this))
            case exp.Is() if isinstance(node.expression, exp.Null):
                value = self._column(node.this)
                return lambda entry: value(entry) is None
            case exp.In() if node.expressions:
                value, kind = self._column(node.this), self._type(node.this)
                wanted = [self._literal(item, kind) for item in node.expressions]
                return _known(value, lambda found: found in wanted)
            case exp.Between():
                value, kind = self._column(node.this), self._type(node.this)
                low, high = self._literal(node.args["low"], kind), self._literal(node.args["high"], kind)
                return _known(value, lambda found: low <= found <= high)
            case exp.Like():
                if self._type(node.this) != "string":
                    raise self._refuse("LIKE compares text", node, _HINT)
                pattern = _pattern(self._literal(node.expression, "string"))
                return _known(self._column(node.this), lambda found: pattern.fullmatch(found) is not None)
            case exp.Column() if self._type(node) == "bool":
                return self._column(node)
            case exp.Boolean():
                return lambda entry: bool(node.this)
        if type(node) in _COMPARISONS:
            return self._comparison(node)
        raise self._refuse("this condition is not supported on dead letters", node, _HINT)

    def _comparison(self, node: Any) -> Condition:
        column, other, kind = node.this, node.expression, type(node)
        if not isinstance(column, exp.Column):
            column, other, kind = other, column, _TURNED.get(kind, kind)
        if not isinstance(column, exp.Column) or isinstance(other, exp.Column):
            raise self._refuse("a condition compares a column with a value", node, _HINT)
        compare, wanted = _COMPARISONS[kind], self._literal(other, self._type(column))
        return _known(self._column(column), lambda found: compare(found, wanted))

    def _name(self, node: Any) -> str:
        if not isinstance(node, exp.Column):
            raise self._refuse("expected a column", node, _HINT)
        name = str(node.name).lower()
        if node.table and node.table.lower() != "dead_letters":
            raise self._refuse(f"there is no table '{node.table}' here", node, "leave it out")
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, 1, 0.5)
            remedy = f"did you mean {near[0]}?" if near else f"there are: {', '.join(COLUMNS)}"
            error = UnknownObjectError(f"dead letters have no column '{node.name}'", remedy=remedy)
            raise error.at(*self._place(node))
        return name

    def _column(self, node: Any) -> Callable[[Entry], Any]:
        return COLUMNS[self._name(node)][1]

    def _type(self, node: Any) -> str:
        return COLUMNS[self._name(node)][0]

    def _literal(self, node: Any, kind: str) -> Any:
        sign = 1
        value = node
        if isinstance(value, exp.Neg):
            sign, value = -1, value.this
        if isinstance(value, exp.Cast) and kind == TIME:
            value = value.this
        text = str(value.name) if isinstance(value, exp.Literal) else None
        if kind == "bool" and isinstance(value, exp.Boolean):
            return bool(value.this)
        if text is not None and value.is_string and kind == "string":
            return text
        if text is not None and not value.is_string and kind in ("int32", "int64"):
            try:
                return sign * int(text)
            except ValueError:
                pass
        if text is not None and value.is_string and kind == TIME:
            try:
                found = datetime.fromisoformat(text)
                return found if found.tzinfo else found.replace(tzinfo=UTC)
            except ValueError:
                pass
        raise self._refuse(f"expected {_NAMES[kind]}", node, _HINT)

    def _refuse(self, message: str, node: Any, remedy: str) -> UnsupportedSqlError:
        error = UnsupportedSqlError(message, remedy=remedy)
        error.at(*self._place(node))
        return error

    def _place(self, node: Any) -> tuple[Any, str]:
        found = span(node)
        return (self._script.position(*found) if found else None), self._script.text


_NAMES = {
    "string": "text in quotes",
    "int32": "an integer",
    "int64": "an integer",
    "bool": "true or false",
    TIME: "a time in quotes, such as '2026-01-15 10:00:00'",
    "binary": "a column of text: key and value instead of key_bytes and value_bytes",
    "map<string, binary>": "a column of text",
}


def _known(value: Callable[[Entry], Any], test: Callable[[Any], bool]) -> Condition:
    def ask(entry: Entry) -> bool | None:
        found = value(entry)
        return None if found is None else test(found)

    return ask


def _both(left: Condition, right: Condition) -> Condition:
    def ask(entry: Entry) -> bool | None:
        first = left(entry)
        if first is False:
            return False
        second = right(entry)
        return second if first or second is False else None

    return ask


def _either(left: Condition, right: Condition) -> Condition:
    def ask(entry: Entry) -> bool | None:
        first = left(entry)
        if first:
            return True
        second = right(entry)
        return True if second else (None if first is None or second is None else False)

    return ask


def _negated(inner: Condition) -> Condition:
    def ask(entry: Entry) -> bool | None:
        found = inner(entry)
        return None if found is None else not found

    return ask


def _pattern(like: str) -> re.Pattern[str]:
    parts = {"%": ".*", "_": "."}
    return re.compile("".join(parts.get(char, re.escape(char)) for char in like), re.DOTALL)
