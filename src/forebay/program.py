"""What a task does for one view with the rows that it has decoded: planned in `sql/view_program.py`.

A view that selects has rows of its own; one that groups has parts, which the driver merges: counts and sums are added, of
minima the smallest is kept, of maxima the largest. NaN is the largest number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

from forebay.expression import Expression, plain_type, type_of_plain

GroupFunction = Literal["count", "count_all", "sum", "min", "max"]
NamedExpressions = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Selecting:
    """The rows for which `where` is true, each with the `outputs`."""

    where: Expression | None
    outputs: NamedExpressions

    def columns(self) -> set[str]:
        """The source's columns that it looks at."""
        return set(_columns(self.where, *(found for _, found in self.outputs)))

    def to_json(self) -> str:
        return json.dumps({"where": _plain(self.where), "outputs": _plain_named(self.outputs)})


@dataclass(frozen=True)
class GroupPart:
    """A column that merges. A BIGINT sum that does not fit is an error, a sum or an end of no values is NULL."""

    name: str
    function: GroupFunction
    argument: Expression | None  # None for count_all
    type: pa.DataType


@dataclass(frozen=True)
class GroupWindow:
    """Which key is the window's start, whose time it is in, how long it is, and how far it is to the next one.

    The key is the start of the newest window that a row is in. Of HOP it is in those before it, too, that are not over yet.
    """

    key: str
    time: Expression
    size_us: int
    slide_us: int


@dataclass(frozen=True)
class Grouping:
    """Groups of the rows for which `where` is true, by `keys`; without keys all rows are one group, also if there are none.

    `keys` and the parts' arguments are over the source's columns, `outputs` over columns that are named as keys and
    parts are. A row whose time is NULL is in no window: `where` leaves it out. Of the groups those are shown for which
    `having` is true, which is over the same columns as `outputs`. Of a program that has it, none of these fails.
    """

    where: Expression | None
    keys: NamedExpressions
    parts: tuple[GroupPart, ...]
    outputs: NamedExpressions
    window: GroupWindow | None = None
    having: Expression | None = None

    def columns(self) -> set[str]:
        """The source's columns that it looks at."""
        arguments = (part.argument for part in self.parts)
        return set(_columns(self.where, *(found for _, found in self.keys), *arguments))

    def merged_schema(self) -> pa.Schema:
        """Of keys and parts: what a task sends, and what is merged."""
        keys = [pa.field(name, found.type) for name, found in self.keys]
        return pa.schema([*keys, *(pa.field(part.name, part.type) for part in self.parts)])

    def to_json(self) -> str:
        parts = [
            [part.name, part.function, _plain(part.argument), plain_type(part.type)] for part in self.parts
        ]
        window = self.window and [
            self.window.key, self.window.time.as_plain(), self.window.size_us, self.window.slide_us,
        ]  # fmt: skip
        return json.dumps({
            "where": _plain(self.where), "keys": _plain_named(self.keys), "parts": parts,
            "outputs": _plain_named(self.outputs), "window": window, "having": _plain(self.having),
        })  # fmt: skip


Program = Selecting | Grouping


@lru_cache(maxsize=256)
def program_from_json(text: str) -> Program:
    """What `to_json` made. Tasks ask for the same ones again and again."""
    found = json.loads(text)
    where, outputs = _of_plain(found["where"]), _named_of_plain(found["outputs"])
    if "keys" not in found:
        return Selecting(where, outputs)
    parts = tuple(
        GroupPart(name, function, _of_plain(argument), type_of_plain(kind))
        for name, function, argument, kind in found["parts"]
    )
    window = None
    if found["window"]:
        key, time, size_us, *slide_us = found["window"]  # before there was HOP, it had no slide
        window = GroupWindow(key, Expression.of_plain(time), size_us, *(slide_us or [size_us]))
    having = _of_plain(found.get("having"))  # older ones have none
    return Grouping(where, _named_of_plain(found["keys"]), parts, outputs, window, having)


def output_schema(program: Program) -> pa.Schema:
    """The columns of the view, as Spark has them; each may be NULL, as in the view's table."""
    return pa.schema([pa.field(name, found.type) for name, found in program.outputs])


def _columns(*found: Expression | None) -> Iterator[str]:
    for each in found:
        if each is not None:
            yield from each.columns()


def _plain(found: Expression | None) -> dict[str, Any] | None:
    return None if found is None else found.as_plain()


def _of_plain(plain: dict[str, Any] | None) -> Expression | None:
    return None if plain is None else Expression.of_plain(plain)


def _plain_named(named: NamedExpressions) -> list[list[Any]]:
    return [[name, found.as_plain()] for name, found in named]


def _named_of_plain(plain: list[list[Any]]) -> NamedExpressions:
    return tuple((name, Expression.of_plain(found)) for name, found in plain)
