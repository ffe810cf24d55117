"""Rows of windows that are closed: which they are, and where a view wants them.

A task judges: it has each row, and the marks that its batch was planned with. So a row is in a group or among the late ones,
never in both, also when the batch is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from forebay.connectors.contract import RowPlaces
from forebay.connectors.event_time import micros, time_text
from forebay.object_path import table_path
from forebay.program import Grouping
from forebay.source.expressions import evaluate
from forebay.source.parquet_file import ParquetFile, WrittenFile
from forebay.source.shared_folder import check_seen


@dataclass(frozen=True)
class LateTarget:
    """For how long windows stay open beyond the watermark, and where rows go that are later than that."""

    allowed_ms: int = 0
    table: str | None = None  # the folder of the table that takes them
    letters: bool = False  # they become dead letters
    once: bool = False  # a window is given out once, when it closes: then also for partitions that are behind
    closed_us: int | None = None  # with `once`: what was given out before this read served the view

    @property
    def kept(self) -> bool:
        """Whether late rows go somewhere; else they are only counted."""
        return self.letters or self.table is not None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> LateTarget:
        return LateTarget(**json.loads(text)) if text else LateTarget()


class LateRecord(NamedTuple):
    """Where the record of a late row is, and why it is late."""

    partition: int
    offset: int
    reason: str


class LateRows:
    """Of one view, in one task. `columns` are those of the source, `places` those that tell which record a row is of."""

    def __init__(
        self,
        view: str,
        program: Grouping,
        target: LateTarget,
        columns: Sequence[str],
        places: RowPlaces | None,
    ) -> None:
        assert program.window is not None
        self._view = view
        self._window = program.window
        self._start = dict(program.keys)[program.window.key]
        self._target = target
        self._columns = list(columns)
        self._places = places
        if target.table is not None:
            check_seen(target.table)
        self._file = None if target.table is None else ParquetFile(table_path(target.table), "late")
        self.count = 0
        self.records: list[LateRecord] = []

    def taken_out(self, rows: pa.RecordBatch, closed_us: pa.Array | int | None) -> pa.RecordBatch:
        """The rows that are in time; the others are kept. Windows that ended by `closed_us` are closed, of all or of each."""
        if closed_us is None:
            return rows
        mask = self._late(rows, closed_us)
        if mask is None:
            return rows
        late = rows.filter(mask)
        self.count += late.num_rows
        if self._file is not None:
            self._file.add(
                pa.RecordBatch.from_arrays([late.column(c) for c in self._columns], names=self._columns)
            )
        if self._target.letters:
            ends = closed_us if isinstance(closed_us, int) else closed_us.filter(mask)
            self.records += self._records(late, ends)
        return rows.filter(pc.invert(mask))

    def _late(self, rows: pa.RecordBatch, closed_us: pa.Array | int) -> pa.Array | None:
        times = micros(evaluate(rows, self._window.time))
        # A window ends after its rows: where the oldest row is not before the bound, no window is.
        if not pc.any(pc.less(times, closed_us)).as_py():
            return None
        ends = pc.add(micros(evaluate(rows, self._start)), self._window.size_us)
        mask = pc.fill_null(pc.less_equal(ends, closed_us), False)
        return mask if pc.any(mask).as_py() else None

    def _records(self, late: pa.RecordBatch, closed_us: pa.Array | int) -> list[LateRecord]:
        assert self._places is not None
        times = micros(evaluate(late, self._window.time)).to_pylist()
        closed = [closed_us] * late.num_rows if isinstance(closed_us, int) else closed_us.to_pylist()
        where = zip(
            late.column(self._places.partition).to_pylist(),
            late.column(self._places.offset).to_pylist(),
            strict=True,
        )
        return [
            LateRecord(
                partition,
                offset,
                f"event time {time_text(at)} is late for view '{self._view}': its window is over, and closed since "
                f"the watermark has come to {time_text(until + self._target.allowed_ms * 1000)}"
                + (
                    f" ({self._target.allowed_ms} ms of lateness are allowed)"
                    if self._target.allowed_ms
                    else ""
                ),
            )
            for (partition, offset), at, until in zip(where, times, closed, strict=True)
        ]

    def close(self) -> WrittenFile | None:
        """The file of late rows, on the disk; None where there is none."""
        return None if self._file is None else self._file.close()

    def discard(self) -> None:
        """Nobody will know of the file."""
        if self._file is not None:
            self._file.discard()
