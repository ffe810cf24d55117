"""A view's groups, made of its program: in the process that runs the view, and in any that only reads it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from forebay.expression import Expression
from forebay.program import Grouping, output_schema
from forebay.source.expressions import evaluate
from forebay.views.groups.closing import ClosingTable
from forebay.views.groups.columns import Array
from forebay.views.groups.group_table import KEEP_S, GroupTable
from forebay.views.groups.layout import GroupLayout, PartColumn
from forebay.views.groups.publishing import Finish, Shown
from forebay.views.paths import ViewPaths
from forebay.views.table import ViewTable

LEAST_S = 60.0  # a SELECT of another process may still read what was replaced


def group_table(
    paths: ViewPaths, program: Grouping, keys: tuple[str, ...], public: ViewTable, retention_s: float = 0.0
) -> GroupTable:
    """`keys` are those of the view's columns that tell its rows apart; who only reads need not know the retention."""
    window = program.window.key if program.window else None
    shown = None if program.having is None else _shown(program.having)
    return GroupTable(
        paths.groups, _layout(program, window), _finish(program), public, keys,
        keep_s=min(KEEP_S, max(LEAST_S, retention_s)) if retention_s else KEEP_S, retention_s=retention_s, shown=shown,
    )  # fmt: skip


def closing_table(
    paths: ViewPaths, program: Grouping, public: ViewTable, key: str | None, rows_part: str
) -> ClosingTable:
    """Of a view that gives a group out when its window closes. `key` is the column that has watermarks of its own."""
    window = program.window
    assert window is not None
    of_key = None if key is None else key_of(program, key)
    return ClosingTable(
        paths.groups, _layout(program, None), _finish(program), public,
        window=window.key, size_us=window.size_us, key=of_key, rows_part=rows_part,
    )  # fmt: skip


def key_of(program: Grouping, column: str) -> str | None:
    """The key of the groups that is this column of the source; None where they are not grouped by it."""
    found = (name for name, key in program.keys if key.operator == "column" and key.value == column)
    return next(found, None)


def _layout(program: Grouping, window: str | None) -> GroupLayout:
    return GroupLayout(
        pa.schema([pa.field(name, key.type) for name, key in program.keys]),
        tuple(
            PartColumn(part.name, part.function if part.function in ("min", "max") else "sum", part.type)
            for part in program.parts
        ),
        window,
    )


def _finish(program: Grouping) -> Finish:
    schema = output_schema(program)

    def finish(rows: pa.Table) -> pa.Table:
        whole = _one_batch(rows)
        columns = [evaluate(whole, expression) for _, expression in program.outputs]
        return pa.Table.from_arrays(columns, schema=schema)

    return finish


def _shown(having: Expression) -> Shown:
    def shown(rows: pa.Table) -> Array:
        flags = evaluate(_one_batch(rows), having).fill_null(False)
        return np.asarray(flags.to_numpy(zero_copy_only=False), np.bool_)

    return shown


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    [whole] = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    return whole
