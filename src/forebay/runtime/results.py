"""What a statement gives back: a table, in whatever shape the caller likes best."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame

SHOWN_ROWS = 50


class Result:
    """The rows of a query, or of a SHOW or DESCRIBE. A query runs once, when its rows are first asked for.

    `notes` are lines that go under the table; `done` says what a statement did that returns no rows.
    """

    def __init__(
        self,
        table: pa.Table | None = None,
        *,
        frame: DataFrame | None = None,
        notes: Sequence[str] = (),
        done: str = "",
    ) -> None:
        self._table = table
        self._frame = frame
        self.notes = tuple(notes)
        self.done = done

    @classmethod
    def of(cls, columns: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = ()) -> Result:
        arrays = [list(values) for values in zip(*rows, strict=True)] if rows else [[] for _ in columns]
        kinds = [pa.string() if not values else None for values in arrays]
        made = [pa.array(values, kind) for values, kind in zip(arrays, kinds, strict=True)]
        return cls(pa.table(made, names=list(columns)), notes=notes)

    def arrow(self) -> pa.Table:
        if self._table is None:
            self._table = self._frame.toArrow() if self._frame is not None else pa.table({})
        return self._table

    def spark(self) -> DataFrame:
        """The query as a Spark DataFrame that has not run yet."""
        if self._frame is None:
            raise TypeError("this statement is not a query")
        return self._frame

    def df(self) -> pd.DataFrame:
        return self.arrow().to_pandas()  # type: ignore[no-any-return]

    def pl(self) -> pl.DataFrame:
        import polars

        found = polars.from_arrow(self.arrow())
        assert isinstance(found, polars.DataFrame)
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        table = self.arrow()
        columns = [column.to_pylist() for column in table.columns]
        return list(zip(*columns, strict=True)) if columns else []

    def rows(self) -> list[dict[str, Any]]:
        return self.arrow().to_pylist()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return int(self.arrow().num_rows)

    def show(self, limit: int = SHOWN_ROWS, console: Console | None = None) -> None:
        """Print the table, at most `limit` rows of it."""
        console = console or Console()
        if self.done:
            console.print(self.done, markup=False, highlight=False)
        table = self.arrow()
        if table.num_columns:
            console.print(self._rich(table, limit))
            hidden = table.num_rows - limit
            count = f"{table.num_rows} row" + ("" if table.num_rows == 1 else "s")
            console.print(
                f"({count}{f', {hidden} not shown' if hidden > 0 else ''})", style="dim", highlight=False
            )
        for note in self.notes:
            console.print(note, markup=False, highlight=False)

    def _rich(self, table: pa.Table, limit: int) -> Table:
        grid = Table(show_edge=False, pad_edge=False, header_style="bold")
        for field in table.schema:
            numeric = (
                pa.types.is_integer(field.type)
                or pa.types.is_floating(field.type)
                or pa.types.is_decimal(field.type)
            )
            grid.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
        for row in table.slice(0, limit).to_pylist():
            grid.add_row(*(text(value) for value in row.values()))
        return grid

    def _repr_html_(self) -> str:
        table = self.arrow()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in table.column_names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text(value))}</td>" for value in row.values()) + "</tr>"
            for row in table.slice(0, SHOWN_ROWS).to_pylist()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def __repr__(self) -> str:
        return f"Result({self.done!r})" if self.done else f"Result({self.arrow().num_rows} rows)"


def text(value: Any) -> str:
    """A value as a person reads it in a table."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Mapping | list):
        return json.dumps(value, default=str)
    if hasattr(value, "isoformat"):
        return str(value.isoformat(sep=" ") if hasattr(value, "hour") else value.isoformat()).replace(
            "+00:00", ""
        )
    return str(value)
