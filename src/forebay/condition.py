"""A condition on a source's columns that can be asked before Spark sees a row: made in `sql/conditions.py`,
asked in `source/filters.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Value = str | int | float | bool


@dataclass(frozen=True)
class Condition:
    """`operator` is one of = <> < <= > >= (column, value), in (column, values), null (column), not (parts[0]),
    and, or (parts)."""

    operator: str
    column: str = ""
    values: tuple[Value, ...] = ()
    parts: tuple[Condition, ...] = ()

    def columns(self) -> Iterator[str]:
        if self.column:
            yield self.column
        for part in self.parts:
            yield from part.columns()

    def to_json(self) -> str:
        return json.dumps(self, default=lambda part: part.__dict__)

    @staticmethod
    def from_json(text: str) -> Condition:
        return _made(json.loads(text))


def _made(found: dict[str, Any]) -> Condition:
    return Condition(
        found["operator"], found["column"], tuple(found["values"]), tuple(map(_made, found["parts"]))
    )
