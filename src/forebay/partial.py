"""What a source adds up of its rows before Spark does: planned in `sql/partial_plan.py`, done in `source/partials.py`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

import pyarrow as pa

from forebay import column_types as types

PartialFunction = Literal["count_all", "count", "sum", "min", "max"]


@dataclass(frozen=True)
class Part:
    """One column of the source's sums."""

    name: str
    function: PartialFunction
    column: str  # "" for count_all
    type: Literal["bigint", "double", "same"]  # "same" as the column that it is of

    def __str__(self) -> str:
        return f"{self.function}({self.column})" if self.column else "count(*)"


@dataclass(frozen=True)
class Partial:
    """`keys` are passed on as they are, of `panes` (column, microseconds) the newest time in the pane.

    A pane of 0 microseconds holds all times.
    """

    keys: tuple[str, ...]
    panes: tuple[tuple[str, int], ...]
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        by = [*self.keys, *(f"{name} in panes of {width / 1e6:g} s" for name, width in self.panes if width)]
        return ", ".join(map(str, self.parts)) + (f" by {', '.join(by)}" if by else "")

    def with_time(self, column: str) -> Partial:
        """With the newest time of that column, which a watermark needs."""
        if column in self.keys or column in dict(self.panes):
            return self
        return replace(self, panes=(*self.panes, (column, 0)))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Partial:
        found = json.loads(text)
        panes = tuple((name, width) for name, width in found["panes"])
        return Partial(tuple(found["keys"]), panes, tuple(Part(**part) for part in found["parts"]))

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        """The columns that the parts have."""
        own = {"bigint": types.BIGINT, "double": types.DOUBLE}
        return [
            pa.field(part.name, own[part.type] if part.type in own else schema.field(part.column).type)
            for part in self.parts
        ]
