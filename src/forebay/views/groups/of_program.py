"""A view's groups, made of its program: in the process that runs the view, and in any that only reads it."""

from __future__ import annotations

import pyarrow as pa

from forebay.program import Grouping, output_schema
from forebay.source.expressions import evaluate
from forebay.views.groups.group_table import GroupTable
from forebay.views.groups.layout import GroupLayout, PartColumn
from forebay.views.paths import ViewPaths
from forebay.views.table import ViewTable


def group_table(paths: ViewPaths, program: Grouping, keys: tuple[str, ...], public: ViewTable) -> GroupTable:
    """`keys` are those of the view's columns that tell its rows apart."""
    layout = GroupLayout(
        pa.schema([pa.field(name, key.type) for name, key in program.keys]),
        tuple(
            PartColumn(part.name, part.function if part.function in ("min", "max") else "sum", part.type)
            for part in program.parts
        ),
        program.window.key if program.window else None,
    )
    schema = output_schema(program)

    def finish(rows: pa.Table) -> pa.Table:
        [whole] = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        columns = [evaluate(whole, expression) for _, expression in program.outputs]
        return pa.Table.from_arrays(columns, schema=schema)

    return GroupTable(paths.groups, layout, finish, public, keys)
