"""What a task does for one view with the rows that it decoded: files of the rows that the view selects, or their groups."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from forebay.connectors.contract import RowPlaces
from forebay.object_path import TablePath, table_path
from forebay.program import Grouping, Selecting, output_schema, program_from_json
from forebay.source.expressions import evaluate, matching
from forebay.source.grouping import Groups
from forebay.source.key_marks import ClosedForRows
from forebay.source.late_rows import LateRows, LateTarget
from forebay.source.parquet_file import ParquetFile
from forebay.source.serving import ServedView
from forebay.source.shared_folder import check_seen

FILE, GROUPS, LATE, LATE_FILE = "file", "groups", "late", "late_file"
PART_ROWS = "_part_rows"  # of a view with windows: how many rows a group has, for those that come too late


class Outlet(Protocol):
    """Of one view, in one task."""

    def see(self, rows: pa.RecordBatch, closed_ms: int | None) -> None:
        """Good rows of the source, all its columns. For these rows, windows that ended by `closed_ms` are closed."""
        ...

    def answers(self) -> Iterator[tuple[str, bytes]]:
        """When all rows were seen: kind and body of what the driver gets, once `persist` has returned."""
        ...

    def persist(self) -> None:
        """Force to the disk what the answers name. Takes no more than waiting."""
        ...

    def discard(self) -> None:
        """Nobody gets an answer: what was written goes."""
        ...


def outlet_of(
    view: ServedView,
    event_time: str | None,
    columns: Sequence[str] = (),
    places: RowPlaces | None = None,
    of_key: ClosedForRows | None = None,
    watermark_ms: int | None = None,
) -> Outlet:
    """`columns` are the source's own, `places` those behind them that tell which record a row is of, where they are there.

    `watermark_ms` is the source's: windows that are given out once close by it, whatever the mark of a row's partition.
    """
    program = program_from_json(view.program)
    if isinstance(program, Selecting):
        check_seen(view.table)
        return RowOutlet(program, table_path(view.table))
    target = LateTarget.from_json(view.late)
    late = None
    if closes_by(program, event_time) and (target.kept or of_key is not None):
        late = LateRows(view.name, program, target, columns, places)
    once = Once(watermark_ms, target.closed_us) if target.once else None
    return GroupOutlet(program, event_time, target.allowed_ms, late, of_key, once)


class Once(NamedTuple):
    """Of a view that gives each window out once: what is closed for all rows."""

    watermark_ms: int | None
    closed_us: int | None

    def judged_ms(self, allowed_ms: int) -> int | None:
        by_watermark = None if self.watermark_ms is None else self.watermark_ms - allowed_ms
        before = None if self.closed_us is None else self.closed_us // 1000
        return max((each for each in (by_watermark, before) if each is not None), default=None)


class RowOutlet:
    """Writes the rows that a view selects into its table's folder. The table knows nothing of the file yet."""

    def __init__(self, program: Selecting, table: TablePath) -> None:
        self._program = program
        self._schema = output_schema(program)
        self._file = ParquetFile(table, "part")

    def see(self, rows: pa.RecordBatch, closed_ms: int | None) -> None:
        if self._program.where is not None:
            rows = matching(rows, self._program.where)
        if rows.num_rows:
            columns = [evaluate(rows, expression) for _, expression in self._program.outputs]
            self._file.add(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def answers(self) -> Iterator[tuple[str, bytes]]:
        written = self._file.finish()
        if written is not None:
            yield FILE, json.dumps(written).encode()

    def persist(self) -> None:
        self._file.persist()

    def discard(self) -> None:
        self._file.discard()


class GroupOutlet:
    """Adds rows up; what is sent are groups. Rows of a window that is closed for their partition are late.

    Where the view does not want them, they are counted by the groups that they would have been in.
    """

    def __init__(
        self,
        program: Grouping,
        event_time: str | None,
        allowed_ms: int = 0,
        late: LateRows | None = None,
        of_key: ClosedForRows | None = None,
        once: Once | None = None,
    ) -> None:
        """`of_key` says of each row what is closed for it, where keys have watermarks of their own."""
        self._program = program
        self._of_key = of_key
        self._once = once
        self._allowed_ms = allowed_ms
        self.late = late
        self._closes = closes_by(program, event_time)
        self._groups: dict[int | None, Groups] = {}  # by what is closed for their rows

    def see(self, rows: pa.RecordBatch, closed_ms: int | None) -> None:
        if self._program.where is not None:
            rows = matching(rows, self._program.where)
        if rows.num_rows:
            judged = None
            if self._closes and self._of_key is None:
                if self._once is not None:
                    judged = self._once.judged_ms(self._allowed_ms)
                elif closed_ms is not None:
                    judged = closed_ms - self._allowed_ms
            if self.late is not None:
                rows = self._taken_out(self.late, rows, judged)
            if judged not in self._groups:
                self._groups[judged] = Groups(self._program)
            self._groups[judged].add(rows)

    def answers(self) -> Iterator[tuple[str, bytes]]:
        late = 0 if self.late is None else self.late.count
        for closed_ms, groups in self._groups.items():
            for table in groups.finished():
                table, dropped = self._in_time(table, closed_ms)
                late += (
                    dropped if self.late is None else 0
                )  # of HOP: rows that are in a later window, which is open
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
                yield GROUPS, sink.getvalue().to_pybytes()
        written = None if self.late is None else self.late.close()
        if written is not None:
            yield LATE_FILE, json.dumps(written).encode()
        if late:
            yield LATE, str(late).encode()

    def persist(self) -> None:
        """Nothing: groups are answered, and a file of late rows is on the disk already."""

    def discard(self) -> None:
        if self.late is not None:
            self.late.discard()

    def _taken_out(self, late: LateRows, rows: pa.RecordBatch, judged: int | None) -> pa.RecordBatch:
        if self._of_key is None or not self._closes:
            return late.taken_out(rows, None if judged is None else judged * 1000)
        return late.taken_out(rows, pc.subtract(self._of_key(rows), self._allowed_ms * 1000))

    def _in_time(self, groups: pa.Table, closed_ms: int | None) -> tuple[pa.Table, int]:
        """Groups of windows that are open, and how many rows the others have."""
        window = self._program.window
        if window is None or closed_ms is None:
            return groups, 0
        begun = groups.column(window.key).cast(pa.int64())
        is_late = pc.fill_null(pc.less_equal(begun, closed_ms * 1000 - window.size_us), False)
        late = groups.filter(is_late)
        if not late.num_rows:
            return groups, 0
        return groups.filter(pc.invert(is_late)), pc.sum(late.column(PART_ROWS)).as_py()


def closes_by(program: Grouping, event_time: str | None) -> bool:
    """Whether its windows close by the source's watermark: they are of the column that has it."""
    window = program.window
    return window is not None and window.time.operator == "column" and window.time.value == event_time
