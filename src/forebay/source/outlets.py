"""What a task does for one view with the rows that it decoded: files of the rows that the view selects, or their groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from forebay.program import Grouping, Selecting, output_schema, program_from_json
from forebay.source.expressions import evaluate, matching
from forebay.source.grouping import Groups
from forebay.source.parquet_file import ParquetFile
from forebay.source.serving import ServedView

FILE, GROUPS = "file", "groups"


class Outlet(Protocol):
    """Of one view, in one task."""

    def see(self, rows: pa.RecordBatch) -> None:
        """Good rows of the source, all its columns."""
        ...

    def answers(self) -> Iterator[tuple[str, bytes]]:
        """When all rows were seen: kind and body of what the driver gets."""
        ...


def outlet_of(view: ServedView) -> Outlet:
    program = program_from_json(view.program)
    if isinstance(program, Selecting):
        return RowOutlet(program, Path(view.table))
    return GroupOutlet(program)


class RowOutlet:
    """Writes the rows that a view selects into its table's folder. The table knows nothing of the file yet."""

    def __init__(self, program: Selecting, table: Path) -> None:
        self._program = program
        self._schema = output_schema(program)
        self._file = ParquetFile(table, "part")

    def see(self, rows: pa.RecordBatch) -> None:
        if self._program.where is not None:
            rows = matching(rows, self._program.where)
        if rows.num_rows:
            columns = [evaluate(rows, expression) for _, expression in self._program.outputs]
            self._file.add(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def answers(self) -> Iterator[tuple[str, bytes]]:
        written = self._file.close()
        if written is not None:
            yield FILE, json.dumps(written).encode()


class GroupOutlet:
    """Adds rows up; what is sent are groups."""

    def __init__(self, program: Grouping) -> None:
        self._program = program
        self._groups = Groups(program)

    def see(self, rows: pa.RecordBatch) -> None:
        if self._program.where is not None:
            rows = matching(rows, self._program.where)
        if rows.num_rows:
            self._groups.add(rows)

    def answers(self) -> Iterator[tuple[str, bytes]]:
        for table in self._groups.finished():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            yield GROUPS, sink.getvalue().to_pybytes()
