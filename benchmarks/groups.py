"""Claim: a batch costs what it changes, however many groups the view has.

Batches of 1,000 changed groups go into tables of 10 thousand to 10 million groups, without Kafka and Spark: what the
driver does. Beside it the way before, a Delta MERGE of each batch, where that ends in reasonable time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console

from benchmarks.figures import Figure, Panel, Series
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import ROOT
from forebay.views.groups.fold import plan
from forebay.views.groups.group_table import GroupTable
from forebay.views.groups.layout import GroupLayout, PartColumn
from forebay.views.groups.log import Run
from forebay.views.table import ViewTable

TITLE = "Cost of a batch against the number of groups"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
CHANGED = 1000
PUBLISH_EVERY = 10  # batches: one a second, and the public table is at most 10 s old
MERGED_UP_TO = 1_000_000  # groups: beyond, MERGEs would take most of the run
MERGES = 5
LAYOUT = GroupLayout(
    pa.schema([("k", pa.int64())]),
    (PartColumn("n", "sum", pa.int64()), PartColumn("total", "sum", pa.float64())),
)


@dataclass
class Measured:
    """One size. Times in milliseconds, bytes a batch unless they say otherwise."""

    groups: int
    apply_ms: list[float] = field(default_factory=list)
    apply_cpu_ms: list[float] = field(default_factory=list)
    tidy_cpu_ms: float = 0  # a batch
    publish_ms: list[float] = field(default_factory=list)
    merge_ms: list[float] = field(default_factory=list)
    change_bytes: float = 0
    written_bytes: float = 0  # the change and folding
    published_bytes: float = 0
    merged_bytes: float = 0
    long_run: float = 0
    memory_mb: float = 0
    open_cpu_s: float = 0
    rows_cpu_s: float = 0


def alone(groups: int, batches: int) -> Measured:
    """All figures of one size, in this process."""
    found = Measured(groups)
    chance = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        before = psutil.Process().memory_info().rss
        table = _table(root)
        for start in range(0, groups, 1_000_000):
            table.apply([_batch(np.arange(start, min(groups, start + 1_000_000)), chance)], "q", start)
        table.publish()
        while table.tidy():
            pass
        meter = _Bytes(root)
        tidied = 0.0
        for number in range(batches):
            rows = _batch(chance.choice(groups, CHANGED, replace=False), chance)
            wall, cpu = _timed(lambda rows=rows, number=number: table.apply([rows], "q", groups + number))
            found.apply_ms.append(wall * 1000)
            found.apply_cpu_ms.append(cpu * 1000)
            found.change_bytes += rows.nbytes
            found.written_bytes += meter.new("log")
            if number % PUBLISH_EVERY == PUBLISH_EVERY - 1:
                found.publish_ms.append(_timed(table.publish)[0] * 1000)
            found.published_bytes += meter.new("table") + meter.new("published")
            tidied += _timed(table.tidy)[1]
            found.written_bytes += meter.new("log")
            found.published_bytes += meter.new("table") + meter.new("published")
        for name in ("change_bytes", "written_bytes", "published_bytes"):
            setattr(found, name, getattr(found, name) / batches)
        found.tidy_cpu_ms = tidied * 1000 / batches
        found.memory_mb = (psutil.Process().memory_info().rss - before) / 1e6
        found.open_cpu_s = _timed(lambda: _table(root).open())[1]
        found.rows_cpu_s = _timed(lambda: _table(root).rows())[1]
        found.long_run = long_run(groups)
        if groups <= MERGED_UP_TO:
            _merge(found, root, chance)
    return found


def long_run(groups: int) -> float:
    """Rows written for a changed row when the table has been changed as a whole three times: folding, without files."""
    base, tail, written, changed = Run("", 0, 0, groups, 0), list[Run](), 0, 0
    batches = max(300, 3 * groups // CHANGED)
    for _ in range(batches):
        tail.append(Run("", 0, 0, CHANGED, 0))
        changed, written = changed + CHANGED, written + CHANGED
        while old := plan([base, *tail]):
            rows = sum(run.rows for run in old)
            distinct = int(groups * -np.expm1(-rows / groups)) if len(old) <= len(tail) else groups
            written += distinct
            new = Run("", 0, 0, distinct, 0)
            base, tail = (base, [*tail[: len(tail) - len(old)], new]) if len(old) <= len(tail) else (new, [])
    return written / changed


def _merge(found: Measured, root: Path, chance: np.random.Generator) -> None:
    shutil.rmtree(root / "log")
    table = ViewTable(root / "merged")
    _create(table.path)
    table.merge(pa.Table.from_batches([_batch(np.arange(found.groups), chance)]), ("k",), "q", 0)
    meter = _Bytes(root)
    for number in range(1, MERGES + 1):
        rows = pa.Table.from_batches([_batch(chance.choice(found.groups, CHANGED, replace=False), chance)])
        found.merge_ms.append(
            _timed(lambda rows=rows, number=number: table.merge(rows, ("k",), "q", number))[0] * 1000
        )
    found.merged_bytes = meter.new("merged") / MERGES


def _table(root: Path) -> GroupTable:
    table = GroupTable(root, LAYOUT, lambda rows: rows, ViewTable(root / "table"), ("k",))
    if not table.exists():
        _create(root / "table")
        table.create()
    return table


def _create(path: Path) -> None:
    path.mkdir()
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable.create(str(path), schema=LAYOUT.schema, configuration=feed)


def _batch(keys: np.ndarray, chance: np.random.Generator) -> pa.RecordBatch:
    columns = {"k": keys, "n": chance.integers(1, 9, len(keys)), "total": chance.random(len(keys))}
    return pa.record_batch(columns, schema=LAYOUT.schema)


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


class _Bytes:
    """What was written below a folder, by the sizes of files that were not there before: data, and Delta's log."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: set[Path] = set()
        for folder in ("log", "table", "published", "merged"):
            self.new(folder)

    def new(self, folder: str) -> int:
        files = {path for path in (self._root / folder).rglob("*") if path.is_file()} - self._seen
        self._seen |= files
        return sum(path.stat().st_size for path in files)


def measure(console: Console, largest: int, batches: int) -> Section:
    found = []
    for groups in (size for size in SIZES if size <= largest):
        console.print(f"{groups:,} groups")
        command = [
            sys.executable,
            "-m",
            "benchmarks.groups",
            "--alone",
            str(groups),
            "--batches",
            str(batches),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        found.append(Measured(**json.loads(done.stdout)))
    return section(found, batches)


def section(found: list[Measured], batches: int) -> Section:
    times = tuple(
        (
            f"{each.groups:,}", _shown(each.apply_ms), _shown(each.apply_cpu_ms), f"{each.tidy_cpu_ms:.1f}",
            _shown(each.publish_ms, 0), _shown(each.merge_ms, 0), f"{each.memory_mb:,.0f}", f"{each.open_cpu_s:.1f}",
            f"{each.rows_cpu_s:.1f}",
        )
        for each in found
    )  # fmt: skip
    written = tuple(
        (
            f"{each.groups:,}", f"{each.change_bytes:,.0f}", f"{each.written_bytes:,.0f}",
            f"{each.written_bytes / each.change_bytes:.1f}", f"{each.long_run:.1f}", f"{each.published_bytes:,.0f}",
            f"{each.merged_bytes:,.0f}" if each.merged_bytes else "",
        )
        for each in found
    )  # fmt: skip
    grids = (
        Grid(
            ("groups", "ms a batch", "CPU ms a batch", "CPU ms of folding a batch", "ms of publishing, every 10th",
             "ms of a MERGE instead", "memory MB", "CPU s to open", "CPU s to read all"),
            times, title="Time and memory",
        ),
        Grid(
            ("groups", "bytes of the change", "bytes with folding", "ratio", "rows written a changed row in the long run",
             "bytes of publishing", "bytes of a MERGE instead"),
            written, title="Bytes a batch",
        ),
    )  # fmt: skip
    least, most = found[0], found[-1]
    wall = np.median(most.apply_ms) / np.median(least.apply_ms)
    cpu = np.median(most.apply_cpu_ms) / np.median(least.apply_cpu_ms)
    worst = max(max(each.written_bytes / each.change_bytes, each.long_run) for each in found)
    of = f"{most.groups:,} groups over one with {least.groups:,}"
    notes = (
        f"A batch at {of}: **{wall:.2f}** of the time, {cpu:.2f} of the CPU time; below 2 "
        f"{'holds' if max(wall, cpu) < 2 else '**does not hold**'}. Sizes are measured one after the other: where the "
        "machine is shared, CPU time is the one to go by.",
        f"Written for a change, folding and all, at most **{worst:.1f}** times the change; at most 10 "
        f"{'holds' if worst <= 10 else '**does not hold**'}. Publishing is not in it. Bytes are those of the batches measured, in "
        "which large tables are not folded as a whole; rows in the long run are worked out from the plan of folds.",
    )
    intro = (
        f"{batches} batches of {CHANGED:,} groups that change, picked at random: a BIGINT key, a count and a sum. What the "
        "driver does with a batch until it is on the disk, without Kafka and Spark. The long run counts rows while the whole "
        "table is changed three times. Beside it a Delta MERGE of each batch, as it was done before. Median and range."
    )
    return Section(TITLE, intro, grids, notes, tuple(_figures(found)))


def _figures(found: list[Measured]) -> list[Figure]:
    names = [f"{each.groups:,}" for each in found]

    def series(name: str, values: list[list[float]]) -> Series:
        return Series(name, [_three(each) for each in values])

    time_panel = Panel(
        "time",
        names,
        (series("base and tail", [m.apply_ms for m in found]), series("MERGE", [m.merge_ms for m in found])),
    )
    byte_panel = Panel(
        "bytes", names,
        (series("base and tail, with folding", [[m.written_bytes] for m in found]),
         series("MERGE", [[m.merged_bytes] if m.merged_bytes else [] for m in found])),
    )  # fmt: skip
    title = f"A batch of {CHANGED:,} changed groups, by the number of groups"
    return [
        Figure("groups-time", "bars", "ms a batch", title, (time_panel,)),
        Figure("groups-bytes", "bars", "bytes written a batch", title, (byte_panel,)),
    ]


def _three(values: list[float]) -> list[float]:
    spread = Spread.of(values)
    return [spread.median, spread.low, spread.high] if spread else []


def _shown(values: list[float], digits: int = 1) -> str:
    spread = Spread.of(values)
    return spread.show(digits) if spread else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups", description=__doc__)
    parser.add_argument("--alone", type=int, help="one size, in this process, as JSON")
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--batches", type=int, default=200)
    given = parser.parse_args()
    if given.alone:
        print(json.dumps(asdict(alone(given.alone, given.batches))))
    else:
        measure(Console(stderr=True), given.largest, given.batches).show(Console())


if __name__ == "__main__":
    main()
