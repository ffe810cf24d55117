"""Keyed watermarks: `WATERMARK FOR ts AS … PER KEY k` gives each value of `k` a mark of its own.

A key's mark is the greatest event time of its rows, less what a record may be late. A row is late where its window ended by
the mark of its key; how far other keys are does not matter.

A key without rows for the idle timeout is forgotten, so that what is kept is bounded. It falls back to the source's watermark
as it was then (`floor_us`), and so does every key that is not known: nobody can tell the two apart. As long as no key was
forgotten, no row of a new key is late.

The marks of a batch are those of where it begins. The driver keeps two of them, of where the last batch began and where it
ended, in one file that is written before Spark hears that the batch is done: a batch that is repeated is judged as before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.connectors.contract import Offsets
from forebay.connectors.event_time import micros
from forebay.files import write_whole

ClosedForRows = Callable[[pa.RecordBatch], pa.Array]
"""Says of each row which windows are closed for it: those that ended by this time, in microseconds; NULL: none."""

SamePosition = Callable[[Offsets, Offsets], bool]

KEY, NEWEST, SEEN = "key", "newest_us", "seen_ms"
_STATES = b"forebay.states"


@dataclass(frozen=True)
class KeyMarks:
    """The greatest event time of each key that is not idle, and when it last had rows, by a clock that only runs while all is read."""

    keys: pa.Array | None = None  # None where there are none
    newest_us: pa.Array = field(default_factory=lambda: pa.array([], pa.int64()))
    seen_ms: pa.Array = field(default_factory=lambda: pa.array([], pa.int64()))
    floor_us: int | None = (
        None  # what keys are judged by that are not known: a watermark, without their delay
    )
    clock_ms: int = 0

    def __len__(self) -> int:
        return len(self.newest_us)

    def closed_us(self, keys: pa.Array, delay_ms: int) -> pa.Array:
        """For a row of each of these keys: windows that ended by then are closed. NULL: none is."""
        if self.keys is None:
            return pa.repeat(pa.scalar(self.floor_us, pa.int64()), len(keys))
        places = pc.index_in(keys, value_set=self.keys)
        marks = pc.subtract(self.newest_us.take(places), delay_ms * 1000)
        return marks if self.floor_us is None else pc.fill_null(marks, self.floor_us)

    def least_us(self, delay_ms: int) -> int | None:
        """The lowest mark of a key; None where no key is known."""
        found: int | None = pc.min(self.newest_us).as_py()
        return None if found is None else found - delay_ms * 1000

    def after(
        self, found: Sequence[pa.Table], passed_ms: int, idle_ms: int, watermark_us: int | None
    ) -> KeyMarks:
        """What follows from a batch in which tasks found these times of keys. Keys that are idle by now are forgotten."""
        clock = self.clock_ms + passed_ms
        new = [
            table.append_column(SEEN, _repeated(clock, table.num_rows)) for table in found if table.num_rows
        ]
        if self.keys is not None:
            known = pa.table({KEY: self.keys, NEWEST: self.newest_us, SEEN: self.seen_ms})
            new = [known, *(table.cast(known.schema) for table in new)]
        if not new:
            return replace(self, clock_ms=clock)
        merged = (
            pa.concat_tables(new).group_by(KEY, use_threads=False).aggregate([(NEWEST, "max"), (SEEN, "max")])
        )
        merged = merged.combine_chunks()
        idle = np.asarray(merged.column(f"{SEEN}_max")) <= clock - idle_ms
        floor = self.floor_us
        if idle.any() and watermark_us is not None:  # before there is one, there is nothing to fall back to
            merged = merged.filter(pa.array(~idle))
            floor = watermark_us if floor is None else max(floor, watermark_us)
        keys, newest, seen = (_one(merged.column(name)) for name in (KEY, f"{NEWEST}_max", f"{SEEN}_max"))
        return KeyMarks(keys if len(keys) else None, newest, seen, floor, clock)

    def table(self) -> pa.Table:
        keys = pa.nulls(0) if self.keys is None else self.keys
        return pa.table({KEY: keys, NEWEST: self.newest_us, SEEN: self.seen_ms})

    def to_bytes(self) -> bytes:
        """For tasks."""
        return _ipc([self], [None])

    @staticmethod
    def from_bytes(data: bytes) -> KeyMarks:
        [(_, marks)] = _states(data)
        return marks


@dataclass(frozen=True)
class KeySettings:
    """For who plans: which column the keys are in, how late a record may be, and where the marks are."""

    column: str
    delay_ms: int
    path: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def judge(self, position: Offsets, same: SamePosition) -> KeyJudge:
        """For the tasks of a batch that begins there."""
        marks = KeyMarksFile(Path(self.path), same).at(position)
        return KeyJudge(self.column, self.delay_ms, marks.to_bytes())

    @staticmethod
    def from_json(text: str) -> KeySettings:
        return KeySettings(**json.loads(text))


@dataclass(frozen=True)
class KeyJudge:
    """What a task of a source with keyed watermarks gets to know: the marks of where its batch begins."""

    column: str
    delay_ms: int
    marks: bytes

    def knowing_nothing(self) -> KeyJudge:
        """For tasks for which no row is late."""
        return replace(self, marks=KeyMarks().to_bytes())

    def loaded(self) -> ClosedForRows:
        """What says of each row which windows are closed for it."""
        marks = KeyMarks.from_bytes(self.marks)
        return lambda rows: marks.closed_us(rows.column(self.column), self.delay_ms)


class KeyTimes:
    """In a task: the greatest event time of each key that it reads."""

    def __init__(self, column: str, event_time: str) -> None:
        self._column = column
        self._event_time = event_time
        self._held: list[pa.Table] = []

    def see(self, rows: pa.RecordBatch) -> None:
        """All good rows, whichever view wants them."""
        given = pa.table({KEY: rows.column(self._column), NEWEST: micros(rows.column(self._event_time))})
        self._held.append(_newest(given))
        if len(self._held) > 64:
            self._held = [_newest(pa.concat_tables(self._held))]

    def to_bytes(self) -> bytes | None:
        """For the driver; None where there was nothing."""
        if not self._held:
            return None
        found = _newest(pa.concat_tables(self._held))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, found.schema) as writer:
            writer.write_table(found)
        return bytes(sink.getvalue().to_pybytes())


class KeyMarksFile:
    """Of one read. `same` compares two positions of the source."""

    def __init__(self, path: Path, same: SamePosition) -> None:
        self._path = path
        self._same = same

    def at(self, position: Offsets) -> KeyMarks:
        """The marks of a batch that begins there. None are known where nobody has been."""
        try:
            states = _states(self._path.read_bytes())
        except FileNotFoundError:
            return KeyMarks()
        return next((marks for known, marks in reversed(states) if self._same(known, position)), KeyMarks())

    def write(self, start: Offsets, before: KeyMarks, end: Offsets, after: KeyMarks) -> None:
        """When a batch from `start` to `end` is kept, before it is committed."""
        write_whole(self._path, _ipc([before, after], [start, end]))


def _newest(given: pa.Table) -> pa.Table:
    found = given.group_by(KEY, use_threads=False).aggregate([(NEWEST, "max")]).rename_columns([KEY, NEWEST])
    return found.filter(found.column(NEWEST).is_valid())  # a key that never had a time has no mark


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _repeated(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def _ipc(states: Sequence[KeyMarks], positions: Sequence[Offsets | None]) -> bytes:
    about: list[dict[str, Any]] = [
        {"position": position, "rows": len(marks), "floor_us": marks.floor_us, "clock_ms": marks.clock_ms}
        for marks, position in zip(states, positions, strict=True)
    ]
    filled = [marks.table() for marks in states if len(marks)]
    rows = pa.concat_tables(filled) if filled else KeyMarks().table()
    rows = rows.replace_schema_metadata({_STATES: json.dumps(about)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


def _states(data: bytes) -> list[tuple[Any, KeyMarks]]:
    rows = pa.ipc.open_stream(data).read_all()
    found, before = [], 0
    for each in json.loads(rows.schema.metadata[_STATES]):
        part = rows.slice(before, each["rows"])
        before += each["rows"]
        keys, newest, seen = (_one(part.column(name)) for name in (KEY, NEWEST, SEEN))
        marks = KeyMarks(keys if len(keys) else None, newest, seen, each["floor_us"], each["clock_ms"])
        found.append((each["position"], marks))
    return found
