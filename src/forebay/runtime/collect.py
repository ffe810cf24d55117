"""The rows of a query, in a way that Ctrl-C can break off."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from forebay import threads
from forebay.runtime.failures import ours

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def collect(frame: DataFrame) -> pa.Table:
    """Run a query and wait for its rows.

    A thread of its own asks Spark: Ctrl-C in the middle of a call would leave an answer behind that the next call takes
    for its own. It cancels this query alone; those of views go on.
    """
    context, group = frame.sparkSession.sparkContext, f"forebay-select-{uuid.uuid4().hex}"
    tables: list[pa.Table] = []
    failures: list[Exception] = []

    def work() -> None:
        context.setJobGroup(group, "SELECT", interruptOnCancel=True)
        tables.append(frame.toArrow())

    thread = threads.start("forebay-select", work, failures.append, logged=False)
    try:
        thread.join()
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    with ours():
        if failures:
            raise failures[0]
    return tables[0]
