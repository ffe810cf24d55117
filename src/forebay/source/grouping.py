"""Adds up a task's rows for one view: what is sent to the driver are groups with parts that merge.

Arrow adds up. Where its answer is not Spark's, it is asked differently: its integers wrap silently, and its NaN is not the
largest number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forebay.errors import EvaluationError
from forebay.program import Grouping, GroupPart, GroupWindow
from forebay.source.expressions import evaluate

MERGE_ROWS = 262_144  # groups of several looks at rows that are held before they are merged
_SAFE = 2**62  # as far as a sum of BIGINT may get here
_ALL, _NAN = "_forebay_all", "_forebay_nan_"
_WIDE = pa.decimal128(38, 0)


class Groups:
    """Of one view, in one task."""

    def __init__(self, program: Grouping) -> None:
        self._program = program
        self._keys = [name for name, _ in program.keys]
        self._held: list[pa.Table] = []
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows that the view's WHERE has let through."""
        columns: dict[str, Any] = {name: evaluate(rows, key) for name, key in self._program.keys}
        for part in self._program.parts:
            if part.argument is not None:
                columns[part.name] = evaluate(rows, part.argument)
        if not columns:
            columns[_ALL] = pa.nulls(rows.num_rows, pa.bool_())
        table = pa.table(columns)
        groups = self._grouped(table, rows.num_rows, merging=False)
        self._hold(groups)
        window = self._program.window
        if window is None:
            return
        whole, rest = divmod(window.size_us, window.slide_us)
        for back in range(1, whole):  # rows that share the newest window share these
            self._hold(_earlier(groups, window, back))
        if rest and whole:  # of the one before them, only rows that came early enough
            since = pc.subtract(_us(evaluate(rows, window.time)), _us(columns[window.key]))
            early = table.filter(pc.less(since, rest))
            found = self._grouped(early, early.num_rows, merging=False)
            self._hold(_earlier(found, window, whole))

    def finished(self) -> Iterator[pa.Table]:
        """The groups; nothing where there were no rows."""
        if len(self._held) > 1:
            self._merge()
        yield from self._held

    def _hold(self, groups: pa.Table) -> None:
        self._held.append(groups)
        self._rows += groups.num_rows
        if self._rows > MERGE_ROWS and len(self._held) > 1:
            self._merge()

    def _merge(self) -> None:
        whole = pa.concat_tables(self._held)
        self._held = [self._grouped(whole, whole.num_rows, merging=True)]
        # What does not get smaller by merging is sent on as it is, and merged once, at the end.
        self._rows = 0

    def _grouped(self, table: pa.Table, rows: int, *, merging: bool) -> pa.Table:
        by = self._keys
        if not by:  # Arrow groups by something, or not at all
            table = (
                table.append_column(_ALL, pa.nulls(rows, pa.bool_()))
                if _ALL not in table.column_names
                else table
            )
            by = [_ALL]
        asked: list[tuple[Any, str]] = []
        answers: dict[str, str] = {}
        for part in self._program.parts:
            function = _merging(part) if merging else part.function
            if function == "count_all":
                if "count_all" not in answers.values():
                    asked.append(([], "count_all"))
                answers[part.name] = "count_all"
                continue
            table = _exact(table, part, function)
            asked.append((part.name, function))
            answers[part.name] = f"{part.name}_{function}"
            if _NAN + part.name in table.column_names:
                asked.append((_NAN + part.name, "max"))
        found = table.group_by(by, use_threads=False).aggregate(asked)
        schema = self._program.merged_schema()
        columns = [found.column(name) for name in self._keys]
        columns += [_whole(found, part, answers[part.name]) for part in self._program.parts]
        return pa.table(columns, schema=schema)


def _us(times: Any) -> Any:
    return times.cast(pa.int64())


def _earlier(groups: pa.Table, window: GroupWindow, back: int) -> pa.Table:
    """The groups in the window that begins so many slides before."""
    starts = groups.column(window.key)
    earlier = pc.subtract(_us(starts), back * window.slide_us).cast(starts.type)
    return groups.set_column(groups.schema.get_field_index(window.key), window.key, earlier)


def _merging(part: GroupPart) -> str:
    return "sum" if part.function in ("count", "count_all") else part.function


def _exact(table: pa.Table, part: GroupPart, function: str) -> pa.Table:
    """The table with this part's column as Arrow adds it up rightly."""
    column = table.column(part.name)
    place = table.schema.get_field_index(part.name)
    if function == "sum" and pa.types.is_integer(column.type):
        ends = pc.min_max(column)
        low, high = ends["min"].as_py() or 0, ends["max"].as_py() or 0
        if max(-low, high) * len(column) >= _SAFE:
            return table.set_column(place, part.name, column.cast(_WIDE))
    if function in ("min", "max") and pa.types.is_floating(column.type):
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            numbers = pc.if_else(nan, pa.scalar(None, column.type), column)
            table = table.set_column(place, part.name, numbers)
            return table.append_column(_NAN + part.name, nan)
    return table


def _whole(found: pa.Table, part: GroupPart, answer: str) -> Any:
    """A part's answer as the part's type."""
    column = found.column(answer)
    nan = f"{_NAN}{part.name}_max"
    if nan in found.column_names:
        is_nan = pc.fill_null(found.column(nan), False)
        if part.function == "min":
            is_nan = pc.and_(is_nan, column.is_null())
        column = pc.if_else(is_nan, pa.scalar(float("nan"), column.type), column)
    try:
        return column.cast(part.type)
    except pa.ArrowInvalid:
        raise EvaluationError(f"overflow: a sum is beyond {part.type}: {part.argument}") from None
