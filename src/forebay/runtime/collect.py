"""The rows of a query, in a way that Ctrl-C can break off."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay import threads
from forebay.runtime.spark_failures import ours

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def collect(query: Callable[[], DataFrame]) -> pa.Table:
    """Plan a query, run it and wait for its rows.

    A thread of its own talks to Spark: Ctrl-C in the middle of a call would leave an answer behind that the next call
    takes for its own. It cancels this query alone; those of views go on.
    """
    from pyspark import SparkContext

    group = f"forebay-select-{uuid.uuid4().hex}"
    tables: list[pa.Table] = []
    failures: list[Exception] = []
    # Not Thread.join(): one that Ctrl-C interrupts takes the thread for ended (Python 3.11).
    done = threading.Event()

    def work() -> None:
        try:
            frame = query()
            frame.sparkSession.sparkContext.setJobGroup(group, "SELECT", interruptOnCancel=True)
            tables.append(frame.toArrow())
        except Exception as error:
            failures.append(error)
        finally:
            done.set()

    threads.start("forebay-select", work, failures.append)
    try:
        done.wait()
    except KeyboardInterrupt:
        # Its job may be still to come: Ctrl-C while the query is planned must not leave it running for ever.
        if (context := SparkContext._active_spark_context) is not None:
            context._jsc.sc().cancelJobGroupAndFutureJobs(group)
        raise
    with ours():
        if failures:
            raise failures[0]
    return tables[0]
