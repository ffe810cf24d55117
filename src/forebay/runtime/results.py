"""What a statement gives back: a table, in whatever shape the caller likes best."""

from __future__ import annotations

import io
import shutil
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from forebay.tables import html_lines, html_table, text

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

SHOWN_ROWS = 50
WIDEST = 100_000  # columns of a line that does not wrap
HEAD_ROWS = 20  # as many as a person at a prompt or in a notebook wants to see without asking


@dataclass(frozen=True)
class Plain:
    """Rows of Python values: what SHOW and DESCRIBE answer, which need no Arrow to be printed."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def numeric(self) -> dict[str, bool]:
        return {
            name: any(_is_number(row[place]) for row in self.rows) for place, name in enumerate(self.columns)
        }

    def arrow(self) -> pa.Table:
        import pyarrow as pa

        arrays = [list(values) for values in zip(*self.rows, strict=True)] or [[] for _ in self.columns]
        kinds = [pa.string() if not values else None for values in arrays]
        made = [pa.array(values, kind) for values, kind in zip(arrays, kinds, strict=True)]
        return pa.table(made, names=list(self.columns))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


class Result:
    """The rows of a query, or of a SHOW or DESCRIBE. A query runs once, when its rows are first asked for.

        db.sql("SELECT * FROM bars").show()  # or .arrow() .pl() .df() .fetchall() .rows()
        for row in db.sql("SELECT symbol, volume FROM bars"):
            print(row.symbol, row.volume)

    Whatever asks for rows blocks until the query is done, and raises a `SelectFailedError` where Spark cannot work it
    out. `notes` are lines that go under the table; `done` says what a statement did that returns no rows.

    Inside: `frame` makes it a query of Spark's. `answer` works out so many rows, or all, without; it has None where they turn
    out to be Spark's.
    """

    def __init__(
        self,
        table: pa.Table | None = None,
        *,
        frame: Callable[[], DataFrame] | None = None,
        answer: Callable[[int | None], pa.Table | None] | None = None,
        plain: Plain | None = None,
        notes: Sequence[str] = (),
        done: str = "",
    ) -> None:
        self._table = table
        self._first: pa.Table | None = None
        self._frame = frame
        self._answer = answer
        self._plain = plain
        self.notes = tuple(notes)
        self.done = done

    @classmethod
    def of(cls, columns: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = ()) -> Result:
        """A result of rows that are there already."""
        return cls(plain=Plain(tuple(columns), [tuple(row) for row in rows]), notes=notes)

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table. Blocks until the query is done; the second call has them at once."""
        if self._table is None:
            if self._plain is not None:
                self._table = self._plain.arrow()
            elif self._frame is not None:
                self._table = self._run(self._frame, None)
            else:
                import pyarrow as pa

                self._table = pa.table({})
        return self._table

    def _run(self, frame: Callable[[], DataFrame], limit: int | None) -> pa.Table:
        found = self._answer(limit) if self._answer is not None else None
        if found is not None:
            return found
        from forebay.runtime.collect import collect

        return collect(frame if limit is None else lambda: frame().limit(limit))

    def spark(self) -> DataFrame:
        """The query as a Spark DataFrame that has not run yet. Starts Spark; TypeError where the statement is no query."""
        if self._frame is None:
            raise TypeError("this statement is not a query")
        return self._frame()

    def df(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame. Blocks until the query is done."""
        return self.arrow().to_pandas()  # type: ignore[no-any-return]

    def pl(self) -> pl.DataFrame:
        """All rows as a Polars DataFrame. Blocks until the query is done."""
        import polars

        found = polars.from_arrow(self.arrow())
        assert isinstance(found, polars.DataFrame)
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python values. Blocks until the query is done."""
        if self._plain is not None:
            return list(self._plain.rows)
        columns = [column.to_pylist() for column in self.arrow().columns]
        return list(zip(*columns, strict=True)) if columns else []

    def has_rows(self) -> bool:
        """Whether the statement was one that gives rows, be they none. Runs nothing."""
        return any(each is not None for each in (self._table, self._plain, self._frame))

    def plain_rows(self) -> Plain | None:
        """Columns and rows of a SHOW or DESCRIBE, which are there without Arrow; None of a query."""
        return self._plain

    def first(self, limit: int) -> pa.Table:
        """At most so many rows, as an Arrow table. A query runs for no more than these."""
        if self._table is None and self._plain is None and self._frame is not None:
            return self._run(self._frame, limit)
        return self.arrow().slice(0, limit)

    def rows(self) -> list[dict[str, Any]]:
        """All rows as dictionaries by column. Blocks until the query is done."""
        return self._head(None)

    def __len__(self) -> int:
        return int(self.arrow().num_rows) if self._plain is None else len(self._plain.rows)

    def _columns(self) -> dict[str, bool]:
        """The names of the columns, each with whether it holds numbers."""
        if self._plain is not None:
            return self._plain.numeric()
        if self._table is None and self._frame is None:
            return {}
        from pyarrow import types

        checks = (types.is_integer, types.is_floating, types.is_decimal)
        return {field.name: any(check(field.type) for check in checks) for field in self.arrow().schema}

    def _head(self, limit: int | None) -> list[dict[str, Any]]:
        if self._plain is not None:
            return [dict(zip(self._plain.columns, row, strict=True)) for row in self._plain.rows[:limit]]
        if self._table is None and self._frame is None:
            return []
        table = self.arrow()
        return (table if limit is None else table.slice(0, limit)).to_pylist()  # type: ignore[no-any-return]

    def show(self, limit: int = SHOWN_ROWS, console: Console | None = None) -> None:
        """Print the table, at most `limit` rows of it."""
        console = console or Console()
        if self.done:
            console.print(self.done, markup=False, highlight=False)
        if columns := self._columns():
            self._print(columns, limit, console)
            rows = len(self)
            hidden = rows - limit
            count = f"{rows} row" + ("" if rows == 1 else "s")
            console.print(
                f"({count}{f', {hidden} not shown' if hidden > 0 else ''})", style="dim", highlight=False
            )
        for note in self.notes:
            console.print(note, markup=False, highlight=False, soft_wrap=True)

    def _print(self, columns: Mapping[str, bool], limit: int, console: Console) -> None:
        """As a table where it fits; else a row below another for a person, and lines that do not wrap for a pipe."""
        grid = self._rich(columns, limit)
        width = Measurement.get(console, console.options.update(max_width=WIDEST), grid).maximum
        if width <= console.width:
            console.print(grid)
        elif console.is_terminal:
            for number, row in enumerate(self._head(limit), 1):
                console.print(f"── row {number} ──", style="dim", highlight=False)
                console.print(_upright(row))
        else:
            console.width = width
            console.print(grid)

    def _rich(self, columns: Mapping[str, bool], limit: int) -> Table:
        grid = Table(show_edge=False, pad_edge=False, header_style="bold")
        for name, numeric in columns.items():
            grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in self._head(limit):
            grid.add_row(*(text(value) for value in row.values()))
        return grid

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The rows as named tuples; a column whose name is no identifier has its place's, `_1`."""
        names = list(self._columns())
        row: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
        return map(row._make, self.fetchall())

    def head(self) -> Result:
        """The first rows, as a prompt or a notebook shows them. A query runs for no more than these, once.

        They are the whole result if there are no more; `arrow()` and the others then run nothing again.
        """
        if self._plain is not None or self._table is not None or self._frame is None:
            return self
        if self._first is None:
            self._first = self._run(self._frame, HEAD_ROWS + 1)
            if self._first.num_rows <= HEAD_ROWS:
                self._table = self._first
        return Result(self._first, notes=self.notes)

    def _more(self, head: Result) -> str:
        """What is not shown."""
        hidden = len(head) - HEAD_ROWS
        if hidden <= 0:
            return f"({len(head)} row{'' if len(head) == 1 else 's'})"
        # Of a query that ran for its head alone nobody knows how many more there are.
        return f"({HEAD_ROWS} rows shown of {'more' if head is not self else len(head)})"

    def _repr_html_(self) -> str:
        first = self.head()
        lines = [self.done] if self.done else []
        table = ""
        if columns := first._columns():
            table = html_table(list(columns), (row.values() for row in first._head(HEAD_ROWS)))
            lines.append(self._more(first))
        return table + html_lines((*lines, *self.notes))

    def __repr__(self) -> str:
        first = self.head()
        lines = [self.done] if self.done else []
        if columns := first._columns():
            width = shutil.get_terminal_size((120, 40)).columns
            console = Console(
                file=io.StringIO(), width=width, force_terminal=sys.stdout.isatty(), color_system=None
            )
            with console.capture() as captured:
                first._print(columns, HEAD_ROWS, console)
            lines = [*lines, *(line.rstrip() for line in captured.get().splitlines()), self._more(first)]
        return "\n".join((*lines, *self.notes))


def _upright(row: Mapping[str, Any]) -> Table:
    """A row with a column a line, for screens that are narrower than it."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="bold", justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in row.items():
        grid.add_row(name, Text(text(value)))
    return grid
