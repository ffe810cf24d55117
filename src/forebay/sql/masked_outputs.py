"""Which columns of a view have values of masked columns in them, under whatever names.

Names are followed, and scopes are not: a name that stands for something masked anywhere in the query is taken for masked
everywhere in it. That may hide a column too many, and never shows one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from glob import escape
from typing import Any

from sqlglot import exp

from forebay.errors import ForebayError
from forebay.hiding import Mask
from forebay.sql.ast import EventWindow
from forebay.sql.select_outputs import outputs

Holds = Callable[[Sequence[str]], bool]
"""Whether the column or field at a path may have masked values inside: fields of a struct, entries of a map. The path may
begin with the name of a table."""

_EVERYTHING = Mask(("*",))
_BOUNDS = ("window", "session_window", "window_start", "window_end", "window_time")
_GENERATED = ("col", "key", "value", "pos")  # what Spark names the columns of a generator without an alias


class _Untraceable(Exception):
    """A name that cannot be followed: then nothing of the result is shown."""


def masked_outputs(query: Any, mask: Mask, holds: Holds) -> Mask:
    """What hides all of a view's rows that comes from what `mask` hides in its sources."""
    if not mask:
        return mask
    try:
        names = _MaskedNames(query, mask, holds)
        while names.spread():
            pass
    except (_Untraceable, ForebayError):
        return _EVERYTHING
    return Mask((*mask.patterns, *(escape(name) for name in sorted(names.masked))))


@dataclass
class _MaskedNames:
    query: Any
    mask: Mask
    holds: Holds
    masked: set[str] = field(default_factory=set)  # names given in the query, in lower case

    def spread(self) -> bool:
        """One pass over the query; whether a name was found that was not known to be masked."""
        before = len(self.masked)
        if self.query.find(exp.Pivot) is not None:
            raise _Untraceable
        for select in self.query.find_all(exp.Select):
            for name, expression in self._columns(select):
                if self._shows(expression, name):
                    if name is None:
                        raise _Untraceable
                    self._add(name)
        for union in self.query.find_all(exp.SetOperation):
            self._union(union)
        for lateral in self.query.find_all(exp.Lateral):
            if self._shows(lateral.this, None):
                alias = lateral.args.get("alias")
                self._add(*((each.name for each in alias.columns) if alias and alias.columns else _GENERATED))
        for alias in self.query.find_all(exp.TableAlias):
            # Columns get other names by their places, and which is at which place takes the tables' columns to know.
            if alias.columns and not isinstance(alias.parent, exp.Lateral):
                self._add(*(each.name for each in alias.columns))
        for window in self.query.find_all(EventWindow):
            if self._shows(window, None):
                self._add(*_BOUNDS)
        return len(self.masked) > before

    def _add(self, *names: str) -> None:
        self.masked |= {name.casefold() for name in names}

    def _columns(self, select: Any) -> Iterator[tuple[str | None, Any]]:
        """The names and expressions of a SELECT; None is the name of what has none. Of a `*` names stay as they are."""
        if select is _first(self.query):
            found = [(each.name, each.expression) for each in outputs(self.query, select)]
        else:
            found = []
            for each in select.expressions:
                if isinstance(each, exp.Aliases):
                    found += [(alias.name, each.this) for alias in each.expressions]
                else:
                    found.append((each.alias_or_name or None, each.unalias()))
        for name, expression in found:
            if not _is_star(expression):
                yield name, expression
            elif isinstance(expression, exp.Column) and self._is_masked_struct(expression.table):
                raise _Untraceable

    def _is_masked_struct(self, name: str) -> bool:
        return self._is_struct(name) and (self._is_masked([name]) or self.holds([name]))

    def _is_struct(self, name: str) -> bool:
        """Whether `name.*` are the fields of a column, and not the columns of a table."""
        tables = {table.alias_or_name.casefold() for table in self.query.find_all(exp.Table, exp.Subquery)}
        return name.casefold() not in tables

    def _shows(self, expression: Any, name: str | None) -> bool:
        """Whether a masked value may be in what an expression gives, where the mask does not find it by its name."""
        if isinstance(expression, exp.Column) and name is not None and not _is_star(expression):
            column = expression.name
            if column.casefold() == name.casefold() and not self._is_field(expression):
                return self._is_masked([column])  # what is inside keeps its place below this name
        for node in expression.find_all(exp.Column, exp.Dot, exp.Star):
            if isinstance(node, exp.Star):
                if not isinstance(node.parent, exp.Count):
                    return True
            else:
                path = [part.name for part in node.parts if hasattr(part, "name")]
                if self._is_masked(path) or self.holds(path):
                    return True
        return False

    def _is_field(self, column: Any) -> bool:
        return bool(column.table) and self._is_struct(column.table)

    def _is_masked(self, path: Sequence[str]) -> bool:
        return self.mask.hides(path) or any(each.casefold() in self.masked for each in path)

    def _union(self, union: Any) -> None:
        """The first SELECT names the columns of all, by their places."""
        first, others = _first(union), _parts(union)
        if any(_is_star(each) for part in others for each in part.expressions):
            raise _Untraceable
        names = [name for name, _ in self._columns(first)]
        for part in others:
            for place, (name, expression) in enumerate(self._columns(part)):
                if self._shows(expression, name) or (name is not None and self._is_masked([name])):
                    if place >= len(names) or (mine := names[place]) is None:
                        raise _Untraceable
                    self._add(mine)


def _is_star(expression: Any) -> bool:
    return isinstance(expression, exp.Star) or (
        isinstance(expression, exp.Column) and isinstance(expression.this, exp.Star)
    )


def _first(query: Any) -> Any:
    """The SELECT whose names are those of the result."""
    while not isinstance(query, exp.Select):
        query = query.this
    return query


def _parts(query: Any) -> list[Any]:
    """All SELECTs that a set operation puts one below the other."""
    if isinstance(query, exp.Subquery):
        return _parts(query.this)
    if isinstance(query, exp.SetOperation):
        return _parts(query.left) + _parts(query.right)
    return [query]
