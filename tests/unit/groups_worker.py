"""A process that merges batches into a table of groups, folds and publishes it, until it is killed."""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from pathlib import Path
from threading import Thread

import pyarrow as pa

from forebay.views.groups import publishing
from forebay.views.groups.group_table import GroupTable
from forebay.views.groups.layout import GroupLayout, PartColumn
from forebay.views.table import ViewTable

LAYOUT = GroupLayout(
    pa.schema([("k", pa.string())]),
    (PartColumn("n", "sum", pa.int64()), PartColumn("last", "max", pa.int64())),
)


def made(root: Path) -> GroupTable:
    return GroupTable(root, LAYOUT, lambda rows: rows, ViewTable(root / "table"), ("k",))


def rows_of(batch: int) -> list[tuple[str | None, int]]:
    """What a batch has, each time it is asked: keys and counts."""
    chance = random.Random(batch)
    return [(chance.choice([None, *"abcdefgh", f"new {batch}"]), chance.randrange(1, 9)) for _ in range(20)]


def record_batch(batch: int) -> pa.RecordBatch:
    rows = [{"k": key, "n": count, "last": batch} for key, count in rows_of(batch)]
    return pa.RecordBatch.from_pylist(rows, LAYOUT.schema)


def work(root: Path) -> None:
    """Batches, folds and publishing, each in a thread of its own, until somebody ends it."""
    table = made(root)
    table.open()

    def repeat(verb: str) -> None:
        try:
            while True:
                getattr(table, verb)()
                time.sleep(0.01)
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # whoever waits for this process is to see it

    for verb in ("tidy", "publish", "rows", "staleness_s"):
        Thread(target=repeat, args=(verb,), daemon=True).start()
    batch = table.state.batch
    while True:
        # As Spark does after a crash: the newest batch is asked for again.
        table.apply([record_batch(max(0, batch))], "q", max(0, batch), {"offsets": str(batch)})
        batch += 1


if __name__ == "__main__":
    publishing.SMALL = int(sys.argv[2])
    work(Path(sys.argv[1]))
