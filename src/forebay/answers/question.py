"""What a SELECT asks, in steps: which rows, which groups and totals, which columns, in which order, how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from forebay.expression import Expression


class NeedsSpark(Exception):
    """This query is for Spark to answer; the message names what in it, as EXPLAIN shows it."""


AnswerFunction = Literal["count", "min", "max", "sum", "avg"]


@dataclass(frozen=True)
class Total:
    """An aggregate. `column` is "" in count(*)."""

    function: AnswerFunction
    column: str

    @property
    def name(self) -> str:
        """The column that it is in, once it is known. No column of a table is named like that."""
        return f"{self.function}({self.column or '*'})"


@dataclass(frozen=True)
class AnswerGrouping:
    """GROUP BY and HAVING. Without `keys` all rows are one group, also if there are none."""

    keys: tuple[str, ...]
    totals: tuple[Total, ...]
    having: Expression | None


@dataclass(frozen=True)
class SortKey:
    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class AnswerColumn:
    """A column that comes out; `field` is what the reader sees of it."""

    column: str
    field: pa.Field


@dataclass(frozen=True)
class Question:
    """Columns go by their names in the table, totals by `Total.name`."""

    columns: tuple[str, ...]
    where: Expression | None
    grouping: AnswerGrouping | None
    outputs: tuple[AnswerColumn, ...]
    distinct: bool
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([output.field for output in self.outputs])
