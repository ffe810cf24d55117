"""`forebay run` that is killed at one exact point: `python killed_at.py POINT run …`.

Each point is a function of the driver that is called when something has just been done, or is about to be. The first
call about bad records that the rate limit kept out is the last thing that the process does.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from forebay.catalog import BatchRecord, Catalog
from forebay.cli.main import main
from forebay.runtime import shared_read


def die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


def before_a_batch_is_counted() -> None:
    """Tables have it. The checkpoint has it, too, if the view has a query of its own."""
    count = Catalog.record_batch

    def record_batch(self: Catalog, *records: BatchRecord) -> None:
        if any(record.limited for record in records):
            die()
        count(self, *records)

    Catalog.record_batch = record_batch  # type: ignore[method-assign]


def after_one_table_has_a_batch() -> None:
    """Of two views that one read serves, one has it."""
    keep = shared_read.SharedRead._keep

    def keep_one(self: Any, served: Any, answer: Any, query_id: str, batch: int, late: Any) -> Any:
        if any(task.account.limited for task in answer.accounts):
            keep(self, served[:1], answer, query_id, batch, late)
            die()
        return keep(self, served, answer, query_id, batch, late)

    shared_read.SharedRead._keep = keep_one  # type: ignore[method-assign]


POINTS = {each.__name__: each for each in (before_a_batch_is_counted, after_one_table_has_a_batch)}

if __name__ == "__main__":
    POINTS[sys.argv.pop(1)]()
    main()
