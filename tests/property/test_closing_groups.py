"""Groups that are given out when their window closes, against a plain model: each once, over restarts, repeats and crashes."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.source.key_marks import KeyMarks
from forebay.views.delta_entry import entry_of
from forebay.views.groups.closing import ClosingTable
from forebay.views.groups.given_out import Closing
from forebay.views.groups.layout import GroupLayout, PartColumn
from forebay.views.table import ViewTable

SIZE_US = 10
COLUMNS = pa.schema([("w", pa.timestamp("us")), ("k", pa.string())])
OUTPUT = pa.schema([("w", pa.timestamp("us")), ("k", pa.string()), ("n", pa.int64())])
LAYOUT = GroupLayout(COLUMNS, (PartColumn("n", "sum", pa.int64()),))

keys = st.sampled_from(["a", "b", None])
events = st.lists(st.tuples(st.integers(0, 8).map(lambda n: n * SIZE_US), keys), max_size=6)
marks_of_keys = st.dictionaries(keys, st.integers(0, 100), max_size=3)
ENDS = ["goes on", "is opened anew", "is repeated", "was killed before its table had it"]
batches = st.tuples(events, st.one_of(st.none(), st.integers(0, 100)), marks_of_keys, st.sampled_from(ENDS))


def table_in(folder: Path, key: str | None) -> ClosingTable:
    public = ViewTable(folder / "table")
    if not public.exists():
        public.create(OUTPUT)
    found = ClosingTable(
        folder / "groups", LAYOUT, lambda rows: rows.cast(OUTPUT), public,
        window="w", size_us=SIZE_US, key=key, rows_part="n",
    )  # fmt: skip
    if not found.exists():
        found.create()
    found.open()
    return found


def groups(rows: list[tuple[int, str | None]]) -> list[pa.RecordBatch]:
    counted = Counter(rows)
    columns = [
        pa.array([w for w, _ in counted], pa.timestamp("us")),
        pa.array([k for _, k in counted], pa.string()),
        pa.array(list(counted.values()), pa.int64()),
    ]
    return [pa.RecordBatch.from_arrays(columns, schema=LAYOUT.schema)]


def published(folder: Path) -> list[tuple[int, str | None, int]]:
    found = pa.table(ViewTable(folder / "table").open().to_pyarrow_table())
    starts = found.column("w").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    return list(zip(starts, found.column("k").to_pylist(), found.column("n").to_pylist(), strict=True))


def lose_the_newest_version(folder: Path) -> None:
    """The log has the batch, and its process was killed before the table of the view had it."""
    table = ViewTable(folder / "table")
    newest = table.open().version()
    if newest > 0:
        entry_of(folder / "table", newest).unlink()


class Model:
    """What the promise says, group by group."""

    def __init__(self) -> None:
        self.open: Counter[tuple[int, str | None]] = Counter()
        self.given: dict[tuple[int, str | None], int] = {}

    def read(self, rows: list[tuple[int, str | None]], closed_by: int, was_closed_by: int) -> bool:
        """Whether anything has changed."""
        taken = [group for group in rows if group not in self.given and group[0] + SIZE_US > was_closed_by]
        self.open.update(taken)
        closed = [group for group in self.open if group[0] + SIZE_US <= closed_by]
        for group in closed:
            self.given[group] = self.open.pop(group)
        return bool(taken or closed)


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(batches, max_size=6))
def test_a_group_is_given_out_once_when_the_watermark_has_passed_its_window(given_batches: list[Any]) -> None:
    model, closed_by = Model(), -1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = table_in(folder, None)
        for number, (rows, watermark, _, then) in enumerate(given_batches):
            by = closed_by if watermark is None else max(closed_by, watermark)
            closing = Closing(None if watermark is None else by)
            count = len(model.given)
            if model.read(rows, by, closed_by):
                closed_by = by  # what changes nothing need not be known after a restart
            batch = groups(rows) if rows else []
            table.apply(batch, "q", number, {}, closing)
            if then == "was killed before its table had it" and len(model.given) > count:
                lose_the_newest_version(folder)
            if then in ("is opened anew", "was killed before its table had it"):
                table = table_in(folder, None)
            if then == "is repeated":
                table.apply(batch, "q", number, {}, closing)
            table.tidy()
            found = published(folder)
            assert {(w, k): n for w, k, n in found} == model.given
            assert len(found) == len(model.given)


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(batches, max_size=6))
def test_a_group_is_given_out_once_by_the_mark_of_its_key_whatever_tasks_forget(
    given_batches: list[Any],
) -> None:
    """Nothing is late before its group was given out, and no group is given out twice, though marks go back and forth."""
    given_out: dict[tuple[int, str | None], int] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = table_in(folder, "k")
        sent = late = 0
        for number, (rows, watermark, marks, then) in enumerate(given_batches):
            known = KeyMarks(
                pa.array(list(marks), pa.string()) if marks else None,
                pa.array(list(marks.values()), pa.int64()),
                pa.array([0] * len(marks), pa.int64()),
            )
            alive = pa.array([k for _, k in rows], pa.string())
            late += table.apply(
                groups(rows) if rows else [], "q", number, {}, Closing(watermark, known, 0, alive)
            )
            sent += len(rows)
            if then == "is opened anew":
                table = table_in(folder, "k")
            table.tidy()
            found = published(folder)
            now = {(w, k): n for w, k, n in found}
            assert len(found) == len(now), "a group was given out twice"
            assert given_out.items() <= now.items(), "what was given out has changed"
            for w, k in now.keys() - given_out.keys():
                by = marks.get(k, watermark)
                assert by is not None
                assert w + SIZE_US <= by
                assert k in marks or k not in {key for _, key in rows}
            given_out = now
        everything = Closing(10_000, KeyMarks(), 0, pa.array([], pa.string()))
        late += table.apply([], "q", len(given_batches), {}, everything)
        assert sum(n for _, _, n in published(folder)) + late == sent, "every row is in a group or late"
