"""A condition on columns that can be asked without Spark: made in `sql/conditions.py`, asked in `source/filters.py`.

A source asks it before Spark sees a row, and a SELECT over a view (`answers/`) in Spark's place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

Value = str | int | float | bool | Decimal | date  # a datetime is a date


@dataclass(frozen=True)
class Condition:
    """`operator` is one of = <> < <= > >= (column, and a value or the `other` column), in (column, values),
    null (column), not (parts[0]), and, or (parts)."""

    operator: str
    column: str = ""
    values: tuple[Value, ...] = ()
    parts: tuple[Condition, ...] = ()
    other: str = ""

    def columns(self) -> Iterator[str]:
        yield from (name for name in (self.column, self.other) if name)
        for part in self.parts:
            yield from part.columns()

    def to_json(self) -> str:
        return json.dumps(self, default=lambda part: part.__dict__)

    @staticmethod
    def from_json(text: str) -> Condition:
        return _made(json.loads(text))


def _made(found: dict[str, Any]) -> Condition:
    return Condition(
        found["operator"],
        found["column"],
        tuple(found["values"]),
        tuple(map(_made, found["parts"])),
        found["other"],
    )
