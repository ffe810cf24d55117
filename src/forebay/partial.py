"""What a source adds up of its rows before Spark does: planned in `sql/partial.py`, done in `source/partials.py`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

from pyspark.sql.types import DataType, DoubleType, LongType, StructField, StructType

Function = Literal["count_all", "count", "sum", "min", "max"]


@dataclass(frozen=True)
class Part:
    """One column of the source's sums."""

    name: str
    function: Function
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

    def fields(self, schema: StructType) -> list[StructField]:
        """The columns that the parts have."""
        types: dict[str, DataType] = {"bigint": LongType(), "double": DoubleType()}
        return [
            StructField(part.name, types.get(part.type) or schema[part.column].dataType)
            for part in self.parts
        ]
